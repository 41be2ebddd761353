//! The options of a run.

use std::fmt;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::options::{LockOptions, Waiting};
use crate::system::channel::Receiver;
use zklock_core::job::Terms;

/// How to wait for a run, and which runs to make; for [`Job::once_with`](super::Job::once_with).
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// use zklock::{JobOptions, Once};
///
/// let job = client.job("/jobs/nightly-report")?;
/// let options = JobOptions::new().wait(false).attempts(3);
/// match job.once_with("2026-11-22", options, |_run| Ok::<_, String>(42))? {
///     Once::Done(rows) => println!("{rows} rows"),
///     Once::DoneBefore(record) => println!("done: {record}"),
///     Once::Running(contender) => println!("under way: {contender:?}"),
///     Once::Failed(error) => println!("{error}; the next one tries again"),
///     Once::NoAttemptsLeft(record) => println!("given up: {record}"),
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "options do nothing until they are passed to a job"]
pub struct JobOptions<'a> {
    pub(crate) lock: LockOptions<'a>,
    pub(crate) waits: bool,
    pub(crate) terms: Terms,
    pub(crate) max_time: Option<Duration>,
}

impl<'a> JobOptions<'a> {
    /// Returns options that wait as long as it takes, and do not limit the attempts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether to wait while another client runs the job, and to run it if that client fails.
    /// If not, the call returns [`Once::Running`](super::Once::Running) at once. Defaults to yes.
    pub fn wait(mut self, waits: bool) -> Self {
        self.waits = waits;
        self
    }

