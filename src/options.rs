//! The options of a wait for a lock.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::contender::Contender;
use crate::error::Result;
use crate::lock::request::{Ahead, Circles, LockRequest, OnWait};
use crate::path;
use crate::queues;
use crate::session::Session;
use crate::system::channel::Receiver;
use crate::system::clock;
use crate::time::limit::{Limit, from_now};
use zklock_core::attempt::Patience;
use zklock_core::overdue_holder::{Overdue, Rule};
use zklock_core::seen_ahead::SeenAhead;

/// Options of a wait for a lock, for the `_with` methods.
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
///     .on_wait(|waiting| println!("{} ahead", waiting.position()));
/// ```
#[derive(Default)]
#[must_use = "options do nothing until they are passed to a lock"]
pub struct LockOptions<'a> {
    deadline: Option<Instant>,
    cancel: Option<Receiver<()>>,
    note: Option<String>,
    on_wait: Option<Box<WaitCallback<'a>>>,
    /// The path below which circles of waiters are looked for.
    circles: Option<String>,
    overdue: Option<Rule>,
    hold_at_least: Option<Duration>,
    tracking: Option<Duration>,
    /// How long to wait for an answer, even if the deadline has passed.
    least: Duration,
    sees_ahead: bool,
    for_a_hold: bool,
}

/// The callback that runs when the place of a waiter changes.
type WaitCallback<'a> = dyn FnMut(&Waiting) + 'a;

