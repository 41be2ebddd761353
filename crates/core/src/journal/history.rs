//! The runs before the last ones.
//!
//! A run moves here when another run takes its place as the last that finished or failed. So no run is in
//! the journal twice, and its times are known by then.

use alloc::string::ToString;
use alloc::vec::Vec;

use serde_json::{Value, json};

use super::past_run::{Outcome, PastRun};

/// How many bytes these runs may take.
pub(super) const MOST_BYTES: usize = 16_384;

/// The runs before the last ones; see the module's documentation.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct History {
    /// How many runs are kept, including the last ones.
    pub(super) keep: u32,
    /// The runs, the newest first.
    pub(super) runs: Vec<PastRun>,
}

impl History {
    /// Adds a run whose place another run has taken.
    pub(super) fn push(&mut self, run: Option<PastRun>) {
        let Some(run) = run.filter(|_| 0 < self.keep) else {
            return;
        };
        // The last run that finished may be older than many that failed.
        let newer = |other: &PastRun| run.token < other.token;
        let at = self.runs.partition_point(newer);
        self.runs.insert(at, run);
    }

    /// Drops the oldest runs if there are more than are kept beside the `last` ones, or no room.
    pub(super) fn trim(&mut self, last: usize) {
        let keep = usize::try_from(self.keep).unwrap_or(usize::MAX);
        self.runs.truncate(keep.saturating_sub(last));
        let mut bytes = 0;
        let has_room = |run: &&PastRun| {
            bytes += value(run).to_string().len() + 1;
            bytes <= MOST_BYTES
        };
        let most = self.runs.iter().take_while(has_room).count();
        self.runs.truncate(most);
    }

    /// Returns the journal's entries for these runs, with their keys.
    pub(super) fn values(&self) -> impl Iterator<Item = (&'static str, Value)> {
        let runs: Vec<_> = self.runs.iter().map(value).collect();
        let runs = (!runs.is_empty()).then(|| ("history", json!(runs)));
        let keep = (0 < self.keep).then(|| ("keep", json!(self.keep)));
        keep.into_iter().chain(runs)
    }

    /// Reads [`values`](Self::values). Returns `None` if any of them cannot be read.
    pub(super) fn read(value: impl Fn(&str) -> Option<Value>) -> Option<Self> {
        let keep = match value("keep") {
            Some(keep) => u32::try_from(keep.as_u64()?).ok()?,
            None => 0,
        };
        let runs = match value("history") {
            Some(Value::Array(runs)) => runs.iter().map(read).collect::<Option<_>>()?,
            Some(_) => return None,
            None => Vec::new(),
        };
        Some(Self { keep, runs })
    }
}

fn value(run: &PastRun) -> Value {
    let mut value = run.value();
    if run.outcome == Outcome::Failed {
        value["failed"] = true.into();
    }
    value
}

fn read(value: &Value) -> Option<PastRun> {
    let failed = value.get("failed").and_then(Value::as_bool) == Some(true);
    let outcome = if failed {
        Outcome::Failed
    } else {
        Outcome::Done
    };
    PastRun::parse(value, outcome)
}
