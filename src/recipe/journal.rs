//! What a job's node says of its runs.
//!
//! The journal is the data of the directory in which a job's runs queue; a child would get in
//! the way of other clients' locks. It is JSON, so that people can read it in ZooKeeper's shell:
//!
//! ```text
//! {"job":1,
//!  "slot":    "2026-11-21", the highest that is done
//!  "done":   {the last run that finished},
//!  "failed": {the last one that did not},
//!  "running":{the one that has begun and has not ended},
//!  "attempts":{"2026-11-22":2}}
//! ```
//!
//! All times are the servers', and a transaction's time is known only from its answer. So the
//! node's time of change tells when the running run began, or else when the last one ended, and
//! the next transaction writes it down.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// How many unfinished slots have their attempts counted.
const MOST_SLOTS: usize = 32;

/// See the module's documentation.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Journal {
    /// The highest slot that is done.
    pub slot: Option<String>,
    /// The last run that finished.
    pub done: Option<PastRun>,
    /// The last run that failed, or whose end is unknown.
    pub failed: Option<PastRun>,
    /// The run that has begun and has not ended.
    pub running: Option<PastRun>,
    /// How often each unfinished slot was begun.
    pub attempts: BTreeMap<String, u32>,
}

/// One run of a job.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct PastRun {
    /// Its slot; empty if the job runs at intervals.
    pub slot: String,
    /// Which attempt at its slot it was, counted from 1.
    pub attempt: u32,
    /// The fencing token of its lock.
    pub token: i64,
    /// When it began, in milliseconds, by the servers' clock.
    pub started: Option<i64>,
    /// When it ended.
    pub ended: Option<i64>,
    /// How it ended.
    pub outcome: Outcome,
    /// Who ran it, as a contender's node says it.
    pub owner: String,
    /// What the run reported.
    pub message: Option<String>,
}

/// How a run of a job ended.
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// use zklock::Outcome;
///
/// let job = client.job("/jobs/nightly-report")?;
/// job.once("2026-11-22", |_run| Err::<(), _>("no disk"))?;
/// let failure = job.last_failure()?.expect("it failed");
/// assert_eq!(failure.outcome(), Outcome::Failed);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// It finished, and its lock was held to the end.
    Done,
    /// It returned an error, or panicked.
    Failed,
    /// It has not ended yet, or its process died or lost the lock: nobody wrote down how it ended.
    Unknown,
}

impl Journal {
    /// The data of the node of a job that was never begun.
    pub const EMPTY: &'static [u8] = b"{\"job\":1}";

    /// Reads a node's data, which was written at `mtime`; `None` if it is not a journal.
    pub fn parse(data: &[u8], mtime: i64) -> Option<Self> {
        let value: Value = serde_json::from_slice(data).ok()?;
        let value = value.as_object()?;
        if value.get("job")?.as_i64() != Some(1) {
            return None;
        }
        let run = |key: &str, outcome| PastRun::parse(value.get(key)?, outcome);
        let attempts = value.get("attempts").and_then(Value::as_object);
        let count = |(slot, count): (&String, &Value)| {
            Some((slot.clone(), u32::try_from(count.as_u64()?).ok()?))
        };
        let mut journal = Self {
            slot: value.get("slot").and_then(Value::as_str).map(str::to_owned),
            done: run("done", Outcome::Done),
            failed: run("failed", Outcome::Failed),
            running: run("running", Outcome::Unknown),
            attempts: attempts.into_iter().flatten().filter_map(count).collect(),
        };
        journal.date(mtime);
        Some(journal)
    }

    /// The data of the node.
    pub fn text(&self) -> Vec<u8> {
        let mut text = json!({ "job": 1 });
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
        text.to_string().into_bytes()
    }

