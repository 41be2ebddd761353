//! The record that a job's node keeps of its runs.
//!
//! The journal is the data of the directory in which a job's runs queue, because a child would get in the
//! way of other clients' locks. It is JSON, so that people can read it in ZooKeeper's shell:
//!
//! ```text
//! {"job":1,
//!  "slot":    "2026-11-21", the highest that is done
//!  "done":   {the last run that finished},
//!  "failed": {the last one that did not},
//!  "running":{the one that has begun and has not ended},
//!  "attempts":{"2026-11-22":2},
//!  "state":   "what the last run that finished left for the next one",
//!  "single":  {"2026-11-18":[token,attempt,started]}, the slots that are done, each by itself
//!  "floor":   "2025-11-01", the highest one of them that has fallen out
//!  "open":    ["2026-11-20"], those to be run again, although they are below "slot"
//!  "keep":    20, how many runs are kept, with "done" and "failed"
//!  "history":[{the runs before those, the newest first}]}
//! ```
//!
//! A client of an older version drops what it does not know when it writes. So a journal that has more than
//! such a client knows is of format 2: that client refuses it as not being a job's, and leaves it alone.
//! All others are of format 1, and stay so as long as nobody uses what is new.
//!
//! All times are the servers', and a transaction's time is known only from its answer. So the node's time
//! of change tells when the running run began, or else when the last one ended, and the next transaction
//! writes that time down.

mod history;
mod marks;
mod past_run;
mod slots;
mod text;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use self::history::History;
pub use self::past_run::{Outcome, PastRun};
pub use self::slots::{MOST_OPEN, Slots, Standing};

/// How many unfinished slots have their attempts counted.
const MOST_SLOTS: usize = 32;

/// The record of a job's runs; see the module's documentation.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Journal {
    /// The highest slot that is done in order.
    pub slot: Option<String>,
    /// The last run that finished.
    pub done: Option<PastRun>,
    /// The last run that failed, or whose end is unknown.
    pub failed: Option<PastRun>,
    /// The run that has begun and has not ended.
    pub running: Option<PastRun>,
    /// How often each unfinished slot was begun.
    pub attempts: BTreeMap<String, u32>,
    /// The bytes that the last finished run left for the next one.
    pub state: Option<Vec<u8>>,
    /// The slots that are done, or not, against their order.
    pub slots: Slots,
    /// The runs before the last ones.
    history: History,
}

/// The end of the run that has begun.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct End {
    /// The outcome.
    pub outcome: Outcome,
    /// The message that the run reports.
    pub message: Option<String>,
    /// The bytes that the run leaves for the next one, if it is done; `None` leaves what the run got itself.
    pub state: Option<Vec<u8>>,
}

impl Journal {
    /// The data of the node of a job that was never begun.
    pub const EMPTY: &'static [u8] = b"{\"job\":1}";

    /// How many bytes a run may leave for the next one. Every journal that is written contains these bytes.
    pub const LONGEST_STATE: usize = 8192;

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

    /// Keeps this many runs from now on, as far as there is room.
    pub(super) fn keep(&mut self, most: u32) {
        self.history.keep = most;
        self.trim();
    }

    /// Returns all runs that are known and have ended, the newest first.
    pub fn runs(&self) -> Vec<&PastRun> {
        let mut runs: Vec<_> = self.last().chain(&self.history.runs).collect();
        runs.sort_by_key(|run| core::cmp::Reverse(run.token));
        runs
    }

    /// Returns the last runs that finished and failed.
    fn last(&self) -> impl Iterator<Item = &PastRun> {
        [&self.done, &self.failed].into_iter().flatten()
    }

    fn trim(&mut self) {
        let last = self.last().count();
        self.history.trim(last);
    }

    /// Begins a run.
    pub(super) fn begin(mut self, run: PastRun) -> Self {
        self.bury();
        self.attempts.insert(run.slot.clone(), run.attempt);
        while MOST_SLOTS < self.attempts.len() {
            // The count of this run's slot stays, wherever the slot is: it limits the attempts.
            let other = self.attempts.keys().find(|slot| **slot != run.slot);
            let Some(other) = other.cloned() else { break };
            self.attempts.remove(&other);
        }
        self.running = Some(run);
        self
    }

    /// Ends the run that has begun, and marks its slot `by_itself` or by its order.
    pub(super) fn end(mut self, end: End, by_itself: bool) -> Self {
        let Some(run) = self.running.take() else {
            return self;
        };
        let End {
            outcome,
            message,
            state,
        } = end;
        let run = PastRun {
            outcome,
            message,
            ..run
        };
        match outcome {
            Outcome::Done => {
                self.mark(&run, by_itself);
                self.state = state.or(self.state);
                self.history.push(self.done.replace(run));
            }
            Outcome::Failed | Outcome::Unknown => self.history.push(self.failed.replace(run)),
        }
        self.trim();
        self
    }

    /// Counts the run that has begun as failed: its lock is no longer held, and nobody recorded its end.
    pub fn bury(&mut self) {
        if let Some(run) = self.running.take() {
            self.history.push(self.failed.replace(run));
            self.trim();
        }
    }

    /// Returns the journal in which the run that has begun is [buried](Self::bury), if that `is_gone`.
    pub fn settled<E>(
        mut self,
        is_gone: impl FnOnce(&PastRun) -> Result<bool, E>,
    ) -> Result<Self, E> {
        if self.running.as_ref().map(is_gone).transpose()? == Some(true) {
            self.bury();
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests;
