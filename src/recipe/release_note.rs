//! The note in a lock's directory by which holders say that they have released the lock in order.
//!
//! Nodes are named by their numbers. Who held alone had seen every earlier holder go, so its number
//! stands for all up to its own; of those who shared the lock since, each number is there.

use serde_json::{Value, json};

use super::dialect::{Kind, Sharing};
use super::name::NodeName;

/// How many of those who shared the lock are remembered.
const MOST_SHARED: usize = 128;

/// See the module's documentation.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Note {
    alone: Option<i64>,
    shared: Vec<i64>,
}

impl Note {
    /// Reads a directory's data; `None` if it is neither a note nor empty.
    pub fn parse(data: &[u8]) -> Option<Self> {
        match data.is_empty() {
            true => Some(Self::default()),
            false => Self::written(data),
        }
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
                all.iter().map(Value::as_i64).collect::<Option<_>>()?
            }
            _ => return None,
        };
        Some(Self { alone, shared })
    }

    /// The data of the directory when the holder with this node has released the lock too; `None` if
    /// its name does not tell it from others.
    pub fn with(mut self, node: &str) -> Option<Vec<u8>> {
        let node = NodeName::parse(node).filter(is_told_apart)?;
        if !is_shared(&node) {
            return Some(
                json!({ "released": node.sequence })
                    .to_string()
                    .into_bytes(),
            );
        }
        self.shared.push(node.sequence);
        let first = self.shared.len().saturating_sub(MOST_SHARED);
        let note = json!({ "released": self.alone, "shared": self.shared[first..] });
        Some(note.to_string().into_bytes())
    }

    /// Whether it says that no command runs any more under this node.
    pub fn tells_of(&self, node: &str) -> bool {
        let Some(node) = NodeName::parse(node).filter(is_told_apart) else {
            return false;
        };
        // Whoever shared the lock since has seen the last one go that held it alone.
        let seen_go = |later: &i64| !is_shared(&node) && node.sequence < *later;
        self.alone.is_some_and(|alone| node.sequence <= alone)
            || self.shared.contains(&node.sequence)
            || self.shared.iter().any(seen_go)
    }
}

/// Whether this data is a note.
pub fn is_note(data: &[u8]) -> bool {
    Note::written(data).is_some()
}

/// Whether several may hold at a time with such nodes.
pub fn is_shared(node: &NodeName<'_>) -> bool {
    let permit = matches!(node.kind, Kind::Lease | Kind::KazooLease);
    permit || node.kind.role().sharing() == Sharing::WithReaders
}

fn is_told_apart(node: &NodeName<'_>) -> bool {
    node.kind != Kind::KazooLease && !node.is_exhausted()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "_c_6f9c1c9e-5a0b-8b57-9a3e-0123456789ab";

    fn name(of: &str) -> String {
        let (token, number) = of.split_at(1);
        let token = match token {
            "m" => "-lock-",
            "r" => "-__READ__",
            "w" => "-__WRIT__",
            _ => "-lease-",
        };
        format!("{ID}{token}{:010}", number.parse::<i64>().unwrap())
    }

    /// What is written when these are released one after the other.
    fn released(nodes: &str) -> Vec<u8> {
        nodes.split(' ').fold(Vec::new(), |data, node| {
            Note::parse(&data).unwrap().with(&name(node)).unwrap()
        })
    }

    #[test]
    fn a_note_tells_of_those_who_released_in_order_and_of_those_they_waited_for() {
        let table = [
            ("m3", "m3 m1 r2 w0", "m4 r4"),
            ("m3 r4 r6", "m3 r4 r6 w5 r1", "r5 m7"),
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
        let nodes: Vec<_> = (0..300).map(|number| format!("p{number}")).collect();
        let data = released(&nodes.join(" "));
        assert!(data.len() < 1000, "{}", data.len());
        let note = Note::parse(&data).unwrap();
        assert!(note.tells_of(&name("p299")) && note.tells_of(&name("p172")));
        assert!(!note.tells_of(&name("p171")));
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
            b"{\"shared\":[2]}",
            b"[\"released\"]",
        ] {
            assert!(!is_note(data) && Note::parse(data).is_none(), "{data:?}");
        }
    }
}