/// The place of a waiting thread; see [`LockOptions::on_wait`].
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
/// // Prints who is ahead, and does not wait for this process itself.
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
    /// Returns the options of a wait without a limit.
    pub fn new() -> Self {
        Self::default()
    }

    /// Stops waiting at this time; the result is then `Ok(None)`, or
    /// [`Error::ConnectTimeout`](crate::Error::ConnectTimeout) if no server has said that the lock
    /// is taken. Defaults to never.
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Stops waiting after this long, counted from this call; the result is as for a deadline.
    /// Replaces a [`deadline`](Self::deadline). Defaults to never; a time too long to be counted
    /// means never.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.deadline = clock::now().checked_add(limit);
        self
    }

    /// Stops waiting when this channel has a message, or when its senders are dropped; the result
    /// is then `Ok(None)`. A message is taken out of the channel, so it ends one call. Dropping the
    /// senders ends all calls that wait with it. Defaults to never.
    pub fn cancel(mut self, cancel: Receiver<()>) -> Self {
        self.cancel = Some(cancel);
        self
    }

    /// Shows the first 512 characters of this text to clients that wait for this one, instead of
    /// the client's note. Defaults to [`ClientBuilder::note`](crate::ClientBuilder::note).
    pub fn note(mut self, text: &str) -> Self {
        self.note = Some(text.to_owned());
        self
    }

    /// Calls this closure when the wait begins, and again when the nearest contender ahead, or the
    /// known number of contenders ahead, changes.
    ///
    /// The threads of one client wait for a mutex in a line of their own. Behind another thread,
    /// the closure is called once, with the number of threads ahead and no contender; other clients
    /// may still come before it. It is called again if the thread then has to queue on the server.
    ///
    /// The callback runs on the waiting thread, and the wait continues when it returns. In it, the
    /// same path is [`Error::WouldDeadlock`](crate::Error::WouldDeadlock), and
    /// [`Client::blockers`](crate::Client::blockers) returns what the contenders ahead wait for, to
    /// the end of the chain. Defaults to no callback.
    pub fn on_wait(mut self, callback: impl FnMut(&Waiting) + 'a) -> Self {
        self.on_wait = Some(Box::new(callback));
        self
    }

    /// Fails with [`Error::Deadlock`](crate::Error::Deadlock) instead of waiting forever in a
    /// circle.
    ///
    /// This is for threads of different clients: threads of one client that wait behind each other
    /// without the server are not seen. The thread looks when the wait begins, and again when the
    /// contender ahead changes. The wait fails if the holders ahead wait, through any number of
    /// locks below `root`, for a lock that this thread holds, or that `zklock` holds around this
    /// process. At least one thread of a circle fails; if several close it at once, all of them
    /// may: release what you hold, wait for a random time, and try again. A look ends with the
    /// deadline or the cancellation of the wait, and has then found nothing.
    ///
    /// Contenders belong together as for [`Client::blockers`](crate::Client::blockers). A client of
    /// another library counts as one thread if it waits for one lock only, so it may seem to wait
    /// while another of its threads works. If it waits for several locks, no circle is seen through
    /// it. A guard that can change threads belongs to no thread, and a permit to the thread that
    /// acquired it. With [`ClientBuilder::local_handoffs`](crate::ClientBuilder::local_handoffs),
    /// another client's lock counts as held by the thread that the server granted it to, whichever
    /// thread has it now.
    ///
    /// A thread that holds nothing does not look, which costs no request
    /// (`who_looks_for_circles_and_holds_nothing_asks_no_more`). Each look reads all nodes below
    /// `root`: choose a path that has few. A `root` that is neither a path nor `/`
    /// fails the call with [`Error::BadPath`](crate::Error::BadPath); below a `root` that does not
    /// exist, nothing is found. Semaphores, jobs and databases ignore this option. Defaults to
    /// never.
    pub fn detect_deadlock(mut self, root: &str) -> Self {
        self.circles = Some(root.to_owned());
        self
    }

    /// Keeps the lock for at least this long, even if the guard is dropped earlier.
    ///
    /// For short jobs that several machines start at the same time, by clocks that differ: a late
    /// machine finds the lock still taken. Dropping the guard does not block. Unlocking it blocks
    /// as long as the lock is not lost. So does closing the client or dropping its last owner,
    /// because a lock ends with its session. A time that is too long to be counted, such as
    /// [`Duration::MAX`], lasts until the client ends, and the client does not wait for it.
    /// Multi-locks and semaphores ignore this option. Defaults to zero.
    pub fn hold_at_least(mut self, time: Duration) -> Self {
        self.hold_at_least = Some(time);
        self
    }

    /// Learns whether the last holder of a mutex left without releasing, and lets the next holder
    /// learn the same about this client; see
    /// [`MutexGuard::abandoned`](crate::MutexGuard::abandoned).
    ///
    /// A holder leaves without releasing if its session expires, its process dies, its critical
    /// section panics or it loses the lock. Every call that locks this path should track: a call
    /// that does not, of this library or another, neither learns nor reports it. The mark is the
    /// data of the lock's directory. A client that tracks must have created the directory, because
    /// the server would otherwise delete it when it is empty; if not, locking fails with
    /// [`Error::Unmarked`](crate::Error::Unmarked). Costs one round trip when the mutex is locked,
    /// two after a wait for others, and one more at first. Locks other than a
    /// [`Mutex`](crate::Mutex) ignore this option. Defaults to no.
    pub fn track_abandonment(mut self) -> Self {
        self.tracking.get_or_insert_default();
        self
    }

    /// Waits for `delay` before locking a mutex after a holder that left without releasing. The
    /// operations that this holder began, and that cannot be fenced off, can end meanwhile
    /// (Chubby's lock-delay). The deadline of the wait applies to the delay too. Includes
    /// [`track_abandonment`](Self::track_abandonment). Defaults to zero.
    pub fn successor_delay(mut self, delay: Duration) -> Self {
        self.tracking = Some(delay);
        self
    }

    /// Evicts a holder that has held for too long, after asking it to release the lock.
    ///
    /// While this thread waits, a contender that is at the head of the queue for longer than
    /// `held_longer_than` is asked to release the lock, and after another `grace` its node is
    /// deleted. The time counts from when this thread first saw the contender there, at most 5 s
    /// later; the next two in the queue of a mutex see it at once. In
    /// [`Dialect::LeaderLatch`](crate::Dialect::LeaderLatch), no holder is asked, as
    /// [`Contender::revoke`](crate::Contender::revoke) says. Both sides log the eviction. Permits
    /// held by the same call are skipped. If the sequence numbers of the directory are used up, no
    /// holder is evicted.
    ///
    /// **Dangerous**: a holder that does not watch its guard continues beside the next one. Use
    /// this only if the holder checks its guard, or if what the lock protects checks fencing
    /// tokens. A holder that is cut off from the servers when it is evicted learns of it late: its
    /// guard stays valid for up to half of its session timeout beside the next one. Only fencing
    /// tokens exclude that. A thread that waits behind another thread of its client sees nothing of
    /// the queue, and evicts nobody. Costs the server one listing and a read every half of the
    /// shorter time, 5 s at most, the same and a write when a time is up, and one when what this
    /// thread watches of the queue moves. [`Duration::MAX`] means never. Defaults to never.
    pub fn evict_overdue(mut self, held_longer_than: Duration, grace: Duration) -> Self {
        self.overdue = Some(Rule {
            held_longer_than,
            grace,
        });
        self
    }

    /// Makes a deadline that comes sooner than this count only once a server has said that the lock
    /// is taken, for the program.
    #[doc(hidden)]
    pub fn answered_within(mut self, least: Duration) -> Self {
        self.least = least;
        self
    }

    /// Makes the guard know how the holders that were ahead have left, for the program; see
    /// [`LockGuard::follows_release`](crate::LockGuard::follows_release).
    #[doc(hidden)]
    pub fn sees_ahead(mut self) -> Self {
        self.sees_ahead = true;
        self
    }

    /// Creates a missing directory so that a job can use it too, for the program: the path may be
    /// created just for a hold.
    #[doc(hidden)]
    pub fn for_a_hold(mut self) -> Self {
        self.for_a_hold = true;
        self
    }

    /// Returns the options of a wait that ends after this long.
    pub(crate) fn within(limit: Duration) -> Self {
        Self::new().timeout(limit)
    }

    /// Returns the limit of the wait, and the note shown to waiters; the other options need a queue.
    #[cfg(feature = "mysql")]
    pub(crate) fn limit_and_note(self) -> (Limit, Option<String>) {
        (Limit::new(self.deadline, self.cancel), self.note)
    }

    /// Returns the request that the locks carry out. A try ends after a session timeout at the latest.
    pub(crate) fn request(
        self,
        session: &Arc<Session>,
        patience: Patience,
    ) -> Result<LockRequest<'a>> {
        let circles = self.circles.map(|root| circles(session, root));
        let least = from_now(self.least);
        let late = self.deadline.map(|deadline| deadline.max(least));
        let limit = Limit::new(late, self.cancel);
        Ok(LockRequest {
            patience,
            limit: match patience {
                Patience::Tries => {
                    let timeout = session.status.snapshot().timeout;
                    let limit = limit.until(Some(from_now(timeout)));
                    limit.offline(session.settings.try_offline)
                }
                Patience::Waits => limit,
            },
            taken: false,
            lacks_directory: false,
            until_if_taken: self.deadline.filter(|deadline| *deadline < least),
            lets_pass: None,
            read: None,
            seen: self.sees_ahead.then(SeenAhead::default),
            note: self.note,
            on_wait: self.on_wait.map(|callback| on_wait(session, callback)),
            circles: circles.transpose()?,
            several: false,
            overdue: self.overdue.map(Overdue::new),
            hold_at_least: self.hold_at_least,
            tracking: self.tracking,
            for_a_hold: self.for_a_hold,
        })
    }
}

