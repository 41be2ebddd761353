//! Examines whether the contenders of a path wait for each other, and for a command of this program.

use std::collections::BTreeSet;

use zklock::diagnostics::LockQueue;
use zklock::{Dialect, Role};
use zklock_core::dialect::{Kind, Stance};
use zklock_core::name::NodeName;

use super::finding::{Finding, Level};
use crate::failure::in_options;

const DIALECTS: [Dialect; 4] = [
    Dialect::Curator,
    Dialect::Kazoo,
    Dialect::Recipe,
    Dialect::LeaderLatch,
];

/// Reports contenders that do not all wait for each other, or would not wait for a command in this dialect. The mutexes
/// and read-write locks of this library share one queue, whatever their kind and dialect.
pub(super) fn strangers(queue: &LockQueue, dialect: Dialect) -> Option<Finding> {
    let names = queue
        .contenders()
        .iter()
        .map(|one| one.node().rsplit('/').next().unwrap_or_default());
    let names: Vec<_> = names.filter_map(NodeName::parse).collect();
    let shares = |name: &NodeName<'_>| name.is_ours() && name.kind.role() != Role::Permit;
    if names.iter().all(shares) {
        return None;
    }
    let kinds: Vec<Kind> = names.iter().map(|name| name.kind).collect();
    let shared = kinds
        .iter()
        .any(|kind| matches!(kind.role(), Role::Read | Role::Write));
    let role = match kinds.first().map(|kind| kind.role()) {
        Some(Role::Permit) => Role::Permit,
        _ if shared => Role::Write,
        _ => Role::Exclusive,
    };
    let stance = |dialect: Dialect, kind: &Kind| dialect.stance(role, *kind);
    let is_refused = |dialect, kind: &Kind| matches!(stance(dialect, kind), Stance::Refused(_));
    let agree = |dialect: &Dialect| !kinds.iter().any(|kind| is_refused(*dialect, kind));
    if DIALECTS.iter().any(agree) {
        let others = names.iter().filter(|name| !shares(name));
        let mut others = others.map(|name| (name.kind, stance(dialect, &name.kind)));
        return others.find_map(|(kind, stance)| match stance {
            Stance::Refused(other) => Some(refusal(queue.path(), kind, other)),
            _ => None,
        });
    }
    Some(discord(queue.path(), &kinds))
}

/// Reports contenders of these kinds.
fn discord(path: &str, kinds: &[Kind]) -> Finding {
    let libraries: BTreeSet<_> = kinds.iter().map(|kind| kind.library()).collect();
    let libraries: Vec<_> = libraries.into_iter().collect();
    let what = format!(
        "its contenders do not wait for each other: {}",
        libraries.join("; ")
    );
    Finding::new(Level::Trouble, path, what)
        .advice("have all of them use one dialect, or paths of their own")
}

/// Reports a contender that a command would not queue beside.
fn refusal(path: &str, kind: Kind, dialect: Option<Dialect>) -> Finding {
    let what = format!(
        "zklock run would be refused: it has {}, which would not wait for it",
        kind.library()
    );
    let advice = match dialect {
        Some(dialect) => in_options(format!("use Dialect::{dialect:?} or another path")),
        None => "use another path".to_owned(),
    };
    Finding::new(Level::Warning, path, what).advice(advice)
}
