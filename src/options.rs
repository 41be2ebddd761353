//! How to wait for a lock, when `lock` and the `try_` methods do not say enough.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;

use crate::contender::Contender;
use crate::lock::request::{LockRequest, OnWait};
use crate::recipe::attempt::Patience;
use crate::recipe::overdue::{Overdue, Rule};
use crate::session::Session;
use crate::time::limit::Limit;

/// How to wait for a lock.
///
/// # Example
///
/// ```
/// use std::time::{Duration, Instant};
/// use zklock::LockOptions;
///
/// let options = LockOptions::new()
///     .deadline(Instant::now() + Duration::from_secs(60))
///     .note("monthly report, ask Jo")
///     .on_wait(|waiting| println!("{} ahead of us", waiting.position()));
/// ```
#[derive(Default)]
#[must_use = "options do nothing until they are passed to a lock"]
pub struct LockOptions<'a> {
    deadline: Option<Instant>,
    cancel: Option<Receiver<()>>,
    note: Option<String>,
    on_wait: Option<Box<Told<'a>>>,
    overdue: Option<Rule>,
    hold_at_least: Option<Duration>,
}

/// What is called when there is news of a wait.
type Told<'a> = dyn FnMut(&Waiting) + 'a;

/// What a waiting thread is told about its place; see [`LockOptions::on_wait`].
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// # let other = zklock::Client::connect(server.hosts())?;
/// use zklock::{LockOptions, Waiting};
///
/// let _guard = client.mutex("/locks/nightly-report")?.lock()?;
///
/// // Says who is ahead, and does not wait for ourselves.
/// let (cancel, cancelled) = crossbeam_channel::bounded(1);
/// let options = LockOptions::new()
///     .cancel(cancelled)
///     .on_wait(|waiting: &Waiting| {
///         let ahead = waiting.ahead().map(|ahead| ahead.owner().clone()).unwrap_or_default();
///         println!("{} ahead, next is {:?}", waiting.position(), ahead.program);
///         if ahead.pid == Some(std::process::id()) {
///             let _ = cancel.try_send(());
///         }
///     });
/// assert!(other.mutex("/locks/nightly-report")?.lock_with(options)?.is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Waiting {
    position: usize,
    ahead: Option<Contender>,
    since: Duration,
}

impl<'a> LockOptions<'a> {
    /// Waits for as long as it takes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives up at this time; the lock then returns `Ok(None)`. Defaults to never.
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Gives up when something comes through this channel, or when its senders are gone;
    /// the lock then returns `Ok(None)`. Defaults to never.
    pub fn cancel(mut self, cancel: Receiver<()>) -> Self {
        self.cancel = Some(cancel);
        self
    }

    /// Shows this text to those who wait for us, instead of the client's; the first 512
    /// characters of it. Defaults to [`ClientBuilder::note`](crate::ClientBuilder::note).
    pub fn note(mut self, text: &str) -> Self {
        self.note = Some(text.to_owned());
        self
    }

    /// Calls this when the wait begins, and again when who is next ahead of us, or the number
    /// ahead that we know of, changes.
    ///
    /// It runs on the waiting thread, and the wait goes on when it returns. Defaults to
    /// nothing.
    pub fn on_wait(mut self, told: impl FnMut(&Waiting) + 'a) -> Self {
        self.on_wait = Some(Box::new(told));
        self
    }

    /// Keeps the lock for at least this long, even if the guard is dropped before.
    ///
    /// For short jobs that several machines start at the same time by clocks that differ:
    /// the one that comes late finds the lock still taken. Dropping the guard does not
    /// block, but unlocking it does, as long as the lock is not lost, and so does closing the
    /// client or dropping its last owner, since a lock does not outlive its session. More
    /// than a clock can count, such as [`Duration::MAX`], is as long as there is the client:
    /// its end does not wait for that. Not for multi-locks and semaphores. Defaults to zero.
    pub fn hold_at_least(mut self, time: Duration) -> Self {
        self.hold_at_least = Some(time);
        self
    }

    /// Removes a holder that has held for too long, after asking it to let go.
    ///
    /// While we wait, whoever is at the head of the queue for longer than
    /// `held_longer_than` is asked to let go, and after another `grace` its node is
    /// deleted. The time counts from when this thread saw it there first. Both sides log
    /// it.
    ///
    /// **Dangerous**: a holder that does not listen to its guard goes on, beside the next
    /// one. Use it where the holder checks its guard, or where what the lock protects
    /// checks fencing tokens. Costs the server a listing every half of the shorter time.
    /// [`Duration::MAX`] is never. Defaults to never.
    pub fn evict_overdue(mut self, held_longer_than: Duration, grace: Duration) -> Self {
        self.overdue = Some(Rule {
            held_longer_than,
            grace,
        });
        self
    }

    /// Gives up after this long; so long that it cannot be counted means never.
    pub(crate) fn within(limit: Duration) -> Self {
        Self {
            deadline: Instant::now().checked_add(limit),
            ..Self::default()
        }
    }

    /// What the locks make of it.
    pub(crate) fn request(self, session: &Arc<Session>, patience: Patience) -> LockRequest<'a> {
        LockRequest {
            patience,
            limit: Limit::new(self.deadline, self.cancel),
            note: self.note,
            on_wait: self.on_wait.map(|told| told_by(session, told)),
            overdue: self.overdue.map(Overdue::new),
            hold_at_least: self.hold_at_least,
        }
    }
}

/// Turns what the locks see into what a user is told.
fn told_by<'a>(session: &Arc<Session>, mut told: Box<Told<'a>>) -> Box<OnWait<'a>> {
    let session = session.clone();
    Box::new(move |ahead| {
        let contender = || {
            let (node, holds) = (ahead.nearest.clone(), ahead.holds);
            Contender::new(&session, node, holds, ahead.stat, &ahead.data)
        };
        told(&Waiting {
            position: ahead.count,
            // A crowd has no nearest one.
            ahead: (ahead.stat.czxid != 0).then(contender),
            since: ahead.since,
        });
    })
}

impl Waiting {
    /// Returns how many are ahead that the lock cannot be shared with, as of the last look.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Returns the one whose departure is waited for: the nearest ahead.
    pub fn ahead(&self) -> Option<&Contender> {
        self.ahead.as_ref()
    }

    /// Returns how long the wait has lasted.
    pub fn since(&self) -> Duration {
        self.since
    }
}

impl fmt::Debug for LockOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockOptions")
            .field("deadline", &self.deadline)
            .field("cancel", &self.cancel)
            .field("note", &self.note)
            .finish_non_exhaustive()
    }
}
