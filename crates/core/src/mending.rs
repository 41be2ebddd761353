//! Whether a job's record may take the place of what a node has as its data.

use super::journal::Journal;
use super::permits::{is_address, number};
use super::release_note::is_note;

/// What a node's data is to a job.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Standing {
    /// Its record.
    Whole,
    /// What was its record, and cannot be read any more.
    Torn,
    /// What an unused lock or semaphore leaves; a record may have been there before.
    Unclaimed,
    /// What somebody else keeps there.
    Kept,
}

/// Says what this data is to a job.
pub fn standing(data: &[u8]) -> Standing {
    const BEGINNING: &[u8] = b"{\"job\"";
    if Journal::parse(data, 0).is_some() {
        return Standing::Whole;
    }
    let is_json = serde_json::from_slice::<serde_json::Value>(data).is_ok();
    if data.starts_with(BEGINNING) && !is_json {
        return Standing::Torn;
    }
    let left = number(data).is_some() || is_address(data) || is_note(data);
    match data.is_empty() || left {
        true => Standing::Unclaimed,
        false => Standing::Kept,
    }
}

#[cfg(test)]
mod tests {
    use super::super::abandonment::CLEAN;
    use super::*;

    #[test]
    fn only_what_nobody_keeps_makes_way_for_a_record() {
        let table = [
            (Journal::EMPTY, Standing::Whole),
            (b"{\"job\":1,\"slot\":\"a\"}", Standing::Whole),
            (b"{\"job\":1,\"slot\":\"a", Standing::Torn),
            (b"", Standing::Unclaimed),
            (b"2", Standing::Unclaimed),
            (b"127.0.0.1", Standing::Unclaimed),
            (b"{\"released\":1}", Standing::Unclaimed),
            (CLEAN, Standing::Kept),
            (b"{\"held\":7}", Standing::Kept),
            // A later version's.
            (b"{\"job\":3}", Standing::Kept),
            (b"{\"threads\":8}", Standing::Kept),
            (b"somebody's", Standing::Kept),
            (b"\xff", Standing::Kept),
        ];
        for (data, expected) in table {
            assert_eq!(standing(data), expected, "{data:?}");
        }
    }
}
