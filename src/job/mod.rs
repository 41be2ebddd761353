//! A job that runs once, on whichever machine is up.

mod driver;
mod forget;
mod look;
mod options;
mod record;
mod run;
mod unused_lock;

use std::result;
use std::sync::Arc;
use std::time::Duration;

use self::driver::JobDriver;
pub use self::options::JobOptions;
pub use self::record::RunRecord;
#[cfg(feature = "mysql")]
pub(crate) use self::run::Notes;
pub use self::run::Run;
use crate::contender::Contender;
use crate::error::{Error, Result};
use crate::lock::{Locks, described};
use zklock_core::attempt::Patience;
use zklock_core::job::{Due, Outcome as Ended, Wish};
pub use zklock_core::journal::Outcome;

/// The most bytes in a slot.
const LONGEST_SLOT: usize = 256;

/// Work that must run once: a nightly report, a daily import, a migration.
///
/// A [`Mutex`](crate::Mutex) keeps two machines from running a job at the same time. It does not
/// keep the second machine from running the job *after* the first one. A job does: its runs are
/// recorded on the servers, in the transaction that releases the lock. Either a run has held the
/// lock to its end and its slot is done, or the slot is not done, and the next machine that waits
/// or arrives runs it.
///
/// No lock service can promise that the work itself happened once: if a run did its work and died
/// before that transaction, the job runs again, and learns of the first run from [`Run::retry_of`].
/// Fence writes that must not happen twice, or late, with [`Run::fencing_token`].
///
/// The lock is the mutex of the same path: [`Client::contenders`](crate::Client::contenders) lists
/// the client that runs the job and those that wait, and the job excludes every other client that
/// locks the path. The record is the data of the path's own node, in JSON, about 20 KB at most. A
/// path of another lock can be a job's once nobody uses it.
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// use zklock::Once;
///
/// # fn report(_: i64) -> Result<u32, std::io::Error> { Ok(42) }
/// let job = client.job("/jobs/nightly-report")?;
/// match job.once("2026-11-22", |run| report(run.fencing_token().get()))? {
///     Once::Done(rows) => println!("{rows} rows"),
///     Once::DoneBefore(record) => println!("nothing to do: {record}"),
///     Once::Failed(error) => return Err(error.into()),
///     other => println!("{other:?}"),
/// }
/// assert!(matches!(job.once("2026-11-22", |_run| report(0))?, Once::DoneBefore(_)));
/// # Ok(())
/// # }
/// ```
#[doc(alias = "cron")]
#[doc(alias = "scheduler")]
#[derive(Clone)]
pub struct Job {
    locks: Arc<Locks>,
    path: Arc<str>,
}

described!(Job, it: path = it.path);

/// The outcome of a call that runs a job once.
///
/// # Example
///
/// See [`JobOptions`].
#[derive(Clone, Debug)]
#[must_use = "the job may have failed, or not have been run"]
pub enum Once<T, E, H = Contender> {
    /// This call ran the job and held the lock to the end, and that is recorded.
    Done(T),
    /// A client has run the job before, for this slot or, unless slots are run in
    /// [any order](JobOptions::any_order), for a higher one: the record names it.
    DoneBefore(RunRecord),
    /// Another contender runs the job, and this call did not wait, or stopped waiting.
    Running(H),
    /// This call ran the job, and the run returned an error: the slot is not done.
    Failed(E),
    /// The slot was begun as often as [`JobOptions::attempts`] allows; this is its last run, as far
    /// as it is known: see [`Run::retry_of`].
    NoAttemptsLeft(RunRecord),
}

impl Job {
    pub(crate) fn new(locks: &Arc<Locks>, path: &str) -> Result<Self> {
        crate::path::check(path)?;
        Ok(Self {
            locks: locks.clone(),
            path: path.into(),
        })
    }

