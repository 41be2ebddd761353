//! The text of a journal.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde_json::{Map, Value, json};

use super::history::History;
use super::slots::Slots;
use super::{Journal, Outcome, PastRun};

/// The format that every client knows, and the format of journals that have more.
const PLAIN: i64 = 1;
const MORE: i64 = 2;

impl Journal {
    /// Reads a node's data, which was written at `mtime`. Returns `None` if the data is not a journal.
    ///
    /// What it says of runs is never left out: if that cannot be read, because somebody has edited it for
    /// example, the data is not a journal.
    pub fn parse(data: &[u8], mtime: i64) -> Option<Self> {
        let value: Value = serde_json::from_slice(data).ok()?;
        let value = value.as_object()?;
        let format = value.get("job")?.as_i64()?;
        if !Self::is_known(format) {
            return None;
        }
        let has = |key: &str| value.get(key).filter(|value| !value.is_null());
        let run = |key: &str, outcome| match has(key) {
            Some(run) => PastRun::parse(run, outcome).map(Some),
            None => Some(None),
        };
        let slot = match has("slot") {
            Some(slot) => Some(slot.as_str()?.to_owned()),
            None => None,
        };
        let attempts = match has("attempts") {
            Some(attempts) => attempts
                .as_object()?
                .iter()
                .map(count)
                .collect::<Option<_>>()?,
            None => BTreeMap::new(),
        };
        let mut journal = Self {
            slot,
            done: run("done", Outcome::Done)?,
            failed: run("failed", Outcome::Failed)?,
            running: run("running", Outcome::Unknown)?,
            attempts,
            ..Self::default()
        };
        if format == MORE {
            journal.read_more(value)?;
        }
        journal.date(mtime);
        Some(journal)
    }

    /// Returns whether this is one of the formats, and not a later version's.
    pub(crate) fn is_known(format: i64) -> bool {
        [PLAIN, MORE].contains(&format)
    }

    /// Reads what only format 2 has.
    fn read_more(&mut self, value: &Map<String, Value>) -> Option<()> {
        if let Some(state) = value.get("state") {
            self.state = Some(bytes(state)?);
        }
        self.slots = Slots::read(|key| value.get(key).cloned())?;
        self.history = History::read(|key| value.get(key).cloned())?;
        Some(())
    }

    /// Returns the data of the node.
    pub fn text(&self) -> Vec<u8> {
        let mut more = Map::new();
        if let Some(state) = &self.state {
            more.insert("state".to_owned(), readable(state));
        }
        let values = self.slots.values().chain(self.history.values());
        more.extend(values.map(|(key, value)| (key.to_owned(), value)));
        let format = if more.is_empty() { PLAIN } else { MORE };
        let mut text = json!({ "job": format });
        if let Some(slot) = &self.slot {
            text["slot"] = slot.as_str().into();
        }
        let runs = [
            ("done", &self.done),
            ("failed", &self.failed),
            ("running", &self.running),
        ];
        for (key, run) in runs {
            if let Some(run) = run {
                text[key] = run.value();
            }
        }
        if !self.attempts.is_empty() {
            text["attempts"] = json!(self.attempts);
        }
        for (key, value) in more {
            text[key] = value;
        }
        text.to_string().into_bytes()
    }
}

/// Reads how often a slot was begun.
fn count((slot, count): (&String, &Value)) -> Option<(String, u32)> {
    Some((slot.clone(), u32::try_from(count.as_u64()?).ok()?))
}

/// Returns bytes as text if they are text, and otherwise in hexadecimal: at most twice as many.
fn readable(bytes: &[u8]) -> Value {
    let strange = |c: char| c.is_control() && !"\n\r\t".contains(c);
    match core::str::from_utf8(bytes) {
        Ok(text) if !text.contains(strange) => text.into(),
        _ => {
            let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
            json!({ "hex": digits.collect::<String>() })
        }
    }
}

/// Returns the bytes that [`readable`] was given.
fn bytes(value: &Value) -> Option<Vec<u8>> {
    if let Some(text) = value.as_str() {
        return Some(text.as_bytes().to_vec());
    }
    let digits = value.get("hex")?.as_str()?.as_bytes();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = digits.chunks(2).map(|pair| match pair {
        [high, low] => u8::try_from(digit(*high)? * 16 + digit(*low)?).ok(),
        _ => None,
    });
    pairs.collect()
}
