//! Answers that say something only together: to the looks at the births of nodes.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use core::mem;

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
