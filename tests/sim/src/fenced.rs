//! The judge of writes under a lock, by what the servers have carried out.

use std::collections::HashMap;

use zklock::sim::ensemble::What;

use crate::client::Journal;
use crate::plan::{Plan, What as Trouble};
use crate::troubles::ensemble;

/// The lock that guards the writes.
pub(crate) const LOCK: &str = "/sim/m0";

/// The node that these writes change.
pub(crate) const NODE: &str = "/sim/fenced";

/// A transaction that sets the node.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    /// The text of the write, with the token first: no two are alike.
    pub(crate) text: String,
    pub(crate) told: Told,
}

/// What the writer was told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Told {
    /// The writer never heard, for example because its process died.
    Nothing,
    Done,
    NotDone,
    Unconfirmed,
}

/// Checks that no holder writes after the next one has, and that each is told what became of its
/// write.
pub(crate) fn judge(plan: &Plan, journal: &Journal) -> Result<(), String> {
    let done: Vec<String> = ensemble(|ensemble, _| {
        let changes = ensemble
            .history()
            .iter()
            .filter_map(|change| match &change.what {
                What::Set { path, data } if path == NODE => Some(data.clone()),
                _ => None,
            });
        changes
            .map(|data| String::from_utf8_lossy(&data).into_owned())
            .collect()
    });
    let token = |text: &String| {
        text.split(' ')
            .next()
            .and_then(|token| token.parse::<i64>().ok())
    };
    // A leader that keeps a deleted node takes the node's owner for a holder.
    let differ = plan
        .troubles
        .iter()
        .any(|trouble| matches!(trouble.what, Trouble::Ghost { .. }));
    if !differ && !done.iter().map(token).is_sorted() {
        return Err(format!("a holder wrote after the next one had: {done:#?}"));
    }
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for text in &done {
        *counts.entry(text).or_default() += 1;
    }
    for write in journal.writes().iter() {
        let count = counts.get(write.text.as_str()).copied().unwrap_or(0);
        let is_so = match write.told {
            Told::Done => count == 1,
            Told::NotDone => count == 0,
            Told::Nothing | Told::Unconfirmed => count <= 1,
        };
        if !is_so {
            return Err(format!("{write:?} was carried out {count} times"));
        }
    }
    Ok(())
}
