//! A job that is run once, by whichever machine is up.

mod driver;
mod run;

use std::fmt;
use std::result;
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::warn;

use self::driver::JobDriver;
pub use self::run::Run;
use crate::error::{Error, Result};
use crate::job::{JobOptions, Once, RunRecord, due_every, due_for};
use crate::mysql::description::description;
use crate::mysql::job_table;
use crate::mysql::lock_table::Key;
use crate::mysql::shared_client::SharedClient;
use crate::owner::Owner;
use zklock_core::job::{Due, Outcome as Ended, Wish};
use zklock_core::journal::{Journal, PastRun};

/// The caller's request, for errors.
const WHAT: &str = "read the job";

/// Something that is to be run once: a nightly report, a daily import, a migration.
///
/// Made by [`Client::job`](crate::mysql::Client::job). It has the promises and options of a
/// [`zklock::Job`](crate::Job): the statement that ends the lock also writes what has been run into
/// the table `database_lock_job`. Either a run has held the lock to its end and its slot is done,
/// or the slot is not done, and the next machine that waits or arrives runs it. All times are the
/// database's.
///
/// Unlike ZooKeeper, a database has no queue: a waiter has no place in it, and
/// [`JobOptions::on_wait`] is not called. [`Once::Running`] names the holder, as the holder
/// describes itself.
///
/// # Example
///
/// ```no_run
/// use zklock::Once;
/// use zklock::mysql::Client;
///
/// # fn report(_: i64) -> Result<u32, std::io::Error> { Ok(42) }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::connect("mysql://app:secret@db:3306/app")?;
/// let job = client.job("nightly-report")?;
/// match job.once("2026-11-22", |run| report(run.fencing_token().get()))? {
///     Once::Done(rows) => println!("{rows} rows"),
///     Once::DoneBefore(record) => println!("nothing to do: {record}"),
///     Once::Failed(error) => return Err(error.into()),
///     other => println!("{other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Job {
    shared: Arc<SharedClient>,
    name: Arc<str>,
}

impl Job {
    pub(super) fn new(shared: Arc<SharedClient>, name: Arc<str>) -> Self {
        Self { shared, name }
    }

    /// Runs the job for this slot, unless this slot or one above it is done; see
    /// [`zklock::Job::once`](crate::Job::once).
    ///
    /// Blocks for one round trip if the slot is done. Otherwise the call waits while another client
    /// runs the job, even while there is no connection to the database. After `run` has returned,
    /// the call blocks until the end is recorded: for one round trip, and for a lease at most.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::BadArgument`] for a slot that is empty, longer than 256 bytes, or has
    /// control characters. After `run`, fails with [`Error::Lost`] if the lock was lost before the
    /// end, and with [`Error::Unconfirmed`] if it is unknown whether the end was recorded; the next
    /// call finds out. Otherwise as [`Mutex::lock`](crate::mysql::Mutex::lock).
    pub fn once<T, E>(
        &self,
        slot: &str,
        run: impl FnOnce(&Run) -> result::Result<T, E>,
    ) -> Result<Once<T, E, Owner>> {
        self.once_with(slot, JobOptions::new(), run)
    }

    /// Like [`once`](Self::once), with `options`.
    ///
    /// # Errors
    ///
    /// As [`once`](Self::once), with [`Error::GaveUp`] if the wait ended and it is not known who
    /// runs the job, and with [`Error::SlotForgotten`] for an old slot after runs out of
    /// [order](JobOptions::any_order).
    pub fn once_with<T, E>(
        &self,
        slot: &str,
        options: JobOptions<'_>,
        run: impl FnOnce(&Run) -> result::Result<T, E>,
    ) -> Result<Once<T, E, Owner>> {
        self.run(due_for(slot)?, options, run)
    }

    /// Runs the job unless the last finished run began less than `every` ago, by the database's
    /// clock; see [`zklock::Job::at_most_every`](crate::Job::at_most_every).
    ///
    /// Blocks as [`once`](Self::once) does.
    ///
    /// # Errors
    ///
    /// As [`once`](Self::once).
    pub fn at_most_every<T, E>(
        &self,
        every: Duration,
        run: impl FnOnce(&Run) -> result::Result<T, E>,
    ) -> Result<Once<T, E, Owner>> {
        self.at_most_every_with(every, JobOptions::new(), run)
    }

    /// Like [`at_most_every`](Self::at_most_every), with `options`.
    ///
    /// # Errors
    ///
    /// As [`once_with`](Self::once_with).
    pub fn at_most_every_with<T, E>(
        &self,
        every: Duration,
        options: JobOptions<'_>,
        run: impl FnOnce(&Run) -> result::Result<T, E>,
    ) -> Result<Once<T, E, Owner>> {
        self.run(due_every(every), options, run)
    }

