//! Whether a lock's directory can be created, by the answers to the creates of it and of its ancestors.

use zklock_jute::ErrorCode;

/// The server's refusals to create the ancestors of a lock, outermost first.
#[derive(Debug, Default)]
pub struct Refusals {
    count: usize,
    /// The first refusal that is not a consequence of another.
    first: Option<ErrorCode>,
    last: Option<ErrorCode>,
}

impl Refusals {
    /// Notes that the next create was refused.
    pub fn add(&mut self, code: ErrorCode) {
        // Above the outermost ancestor there is only the chroot. Any other one lacks its parent because the
        // parent was refused, or was deleted at once.
        let consequence = code == ErrorCode::NO_NODE && 0 < self.count;
        if code != ErrorCode::NODE_EXISTS && !consequence {
            self.first = self.first.or(Some(code));
        }
        self.last = Some(code);
        self.count += 1;
    }

    /// Notes that the next create succeeded, or has no answer.
    pub fn none(&mut self) {
        self.last = None;
        self.count += 1;
    }

    /// Returns why the lock's node cannot be created, if so. A refusal in between does not matter if the
    /// directory itself exists.
    pub fn trouble(&self) -> Option<ErrorCode> {
        match self.last? {
            ErrorCode::NODE_EXISTS => None,
            _ => self.first,
        }
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
        let table: [(&[ErrorCode], Option<ErrorCode>); 9] = [
            (&[OK, OK], None),
            (&[EXISTS, EXISTS], None),
            (&[NO_AUTH, EXISTS], None),
            (&[NO_AUTH, OK], None),
            (&[EXISTS, EXISTS, NO_NODE], None),
            (&[OK, NO_NODE], None),
            (&[NO_NODE, NO_NODE], Some(NO_NODE)),
            (&[EXISTS, NO_AUTH, NO_NODE], Some(NO_AUTH)),
            (&[EXISTS, NO_AUTH], Some(NO_AUTH)),
        ];
        for (codes, expected) in table {
            let mut refusals = Refusals::default();
            for code in codes {
                match *code {
                    OK => refusals.none(),
                    code => refusals.add(code),
                }
            }
            assert_eq!(refusals.trouble(), expected, "{codes:?}");
        }
    }
}
