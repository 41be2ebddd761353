//! The note in a lock's directory by which holders record that they have released the lock in order.
//!
//! Nodes are identified by their numbers. A holder that held alone had seen every earlier holder go, so its
//! number stands for all up to its own. For those that have shared the lock since, each number is there; of
//! several consecutive numbers, the first and the last.

use alloc::string::ToString;
use alloc::vec::Vec;

use serde_json::{Value, json};

use super::dialect::{Kind, Sharing};
use super::name::NodeName;

/// How many numbers, or ranges of them, of those who shared the lock are remembered.
const MOST_SHARED: usize = 128;

/// The note of orderly releases; see the module's documentation.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Note {
    alone: Option<i64>,
    /// The ranges in order, with a gap between any two of them.
    shared: Vec<Row>,
}

/// The first and the last of consecutive numbers.
type Row = (i64, i64);

impl Note {
    /// Reads a directory's data. Returns `None` if it is neither a note nor empty.
    pub fn parse(data: &[u8]) -> Option<Self> {
        match data.is_empty() {
            true => Some(Self::default()),
            false => Self::written(data),
        }
    }

    /// Reads the note that another one may replace, in a directory's data of this version. If somebody has deleted the
    /// data where it may be a job's, it may have been the job's record: with a note in its place, a job would [take
    /// the path over](crate::mending::is_free).
    pub fn replaceable(data: &[u8], version: i32, may_be_of_job: bool) -> Option<Self> {
        let was_written = may_be_of_job && data.is_empty() && 0 < version;
        Self::parse(data).filter(|_| !was_written)
    }

    fn written(data: &[u8]) -> Option<Self> {
        let note: Value = serde_json::from_slice(data).ok()?;
        let note = note.as_object()?;
        let alone = match note.get("released")? {
            Value::Null => None,
            number => Some(number.as_i64()?),
        };
        let shared = match note.get("shared") {
            None if note.len() == 1 => Vec::new(),
            Some(Value::Array(all)) if note.len() == 2 => {
                all.iter().map(row).collect::<Option<_>>()?
            }
            _ => return None,
        };
        Some(Self { alone, shared })
    }

    /// Returns the data of the directory once the holder with this node has released the lock too; `None`
    /// if the name of its node does not tell it from others.
    pub fn with(mut self, node: &str) -> Option<Vec<u8>> {
        let node = NodeName::parse(node).filter(is_told_apart)?;
        if !is_shared(&node) {
            return Some(
                json!({ "released": node.sequence })
                    .to_string()
                    .into_bytes(),
            );
        }
        self.shared.push((node.sequence, node.sequence));
        self.shared.sort_unstable();
        self.shared.dedup_by(|next, before| {
            let joins = next.0 <= before.1.saturating_add(1);
            if joins {
                before.1 = before.1.max(next.1);
            }
            joins
        });
        let first = self.shared.len().saturating_sub(MOST_SHARED);
        let shared = self.shared[first..]
            .iter()
            .map(|(first, last)| match first == last {
                true => json!(first),
                false => json!([first, last]),
            });
        let note = json!({ "released": self.alone, "shared": shared.collect::<Vec<_>>() });
        Some(note.to_string().into_bytes())
    }

    /// Returns whether the note says that no command runs any more under this node.
    pub fn tells_of(&self, node: &str) -> bool {
        let Some(node) = NodeName::parse(node).filter(is_told_apart) else {
            return false;
        };
        // No mutex waits for permits, even if somebody has one in the mutex's directory.
        let waited_for = !is_permit(&node);
        // Those who have shared the lock since have seen the last one go that held it alone.
        let seen_go = |last: i64| !is_shared(&node) && node.sequence < last;
        let tells =
            |(first, last): &Row| (*first..=*last).contains(&node.sequence) || seen_go(*last);
        self.alone
            .is_some_and(|alone| waited_for && node.sequence <= alone)
            || self.shared.iter().any(tells)
    }
}

fn row(value: &Value) -> Option<Row> {
    match value.as_array().map(Vec::as_slice) {
        Some([first, last]) => Some((first.as_i64()?, last.as_i64()?)),
        Some(_) => None,
        None => value.as_i64().map(|number| (number, number)),
    }
}

