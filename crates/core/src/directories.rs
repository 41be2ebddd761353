//! The directories of locks: what becomes of them when nobody uses them, how they are created, and why they cannot be.

use alloc::vec::Vec;

use super::answer::{Answered, Failure};
use super::dialect::{Dialect, Role};
use super::path::ancestors;
use zklock_jute::{Access, CreateMode, ErrorCode, Request};

/// How long a lock's directory stays when its queue is empty.
#[derive(Clone, Copy, Debug)]
pub enum Lasting<'a> {
    /// Until the server deletes the empty container, if the dialect uses containers.
    WhileUsed,
    /// Like `WhileUsed`, for its parent too, which is created with this data.
    WhileUsedIn(&'a [u8]),
    /// For good; the directory is created with this data.
    Always(&'a [u8]),
}

impl Lasting<'_> {
    /// Returns whether a contender creates the directory of its queue if that is missing. Whoever wants a permit must
    /// first look whether the path has become another kind of lock.
    pub fn is_made_by(self, role: Role) -> bool {
        role != Role::Permit || !matches!(self, Self::WhileUsedIn(_))
    }

    /// Returns the requests that create a lock's directory and its ancestors, outermost first.
    pub fn creates(self, dir: &str, dialect: Dialect, acl: &[Access]) -> Vec<Request> {
        let make = |path: &str, mode, data: &[u8]| {
            let acl = acl.to_vec();
            Request::create(path, data.to_vec(), acl, mode)
        };
        let idle = match dialect.takes_containers() {
            true => CreateMode::Container,
            false => CreateMode::Persistent,
        };
        let (mode, data) = match self {
            Self::Always(data) => (CreateMode::Persistent, data),
            Self::WhileUsed | Self::WhileUsedIn(_) => (idle, &[][..]),
        };
        let above = ancestors(dir).map(|path| make(path, CreateMode::Persistent, &[]));
        let mut requests: Vec<_> = above.collect();
        if let Self::WhileUsedIn(number) = self {
            if let Some(parent) = ancestors(dir).last() {
                requests.pop();
                requests.push(make(parent, idle, number));
            }
        }
        requests.push(make(dir, mode, data));
        requests
    }
}

/// Returns why the directory cannot be created, if so. The answers are those to the creates of its ancestors,
/// outermost first, and of itself.
pub fn trouble_with(answers: &[Answered]) -> Option<Failure> {
    let refusals = answers.iter().map(|answer| match answer {
        Err(failure @ (Failure::Refused(_) | Failure::TooLong(_))) => Some(*failure),
        // Another create finds out whether one without an answer was carried out.
        _ => None,
    });
    // A refusal in between does not matter if the directory itself exists.
    match refusals.clone().next_back()?? {
        Failure::Refused(ErrorCode::NODE_EXISTS) => None,
        _ => refusals.enumerate().find_map(|(place, refusal)| {
            // Above the outermost ancestor there is only the chroot. Any other one lacks its parent because the
            // parent was refused, or was deleted at once.
            let is_a_consequence = |failure: &Failure| match failure {
                Failure::Refused(ErrorCode::NODE_EXISTS) => true,
                Failure::Refused(ErrorCode::NO_NODE) => 0 < place,
                _ => false,
            };
            refusal.filter(|failure| !is_a_consequence(failure))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use zklock_jute::Reply;

    fn made(lasting: Lasting<'_>, dialect: Dialect) -> Vec<(String, CreateMode, usize)> {
        let creates = lasting.creates("/a/b/c", dialect, &[]).into_iter();
        let told = |request| match request {
            Request::Create {
                path, mode, data, ..
            } => (path, mode, data.len()),
            other => panic!("{other:?}"),
        };
        creates.map(told).collect()
    }

    #[test]
    fn a_directory_lasts_as_its_lock_needs_it() {
        use CreateMode::{Container, Persistent};
        let paths = ["/a", "/a/b", "/a/b/c"];
        for (lasting, dialect, modes, lengths) in [
            (
                Lasting::WhileUsed,
                Dialect::Curator,
                [Persistent, Persistent, Container],
                [0, 0, 0],
            ),
            (
                Lasting::WhileUsed,
                Dialect::Kazoo,
                [Persistent; 3],
                [0, 0, 0],
            ),
            (
                Lasting::WhileUsedIn(b"3"),
                Dialect::Curator,
                [Persistent, Container, Container],
                [0, 1, 0],
            ),
            (
                Lasting::Always(b"{}"),
                Dialect::Curator,
                [Persistent; 3],
                [0, 0, 2],
            ),
        ] {
            let expected = (0..3).map(|at| (paths[at].into(), modes[at], lengths[at]));
            let expected: Vec<_> = expected.collect();
            assert_eq!(made(lasting, dialect), expected, "{lasting:?}");
        }
        assert!(!Lasting::WhileUsedIn(b"3").is_made_by(Role::Permit));
        assert!(Lasting::WhileUsedIn(b"3").is_made_by(Role::Exclusive));
        assert!(Lasting::Always(b"3").is_made_by(Role::Permit));
    }

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
            let answers = codes.iter().map(|code| match *code {
                OK => Ok(Reply::Nothing),
                code => Err(Failure::Refused(code)),
            });
            let found = trouble_with(&answers.collect::<Vec<_>>());
            assert_eq!(found, expected.map(Failure::Refused), "{codes:?}");
        }
    }
}
