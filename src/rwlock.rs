//! A read-write lock for a whole cluster.

mod guards;

use std::result;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use self::guards::{RwLockReadGuard, RwLockWriteGuard, SendReadGuard, SendWriteGuard};
use crate::error::{Error, Result};
use crate::guard::finish_with;
use crate::local::thread_set::Entered;
use crate::lock::raw_guard::RawGuard;
use crate::lock::request::{LockRequest, Queue};
use crate::lock::{self, Locks, described};
use crate::options::LockOptions;
use zklock_core::attempt::Patience;
use zklock_core::dialect::Role;

/// A read-write lock that works across processes and machines.
///
/// Any number of readers share it; a writer has it alone. Both queue in order of arrival: a reader
/// that comes after a waiting writer waits behind it, so writers do not starve, and readers that
/// are next to each other wake together. A thread that holds the lock, or the mutex of the same
/// path, and locks it again gets [`Error::WouldDeadlock`](crate::Error::WouldDeadlock): a reader
/// cannot become a writer. A writer can become a reader, see [`RwLockWriteGuard::downgrade`].
///
/// # Why no reader becomes a writer
///
/// An upgrade without a gap would replace the reader's node by a writer's, and wait for the readers
/// that came later. A Curator reader that came just before holds the lock if it looked at the queue
/// before the upgrade, and waits for the new writer if it looks afterwards. The queue does not show
/// which, so the two could wait for each other. Ask for [`write`](Self::write) from the start, and
/// downgrade when only reading is left.
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// let catalogue = client.rwlock("/locks/catalogue")?;
/// {
///     let _reading = catalogue.read()?;
///     // Other readers may be here at the same time.
/// }
/// let writing = catalogue.write()?;
/// // No other client or thread is here.
/// let reading = writing.downgrade()?;
/// // Other readers may enter, and no writer came between.
/// # drop(reading);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "InterProcessReadWriteLock")]
#[doc(alias = "ReadLock")]
#[doc(alias = "WriteLock")]
#[derive(Clone)]
pub struct RwLock {
    locks: Arc<Locks>,
    path: Arc<str>,
}

described!(RwLock, it: path = it.path);

impl RwLock {
    pub(crate) fn new(locks: &Arc<Locks>, path: &str) -> Result<Self> {
        crate::path::check(path)?;
        Ok(Self {
            locks: locks.clone(),
            path: path.into(),
        })
    }

    /// Acquires the lock for reading.
    ///
    /// Blocks until every writer that came before has left. A lost connection does not end the
    /// wait. The waiter keeps its place in the queue as long as the session lasts; if the session
    /// expires, the client queues again, at the end.
    ///
    /// # Errors
    ///
    /// Fails if this thread holds the lock already
    /// ([`Error::WouldDeadlock`](crate::Error::WouldDeadlock)), if a contender in the queue
    /// would not wait for this client
    /// ([`Error::ForeignContender`](crate::Error::ForeignContender)), if another client deleted
    /// the waiter's node ([`Error::Evicted`](crate::Error::Evicted)), if the server refuses a
    /// request, and if the client is closed. Nothing is left in the queue then.
    pub fn read(&self) -> Result<RwLockReadGuard> {
        lock::for_ever(|| self.read_with(LockOptions::new()))
    }

