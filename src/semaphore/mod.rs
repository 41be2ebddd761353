//! A counting semaphore for a whole cluster.

mod driver;
mod wanted_permit;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use self::driver::PermitDriver;
use self::wanted_permit::Wanted;
use crate::error::{Error, Result};
use crate::guard::guard_methods;
use crate::lock::raw_guard::RawGuard;
use crate::lock::request::LockRequest;
use crate::lock::{self, Locks};
use crate::options::LockOptions;
use crate::recipe::attempt::Patience;
use crate::session::Session;

/// A semaphore that works across processes and machines: at most so many permits are out.
///
/// The layout is that of Curator's `InterProcessSemaphoreV2`, and excludes with it: a
/// mutex under `locks` that lets one in after the other, and a node under `leases` for
/// each permit. With [`Dialect::Kazoo`](crate::Dialect::Kazoo) it is that of kazoo's `Semaphore`: the mutex is
/// beside the path, and the permits are right below it. Only the first in line watches the
/// permits, so hundreds may wait without a herd. In Curator's layout nothing of a semaphore is
/// left when it has been idle for a while, where the server has containers; kazoo's stays, as
/// kazoo counts on it.
///
/// # How many permits there are
///
/// The number is written into the semaphore's own node. All permits of this library that are
/// out at a time were given by the same number: where a client is told another one, it
/// replaces the number when no permit is out, in a transaction that proves that it is the first
/// in the line. Until then [`acquire`](Self::acquire) and [`try_acquire`](Self::try_acquire)
/// fail with [`Error::PermitsDisagree`], which says who has a permit since when. A call that has
/// a time limit waits in its turn until all others are given back, and fails with it at the limit.
///
/// So a deploy that goes from three permits to five needs no step by hand: while there are old
/// clients and new ones, those with a time limit take turns, as readers and writers do, with
/// three permits or with five.
/// Curator's clients do not compare the number, and kazoo's do it once: beside them there may
/// be as many permits out as the largest number that somebody was told, and never more.
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
    agreed: Arc<AtomicBool>,
}

/// One of a semaphore's permits, while it lives, unless it says that it is lost.
///
/// It may change threads. There is no fencing token: several are out at a time.
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
        Ok(Self {
            locks: locks.clone(),
            path: path.into(),
            permits,
            agreed: Arc::default(),
        })
    }

    /// Acquires a permit.
    ///
    /// Blocks until those who came before have theirs and one is free. A lost connection
    /// does not end the wait; it costs the place in the line if the session expires, and
    /// the first place if it lasts for half a session timeout: we queue again then, at the
    /// end.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::PermitsDisagree`] if somebody has a permit who counts differently,
    /// with [`Error::ForeignContender`] if the path is a lock's or a semaphore of another dialect,
    /// if somebody in the line would not wait for us or deleted our node, if the server turns
    /// a request down, and if the client is closed. Nothing is left in the line then.
    pub fn acquire(&self) -> Result<Permit> {
        lock::for_ever(|| self.acquire_with(LockOptions::new()))
    }

    /// Acquires a permit if one is free.
    ///
    /// Blocks for one round trip if none is, which costs the server no write, and for some
    /// more if one is; at most for the session timeout.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire). That no permit is free is not an error.
    pub fn try_acquire(&self) -> Result<Option<Permit>> {
        let options = LockOptions::within(self.session().status.snapshot().timeout);
        self.enter(1, options.request(self.session(), Patience::Tries)?)
    }

    /// Acquires a permit, or returns `None` when `limit` has passed.
    ///
    /// Blocks for `limit` at most, whatever happens to the connection.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), but with [`Error::PermitsDisagree`] only when `limit` has
    /// passed.
    pub fn try_acquire_for(&self, limit: Duration) -> Result<Option<Permit>> {
        self.acquire_with(LockOptions::within(limit))
    }

    /// Acquires a permit, or returns `None` at the `deadline`.
    ///
    /// Blocks until then at most, whatever happens to the connection.
    ///
    /// # Errors
    ///
    /// As [`try_acquire_for`](Self::try_acquire_for).
    pub fn try_acquire_until(&self, deadline: Instant) -> Result<Option<Permit>> {
        self.acquire_with(LockOptions::new().deadline(deadline))
    }

    /// Acquires a permit as the `options` say.
    ///
    /// Blocks until one is ours, or until a limit of the options is reached, which gives
    /// `None`.
    ///
    /// # Errors
    ///
    /// As [`try_acquire_for`](Self::try_acquire_for) if the options have a deadline, and as
    /// [`acquire`](Self::acquire) if they do not.
    pub fn acquire_with(&self, options: LockOptions<'_>) -> Result<Option<Permit>> {
        self.enter(1, options.request(self.session(), Patience::Waits)?)
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
    /// They take one place in the line, and nobody who comes later gets a permit before: a call for
    /// many is not starved by calls for one. Blocks until those who came before have theirs and
    /// so many are free, as [`acquire`](Self::acquire). A client of Curator that acquires several
    /// goes through the line once for each, and may hold some while it waits behind this one: beside
    /// such clients use [`acquire_many_with`](Self::acquire_many_with) and a deadline. The same holds
    /// for a thread that has a permit and asks for more.
    ///
    /// One [`Permit`] stands for all of them: they are given back together, and if one is lost, all
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

    /// Acquires `count` permits if so many are free: all or none.
    ///
    /// Blocks as [`try_acquire`](Self::try_acquire), and one round trip more for each permit.
    ///
    /// # Errors
    ///
    /// As [`acquire_many`](Self::acquire_many). That fewer permits are free is not an error.
    pub fn try_acquire_many(&self, count: u32) -> Result<Option<Permit>> {
        let options = LockOptions::within(self.session().status.snapshot().timeout);
        self.enter(count, options.request(self.session(), Patience::Tries)?)
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
        self.enter(count, options.request(self.session(), Patience::Waits)?)
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
        let wanted = Wanted {
            locks: &self.locks,
            path: &self.path,
            permits: self.permits,
            count,
            agreed: &self.agreed,
        };
        let raw = PermitDriver::new(wanted, request).run()?;
        Ok(raw.map(|raw| Permit { raw }))
    }

    fn session(&self) -> &Arc<Session> {
        &self.locks.session
    }
}

guard_methods!(Permit, raw);

impl Permit {
    /// Returns the full paths of the nodes that stand for the permit, or for all that were acquired
    /// together.
    pub fn nodes(&self) -> &[String] {
        self.raw.nodes()
    }

    /// Gives the permit back and waits until the server has confirmed it.
    ///
    /// Blocks as [`MutexGuard::unlock`](crate::MutexGuard::unlock).
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Lost`] if the permit was lost before.
    pub fn unlock(self) -> Result<()> {
        self.raw.release()
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.locks.describe(
            "Semaphore",
            &[("path", &self.path), ("permits", &self.permits)],
            f,
        )
    }
}