    /// Stops waiting at this time. Defaults to never.
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.lock = self.lock.deadline(deadline);
        self
    }

    /// Makes a deadline that comes sooner than this count only once a server has said that another client runs the
    /// job, for the program.
    #[doc(hidden)]
    pub fn answered_within(mut self, least: Duration) -> Self {
        self.lock = self.lock.answered_within(least);
        self
    }

    /// Stops waiting when this channel has a message, or has lost all its senders. Does not end a
    /// run that has begun. Defaults to never.
    pub fn cancel(mut self, cancel: Receiver<()>) -> Self {
        self.lock = self.lock.cancel(cancel);
        self
    }

    /// Limits how often all clients together begin a slot; at least once. An attempt counts from
    /// its beginning, so a run that takes its machine down counts too. Defaults to no limit.
    pub fn attempts(mut self, most: u32) -> Self {
        self.terms.attempts = most.max(1);
        self
    }

    /// Sets whether the slot counts by itself: it is run unless this very slot is done, even if a
    /// higher one is done. Defaults to no.
    ///
    /// From the first such run on, the record keeps each slot that is done, in order or not, as
    /// many as fit into 16 KB: some 300 dates. The lowest slot is dropped first. A slot that is not
    /// higher than a dropped one is not run, and fails with
    /// [`Error::SlotForgotten`](crate::Error::SlotForgotten), unless [`again`](Self::again) is set.
    /// Of the slots that were done in order before, only the highest is known: a lower one is run.
    ///
    /// For a call without this option, a slot is done if it was done by itself too, or is not
    /// higher than the highest one that was done in order.
    ///
    /// # Example
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zklock::embedded::Server::start()?;
    /// # let client = zklock::Client::connect(server.hosts())?;
    /// use zklock::{JobOptions, Once};
    ///
    /// let job = client.job("/jobs/nightly-report")?;
    /// let run = |slot| job.once_with(slot, JobOptions::new().any_order(true), |_run| Ok::<_, String>(()));
    /// assert!(matches!(run("2026-11-22")?, Once::Done(())));
    /// assert!(matches!(run("2026-11-20")?, Once::Done(()))); // what was left out
    /// assert!(matches!(run("2026-11-20")?, Once::DoneBefore(_)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn any_order(mut self, any_order: bool) -> Self {
        self.terms.any_order = any_order;
        self
    }

    /// Sets whether to run the job even if it is done. If that run fails, the slot stays done. Each
    /// call with this option runs the job once more. Defaults to no.
    pub fn again(mut self, again: bool) -> Self {
        self.terms.again = again;
        self
    }

    /// Sets how long a run may take, from the beginning of its function. Defaults to no limit.
    ///
    /// After that time the run's [`check`](super::Run::check) fails, [`events`](super::Run::events)
    /// has [`Lost`](crate::GuardEvent::Lost), and [`lost_reason`](super::Run::lost_reason) is
    /// [`OverTime`](crate::LostReason::OverTime). When the function returns, the run is recorded as
    /// failed, which its message says, and the call fails with [`Error::Lost`] if the function was
    /// successful.
    ///
    /// **A library cannot stop a thread.** The lock therefore stays with a run that goes on:
    /// releasing it would let two runs overlap. Let the function call `check` between its steps, as
    /// often as it should notice the end of its time. The program `zklock` ends its command.
    ///
    /// A time of zero is refused with [`Error::BadArgument`]. Over a database this fails with
    /// [`Error::Unsupported`].
    ///
    /// # Example
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zklock::embedded::Server::start()?;
    /// # let client = zklock::Client::connect(server.hosts())?;
    /// use std::time::Duration;
    /// use zklock::{Error, JobOptions, LostReason};
    ///
    /// let job = client.job("/jobs/nightly-report")?;
    /// let options = JobOptions::new().max_time(Duration::from_millis(10)); // hours, in production
    /// let ran = job.once_with("2026-11-22", options, |run| {
    ///     loop {
    ///         run.check()?; // a step of the work
    ///         # if false { return Ok(()) }
    ///     }
    /// });
    /// if let Ok(zklock::Once::Failed(Error::Lost { why, .. })) = ran {
    ///     assert_eq!(why, LostReason::OverTime);
    /// }
    /// assert_eq!(job.last()?, None);
    /// println!("{}", job.last_failure()?.expect("a failure")); // .. it ran longer than 10ms
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_time(mut self, time: Duration) -> Self {
        self.max_time = Some(time);
        self
    }

    /// Fails if an option cannot be kept.
    pub(crate) fn check(&self) -> Result<()> {
        match self.max_time {
            Some(Duration::ZERO) => Err(Error::BadArgument {
                name: "max_time",
                rule: "a run takes some time: name one above zero, or none".into(),
            }),
            _ => Ok(()),
        }
    }

    /// Keeps this many runs in the record, for [`Job::history`](super::Job::history): runs that are
    /// done, have failed or whose end is unknown. Calls without this option keep as many as before.
    /// 0 keeps no more than the last run of each kind.
    ///
    /// If the runs take more than 16 KB, which is some 50 runs with short messages, the oldest are
    /// dropped.
    pub fn keep(mut self, most: u32) -> Self {
        self.terms.keep = Some(most);
        self
    }

    /// Shows this text to the clients that wait, in place of the client's note.
    pub fn note(mut self, text: &str) -> Self {
        self.lock = self.lock.note(text);
        self
    }

    /// Calls this closure whenever the call learns what it waits for; see
    /// [`LockOptions::on_wait`](crate::LockOptions::on_wait).
    pub fn on_wait(mut self, callback: impl FnMut(&Waiting) + 'a) -> Self {
        self.lock = self.lock.on_wait(callback);
        self
    }
}

impl Default for JobOptions<'_> {
    fn default() -> Self {
        Self {
            lock: LockOptions::new(),
            waits: true,
            terms: Terms {
                attempts: u32::MAX,
                any_order: false,
                again: false,
                keep: None,
            },
            max_time: None,
        }
    }
}

impl fmt::Debug for JobOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobOptions")
            .field("lock", &self.lock)
            .field("wait", &self.waits)
            .field("terms", &self.terms)
            .field("max_time", &self.max_time)
            .finish()
    }
}
