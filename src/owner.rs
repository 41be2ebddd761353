//! The data that a contender writes into its node: its identity, for the clients that wait for it.
//!
//! This library writes a small JSON object. Curator writes an address, kazoo an identifier, and
//! some clients nothing; such data is shown unchanged.

use std::fmt;
use std::thread;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::system::process;

/// How many characters of a note or of a foreign text are kept.
const LONGEST_TEXT: usize = 512;

/// How many of the locks around a process are listed.
const MOST_AROUND: usize = 8;

/// Who created a contender's node, according to its data.
///
/// Any client that may write to the node could have written this data: it is for people to read,
/// not for programs to trust.
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::builder(server.hosts()).note("ask Jo").connect()?;
/// let _guard = client.mutex("/locks/nightly-report")?.lock()?;
/// let contenders = client.contenders("/locks/nightly-report")?;
/// let owner = contenders.first().expect("a holder").owner();
/// assert_eq!(owner.pid, Some(std::process::id()));
/// assert_eq!(owner.note.as_deref(), Some("ask Jo"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Owner {
    /// The host's name.
    pub host: Option<String>,
    /// The number of the process on that host.
    pub pid: Option<u32>,
    /// The name of the program.
    pub program: Option<String>,
    /// The name of the thread.
    pub thread: Option<String>,
    /// When the process was started, by its host's clock.
    pub started: Option<SystemTime>,
    /// The contender's message to the clients that wait for it.
    pub note: Option<String>,
    /// The node's data, if it was not written by this library.
    pub text: Option<String>,
    /// The nodes of the locks that the process runs under, if `zklock` started it.
    pub inside: Vec<String>,
}

impl Owner {
    /// Parses a node's data, written by this library or another.
    pub(crate) fn parse(data: &[u8]) -> Self {
        match serde_json::from_slice(data) {
            Ok(Value::Object(card)) => Self::read(&card),
            _ if data.is_empty() => Self::default(),
            _ => Self {
                text: Some(shorten(&String::from_utf8_lossy(data))),
                ..Self::default()
            },
        }
    }

    /// Names the owner in a message, as `db1 pid 4711 (report.sh)`, if the data names it.
    pub(crate) fn named(&self) -> Option<String> {
        let named = match (&self.text, &self.host, self.pid) {
            (Some(text), ..) => text.clone(),
            (None, Some(host), pid) => {
                let name = self.note.as_ref().or(self.program.as_ref());
                let name = name.map(|name| format!(" ({name})")).unwrap_or_default();
                // A hold belongs to no process.
                let pid = pid.map(|pid| format!(" pid {pid}")).unwrap_or_default();
                format!("{host}{pid}{name}")
            }
            _ => return None,
        };
        // The data may come from another client, and go to a terminal.
        Some(named.replace(char::is_control, "\u{fffd}"))
    }

    fn read(card: &serde_json::Map<String, Value>) -> Self {
        let text = |key: &str| card.get(key).and_then(Value::as_str).map(shorten);
        let number = |key: &str| card.get(key).and_then(Value::as_u64);
        let started = number("started_ms").map(Duration::from_millis);
        Self {
            host: text("host"),
            pid: number("pid").and_then(|pid| u32::try_from(pid).ok()),
            program: text("program"),
            thread: text("thread"),
            started: started.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since)),
            note: text("note"),
            text: None,
            inside: nodes(card.get("inside")),
        }
    }
}

/// Formats the owner as `db1 pid 4711 (report.sh)`, or as `unknown` if the data names no owner.
impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.named().as_deref().unwrap_or("unknown"))
    }
}

/// The data of this process's nodes.
#[derive(Clone, Debug)]
pub(crate) struct Card {
    host: String,
    program: String,
    started_ms: u64,
    note: Option<String>,
    inside: Vec<String>,
}

impl Card {
    pub(crate) fn new(note: Option<&str>) -> Self {
        Self {
            host: process::host(),
            program: shorten(&process::program()),
            started_ms: process::since_epoch().as_millis() as u64,
            note: note.map(shorten),
            inside: process::locks_around(),
        }
    }

    /// Returns the data of a node, with this `note` in place of the client's.
    pub(crate) fn text(&self, note: Option<&str>) -> Vec<u8> {
        self.write(note).to_string().into_bytes()
    }

    /// Returns the data of a hold, which belongs to no thread and no process, with the token of the
    /// node that it replaces.
    pub(crate) fn of_hold(&self, reason: &str, hold: Value, token: Option<i64>) -> Vec<u8> {
        let mut card = json!({
            "host": self.host,
            "program": self.program,
            "note": shorten(reason),
            "hold": hold,
        });
        if let Some(token) = token {
            card["token"] = token.into();
        }
        card.to_string().into_bytes()
    }

