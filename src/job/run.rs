//! A run in progress.

use std::fmt;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::guard::guard_views;
use crate::lock::raw_guard::RawGuard;
use crate::system::sync::Mutex;
use crate::token::FencingToken;
use zklock_core::journal::{End, Journal, Outcome};

use super::record::RunRecord;

/// The most characters of a message that are kept.
const LONGEST_MESSAGE: usize = 512;

/// A run of a [`Job`](super::Job), for the function that does the work.
///
/// A run has the methods of every guard, except that it ends when the function returns, and that
/// the state of its lock is [`guard_state`](Self::guard_state).
pub struct Run<'a> {
    pub(super) raw: &'a RawGuard,
    pub(super) slot: &'a str,
    pub(super) attempt: u32,
    pub(super) retry_of: Option<RunRecord>,
    pub(super) state: Option<&'a [u8]>,
    pub(super) notes: Notes,
    pub(super) follows_release: Option<bool>,
    /// How long the end may wait for servers, if not for a session timeout.
    pub(super) patience: Mutex<Option<Duration>>,
}

guard_views!(Run<'_>, raw, guard_state);

/// What the work adds to the record of its run.
#[derive(Default)]
pub(crate) struct Notes {
    message: Mutex<Option<String>>,
    /// What the run leaves for the next one.
    state: Mutex<Option<Vec<u8>>>,
}

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
    ///
    /// If other slots have failed since, only its slot and its number are known, unless the last
    /// runs are [kept](crate::JobOptions::keep).
    pub fn retry_of(&self) -> Option<&RunRecord> {
        self.retry_of.as_ref()
    }

    /// Returns a number that grows with every run of this job.
    pub fn fencing_token(&self) -> FencingToken {
        self.raw.token()
    }

    /// Returns whether the last contender that was ahead is known to have recorded the end of its
    /// run, for the program; `None` if there was none.
    #[doc(hidden)]
    pub fn follows_release(&self) -> Option<bool> {
        self.follows_release
    }

    /// Makes the end of the run wait for servers no longer than this, for the program, which may
    /// have waited for them already.
    #[doc(hidden)]
    pub fn record_within(&self, limit: Duration) {
        *self.patience.lock() = Some(limit);
    }

    /// Returns what the last run that was done left for this one, such as how far it got; `None` if
    /// no run has left anything.
    pub fn state(&self) -> Option<&[u8]> {
        self.state
    }

    /// Leaves this state for the next run, at most 8,192 bytes, in place of what this run got.
    ///
    /// Costs no I/O: the state is written in the transaction that marks the run as done and
    /// releases the lock. A run is therefore done if and only if the next run gets what it left. A
    /// run that fails leaves what it got. The last call counts.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::BadArgument`](crate::Error::BadArgument) if the state is longer; then
    /// the call has changed nothing.
    ///
    /// # Example
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zklock::embedded::Server::start()?;
    /// # let client = zklock::Client::connect(server.hosts())?;
    /// # fn import_after(last: u64) -> zklock::Result<u64> { Ok(last + 7) }
    /// let job = client.job("/jobs/import")?;
    /// for slot in ["2026-11-22", "2026-11-23"] {
    ///     let _ = job.once(slot, |run| {
    ///         let cursor = run.state().and_then(|state| std::str::from_utf8(state).ok());
    ///         let last = cursor.and_then(|last| last.parse().ok()).unwrap_or(0);
    ///         run.set_state(import_after(last)?.to_string())
    ///     })?;
    /// }
    /// assert_eq!(job.state()?.as_deref(), Some(&b"14"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_state(&self, state: impl Into<Vec<u8>>) -> Result<()> {
        self.notes.set_state(state.into())
    }

    /// Adds a message to the run's record, such as how many rows it wrote or why it failed.
    ///
    /// Only the last message is kept, up to its first 512 characters. Costs no I/O: the message is
    /// written with the end of the run.
    pub fn set_message(&self, text: &str) {
        self.notes.set_message(text);
    }
}

impl Notes {
    pub(crate) fn set_state(&self, state: Vec<u8>) -> Result<()> {
        const MOST: usize = Journal::LONGEST_STATE;
        if MOST < state.len() {
            return Err(Error::BadArgument {
                name: "state",
                rule: format!(
                    "a run leaves at most {MOST} bytes for the next one, not {}: keep them elsewhere, and leave the place",
                    state.len()
                )
                .into(),
            });
        }
        *self.state.lock() = Some(state);
        Ok(())
    }

    pub(crate) fn set_message(&self, text: &str) {
        *self.message.lock() = Some(text.chars().take(LONGEST_MESSAGE).collect());
    }

    /// Returns how the run ended, given whether it did its work `well` or was `over` its time.
    pub(crate) fn end(&self, well: bool, over: Option<Duration>) -> End {
        let mut message = self.message.lock().take();
        if let Some(time) = over {
            let told = message.map(|message| format!(": {message}"));
            let told = told.unwrap_or_default();
            message = Some(format!("it ran longer than {time:?}{told}"));
        }
        End {
            outcome: match well && over.is_none() {
                true => Outcome::Done,
                false => Outcome::Failed,
            },
            message,
            state: self.state.lock().take(),
        }
    }
}

impl fmt::Debug for Run<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.raw.describe("Run", Some(self.raw.token()), f)
    }
}
