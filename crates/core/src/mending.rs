//! Whether a job's record may replace what a node has as its data.

use serde_json::Value;

use super::journal::Journal;
use super::permits::{is_address, number};
use super::release_note::is_note;

/// The meaning of a node's data for a job.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Standing {
    /// The job's record.
    Whole,
    /// The remains of the job's record, which cannot be read any more.
    Torn,
    /// The data that an unused lock or semaphore leaves; a record may have been there before.
    Unclaimed,
    /// Data that somebody else keeps there.
    Kept,
}

/// Returns the meaning of this data for a job.
pub fn standing(data: &[u8]) -> Standing {
    const BEGINNING: &[u8] = b"{\"job\"";
    if Journal::parse(data, 0).is_some() {
        return Standing::Whole;
    }
    let is_torn = match serde_json::from_slice::<Value>(data) {
        Ok(json) => json["job"].as_i64().is_some_and(Journal::is_known),
        Err(_) => data.starts_with(BEGINNING),
    };
    if is_torn {
        return Standing::Torn;
    }
    let left = number(data).is_some() || is_address(data) || is_note(data);
    match data.is_empty() || left {
        true => Standing::Unclaimed,
        false => Standing::Kept,
    }
}

/// Returns whether a job may have the place of a node with this data and version: no run was recorded in it.
pub fn is_free(data: &[u8], version: i32) -> bool {
    // A record has been written twice when its first run begins. A release leaves its note only where
    // nobody has written before.
    standing(data) == Standing::Unclaimed && (version < 2 || is_note(data))
}

#[cfg(test)]
mod tests {
    use super::super::predecessor_mark::CLEAN;
    use super::*;

    #[test]
    fn only_what_nobody_keeps_makes_way_for_a_record() {
        let table = [
            (Journal::EMPTY, Standing::Whole),
            (b"{\"job\":1,\"slot\":\"a\"}", Standing::Whole),
            (b"{\"job\":1,\"slot\":\"a", Standing::Torn),
            // Somebody has edited it.
            (b"{\"slot\":1,\"job\":1}", Standing::Torn),
            (b"", Standing::Unclaimed),
            (b"2", Standing::Unclaimed),
            (b"127.0.0.1", Standing::Unclaimed),
            (b"{\"released\":1}", Standing::Unclaimed),
            (CLEAN, Standing::Kept),
            (b"{\"held\":7}", Standing::Kept),
            // A record of a later version.
            (b"{\"job\":3}", Standing::Kept),
            (b"{\"threads\":8}", Standing::Kept),
            (b"somebody's", Standing::Kept),
            (b"\xff", Standing::Kept),
        ];
        for (data, expected) in table {
            assert_eq!(standing(data), expected, "{data:?}");
        }
    }

    #[test]
    fn what_may_have_been_a_jobs_is_not_free() {
        let table: [(&[u8], i32, bool); 8] = [
            (b"", 0, true),
            (b"2", 1, true),
            // An empty record, the beginning of a run, and what somebody wrote over it.
            (b"2", 2, false),
            (b"", 2, false),
            (b"{\"released\":1}", 1, true),
            (b"{\"released\":9}", 9, true),
            (Journal::EMPTY, 0, false),
            (b"somebody's", 0, false),
        ];
        for (data, version, expected) in table {
            assert_eq!(is_free(data, version), expected, "{data:?} {version}");
        }
    }
}