    /// Fills in the time that only the node's `mtime` tells.
    fn date(&mut self, mtime: i64) {
        if let Some(running) = &mut self.running {
            running.started.get_or_insert(mtime);
            return;
        }
        let ended = |run: &&mut PastRun| run.outcome != Outcome::Unknown;
        let both = [&mut self.done, &mut self.failed];
        let last = both.into_iter().filter_map(Option::as_mut).filter(ended);
        if let Some(last) = last.max_by_key(|run| run.token) {
            last.ended.get_or_insert(mtime);
        }
    }

    /// A run of this slot begins.
    pub(super) fn begin(mut self, run: PastRun) -> Self {
        self.bury();
        self.attempts.insert(run.slot.clone(), run.attempt);
        while MOST_SLOTS < self.attempts.len() {
            // Its own count stays, wherever its slot is: it limits the attempts.
            let other = self.attempts.keys().find(|slot| **slot != run.slot);
            let Some(other) = other.cloned() else { break };
            self.attempts.remove(&other);
        }
        self.running = Some(run);
        self
    }

    /// The run that has begun ends.
    pub(super) fn end(mut self, outcome: Outcome, message: Option<String>) -> Self {
        let Some(run) = self.running.take() else {
            return self;
        };
        let run = PastRun {
            outcome,
            message,
            ..run
        };
        match outcome {
            Outcome::Done => {
                self.attempts.retain(|slot, _| run.slot < *slot);
                // A run without a slot leaves the highest one as it is.
                if !run.slot.is_empty() {
                    self.slot = Some(run.slot.clone());
                }
                self.done = Some(run);
            }
            Outcome::Failed | Outcome::Unknown => self.failed = Some(run),
        }
        self
    }

    /// The run that has begun counts as failed: its lock is no longer held, and nobody wrote down
    /// its end.
    pub(super) fn bury(&mut self) {
        if let Some(run) = self.running.take() {
            self.failed = Some(run);
        }
    }
}

impl PastRun {
    fn parse(value: &Value, outcome: Outcome) -> Option<Self> {
        let value = value.as_object()?;
        let text = |key: &str| Some(value.get(key)?.as_str()?.to_owned());
        let number = |key: &str| value.get(key).and_then(Value::as_i64);
        // The end of a run that failed is unknown if nobody wrote down that it ended.
        let unknown = value.get("unknown").and_then(Value::as_bool) == Some(true);
        Some(Self {
            slot: text("slot")?,
            attempt: u32::try_from(number("attempt")?).ok()?,
            token: number("token")?,
            started: number("started_ms"),
            ended: number("ended_ms"),
            outcome: if unknown { Outcome::Unknown } else { outcome },
            owner: value
                .get("owner")
                .map_or_else(String::new, Value::to_string),
            message: text("message"),
        })
    }

