//! A run that is under way.

use std::fmt;

use crate::guard::guard_views;
use crate::lock::raw_guard::RawGuard;
use crate::system::sync::Mutex;
use crate::token::FencingToken;

use super::record::RunRecord;

/// How many characters of a message are kept.
const LONGEST_MESSAGE: usize = 512;

/// A run of a [`Job`](super::Job), for the function that does the work.
///
/// It has the methods of every guard, except that it ends when the function returns.
pub struct Run<'a> {
    pub(super) raw: &'a RawGuard,
    pub(super) slot: &'a str,
    pub(super) attempt: u32,
    pub(super) retry_of: Option<RunRecord>,
    pub(super) message: Mutex<Option<String>>,
    pub(super) follows_release: Option<bool>,
}

guard_views!(Run<'_>, raw);

impl Run<'_> {
    /// Returns the slot; empty in [`at_most_every`](super::Job::at_most_every).
    pub fn slot(&self) -> &str {
        self.slot
    }

    /// Returns the number of this attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns the attempt before this one, which failed or died: its work may be half done.
    pub fn retry_of(&self) -> Option<&RunRecord> {
        self.retry_of.as_ref()
    }

    /// Returns a number that grows with every run of this job.
    pub fn fencing_token(&self) -> FencingToken {
        self.raw.token()
    }

    /// Returns whether the last contender that was ahead is known to have ended its run, for the program;
    /// `None` if there was none.
    #[doc(hidden)]
    pub fn follows_release(&self) -> Option<bool> {
        self.follows_release
    }

    /// Adds this to the run's record, such as how many rows it wrote or why it failed.
    ///
    /// Only the last message is kept, up to its first 512 characters. Costs no I/O: it is written
    /// with the end of the run.
    pub fn set_message(&self, text: &str) {
        *self.message.lock() = Some(shortened(text));
    }
}

/// Returns the part of a message that is kept.
pub(crate) fn shortened(text: &str) -> String {
    text.chars().take(LONGEST_MESSAGE).collect()
}

impl fmt::Debug for Run<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.raw.describe("Run", Some(self.raw.token()), f)
    }
}
