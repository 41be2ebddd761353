//! How many permits a semaphore has, if its clients are told different numbers.
//!
//! The number is in the semaphore's own node. The first in the line reads it, and may replace
//! it if no permit is out: all permits that are out at a time were granted by one number.

use super::dialect::Dialect;

/// How the number in a semaphore's node compares with the one that a client was told.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Agreement {
    /// It is the same.
    Agreed,
    /// There is nothing to compare with.
    Unknown,
    /// There is none yet: write it down.
    Write,
    /// It differs, and no permit is out: replace it.
    Replace(u32),
    /// It differs, and permits are out.
    Differs(u32),
}

/// Compares our number with the data of the semaphore's node, while this many permits are out.
///
/// There is no data if the node is absent or we may not read it.
pub fn compare(dialect: Dialect, data: Option<&[u8]>, ours: u32, out: usize) -> Agreement {
    let Some(data) = data else {
        return Agreement::Unknown;
    };
    match number(data) {
        Some(theirs) if theirs == ours => Agreement::Agreed,
        Some(theirs) if out == 0 => Agreement::Replace(theirs),
        Some(theirs) => Agreement::Differs(theirs),
        // kazoo leaves alone what is not a number.
        None if dialect == Dialect::Kazoo && !data.is_empty() => Agreement::Unknown,
        // Curator leaves an address or nothing there.
        None => Agreement::Write,
    }
}

/// Reads the number of permits that is in a semaphore's node.
pub fn number(data: &[u8]) -> Option<u32> {
    std::str::from_utf8(data).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_replaced_when_nobody_goes_by_it() {
        use Agreement::{Agreed, Differs, Replace, Unknown, Write};
        use Dialect::{Curator, Kazoo};
        let table: [(Dialect, Option<&[u8]>, usize, Agreement); 10] = [
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
        ];
        for (dialect, data, out, expected) in table {
            assert_eq!(
                compare(dialect, data, 3, out),
                expected,
                "{data:?}, {out} out"
            );
        }
    }
}
