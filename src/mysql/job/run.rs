//! A run that is under way.

use parking_lot::Mutex;

use crate::job::{RunRecord, shortened};
use crate::mysql::guard_methods::guard_views;
use crate::mysql::held::Held;

/// A run of a [`Job`](super::Job), passed to the function that does the work.
///
/// It has what every guard has, but it ends when the function returns.
pub struct Run {
    pub(super) held: Held,
    pub(super) slot: String,
    pub(super) attempt: u32,
    pub(super) retry_of: Option<RunRecord>,
    pub(super) message: Mutex<Option<String>>,
}

guard_views!(Run);

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
    pub fn retry_of(&self) -> Option<&RunRecord> {
        self.retry_of.as_ref()
    }

    /// Sets the message of the run's record, its first 512 characters; it is written with the
    /// end of the run.
    pub fn set_message(&self, text: &str) {
        *self.message.lock() = Some(shortened(text));
    }
}
