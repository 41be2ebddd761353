//! The note in a lock's directory by which a holder says that it has released the lock in order.

use serde_json::{Value, json};

/// The note that the holder with the node of this name leaves.
pub fn note(node: &str) -> Vec<u8> {
    json!({ "released": node }).to_string().into_bytes()
}

/// The node that a note names; `None` if the data is no note.
pub fn released(data: &[u8]) -> Option<String> {
    let note: Value = serde_json::from_slice(data).ok()?;
    let note = note.as_object().filter(|note| note.len() == 1)?;
    note.get("released")?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_notes_are_read_as_notes() {
        assert_eq!(released(b"{\"released\":\"n-1\"}"), Some("n-1".to_owned()));
        for data in [
            &b""[..],
            b"127.0.0.1",
            b"{\"held\":null}",
            b"{\"held\":null,\"released\":\"n-1\"}",
            b"{\"released\":1}",
            b"[\"released\"]",
        ] {
            assert_eq!(released(data), None, "{data:?}");
        }
    }
}
