//! The slots that are done where their order does not tell.
//!
//! Runs in order are done up to the highest slot that is done. From the first run out of order on, each
//! slot that is done is also kept by itself, as many as there is room for. The lowest falls out first and
//! leaves its name as the `floor`. Whether a slot up to the floor was done is then unknown, and none of
//! them is run without being told to: no slot must run twice by accident.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};

use serde_json::{Value, json};

use super::past_run::{Outcome, PastRun};

/// How many bytes the slots that are kept by themselves may take.
pub(super) const MOST_BYTES: usize = 16_384;

/// How many slots may be open again at a time.
pub const MOST_OPEN: usize = 32;

/// The slots that are done, or not, against their order; see the module's documentation.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Slots {
    /// The slots that are done, each by itself, once there was a run out of order.
    pub(super) single: Option<BTreeMap<String, Kept>>,
    /// The highest slot that has fallen out.
    pub(super) floor: Option<String>,
    /// The slots that are to be run again, although they would be done by their order.
    pub(super) open: BTreeSet<String>,
}

/// The record that is kept of a run: its token, its attempt, and when it began.
pub(super) type Kept = (i64, u32, Option<i64>);

/// Whether a slot is to be run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Standing {
    /// The slot is to be run.
    Due,
    /// The slot is done, because of this run.
    Done(PastRun),
    /// The slot may have been done: what is known of slots up to this one has fallen out.
    Forgotten(String),
}

impl Slots {
    /// Keeps the slots that are done by themselves from now on, including those of these runs, the newest
    /// of which comes first.
    pub(super) fn begin<'a>(&mut self, done: impl DoubleEndedIterator<Item = &'a PastRun>) {
        let done = done.filter(|run| !run.slot.is_empty());
        let done = done.rev().map(|run| (run.slot.clone(), kept(run)));
        self.single.get_or_insert_with(|| done.collect());
    }

    pub(super) fn trim(&mut self) {
        let Some(single) = &mut self.single else {
            return;
        };
        let mut bytes = json!(single).to_string().len();
        while MOST_BYTES < bytes {
            let Some((lowest, kept)) = single.pop_first() else {
                return;
            };
            // One comma and two brackets, in place of a colon and a comma.
            let entry = json!([lowest, kept]).to_string().len();
            bytes = bytes.saturating_sub(entry - 1);
            self.floor = self.floor.take().max(Some(lowest));
        }
    }

    /// Returns the journal's entries for these slots, with their keys.
    pub(super) fn values(&self) -> impl Iterator<Item = (&'static str, Value)> {
        let open = Some(&self.open).filter(|open| !open.is_empty());
        let values = [
            ("single", self.single.as_ref().map(|single| json!(single))),
            ("floor", self.floor.as_ref().map(|floor| json!(floor))),
            ("open", open.map(|open| json!(open))),
        ];
        let there = |(key, value): (&'static str, Option<Value>)| Some((key, value?));
        values.into_iter().filter_map(there)
    }

    /// Reads [`values`](Self::values). Returns `None` if any of them cannot be read.
    pub(super) fn read(value: impl Fn(&str) -> Option<Value>) -> Option<Self> {
        let single = match value("single") {
            Some(Value::Object(single)) => {
                Some(single.into_iter().map(read_kept).collect::<Option<_>>()?)
            }
            Some(_) => return None,
            None => None,
        };
        let text = |value: Value| Some(value.as_str()?.to_owned());
        let open = match value("open") {
            Some(Value::Array(open)) => open.into_iter().map(text).collect::<Option<_>>()?,
            Some(_) => return None,
            None => BTreeSet::new(),
        };
        let floor = match value("floor") {
            Some(floor) => Some(text(floor)?),
            None => None,
        };
        Some(Self {
            single,
            floor,
            open,
        })
    }
}

fn read_kept((slot, kept): (String, Value)) -> Option<(String, Kept)> {
    let [token, attempt, started] = kept.as_array()?.as_slice() else {
        return None;
    };
    let attempt = u32::try_from(attempt.as_u64()?).ok()?;
    let started = match started {
        Value::Null => None,
        started => Some(started.as_i64()?),
    };
    Some((slot, (token.as_i64()?, attempt, started)))
}

pub(super) fn kept(run: &PastRun) -> Kept {
    (run.token, run.attempt, run.started)
}

pub(super) fn kept_run(slot: &str, (token, attempt, started): &Kept) -> PastRun {
    PastRun {
        slot: slot.to_owned(),
        attempt: *attempt,
        token: *token,
        started: *started,
        ended: None,
        outcome: Outcome::Done,
        owner: String::new(),
        message: None,
    }
}