    fn value(&self) -> Value {
        let mut value = Map::new();
        let mut put = |key: &str, it: Value| value.insert(key.to_owned(), it);
        put("slot", self.slot.as_str().into());
        put("attempt", self.attempt.into());
        put("token", self.token.into());
        if let Some(started) = self.started {
            put("started_ms", started.into());
        }
        if let Some(ended) = self.ended {
            put("ended_ms", ended.into());
        }
        if self.outcome == Outcome::Unknown {
            put("unknown", true.into());
        }
        // The owner is written back as it was read.
        if let Ok(owner) = serde_json::from_str(&self.owner) {
            put("owner", owner);
        }
        if let Some(message) = &self.message {
            put("message", message.as_str().into());
        }
        Value::Object(value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::support::fuzz;

    pub(crate) fn run(slot: &str, token: i64) -> PastRun {
        PastRun {
            slot: slot.to_owned(),
            attempt: 1,
            token,
            started: None,
            ended: None,
            outcome: Outcome::Unknown,
            owner: r#"{"host":"db1","pid":7}"#.to_owned(),
            message: None,
        }
    }

    #[test]
    fn times_are_those_of_the_transactions() {
        let begun = Journal::default().begin(run("a", 7));
        let read = Journal::parse(&begun.text(), 1_000).unwrap();
        assert_eq!(read.running.as_ref().unwrap().started, Some(1_000));
        let done = read.end(Outcome::Done, Some("42 rows".to_owned()));
        let read = Journal::parse(&done.text(), 2_000).unwrap();
        let last = read.done.clone().unwrap();
        assert_eq!((last.started, last.ended), (Some(1_000), Some(2_000)));
        assert_eq!(last.message.as_deref(), Some("42 rows"));
        // A later change of the node does not change them.
        let next = read.begin(run("b", 9)).text();
        let read = Journal::parse(&next, 3_000).unwrap();
        assert_eq!(read.done, Some(last));
        assert_eq!(read.attempts, BTreeMap::from([("b".to_owned(), 1)]));
    }

    #[test]
    fn a_run_keeps_its_own_count_however_many_slots_are_open() {
        let slots = (0..MOST_SLOTS).map(|number| format!("b{number:02}"));
        let full = slots.fold(Journal::default(), |journal, slot| {
            journal.begin(run(&slot, 7))
        });
        let journal = full.begin(run("a", 9));
        assert_eq!(journal.attempts.len(), MOST_SLOTS);
        assert_eq!(journal.attempts.get("a"), Some(&1));
    }

    #[test]
    fn a_run_that_nobody_ended_has_no_end() {
        let begun = Journal::default().begin(run("a", 7)).text();
        let next = Journal::parse(&begun, 1_000).unwrap().begin(run("a", 9));
        let failed = Journal::parse(&next.text(), 2_000).unwrap().failed.unwrap();
        assert_eq!(failed.outcome, Outcome::Unknown);
        assert_eq!((failed.started, failed.ended), (Some(1_000), None));
        let ended = next.end(Outcome::Failed, None);
        let failed = Journal::parse(&ended.text(), 3_000)
            .unwrap()
            .failed
            .unwrap();
        assert_eq!((failed.token, failed.outcome), (9, Outcome::Failed));
        assert_eq!(failed.ended, Some(3_000));
    }

    #[test]
    fn a_journal_stays_short() {
        let mut journal = Journal::default();
        for slot in 0..100 {
            journal = journal.begin(run(&format!("{slot:03}"), slot));
        }
        assert_eq!(journal.attempts.len(), MOST_SLOTS);
        assert_eq!(journal.attempts.keys().next_back().unwrap(), "099");
        let journal = journal.end(Outcome::Done, None);
        assert!(journal.attempts.is_empty());
    }

    #[test]
    fn other_data_is_no_journal() {
        for data in [
            &b""[..],
            b"127.0.0.1",
            b"{\"held\":null}",
            b"{\"job\":2}",
            b"[1]",
            b"\xff",
        ] {
            assert_eq!(Journal::parse(data, 0), None);
        }
        assert_eq!(Journal::parse(Journal::EMPTY, 0), Some(Journal::default()));
        assert_eq!(Journal::default().text(), Journal::EMPTY);
    }

    /// Numbers that others wrote are kept, however large.
    #[test]
    fn a_number_that_no_integer_holds_is_written_back() {
        let text = r#"{"job":1,"attempts":{"b":2},"other":118446744073709551616}"#;
        let owner = r#"{"job":1,"done":{"slot":"a","attempt":1,"token":7,"owner":{"pid":118446744073709551616}}}"#;
        for text in [text, owner] {
            let journal = Journal::parse(text.as_bytes(), 5).unwrap();
            assert_eq!(Journal::parse(&journal.text(), 6), Some(journal));
        }
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn no_data_makes_the_reader_panic_and_what_is_read_is_written_back(
            text in fuzz::texts(
                &[r#"{"job":1,"done":{"slot":"a","attempt":1,"token":7,"owner":{"pid":1}},"attempts":{"b":2}}"#],
                &["{", "}", "[", "]", "\"", ":", ",", "-1", "null", "18446744073709551616",
                    "\"running\":", "\"unknown\":true", "1e999"],
            ),
        ) {
            if let Some(journal) = Journal::parse(text.as_bytes(), 5) {
                prop_assert_eq!(Journal::parse(&journal.text(), 6), Some(journal));
            }
        }
    }
}
