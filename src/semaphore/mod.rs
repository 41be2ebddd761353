//! A counting semaphore for a whole cluster.

mod driver;
mod number;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::guard::guard_methods;
use crate::lock::known_paths::Known;
use crate::lock::raw_guard::RawGuard;
use crate::lock::request::LockRequest;
use crate::lock::{self, Locks, described};
use crate::options::LockOptions;
use zklock_core::attempt::Patience;
use zklock_core::permit_attempt::Layout;

/// A semaphore that works across processes and machines, with a limited number of permits.
///
/// The layout is that of Curator's `InterProcessSemaphoreV2`, and the two exclude each other: a
/// mutex under `locks` lets in one client after the other, and each permit has a node under
/// `leases`. With [`Dialect::Kazoo`](crate::Dialect::Kazoo), the layout is that of kazoo's
/// `Semaphore`: the mutex is next to the path, and the permits are directly below it. Only the
/// first waiter watches the permits, so hundreds of clients can wait without a herd. In Curator's
/// layout no node of a semaphore is left when it has been idle for a while, if the server has
/// containers. In kazoo's layout the nodes stay, because kazoo relies on them.
///
/// A thread may have several permits. A thread that has the last permit and asks for another waits
/// for itself: [`acquire_many`](Self::acquire_many) takes all permits at once.
///
/// # How many permits there are
///
/// The number is stored in the semaphore's own node. All permits of this library that are held at
/// the same time were granted under the same number. A client with another number replaces the
/// stored one when no permit is held, in a transaction that proves that the client is first in the
/// queue. Until then [`acquire`](Self::acquire) and [`try_acquire`](Self::try_acquire) fail with
/// [`Error::PermitsDisagree`], which names a holder and the time of its permit. A call with a time
/// limit waits in its turn until all other permits are released, and fails with that error at the
/// limit.
///
/// A deployment that goes from three permits to five therefore needs no manual step: while there
/// are old and new clients, those with a time limit take turns, as readers and writers do, with
/// three permits or with five. Curator's clients do not compare the number, and kazoo's compare it
/// once: alongside them, as many permits may be held as the largest number that any client was
/// given, and never more.
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// // Three imports at a time, in the whole cluster.
/// let imports = client.semaphore("/limits/imports", 3)?;
/// let permit = imports.acquire()?;
/// drop(permit);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "InterProcessSemaphoreV2")]
#[doc(alias = "leases")]
#[derive(Clone)]
pub struct Semaphore {
    locks: Arc<Locks>,
    path: Arc<str>,
    permits: u32,
    known: Arc<Known>,
}

described!(Semaphore, it: path = it.path, permits = it.permits);

/// One of a semaphore's permits, held while this lives, unless it reports that it is lost.
///
/// A permit can be sent to another thread. It has no fencing token, because several permits are
/// held at a time; [`number`](Self::number) tells them apart.
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// # let other = zklock::Client::connect(server.hosts())?;
/// let permit = client.semaphore("/limits/imports", 1)?.acquire()?;
/// let worker = std::thread::spawn(move || permit.unlock());
/// worker.join().expect("it does not panic")?;
/// assert!(other.semaphore("/limits/imports", 1)?.try_acquire()?.is_some());
/// # Ok(())
/// # }
/// ```
#[must_use = "the permit is given back when it is dropped"]
pub struct Permit {
    raw: RawGuard,
    /// How many permits the semaphore has.
    permits: u32,
}

impl Semaphore {
    pub(crate) fn new(locks: &Arc<Locks>, path: &str, permits: u32) -> Result<Self> {
        crate::path::check(path)?;
        if permits == 0 {
            return Err(Error::BadArgument {
                name: "permits",
                rule: "a semaphore needs at least one permit".into(),
            });
        }
        let path = path.into();
        Ok(Self {
            locks: locks.clone(),
            known: locks.known.of(&path),
            path,
            permits,
        })
    }

    /// Acquires a permit.
    ///
    /// Blocks until earlier callers have their permits and one is free. A lost connection does not
    /// end the wait. The client loses its place in the queue if its session expires, and the first
    /// place if the connection is lost for half a session timeout: it then queues again, at the
    /// end.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::PermitsDisagree`] if a held permit was granted under another number,
    /// with [`Error::ForeignContender`] if the path is a lock's or another dialect's semaphore, or
    /// if a contender in the queue would not wait for this client. Fails if another client deleted
    /// its node, if the server refuses a request, and if the client is closed. No node is left in
    /// the queue then.
    pub fn acquire(&self) -> Result<Permit> {
        lock::for_ever(|| self.acquire_with(LockOptions::new()))
    }

    /// Acquires a permit if one is free.
    ///
    /// Blocks for two round trips if no permit is free, which costs the server no write, and for a
    /// few more if one is. The call lets clients pass that are acquiring permits, for a second or,
    /// where writes take long, for about twice as long as these clients need. It returns `None`
    /// within a second or so if they take the last permit, and later if one of them has fallen
    /// silent, or has another number and waits until all permits are returned. Without a connection
    /// it blocks as [`Mutex::try_lock`](crate::Mutex::try_lock).
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and with [`Error::ConnectTimeout`] if no server has answered.
    /// Finding no free permit is not an error.
    pub fn try_acquire(&self) -> Result<Option<Permit>> {
        self.try_acquire_many(1)
    }

