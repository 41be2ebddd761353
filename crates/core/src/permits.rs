//! How many permits a semaphore has, if its clients are told different numbers.
//!
//! The number is in the semaphore's own node. The first client in the line reads it, and may replace it if
//! no permit is out. So all permits that are out at a time were granted by one number.

use alloc::vec::Vec;
use core::net::IpAddr;

use super::dialect::Dialect;
use super::journal::Journal;
use super::name::NodeName;
use super::path::node_in;
use super::predecessor_mark;
use super::release_note::is_note;
use zklock_jute::{ErrorCode, Names, Reply, Request};

/// How the number in a semaphore's node compares with the one that a client was told.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Agreement {
    /// The two are the same.
    Agreed,
    /// There is nothing to compare with.
    Unknown,
    /// The node has no number yet: write ours.
    Write,
    /// The number differs, and no permit is out: replace it.
    Replace(u32),
    /// The number differs, and permits are out.
    Differs(u32),
    /// The data belongs to something other than a semaphore, and must stay.
    Foreign,
}

/// Compares our number with the data of the semaphore's node, while this many permits are out.
///
/// `data` is `None` if the node is absent or we may not read it.
pub fn compare(dialect: Dialect, data: Option<&[u8]>, ours: u32, out: usize) -> Agreement {
    let Some(data) = data else {
        return Agreement::Unknown;
    };
    match number(data) {
        Some(theirs) if theirs == ours => Agreement::Agreed,
        Some(theirs) if out != 0 => Agreement::Differs(theirs),
        Some(theirs) => Agreement::Replace(theirs),
        None if data.is_empty() => Agreement::Write,
        None if is_kept(data) => Agreement::Foreign,
        // kazoo leaves alone what is not a number.
        None if dialect == Dialect::Kazoo => Agreement::Unknown,
        // Curator leaves its client's address there, and an unused mutex leaves a note.
        None if is_address(data) || is_note(data) => Agreement::Write,
        None => Agreement::Foreign,
    }
}

/// Returns the requests that show whether anybody uses the semaphore at a path.
pub fn looks(path: &str) -> [Request; 3] {
    // A client leaves the queue when it has its permit, so the queue is listed first.
    [
        Request::get(path),
        Request::list(&node_in(path, "locks")),
        Request::list(&node_in(path, "leases")),
    ]
}

/// Returns what [`is_idle`] says about the answers to these [`looks`].
pub fn is_idle_by(answers: Vec<Result<Reply, ErrorCode>>, stood: bool) -> bool {
    let mut answers = answers.into_iter();
    let Some(Ok(Reply::Data { data, .. })) = answers.next() else {
        return false;
    };
    let mut names = || match answers.next() {
        Some(Ok(Reply::Children { names, .. })) => Some(names),
        Some(Err(ErrorCode::NO_NODE)) => Some(Names::default()),
        // A client that may not see the names must not assume that there are none.
        _ => None,
    };
    let (line, permits) = (names(), names());
    let idle = |(line, out): (Names, Names)| is_idle(&data, &line, &out, stood);
    line.zip(permits).is_some_and(idle)
}

/// Returns whether nobody uses the semaphore of this library at a path, so that another kind of
/// lock may.
///
/// The node of that lock exists by now: a client that joins the `line` later sees it and leaves.
/// If the node already `stood` at an earlier look, only another library's client counts.
pub fn is_idle(data: &[u8], line: &Names, permits: &Names, stood: bool) -> bool {
    let leaves = |name: &str| stood && NodeName::parse(name).is_some_and(|name| name.is_ours());
    number(data).is_some() && line.iter().chain(permits.iter()).all(leaves)
}

/// Returns whether this is what a job or a mutex of this library keeps.
fn is_kept(data: &[u8]) -> bool {
    Journal::parse(data, 0).is_some() || predecessor_mark::parse(data).is_some()
}

/// Returns whether this is the address of a client of Curator's, as its directories have it.
pub(super) fn is_address(data: &[u8]) -> bool {
    let text = core::str::from_utf8(data).unwrap_or_default();
    // The address of a link has a scope: `fe80::1%eth0`.
    let address = text.split('%').next().unwrap_or_default();
    address.parse::<IpAddr>().is_ok()
}

/// Reads the number of permits that is in a semaphore's node.
pub fn number(data: &[u8]) -> Option<u32> {
    core::str::from_utf8(data).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_replaced_when_nobody_goes_by_it() {
        use Agreement::{Agreed, Differs, Foreign, Replace, Unknown, Write};
        use Dialect::{Curator, Kazoo};
        let table: [(Dialect, Option<&[u8]>, usize, Agreement); 18] = [
            (Curator, None, 0, Unknown),
            (Curator, Some(b"3"), 0, Agreed),
            (Curator, Some(b" 3\n"), 7, Agreed),
            (Curator, Some(b"5"), 0, Replace(5)),
            (Curator, Some(b"5"), 1, Differs(5)),
            (Curator, Some(b""), 1, Write),
            (Curator, Some(b"127.0.0.1"), 1, Write),
            (Kazoo, Some(b""), 1, Write),
            (Kazoo, Some(b"127.0.0.1"), 1, Unknown),
            (Kazoo, Some(b"5"), 2, Differs(5)),
            (Curator, Some(b"fe80::1%eth0"), 0, Write),
            (Curator, Some(Journal::EMPTY), 0, Foreign),
            (Kazoo, Some(Journal::EMPTY), 0, Foreign),
            (Curator, Some(predecessor_mark::CLEAN), 0, Foreign),
            (Kazoo, Some(predecessor_mark::CLEAN), 0, Foreign),
            (Curator, Some(b"{\"threads\": 8}"), 0, Foreign),
            (Curator, Some(b"\xff"), 0, Foreign),
            (Curator, Some(b"{\"released\":1}"), 0, Write),
        ];
        for (dialect, data, out, expected) in table {
            assert_eq!(
                compare(dialect, data, 3, out),
                expected,
                "{data:?}, {out} out"
            );
        }
    }

    #[test]
    fn a_semaphore_is_idle_when_nobody_is_there_who_came_before() {
        const OURS: &str = "_c_6f9c1c9e-5a0b-8b57-9a3e-0123456789ab-lock-0000000001";
        const CURATORS: &str = "_c_6f9c1c9e-5a0b-4b57-9a3e-0123456789ab-lock-0000000001";
        let table = [
            ("2", "", "", [true, true]),
            ("2", OURS, "", [false, true]),
            ("2", "", OURS, [false, true]),
            ("2", "", CURATORS, [false, false]),
            ("2", CURATORS, "", [false, false]),
            ("2", "", "stray", [false, false]),
            // Curator's, which stores no number.
            ("", "", "", [false, false]),
            ("127.0.0.1", "", "", [false, false]),
        ];
        for (data, line, permits, expected) in table {
            let [line, permits] = [line, permits].map(|names| names.split_whitespace().collect());
            let idle = |stood| is_idle(data.as_bytes(), &line, &permits, stood);
            assert_eq!([false, true].map(idle), expected, "{line:?} {permits:?}");
        }
    }
}
