//! Reads a job's record.

use super::Job;
use super::record::RunRecord;
use crate::error::Result;
use crate::token::FencingToken;
use zklock_core::journal::{Journal, PastRun};

/// A job's record, for the program.
#[doc(hidden)]
#[derive(Debug)]
pub struct Records {
    /// As [`Job::last`].
    pub done: Option<RunRecord>,
    /// As [`Job::last_failure`].
    pub failed: Option<RunRecord>,
    /// As [`Job::running`].
    pub running: Option<RunRecord>,
    /// As [`Job::history`].
    pub history: Vec<RunRecord>,
    /// The slots that are [forgotten](Job::forget_slot) and not run since.
    pub open: Vec<String>,
}

impl Job {
    /// Returns the whole record, as of one moment; for the program.
    ///
    /// # Errors
    ///
    /// As [`last`](Self::last).
    #[doc(hidden)]
    pub fn records(&self) -> Result<Records> {
        loop {
            let journal = self.settled()?;
            match &journal.running {
                // The run has ended since it was read.
                Some(run) if !self.is_held(run)? => continue,
                _ => {}
            }
            let runs = journal.runs().into_iter().cloned();
            return Ok(Records {
                history: runs.map(RunRecord::new).collect(),
                open: journal.open_slots().map(str::to_owned).collect(),
                done: journal.done.map(RunRecord::new),
                failed: journal.failed.map(RunRecord::new),
                running: journal.running.map(RunRecord::under_way),
            });
        }
    }

    /// Returns the last run that finished; `None` if none has.
    ///
    /// Blocks for one round trip, at most 15 s, also when the connection is lost. Reads from a
    /// server that has caught up with its leader; see
    /// [`Client::contenders`](crate::Client::contenders).
    ///
    /// # Errors
    ///
    /// Fails if the server refuses the request or does not answer in time, and with
    /// [`Error::Unmarked`](crate::Error::Unmarked) if the path's node was created by a lock.
    pub fn last(&self) -> Result<Option<RunRecord>> {
        Ok(self.journal()?.done.map(RunRecord::new))
    }

    /// Returns the last run that failed, or that has begun and whose lock is free; `None` if there
    /// is none.
    ///
    /// Blocks for a few round trips, at most 15 s each.
    ///
    /// # Errors
    ///
    /// As [`last`](Self::last).
    pub fn last_failure(&self) -> Result<Option<RunRecord>> {
        Ok(self.settled()?.failed.map(RunRecord::new))
    }

    /// Returns the runs that are [kept](super::JobOptions::keep) and have ended, the newest first.
    /// If none are kept, returns the last one that finished and the last one that failed.
    ///
    /// Blocks for a few round trips, at most 15 s each.
    ///
    /// # Errors
    ///
    /// As [`last`](Self::last).
    ///
    /// # Example
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zklock::embedded::Server::start()?;
    /// # let client = zklock::Client::connect(server.hosts())?;
    /// use zklock::JobOptions;
    ///
    /// let job = client.job("/jobs/nightly-report")?;
    /// for slot in ["2026-11-21", "2026-11-22", "2026-11-23"] {
    ///     let options = JobOptions::new().keep(20);
    ///     let _ = job.once_with(slot, options, |_run| Ok::<_, std::io::Error>(()))?;
    /// }
    /// for run in job.history()? {
    ///     println!("{run}"); // slot 2026-11-23, attempt 1, begun ..
    /// }
    /// # assert_eq!(job.history()?.len(), 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn history(&self) -> Result<Vec<RunRecord>> {
        let journal = self.settled()?;
        let runs = journal.runs().into_iter().cloned();
        Ok(runs.map(RunRecord::new).collect())
    }

    /// Returns the run in progress; `None` if there is none.
    ///
    /// Blocks for a few round trips, at most 15 s each.
    ///
    /// # Errors
    ///
    /// As [`last`](Self::last).
    pub fn running(&self) -> Result<Option<RunRecord>> {
        match self.journal()?.running {
            Some(run) if self.is_held(&run)? => Ok(Some(RunRecord::under_way(run))),
            _ => Ok(None),
        }
    }

    /// Returns what the last run that was done left for the next one; `None` if none has left
    /// anything. See [`Run::set_state`](super::Run::set_state).
    ///
    /// Blocks for one round trip, at most 15 s, also when the connection is lost.
    ///
    /// # Errors
    ///
    /// As [`last`](Self::last).
    pub fn state(&self) -> Result<Option<Vec<u8>>> {
        Ok(self.journal()?.state)
    }

    /// Returns the record, in which a run that is gone counts as failed.
    fn settled(&self) -> Result<Journal> {
        self.journal()?.settled(|run| self.is_gone(run))
    }

    /// Returns whether the end of this run is not recorded, and its lock is free.
    fn is_gone(&self, run: &PastRun) -> Result<bool> {
        // The run may have ended since it was read.
        Ok(!self.is_held(run)? && self.journal()?.running.as_ref() == Some(run))
    }

    /// Returns whether this run still has the lock.
    pub(super) fn is_held(&self, run: &PastRun) -> Result<bool> {
        let token = FencingToken::new(run.token);
        self.locks.session.is_held_with(&self.path, token)
    }

    fn journal(&self) -> Result<Journal> {
        let record = self.record()?;
        Ok(record.map(|(journal, _)| journal).unwrap_or_default())
    }
}
