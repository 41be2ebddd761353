//! The judge of tries that were told that a lock is taken: while they asked, somebody else had a node there. So a
//! release that was answered before counts, and no try meets a node that its own client has left.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use zklock::sim::ensemble;

use crate::client::Journal;
use crate::history::{Entry, Kind, Time, What, nanos};
use crate::ops::{Op, gather};
use crate::plan::{self, Plan};
use crate::quiet::Quiet;
use crate::troubles::ensemble;

struct Node {
    path: String,
    owner: i64,
    created: Time,
    deleted: Time,
}

/// How long a try waits at most for what its client has left.
const PASSING: Time = 1_000_000_000;

pub(crate) fn judge(
    plan: &Plan,
    quiet: &Quiet,
    journal: &Journal,
    entries: &[Entry],
) -> Result<(), String> {
    // A server with wrong data shows a node that is gone.
    let haunts = |what: &plan::What| matches!(what, plan::What::Ghost { .. });
    if plan.troubles.iter().any(|trouble| haunts(&trouble.what)) {
        return Ok(());
    }
    let (ops, nodes) = (gather(entries), nodes());
    for op in ops.iter().filter(|op| journal.is_told_taken(op.id())) {
        let Some((told, _)) = op.refused else {
            continue;
        };
        let asked = |other: &Op| other.requested..=other.over_at().unwrap_or(Time::MAX);
        let both_read = |other: &Op| (op.kind, other.kind) == (Kind::Read, Kind::Read);
        let shares = |other: &&Op| {
            let shared = other.paths.iter().any(|path| op.paths.contains(path));
            shared && !both_read(other)
        };
        let meets = |other: &Op| {
            let until = other.released.or(other.refused.as_ref().map(|(at, _)| *at));
            *asked(other).start() <= told && op.requested <= until.unwrap_or(Time::MAX)
        };
        // Another thread of the client keeps the place without a node of this operation.
        let beside = |other: &&Op| other.who.slot == op.who.slot && other.id() != op.id();
        if ops.iter().filter(beside).filter(shares).any(meets) {
            continue;
        }
        let [began, until] = [op.requested, told].map(Duration::from_nanos);
        let timeout = Duration::from_millis(plan.timeout);
        // A try that has seen somebody there, and then gets no answer in all its time, says so too.
        if began + timeout <= until && !quiet.holds(op.who.slot, began, until) {
            continue;
        }
        let sessions = sessions(entries, op);
        let since = began.saturating_sub(timeout);
        let waits_for_left =
            told < op.requested + PASSING && quiet.holds(op.who.slot, since, until);
        let is_its_own = |node: &Node| {
            let is_left = node.created < op.requested;
            sessions.contains(&node.owner) && (!is_left || waits_for_left)
        };
        let is_there = |node: &&Node| node.created <= told && op.requested <= node.deleted;
        let is_below = |node: &&Node| op.paths.iter().any(|path| is_below(path, &node.path));
        let there = nodes.iter().filter(is_below).filter(is_there);
        // In a line that stands still, others are in the way that have no permit.
        let enough = match op.kind {
            Kind::Permit(permits) if waits_for_left => permits,
            _ => 1,
        };
        if there.filter(|node| !is_its_own(node)).count() < enough {
            return Err(format!(
                "{} was told that {:?} is taken, and nobody else was there",
                op.name(),
                op.paths
            ));
        }
    }
    Ok(())
}

/// Returns whether this is a contender's node; a directory has no number.
fn is_below(path: &str, node: &str) -> bool {
    let name = node.strip_prefix(path);
    name.is_some_and(|name| name.starts_with('/') && name.contains('-'))
}

/// Returns the sessions of an operation's client.
fn sessions(entries: &[Entry], op: &Op) -> HashSet<i64> {
    let its = entries.iter().filter(|entry| entry.who.slot == op.who.slot);
    its.filter_map(|entry| match entry.what {
        What::Queued { session } | What::Granted { session, .. } => Some(session),
        _ => None,
    })
    .collect()
}

/// Returns all nodes that ever existed.
fn nodes() -> Vec<Node> {
    ensemble(|ensemble, _| {
        let mut there = HashMap::new();
        let mut nodes: Vec<Node> = Vec::new();
        for change in ensemble.history() {
            match &change.what {
                ensemble::What::Created { path, owner, .. } => {
                    there.insert(path.clone(), nodes.len());
                    nodes.push(Node {
                        path: path.clone(),
                        owner: *owner,
                        created: nanos(change.at),
                        deleted: Time::MAX,
                    });
                }
                ensemble::What::Deleted { path, .. } => {
                    if let Some(at) = there.remove(path) {
                        nodes[at].deleted = nanos(change.at);
                    }
                }
                _ => {}
            }
        }
        nodes
    })
}