impl Ahead {
    /// Returns the nearest contender ahead, as users see it.
    pub(crate) fn contender(&self, session: &Arc<Session>) -> Contender {
        let (node, holds) = (self.nearest.clone(), self.holds);
        Contender::new(session, node, holds, self.stat, &self.data)
    }
}

/// Turns the user's callback into the one that the driver calls.
fn on_wait<'a>(session: &Arc<Session>, mut callback: Box<WaitCallback<'a>>) -> Box<OnWait<'a>> {
    let session = session.clone();
    Box::new(move |ahead| {
        let contender = || ahead.contender(&session);
        callback(&Waiting {
            position: ahead.count,
            // A waiter for any of several permits has no nearest contender ahead, nor has a thread in line.
            ahead: (ahead.stat.czxid != 0).then(contender),
            since: ahead.since,
        });
    })
}

fn circles(session: &Arc<Session>, root: String) -> Result<Box<Circles>> {
    path::check_root(&root)?;
    let session = session.clone();
    Ok(Box::new(move |nearest, several, limit| {
        queues::fail_in_a_circle(&session, nearest, several, &root, limit)
    }))
}

impl Waiting {
    /// Returns how many conflicting contenders were ahead at the last look; in the line of a client,
    /// how many of its threads.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Returns the nearest contender ahead, which must leave first; `None` if a thread of this
    /// client must, or any one of several permits.
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