    /// Returns the last run that finished; `None` if none has.
    ///
    /// Blocks for one round trip, for at most five seconds.
    ///
    /// # Errors
    ///
    /// Fails if the database fails, or does not answer in time.
    pub fn last(&self) -> Result<Option<RunRecord>> {
        Ok(self.journal()?.done.map(RunRecord::new))
    }

    /// Returns the last run that failed, or that began and whose lock is now free; `None` if
    /// there is none.
    ///
    /// Blocks for three round trips, each for at most five seconds.
    ///
    /// # Errors
    ///
    /// As [`last`](Self::last).
    pub fn last_failure(&self) -> Result<Option<RunRecord>> {
        Ok(self.settled()?.failed.map(RunRecord::new))
    }

    /// Returns the runs that are [kept](JobOptions::keep) and have ended, the newest first. If none
    /// are kept, returns the last one that finished and the last one that failed.
    ///
    /// Blocks for three round trips, each for at most five seconds.
    ///
    /// # Errors
    ///
    /// As [`last`](Self::last).
    pub fn history(&self) -> Result<Vec<RunRecord>> {
        let journal = self.settled()?;
        let runs = journal.runs().into_iter().cloned();
        Ok(runs.map(RunRecord::new).collect())
    }

    /// Returns the run in progress; `None` if there is none.
    ///
    /// Blocks for two round trips, each for at most five seconds.
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
    /// anything.
    ///
    /// Blocks for one round trip, for at most five seconds.
    ///
    /// # Errors
    ///
    /// As [`last`](Self::last).
    pub fn state(&self) -> Result<Option<Vec<u8>>> {
        Ok(self.journal()?.state)
    }

    /// Returns the job's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn run<T, E>(
        &self,
        due: Due,
        options: JobOptions<'_>,
        run: impl FnOnce(&Run) -> result::Result<T, E>,
    ) -> Result<Once<T, E, Owner>> {
        options.check()?;
        if options.max_time.is_some() {
            return Err(Error::Unsupported {
                what: "JobOptions::max_time for a job in a database",
            });
        }
        let (limit, note) = options.lock.limit_and_note();
        let wish = Wish {
            due,
            terms: options.terms,
            owner: description(note.as_deref()),
        };
        let mut driver = JobDriver::new(&self.shared, &self.name, wish, options.waits, limit, note);
        if let Some(ended) = driver.begin()? {
            return self.not_run(ended, &mut driver);
        }
        match driver.run(run)? {
            Ok(value) => driver.end().map(|()| Once::Done(value)),
            Err(error) => {
                if let Err(second) = driver.end() {
                    warn!("the failure of {} is not written down: {second}", self.name);
                }
                Ok(Once::Failed(error))
            }
        }
    }

    fn not_run<T, E>(&self, ended: Ended, driver: &mut JobDriver<'_>) -> Result<Once<T, E, Owner>> {
        match ended {
            Ended::DoneBefore(run) => Ok(Once::DoneBefore(RunRecord::new(run))),
            Ended::Forgotten(slot, up_to) => Err(Error::SlotForgotten {
                path: self.name.to_string(),
                slot,
                up_to,
            }),
            Ended::NoAttemptsLeft(run) => Ok(Once::NoAttemptsLeft(RunRecord::new(run))),
            Ended::Unmarked => Err(self.unreadable("run the job")),
            _ => driver
                .holder()?
                .map(Once::Running)
                .ok_or_else(|| Error::GaveUp {
                    path: self.name.to_string(),
                }),
        }
    }

    fn journal(&self) -> Result<Journal> {
        let database = &self.shared.database;
        let deadline = Instant::now() + database.answer_limit();
        let name = self.name.clone();
        let found = database.ask(deadline, WHAT, move |connection| {
            let (name, owner) = (&*name, "");
            connection.read(|conn| job_table::read(conn, Key { name, owner }))
        })?;
        let Some(found) = found else {
            return Ok(Journal::default());
        };
        Journal::parse(&found.journal, found.changed).ok_or_else(|| self.unreadable(WHAT))
    }

    fn unreadable(&self, what: &'static str) -> Error {
        let name = &self.name;
        Error::Database {
            what,
            message: format!(
                "the journal of {name} in database_lock_job cannot be read: if a later version of zklock wrote it, update this program; if somebody changed it, correct it"
            ),
        }
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
    fn is_held(&self, run: &PastRun) -> Result<bool> {
        let database = &self.shared.database;
        let deadline = Instant::now() + database.answer_limit();
        let (name, token) = (self.name.clone(), run.token);
        database.ask(deadline, WHAT, move |connection| {
            connection.read(|conn| job_table::is_held(conn, &name, token))
        })
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.describe("Job", Some(&self.name), f)
    }
}
