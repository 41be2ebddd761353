//! The judge of tries that were told that a lock is taken: while they asked, somebody else had a node there. So a
//! release that was answered before counts, and no try meets a node that its own client has left.

use std::collections::{HashMap, HashSet};

use zklock::sim::ensemble;

use crate::client::Journal;
use crate::history::{Entry, Time, What, nanos};
use crate::ops::{Op, gather};
use crate::plan::{self, Plan};
use crate::troubles::ensemble;

struct Node {
    path: String,
    owner: i64,
    created: Time,
    deleted: Time,
}

pub(crate) fn judge(plan: &Plan, journal: &Journal, entries: &[Entry]) -> Result<(), String> {
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
        let shares = |other: &&Op| other.paths.iter().any(|path| op.paths.contains(path));
        let meets = |other: &Op| {
            let until = other.released.or(other.refused.as_ref().map(|(at, _)| *at));
            *asked(other).start() <= told && op.requested <= until.unwrap_or(Time::MAX)
        };
        // Another thread of the client keeps the place without a node of this operation.
        let beside = |other: &&Op| other.who.slot == op.who.slot && other.id() != op.id();
        if ops.iter().filter(beside).filter(shares).any(meets) {
            continue;
        }
        let sessions = sessions(entries, op);
        let is_its_own =
            |node: &Node| op.requested <= node.created && sessions.contains(&node.owner);
        let is_there = |node: &&Node| node.created <= told && op.requested <= node.deleted;
        let is_below = |node: &&Node| op.paths.iter().any(|path| is_below(path, &node.path));
        let mut there = nodes.iter().filter(is_below).filter(is_there);
        if !there.any(|node| !is_its_own(node)) {
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