/// Returns whether this data is a note.
pub fn is_note(data: &[u8]) -> bool {
    Note::written(data).is_some()
}

/// Returns whether several may hold at a time with such nodes.
pub fn is_shared(node: &NodeName<'_>) -> bool {
    is_permit(node) || node.kind.role().sharing() == Sharing::WithReaders
}

fn is_permit(node: &NodeName<'_>) -> bool {
    matches!(node.kind, Kind::Lease | Kind::KazooLease)
}

fn is_told_apart(node: &NodeName<'_>) -> bool {
    node.kind != Kind::KazooLease && !node.is_exhausted()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::of_short as name;

    /// Returns what is written when these are released one after the other.
    fn released(nodes: &str) -> Vec<u8> {
        nodes.split(' ').fold(Vec::new(), |data, node| {
            Note::parse(&data).unwrap().with(&name(node)).unwrap()
        })
    }

    #[test]
    fn a_note_tells_of_those_who_released_in_order_and_of_those_they_waited_for() {
        let table = [
            ("m3", "m3 m1 r2 w0", "m4 r4 p1"),
            ("m3 r4 r6", "m3 r4 r6 w5 r1", "r5 m7"),
            ("p3 p1 p2 p6 p5 p8", "p1 p2 p3 p5 p6 p8", "p0 p4 p7 p9"),
            ("r4 r5 w6", "r4 r5 w6 r2", "r7"),
            ("p3 p1", "p3 p1", "p2 p0 p4"),
        ];
        for (order, told, untold) in table {
            let note = Note::parse(&released(order)).unwrap();
            for node in told.split(' ') {
                assert!(note.tells_of(&name(node)), "{order}: {node}");
            }
            for node in untold.split(' ') {
                assert!(!note.tells_of(&name(node)), "{order}: {node}");
            }
        }
    }

    #[test]
    fn a_note_stays_short() {
        let all = |numbers: &mut dyn Iterator<Item = u32>| {
            let nodes: Vec<_> = numbers.map(|number| format!("p{number}")).collect();
            released(&nodes.join(" "))
        };
        // One after the other, or with a gap between any two.
        assert_eq!(
            all(&mut (0..300)),
            b"{\"released\":null,\"shared\":[[0,299]]}"
        );
        let data = all(&mut (0..300).map(|number| 2 * number));
        assert!(data.len() < 1000, "{}", data.len());
        let note = Note::parse(&data).unwrap();
        assert!(note.tells_of(&name("p598")) && note.tells_of(&name("p344")));
        assert!(!note.tells_of(&name("p342")) && !note.tells_of(&name("p345")));
    }

    #[test]
    fn a_node_that_no_number_tells_apart_leaves_no_note() {
        let last = name(&format!("m{}", i32::MAX));
        let kazoos = "6f9c1c9e5a0b8b579a3e0123456789ab";
        for node in [kazoos, &last, "leases"] {
            assert_eq!(Note::default().with(node), None, "{node}");
            assert!(!Note::parse(&released("m9")).unwrap().tells_of(node));
        }
    }

    #[test]
    fn only_notes_are_read_as_notes() {
        for data in [
            &b"{\"released\":7}"[..],
            b"{\"released\":null,\"shared\":[3,4]}",
            b"{\"released\":2,\"shared\":[3,[5,9223372036854775807]]}",
        ] {
            assert!(is_note(data));
        }
        assert_eq!(Note::parse(b""), Some(Note::default()));
        for data in [
            &b"127.0.0.1"[..],
            b"2",
            b"{\"held\":null}",
            b"{\"held\":null,\"released\":1}",
            b"{\"released\":\"1\"}",
            b"{\"released\":1,\"shared\":[\"2\"]}",
            b"{\"released\":1,\"shared\":[[2]]}",
            b"{\"shared\":[2]}",
            b"[\"released\"]",
        ] {
            assert!(!is_note(data) && Note::parse(data).is_none(), "{data:?}");
        }
    }
}
