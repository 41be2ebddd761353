//! The judge of what a simulation can see and a run against real servers cannot: that nothing
//! broke, and when a quorum committed each change.

use std::time::Duration;

use zklock::sim::ensemble;

use crate::client::{Journal, ms};
use crate::history::{Entry, Process, Time, What, nanos};
use crate::ops::{Op, TIMEOUT, gather};
use crate::plan::Plan;
use crate::troubles::ensemble;

/// A holder's node that was written into, and when.
pub(crate) type Revoked = (Process, usize, Time);

/// How long a holder's node may have no watch, with a margin for other delays.
const UNWATCHED: Duration = Duration::from_millis(100);

/// Finds the nodes of holders that were asked to release the lock.
pub(crate) fn revoked(journal: &Journal) -> Vec<Revoked> {
    let nodes = journal.nodes();
    ensemble(|ensemble, _| {
        let mut revoked = Vec::new();
        for change in ensemble.history() {
            if let ensemble::What::Set { path, .. } = &change.what {
                let holders = nodes.iter().filter(|(.., nodes)| nodes.contains(path));
                revoked.extend(holders.map(|(who, op, _)| (*who, *op, nanos(change.at))));
            }
        }
        revoked
    })
}

pub(crate) fn check(plan: &Plan, entries: &[Entry], revoked: &[Revoked]) -> Result<(), String> {
    let ops = gather(entries);
    if plan.is_calm() {
        nothing_is_lost(entries)?;
    }
    for op in ops.iter().filter(|_| !plan.evicts()) {
        if let Some((_, why)) = &op.refused
            && why.contains("another client deleted the node")
        {
            return Err(format!(
                "{} was refused: {why}, which nobody did",
                op.name()
            ));
        }
    }
    for (who, number, at) in revoked {
        if let Some(op) = ops.iter().find(|op| op.id() == (*who, *number)) {
            a_request_is_heard(plan, entries, op, *at)?;
        }
    }
    Ok(())
}

/// Checks that nothing is lost or in doubt, and that no call fails, where nothing breaks.
fn nothing_is_lost(entries: &[Entry]) -> Result<(), String> {
    for entry in entries {
        let wrong = match &entry.what {
            What::Lost | What::Released { well: false } => true,
            What::Told { event } => event != "RevokeRequested",
            What::Refused { why } => why != TIMEOUT && why != crate::client::ON_PURPOSE,
            _ => false,
        };
        if wrong {
            let Entry { who, op, what, at } = entry;
            let at = Duration::from_nanos(*at);
            return Err(format!(
                "nothing was broken, but {who} (operation {op}) saw at {at:?}: {what}"
            ));
        }
    }
    Ok(())
}

/// Checks that a holder whose lock was confirmed after the request hears of the request.
fn a_request_is_heard(plan: &Plan, entries: &[Entry], op: &Op, at: Time) -> Result<(), String> {
    let (Some(grant), Some(valid)) = (&op.granted, op.last_valid) else {
        return Ok(());
    };
    // The node is read again before the next proof.
    let timeout = ms(plan.timeout);
    let by = at.max(grant.at) + nanos(timeout + timeout / 4 + UNWATCHED);
    let heard = entries.iter().any(|entry| {
        (entry.who, entry.op) == op.id()
            && matches!(&entry.what, What::Told { event } if event == "RevokeRequested")
    });
    if grant.at < at && by < valid && !heard {
        let at = Duration::from_nanos(at);
        let name = op.name();
        return Err(format!(
            "{name} was asked at {at:?} to release its lock, and never heard of it"
        ));
    }
    Ok(())
}
