//! Answers that say something only together: to the looks at the births of nodes, and to a proof that takes
//! two requests.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

use crate::answer::Answered;

/// The births of nodes, as far as the answers have told.
#[derive(Debug, Default)]
pub(super) struct Births {
    /// Whose answers are still to come, in this order.
    asked: VecDeque<String>,
    known: BTreeMap<String, i64>,
}

impl Births {
    pub(super) fn of(names: &[String]) -> Self {
        Self {
            asked: names.iter().cloned().collect(),
            known: BTreeMap::new(),
        }
    }

    /// The next one was born then, or is gone. Returns all when the last one is known.
    pub(super) fn next(&mut self, czxid: Option<i64>) -> Option<BTreeMap<String, i64>> {
        if let Some((name, czxid)) = self.asked.pop_front().zip(czxid) {
            self.known.insert(name, czxid);
        }
        self.asked.is_empty().then(|| mem::take(&mut self.known))
    }
}

/// The answers to a proof, as far as they have come.
#[derive(Debug, Default)]
pub(super) struct Proofs(Vec<Answered>);

impl Proofs {
    /// The next answer. Returns all if it `is_last`.
    pub(super) fn next(&mut self, answered: Answered, is_last: bool) -> Option<Vec<Answered>> {
        self.0.push(answered);
        is_last.then(|| mem::take(&mut self.0))
    }
}
