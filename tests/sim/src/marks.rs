//! The judge of the holders that were told of an abandoned lock, by what the servers have carried
//! out.

use std::collections::HashMap;

use zklock::sim::ensemble::What;
use zklock_core::predecessor_mark::parse;

use crate::client::Journal;
use crate::plan::{Plan, What as Trouble};
use crate::troubles::ensemble;

/// The lock whose holders leave marks.
pub(crate) const LOCK: &str = "/sim/tracked";

/// A holder's token, and the token of the holder that it was told had not released the lock.
pub(crate) type Heard = (i64, Option<i64>);

/// Checks that every holder is told of the mark that its own replaced, and of no other.
pub(crate) fn judge(plan: &Plan, journal: &Journal) -> Result<(), String> {
    // A leader that keeps a deleted node takes the node's owner for a holder.
    let differ = |trouble: &crate::plan::Trouble| matches!(trouble.what, Trouble::Ghost { .. });
    if plan.troubles.iter().any(differ) {
        return Ok(());
    }
    let replaced = replaced();
    for (token, heard) in journal.heard().iter() {
        match replaced.get(token) {
            None => return Err(format!("{token} entered {LOCK} and has left no mark")),
            Some(before) if before == heard => {}
            Some(before) => {
                return Err(format!(
                    "{token} was told that {heard:?} abandoned {LOCK}, and it was {before:?}"
                ));
            }
        }
    }
    Ok(())
}

/// Returns for each mark that was set the mark that it replaced.
fn replaced() -> HashMap<i64, Option<i64>> {
    let (mut now, mut replaced) = (None, HashMap::new());
    ensemble(|ensemble, _| {
        for change in ensemble.history() {
            let mark = match &change.what {
                What::Set { path, data } if path == LOCK => parse(data).flatten(),
                What::Created { path, .. } if path == LOCK => None,
                _ => continue,
            };
            if let Some(token) = mark {
                replaced.entry(token).or_insert(now);
            }
            now = mark;
        }
    });
    replaced
}