    /// Runs the job for this slot, unless this slot or a higher one is done.
    ///
    /// A slot is a text that grows from run to run, compared byte by byte: a date (`2026-11-22`),
    /// an RFC 3339 time, a number with leading zeros. All machines must name the same slot for the
    /// same run; their clocks decide nothing else.
    ///
    /// Blocks for one round trip if the slot is done. Otherwise the call waits, in order of
    /// arrival, while another client runs the job, and runs it if that client fails; see
    /// [`JobOptions::wait`]. A lost connection does not end the wait. When `run` has returned, the
    /// call blocks until the end is recorded: for one round trip, or for at most two session
    /// timeouts when the connection is lost.
    ///
    /// A run that returns an error, panics, loses its lock or dies does not count as done.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::BadArgument`] for a slot that is empty, longer than 256 bytes, or has
    /// control characters, with [`Error::Unmarked`] if the path is in use as a lock that is not a
    /// job, or is the directory of other paths, and with [`Error::Unsupported`] on a handle of the
    /// `zookeeper` crate. After `run`, fails with [`Error::Lost`] if the servers say that the lock
    /// was lost before the end, and with [`Error::Unconfirmed`] if no server says in time whether
    /// the end was recorded, even if the run knew that its lock was lost; the next call finds out.
    /// Otherwise as [`Mutex::lock`](crate::Mutex::lock).
    pub fn once<T, E>(
        &self,
        slot: &str,
        run: impl FnOnce(&Run<'_>) -> result::Result<T, E>,
    ) -> Result<Once<T, E>> {
        self.once_with(slot, JobOptions::new(), run)
    }

    /// As [`once`](Self::once), with `options`.
    ///
    /// # Errors
    ///
    /// As [`once`](Self::once), with [`Error::GaveUp`] if the wait ended and it is not known
    /// who runs the job, and with [`Error::SlotForgotten`] for an old slot after runs out of
    /// [order](JobOptions::any_order).
    pub fn once_with<T, E>(
        &self,
        slot: &str,
        options: JobOptions<'_>,
        run: impl FnOnce(&Run<'_>) -> result::Result<T, E>,
    ) -> Result<Once<T, E>> {
        self.run(due_for(slot)?, options, run)
    }

    /// Runs the job unless the last finished run began less than `every` ago, by the servers'
    /// clock.
    ///
    /// No machine's own clock decides. This costs one write more than [`once`](Self::once), because
    /// only a transaction returns the servers' time. [`JobOptions::attempts`] are counted for that
    /// long after the last attempt. Blocks as [`once`](Self::once). A run for a slot counts as a
    /// run; a run of this method has no slot, and does not change the slots.
    ///
    /// # Errors
    ///
    /// As [`once`](Self::once).
    pub fn at_most_every<T, E>(
        &self,
        every: Duration,
        run: impl FnOnce(&Run<'_>) -> result::Result<T, E>,
    ) -> Result<Once<T, E>> {
        self.at_most_every_with(every, JobOptions::new(), run)
    }

    /// As [`at_most_every`](Self::at_most_every), with `options`.
    ///
    /// # Errors
    ///
    /// As [`once_with`](Self::once_with).
    pub fn at_most_every_with<T, E>(
        &self,
        every: Duration,
        options: JobOptions<'_>,
        run: impl FnOnce(&Run<'_>) -> result::Result<T, E>,
    ) -> Result<Once<T, E>> {
        self.run(due_every(every), options, run)
    }

    /// Returns the path of the job.
    pub fn path(&self) -> &str {
        &self.path
    }

    fn run<T, E>(
        &self,
        due: Due,
        options: JobOptions<'_>,
        run: impl FnOnce(&Run<'_>) -> result::Result<T, E>,
    ) -> Result<Once<T, E>> {
        options.check()?;
        let patience = match options.waits {
            true => Patience::Waits,
            false => Patience::Tries,
        };
        let request = options.lock.request(&self.locks.session, patience)?;
        let card = &self.locks.session.settings.card;
        let card = card.text(request.note.as_deref());
        let wish = Wish {
            due,
            terms: options.terms,
            owner: String::from_utf8_lossy(&card).into_owned(),
        };
        let mut driver = JobDriver::new(&self.locks, &self.path, wish, request, options.max_time);
        if let Some(ended) = driver.begin()? {
            return self.not_run(ended, &driver);
        }
        match driver.run(run)? {
            Ok(value) => {
                driver.end()?;
                driver.in_time().map(|()| Once::Done(value))
            }
            Err(error) => {
                if let Err(second) = driver.end() {
                    log::warn!("the failure of {} is not written down: {second}", self.path);
                }
                Ok(Once::Failed(error))
            }
        }
    }

    fn not_run<T, E>(&self, ended: Ended, driver: &JobDriver<'_, '_>) -> Result<Once<T, E>> {
        match ended {
            Ended::DoneBefore(run) => Ok(Once::DoneBefore(RunRecord::new(run))),
            Ended::Forgotten(slot, up_to) => Err(Error::SlotForgotten {
                path: self.path.to_string(),
                slot,
                up_to,
            }),
            Ended::NoAttemptsLeft(run) => Ok(Once::NoAttemptsLeft(RunRecord::new(run))),
            Ended::Unmarked => Err(self.unmarked()),
            Ended::Taken => {
                let holder = driver.holder()?;
                holder.map(Once::Running).ok_or_else(|| driver.gave_up())
            }
            _ => driver
                .ahead()
                .map(Once::Running)
                .ok_or_else(|| driver.gave_up()),
        }
    }

    fn unmarked(&self) -> Error {
        Error::Unmarked {
            path: self.path.to_string(),
            what: "a job",
        }
    }
}

/// Returns the wish for a run of this slot, if it is a valid slot.
pub(crate) fn due_for(slot: &str) -> Result<Due> {
    check_slot(slot)?;
    Ok(Due::Slot(slot.to_owned()))
}

fn check_slot(slot: &str) -> Result<()> {
    let is_bad = slot.is_empty() || slot.contains(char::is_control);
    if is_bad || LONGEST_SLOT < slot.len() {
        return Err(Error::BadArgument {
            name: "slot",
            rule: "a slot has 1 to 256 bytes and no control characters, such as 2026-11-22".into(),
        });
    }
    Ok(())
}

/// Returns the wish for a run, unless the last one began less than `time` ago.
pub(crate) fn due_every(time: Duration) -> Due {
    Due::Every(i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
}