    /// Acquires the lock for reading if no writer has it or waits for it.
    ///
    /// Blocks as [`Mutex::try_lock`](crate::Mutex::try_lock).
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), and as [`Mutex::try_lock`](crate::Mutex::try_lock) if no server has
    /// answered.
    pub fn try_read(&self) -> Result<Option<RwLockReadGuard>> {
        self.reader(LockOptions::new().request(&self.locks.session, Patience::Tries)?)
    }

    /// Acquires the lock for reading, or returns `None` when `limit` has passed.
    ///
    /// Blocks for at most `limit`, whatever happens to the connection.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), and with [`Error::ConnectTimeout`] if no server has said by then
    /// that the lock is taken.
    pub fn try_read_for(&self, limit: Duration) -> Result<Option<RwLockReadGuard>> {
        self.read_with(LockOptions::within(limit))
    }

    /// Acquires the lock for reading, or returns `None` at the `deadline`.
    ///
    /// Blocks until then at most, whatever happens to the connection.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), and with [`Error::ConnectTimeout`] if no server has said by then
    /// that the lock is taken.
    pub fn try_read_until(&self, deadline: Instant) -> Result<Option<RwLockReadGuard>> {
        self.read_with(LockOptions::new().deadline(deadline))
    }

    /// Acquires the lock for reading as the `options` say.
    ///
    /// Blocks until it is this thread's turn. Returns `None` if a limit of the options is
    /// reached first.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), and with [`Error::ConnectTimeout`] if no server has said by then
    /// that the lock is taken.
    pub fn read_with(&self, options: LockOptions<'_>) -> Result<Option<RwLockReadGuard>> {
        self.reader(options.request(&self.locks.session, Patience::Waits)?)
    }

    /// Acquires the lock for writing.
    ///
    /// Blocks until every contender that came before has left; otherwise as
    /// [`read`](Self::read).
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn write(&self) -> Result<RwLockWriteGuard> {
        lock::for_ever(|| self.write_with(LockOptions::new()))
    }

    /// Acquires the lock for writing if no other client or thread has it or waits for it.
    ///
    /// Blocks as [`Mutex::try_lock`](crate::Mutex::try_lock).
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), and as [`Mutex::try_lock`](crate::Mutex::try_lock) if no server has
    /// answered.
    pub fn try_write(&self) -> Result<Option<RwLockWriteGuard>> {
        self.writer(LockOptions::new().request(&self.locks.session, Patience::Tries)?)
    }

    /// Acquires the lock for writing, or returns `None` when `limit` has passed.
    ///
    /// Blocks for at most `limit`, whatever happens to the connection.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), and with [`Error::ConnectTimeout`] if no server has said by then
    /// that the lock is taken.
    pub fn try_write_for(&self, limit: Duration) -> Result<Option<RwLockWriteGuard>> {
        self.write_with(LockOptions::within(limit))
    }

    /// Acquires the lock for writing, or returns `None` at the `deadline`.
    ///
    /// Blocks until then at most, whatever happens to the connection.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), and with [`Error::ConnectTimeout`] if no server has said by then
    /// that the lock is taken.
    pub fn try_write_until(&self, deadline: Instant) -> Result<Option<RwLockWriteGuard>> {
        self.write_with(LockOptions::new().deadline(deadline))
    }

    /// Acquires the lock for writing as the `options` say.
    ///
    /// Blocks until it is this thread's turn. Returns `None` if a limit of the options is
    /// reached first.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), and with [`Error::ConnectTimeout`] if no server has said by then
    /// that the lock is taken.
    pub fn write_with(&self, options: LockOptions<'_>) -> Result<Option<RwLockWriteGuard>> {
        self.writer(options.request(&self.locks.session, Patience::Waits)?)
    }

    /// Locks for reading, runs `run` and unlocks: the release is confirmed when this returns.
    ///
    /// Blocks as [`read`](Self::read), `run` and [`RwLockReadGuard::unlock`] do. If `run` panics,
    /// the lock is released.
    ///
    /// # Errors
    ///
    /// Fails with the error of `run`, and otherwise as [`read`](Self::read) and
    /// [`RwLockReadGuard::unlock`]: `Ok` means that the lock was held to the end. If `run` fails,
    /// an error of the release is logged.
    ///
    /// # Example
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zklock::embedded::Server::start()?;
    /// # let client = zklock::Client::connect(server.hosts())?;
    /// let catalogue = client.rwlock("/locks/catalogue")?;
    /// let pages = catalogue.with_read(|guard| -> zklock::Result<u32> {
    ///     guard.check()?;
    ///     Ok(3)
    /// })?;
    /// assert_eq!(pages, 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_read<T, E: From<Error>>(
        &self,
        run: impl FnOnce(&RwLockReadGuard) -> result::Result<T, E>,
    ) -> result::Result<T, E> {
        finish_with(self.read()?, run)
    }

    /// As [`with_read`](Self::with_read), for writing.
    ///
    /// # Errors
    ///
    /// As [`with_read`](Self::with_read).
    pub fn with_write<T, E: From<Error>>(
        &self,
        run: impl FnOnce(&RwLockWriteGuard) -> result::Result<T, E>,
    ) -> result::Result<T, E> {
        finish_with(self.write()?, run)
    }

    /// Returns the path of the lock's directory.
    pub fn path(&self) -> &str {
        &self.path
    }

    fn reader(&self, request: LockRequest<'_>) -> Result<Option<RwLockReadGuard>> {
        let entered = self.enter(Role::Read, request)?;
        Ok(entered.map(|(raw, entered)| RwLockReadGuard::new(raw, entered)))
    }

    fn writer(&self, request: LockRequest<'_>) -> Result<Option<RwLockWriteGuard>> {
        let entered = self.enter(Role::Write, request)?;
        Ok(entered.map(|(raw, entered)| RwLockWriteGuard::new(raw, entered)))
    }

    fn enter(
        &self,
        role: Role,
        mut request: LockRequest<'_>,
    ) -> Result<Option<(RawGuard, Entered)>> {
        let entered = self.locks.enter_shared(&self.path)?;
        let queue = Queue::of(&self.path, role);
        match RawGuard::acquire(&self.locks.session, &queue, &mut request, None)? {
            Some(raw) => Ok(Some((raw, entered))),
            None => request.refused(&self.locks.session),
        }
    }
}
