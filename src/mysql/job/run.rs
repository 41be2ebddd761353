//! A run in progress.

use crate::error::Result;
use crate::job::{Notes, RunRecord};
use crate::mysql::guard_methods::guard_views;
use crate::mysql::held::Held;

/// A run of a [`Job`](super::Job), passed to the function that does the work.
///
/// It has the methods of every guard, but it ends when the function returns, and the state of its
/// lock is [`guard_state`](Self::guard_state).
pub struct Run {
    pub(super) held: Held,
    pub(super) slot: String,
    pub(super) attempt: u32,
    pub(super) retry_of: Option<RunRecord>,
    pub(super) state: Option<Vec<u8>>,
    pub(super) notes: Notes,
}

guard_views!(Run, guard_state);

impl Run {
    /// Returns the slot; empty in [`at_most_every`](super::Job::at_most_every).
    pub fn slot(&self) -> &str {
        &self.slot
    }

    /// Returns the number of this attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns the attempt before this one, which failed or died: its work may be half done.
    ///
    /// If other slots have failed since, only its slot and its number are known, unless the last
    /// runs are [kept](crate::JobOptions::keep).
    pub fn retry_of(&self) -> Option<&RunRecord> {
        self.retry_of.as_ref()
    }

    /// Returns what the last run that was done left for this one; `None` if none has left anything.
    pub fn state(&self) -> Option<&[u8]> {
        self.state.as_deref()
    }

    /// Leaves this state for the next run, at most 8,192 bytes, in place of what this run got; see
    /// [`zklock::Run::set_state`](crate::Run::set_state). The statement that marks the run as done
    /// writes it.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::BadArgument`](crate::Error::BadArgument) if the state is longer.
    pub fn set_state(&self, state: impl Into<Vec<u8>>) -> Result<()> {
        self.notes.set_state(state.into())
    }

    /// Sets the message of the run's record, its first 512 characters. The message is written with
    /// the end of the run.
    pub fn set_message(&self, text: &str) {
        self.notes.set_message(text);
    }
}
