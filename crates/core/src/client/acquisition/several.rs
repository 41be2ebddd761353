//! Answers that say something only together: to the creates of a lock's ancestors, and to the looks at
//! the births of nodes.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use core::mem;

use zklock_jute::ErrorCode;

/// The refusals to create the ancestors of a lock, outermost first.
#[derive(Debug, Default)]
pub(super) struct Parents {
    count: usize,
    /// The first that is not a consequence of another.
    first: Option<ErrorCode>,
    last: Option<ErrorCode>,
}

impl Parents {
    pub(super) fn refused(&mut self, code: ErrorCode) {
        // Any but the outermost lacks its parent because that was refused, or was deleted at once.
        let consequence = code == ErrorCode::NO_NODE && 0 < self.count;
        if code != ErrorCode::NODE_EXISTS && !consequence {
            self.first = self.first.or(Some(code));
        }
        self.last = Some(code);
        self.count += 1;
    }

    pub(super) fn made(&mut self) {
        self.last = None;
        self.count += 1;
    }

    /// Why the node cannot be created, if so. A refusal in between does not matter if the
    /// directory itself exists.
    pub(super) fn trouble(&self) -> Option<ErrorCode> {
        match self.last? {
            ErrorCode::NODE_EXISTS => None,
            _ => self.first,
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_that_cannot_be_made_is_trouble_unless_it_is_not_needed() {
        const OK: ErrorCode = ErrorCode::OK;
        const EXISTS: ErrorCode = ErrorCode::NODE_EXISTS;
        const NO_NODE: ErrorCode = ErrorCode::NO_NODE;
        const NO_AUTH: ErrorCode = ErrorCode::NO_AUTH;
        let table: [(&[ErrorCode], Option<ErrorCode>); 8] = [
            (&[OK, OK], None),
            (&[EXISTS, EXISTS], None),
            (&[NO_AUTH, EXISTS], None),
            (&[NO_AUTH, OK], None),
            (&[EXISTS, EXISTS, NO_NODE], None),
            (&[NO_NODE, NO_NODE], Some(NO_NODE)),
            (&[EXISTS, NO_AUTH, NO_NODE], Some(NO_AUTH)),
            (&[EXISTS, NO_AUTH], Some(NO_AUTH)),
        ];
        for (codes, expected) in table {
            let mut parents = Parents::default();
            for code in codes {
                match *code {
                    OK => parents.made(),
                    code => parents.refused(code),
                }
            }
            assert_eq!(parents.trouble(), expected, "{codes:?}");
        }
    }
}