    /// Acquires a permit, or returns `None` when `limit` has passed.
    ///
    /// Blocks for at most `limit`, whatever happens to the connection.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), but with [`Error::PermitsDisagree`] only when `limit` has
    /// passed, and with [`Error::ConnectTimeout`] if no server has said by then that no permit is
    /// free.
    pub fn try_acquire_for(&self, limit: Duration) -> Result<Option<Permit>> {
        self.acquire_with(LockOptions::within(limit))
    }

    /// Acquires a permit, or returns `None` at the `deadline`.
    ///
    /// Blocks at most until then, whatever happens to the connection.
    ///
    /// # Errors
    ///
    /// As [`try_acquire_for`](Self::try_acquire_for).
    pub fn try_acquire_until(&self, deadline: Instant) -> Result<Option<Permit>> {
        self.acquire_with(LockOptions::new().deadline(deadline))
    }

    /// Acquires a permit as the `options` say.
    ///
    /// Blocks until a permit is granted. Returns `None` if a limit of the options is reached first.
    ///
    /// # Errors
    ///
    /// As [`try_acquire_for`](Self::try_acquire_for) if the options have a deadline, and as
    /// [`acquire`](Self::acquire) if they do not.
    pub fn acquire_with(&self, options: LockOptions<'_>) -> Result<Option<Permit>> {
        self.acquire_many_with(1, options)
    }

    /// Returns the path of the semaphore.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns how many permits there are for this client.
    pub fn permits(&self) -> u32 {
        self.permits
    }

    /// Acquires `count` permits at once: all or none.
    ///
    /// The call takes one place in the queue, and no later caller gets a permit before it: calls
    /// for one permit do not starve a call for many. Blocks until earlier callers have theirs and
    /// `count` permits are free, as [`acquire`](Self::acquire). A Curator client that acquires
    /// several queues once for each, and may hold some while it waits behind this call: alongside
    /// such clients, use [`acquire_many_with`](Self::acquire_many_with) and a deadline. The same
    /// holds for a thread that has a permit and asks for more.
    ///
    /// One [`Permit`] stands for all of them: they are released together, and if one is lost, all
    /// are.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::BadArgument`] if `count` is 0 or more than there are permits, and
    /// otherwise as [`acquire`](Self::acquire).
    ///
    /// # Example
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zklock::embedded::Server::start()?;
    /// # let client = zklock::Client::connect(server.hosts())?;
    /// // A large import takes three of four places.
    /// let imports = client.semaphore("/limits/imports", 4)?;
    /// let large = imports.acquire_many(3)?;
    /// assert_eq!(large.nodes().len(), 3);
    /// let small = imports.acquire()?;
    /// assert!(imports.try_acquire()?.is_none());
    /// # drop((large, small));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "leases")]
    pub fn acquire_many(&self, count: u32) -> Result<Permit> {
        lock::for_ever(|| self.acquire_many_with(count, LockOptions::new()))
    }

    /// Acquires `count` permits if that many are free: all or none.
    ///
    /// Blocks as [`try_acquire`](Self::try_acquire), and one more round trip for each permit.
    ///
    /// # Errors
    ///
    /// As [`acquire_many`](Self::acquire_many). It is not an error if fewer permits are free.
    pub fn try_acquire_many(&self, count: u32) -> Result<Option<Permit>> {
        let request = LockOptions::new().request(&self.locks.session, Patience::Tries)?;
        self.enter(count, request)
    }

    /// Acquires `count` permits as the `options` say: all or none.
    ///
    /// # Errors
    ///
    /// As [`acquire_many`](Self::acquire_many) and [`acquire_with`](Self::acquire_with).
    pub fn acquire_many_with(
        &self,
        count: u32,
        options: LockOptions<'_>,
    ) -> Result<Option<Permit>> {
        self.enter(
            count,
            options.request(&self.locks.session, Patience::Waits)?,
        )
    }

    fn enter(&self, count: u32, request: LockRequest<'_>) -> Result<Option<Permit>> {
        if count == 0 || self.permits < count {
            return Err(Error::BadArgument {
                name: "count",
                rule: format!(
                    "{count} permits were asked for, and the semaphore {} has {}; ask for 1 to {1}",
                    self.path, self.permits
                )
                .into(),
            });
        }
        let raw = self.take(count, request)?;
        let permits = self.permits;
        Ok(raw.map(|raw| Permit { raw, permits }))
    }

    fn layout(&self) -> Layout<'_> {
        Layout {
            path: &self.path,
            dialect: self.locks.session.settings.dialect,
        }
    }
}

guard_methods!(Permit, raw);

impl Permit {
    /// Returns the full paths of the nodes that stand for the permit, or for all that were acquired
    /// together.
    pub fn nodes(&self) -> &[String] {
        self.raw.nodes()
    }

    /// Releases the permit and waits until the server confirms it.
    ///
    /// Blocks as [`MutexGuard::unlock`](crate::MutexGuard::unlock).
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Lost`] if the permit was lost before. Otherwise as
    /// [`LockGuard::unlock`](crate::LockGuard::unlock).
    pub fn unlock(self) -> Result<()> {
        self.raw.release()
    }
}