    /// Returns the data of a node that keeps the token of another node.
    pub(crate) fn text_with(&self, token: i64) -> Vec<u8> {
        let mut card = self.write(None);
        card["token"] = token.into();
        card.to_string().into_bytes()
    }

    /// Returns the data of a node that was taken over from another process, by this attempt.
    pub(crate) fn text_of_taker(&self, attempt: &str) -> Vec<u8> {
        let mut card = self.write(None);
        card["taken_over"] = attempt.into();
        card.to_string().into_bytes()
    }

    fn write(&self, note: Option<&str>) -> Value {
        let mut card = json!({
            "host": self.host,
            "pid": process::id(),
            "program": self.program,
            "started_ms": self.started_ms,
            "thread_id": process::thread(),
        });
        if !self.inside.is_empty() {
            card["inside"] = self.inside.clone().into();
        }
        if let Some(name) = thread::current().name() {
            card["thread"] = shorten(name).into();
        }
        if let Some(note) = note.map(shorten).or_else(|| self.note.clone()) {
            card["note"] = note.into();
        }
        card
    }
}

/// Parses a list of nodes.
fn nodes(list: Option<&Value>) -> Vec<String> {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    let texts = list.filter_map(Value::as_str).map(shorten);
    texts.take(MOST_AROUND).collect()
}

/// Keeps the first characters of a text.
pub(crate) fn shorten(text: &str) -> String {
    text.chars().take(LONGEST_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::support::fuzz;

    #[test]
    fn a_card_reads_back_as_written() {
        let card = Card::new(Some("nightly"));
        let owner = Owner::parse(&card.text(None));
        assert_eq!(owner.pid, Some(process::id()));
        assert_eq!(owner.host, Some(process::host()));
        assert_eq!(owner.program, Some(process::program()));
        assert_eq!(owner.note.as_deref(), Some("nightly"));
        assert_eq!(owner.text, None);
        assert!(owner.inside.is_empty());
        let around = Card {
            inside: vec!["/a/lock-1".to_owned()],
            ..card.clone()
        };
        assert_eq!(Owner::parse(&around.text(None)).inside, ["/a/lock-1"]);
        let owner = Owner::parse(&card.text(Some("just this once")));
        assert_eq!(owner.note.as_deref(), Some("just this once"));
    }

    #[test]
    fn a_foreign_text_is_shown_as_it_stands() {
        let text = |data: &[u8]| Owner::parse(data).text;
        assert_eq!(text(b"127.0.0.1").as_deref(), Some("127.0.0.1"));
        assert_eq!(text(b"12").as_deref(), Some("12"));
        assert_eq!(text(b"\x12\x34\xff").as_deref(), Some("\u{12}4\u{fffd}"));
        assert_eq!(text(b""), None);
    }

    #[test]
    fn a_message_names_who_says_who_it_is() {
        let named = |data: &str| Owner::parse(data.as_bytes()).named();
        let card = r#"{"host":"db1","pid":7,"program":"zklock","note":"a\u001bb"}"#;
        assert_eq!(named(card).as_deref(), Some("db1 pid 7 (a\u{fffd}b)"));
        assert_eq!(
            named(r#"{"host":"db1","pid":7}"#).as_deref(),
            Some("db1 pid 7")
        );
        assert_eq!(named("127.0.0.1").as_deref(), Some("127.0.0.1"));
        assert_eq!(named(""), None);
        assert_eq!(Owner::parse(b"").to_string(), "unknown");
        assert_eq!(Owner::parse(b"127.0.0.1").to_string(), "127.0.0.1");
    }

    #[test]
    fn long_notes_are_cut() {
        let note = "é".repeat(5_000);
        assert!(Card::new(Some(&note)).text(None).len() < 3_000);
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn a_card_with_mistakes_is_read_and_bounded(
            text in fuzz::texts(
                &[
                    r#"{"host":"db1","pid":7,"program":"x","started_ms":1700000000000,"note":"é"}"#,
                    r#"{"thread":"main","note":null,"more":[{"a":{}}],"inside":["/a/b",1,null]}"#,
                    "127.0.0.1",
                ],
                &["{", "}", "[", "]", "\"", ":", ",", "\\u0000", "\\ud800", "1e999", "-1", "null",
                    "18446744073709551616", "\"note\":"],
            ),
        ) {
            let owner = Owner::parse(text.as_bytes());
            let texts = [owner.host, owner.program, owner.thread, owner.note, owner.text];
            prop_assert!(owner.inside.len() <= MOST_AROUND);
            for text in texts.into_iter().flatten().chain(owner.inside) {
                prop_assert!(text.chars().count() <= LONGEST_TEXT);
            }
        }

        #[test]
        fn no_data_makes_the_reader_panic(data: Vec<u8>, number: i64) {
            let _ = Owner::parse(&data);
            let _ = Owner::parse(format!("{{\"pid\":{number},\"started_ms\":{number}}}").as_bytes());
        }
    }
}
