//! Reads the nodes below a path, level by level, and finds the locks among them.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::mem;
use std::sync::Arc;

use super::queue::{Kept, LockQueue};
use crate::contender::{Contender, assemble};
use crate::session::Session;
use crate::session::call_error::{CallError, refused};
use crate::session::queries::AT_A_TIME;
use crate::time::limit::Limit;
use zklock_core::dialect::Kind;
use zklock_core::name::NodeName;
use zklock_core::places::{Places, Spots};
use zklock_jute::{ErrorCode, Names, Reply, Request};

/// The nodes of the servers themselves.
const RESERVED: &str = "/zookeeper";

/// The children of each node that is not a contender.
#[derive(Default)]
struct Tree {
    children: BTreeMap<String, Names>,
    unreadable: Vec<String>,
}

/// How much to read of the locks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Extent {
    /// The contenders, and which of them hold.
    Contenders,
    /// The data that the locks' own nodes keep too, which takes one more read for each lock.
    All,
}

/// Returns the locks that have contenders, and the nodes that may not be read.
pub(super) fn read(
    session: &Arc<Session>,
    root: &str,
    extent: Extent,
    limit: &impl Fn() -> Limit,
) -> Result<(Vec<LockQueue>, Vec<String>), CallError> {
    let (mut queues, mut unreadable) = (Vec::new(), Vec::new());
    let mut roots = vec![root.to_owned()];
    while !roots.is_empty() {
        let mut tree = Tree::read(session, mem::take(&mut roots), limit)?;
        unreadable.append(&mut tree.unreadable);
        for queue in of_locks(session, tree.locks(), extent, limit)? {
            // A user's own directory may have such a name, and locks below it.
            let directories = queue.contenders.iter().filter(|one| one.has_children());
            let is_new = |one: &&Contender| !tree.children.contains_key(one.node());
            roots.extend(directories.filter(is_new).map(|one| one.node().to_owned()));
            // A waiter also waits behind a node without a session. The only contender may also have
            // left meanwhile.
            let is_one = |one: &Contender| one.has_session() || one.hold().is_some();
            if queue.contenders.iter().any(is_one) {
                queues.push(queue);
            }
        }
    }
    queues.sort_by(|one, other| one.path.cmp(&other.path));
    Ok((queues, unreadable))
}

/// Reads the contenders of the locks that were found.
fn of_locks(
    session: &Arc<Session>,
    found: Vec<(String, Spots)>,
    extent: Extent,
    limit: &impl Fn() -> Limit,
) -> Result<Vec<LockQueue>, CallError> {
    // Which contenders have a permit depends on the number of permits.
    let is_read = |spots: &Spots| extent == Extent::All || !spots.permits.is_empty();
    let read = found.iter().filter(|(_, spots)| is_read(spots));
    let paths: Vec<_> = read.map(|(path, _)| path.clone()).collect();
    let mut kept = Kept::read(session, &paths, limit)?.into_iter();
    let nodes = found.iter().flat_map(|(_, spots)| spots.all());
    let nodes: Vec<_> = nodes.map(|spot| spot.node.clone()).collect();
    let mut seen = session.describe_within(&nodes, limit)?.into_iter();
    let queues = found.into_iter().map(|(path, spots)| {
        let mut kept = match is_read(&spots) {
            true => kept.next().unwrap_or_default(),
            false => Kept::default(),
        };
        let seen: Vec<_> = seen.by_ref().take(spots.all().count()).collect();
        // The data of other nodes may be a number as well.
        kept.permits = kept.permits.filter(|_| !spots.permits.is_empty());
        let most = kept.permits.map(|permits| permits as usize);
        let contenders = assemble(session, &spots, seen, most);
        LockQueue {
            path,
            contenders,
            kept,
        }
    });
    Ok(queues.collect())
}

impl Tree {
    fn read(
        session: &Arc<Session>,
        roots: Vec<String>,
        limit: &impl Fn() -> Limit,
    ) -> Result<Self, CallError> {
        let mut tree = Self::default();
        let mut level = roots;
        while !level.is_empty() {
            let mut below = Vec::new();
            for nodes in level.chunks(AT_A_TIME) {
                let lists: Vec<_> = nodes.iter().map(|node| Request::list(node)).collect();
                let answers = session.caller().call_each(&lists, &limit)?;
                for (node, answer) in nodes.iter().zip(answers) {
                    match answer {
                        Ok(Reply::Children { names, .. }) => {
                            below.extend(directories(node, &names));
                            tree.children.insert(node.clone(), names);
                        }
                        Err(ErrorCode::NO_AUTH) => tree.unreadable.push(node.clone()),
                        // The node is gone by now, or it is a root that never existed.
                        Ok(_) | Err(ErrorCode::NO_NODE) => {}
                        Err(code) => {
                            return Err(CallError::Over(refused(node, code)));
                        }
                    }
                }
            }
            level = below;
        }
        Ok(tree)
    }

    /// Finds the paths that have contenders.
    fn locks(&self) -> Vec<(String, Spots)> {
        let mut parts = BTreeSet::new();
        let mut found = Vec::new();
        for path in self.children.keys() {
            if path == "/" || parts.contains(path) {
                continue;
            }
            let Ok(spots) = Places::of(path).spots(|dir, counts| {
                parts.extend((counts && dir != path).then(|| dir.to_owned()));
                Ok::<_, Infallible>(self.children.get(dir).filter(|_| counts).cloned())
            });
            if spots.all().next().is_some() {
                found.push((path.clone(), spots));
            }
        }
        found
    }
}

/// Returns the children that may have nodes below them; contenders have none.
fn directories(node: &str, names: &Names) -> Vec<String> {
    let above = if node == "/" { "" } else { node };
    let may_have = |name: &&str| {
        let contender = NodeName::parse(name);
        // Any 32 digits look like one of kazoo's names, and may be a user's own.
        contender.is_none_or(|name| name.kind == Kind::KazooLease)
    };
    let paths = names
        .iter()
        .filter(may_have)
        .map(|name| format!("{above}/{name}"));
    paths.filter(|path| path != RESERVED).collect()
}
