//! A read-write lock for a whole cluster.

use std::marker::PhantomData;
use std::sync::{self, Arc};
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::guard::{FencingToken, guard_methods};
use crate::local::thread_set::Entered;
use crate::lock::raw_guard::RawGuard;
use crate::lock::request::{LockRequest, Queue};
use crate::lock::{self, Locks};
use crate::options::LockOptions;
use crate::recipe::attempt::Patience;
use crate::recipe::dialect::Role;

/// A read-write lock that works across processes and machines.
///
/// Any number of readers share it; a writer has it alone. Both queue in the order of arrival: a
/// reader that comes after a waiting writer waits behind it, so writers do not starve, and
/// readers that are next to each other wake together. A thread that holds the lock and locks it
/// again gets [`Error::WouldDeadlock`](crate::Error::WouldDeadlock): a reader cannot become a
/// writer. A writer can become a reader, see [`RwLockWriteGuard::downgrade`].
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
#[derive(Clone, Debug)]
pub struct RwLock {
    locks: Arc<Locks>,
    path: Arc<str>,
}

/// The guard of a reader: while it lives, no writer has the lock, unless the guard says that it
/// is lost.
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// # let other = zklock::Client::connect(server.hosts())?;
/// let reading = client.rwlock("/locks/catalogue")?.read()?;
/// // Another client may read, and not write.
/// let catalogue = other.rwlock("/locks/catalogue")?;
/// assert!(catalogue.try_read()?.is_some());
/// assert!(catalogue.try_write()?.is_none());
/// reading.unlock()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct RwLockReadGuard {
    // Fields drop in this order: leave the queue first, then let this thread enter again.
    raw: RawGuard,
    entered: Entered,
    not_send: PhantomData<sync::MutexGuard<'static, ()>>,
}

/// The guard of a writer: while it lives, no other client or thread has the lock, unless the
/// guard says that it is lost.
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// # let other = zklock::Client::connect(server.hosts())?;
/// let writing = client.rwlock("/locks/catalogue")?.write()?;
/// assert!(other.rwlock("/locks/catalogue")?.try_read()?.is_none());
/// println!("edition {}", writing.fencing_token());
/// writing.unlock()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct RwLockWriteGuard {
    // Fields drop in this order: leave the queue first, then let this thread enter again.
    raw: RawGuard,
    entered: Entered,
    not_send: PhantomData<sync::MutexGuard<'static, ()>>,
}

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
    /// wait. The place in the queue stays as long as the session; if that expires, the client
    /// queues again, at the end.
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
    /// As [`read`](Self::read). A lock that is taken is not an error.
    pub fn try_read(&self) -> Result<Option<RwLockReadGuard>> {
        let options = LockOptions::within(self.locks.session.status.snapshot().timeout);
        self.reader(options.request(&self.locks.session, Patience::Tries))
    }

    /// Acquires the lock for reading, or returns `None` when `limit` has passed.
    ///
    /// Blocks for at most `limit`, whatever happens to the connection.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn try_read_for(&self, limit: Duration) -> Result<Option<RwLockReadGuard>> {
        self.read_with(LockOptions::within(limit))
    }

    /// Acquires the lock for reading, or returns `None` at the `deadline`.
    ///
    /// Blocks until then at most, whatever happens to the connection.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
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
    /// As [`read`](Self::read).
    pub fn read_with(&self, options: LockOptions<'_>) -> Result<Option<RwLockReadGuard>> {
        self.reader(options.request(&self.locks.session, Patience::Waits))
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
    /// As [`read`](Self::read). A lock that is taken is not an error.
    pub fn try_write(&self) -> Result<Option<RwLockWriteGuard>> {
        let options = LockOptions::within(self.locks.session.status.snapshot().timeout);
        self.writer(options.request(&self.locks.session, Patience::Tries))
    }

    /// Acquires the lock for writing, or returns `None` when `limit` has passed.
    ///
    /// Blocks for at most `limit`, whatever happens to the connection.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn try_write_for(&self, limit: Duration) -> Result<Option<RwLockWriteGuard>> {
        self.write_with(LockOptions::within(limit))
    }

    /// Acquires the lock for writing, or returns `None` at the `deadline`.
    ///
    /// Blocks until then at most, whatever happens to the connection.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
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
    /// As [`read`](Self::read).
    pub fn write_with(&self, options: LockOptions<'_>) -> Result<Option<RwLockWriteGuard>> {
        self.writer(options.request(&self.locks.session, Patience::Waits))
    }

    /// Returns the path of the lock's directory.
    pub fn path(&self) -> &str {
        &self.path
    }

    fn reader(&self, request: LockRequest<'_>) -> Result<Option<RwLockReadGuard>> {
        let entered = self.enter(Role::Read, request)?;
        Ok(entered.map(|(raw, entered)| RwLockReadGuard {
            raw,
            entered,
            not_send: PhantomData,
        }))
    }

    fn writer(&self, request: LockRequest<'_>) -> Result<Option<RwLockWriteGuard>> {
        let entered = self.enter(Role::Write, request)?;
        Ok(entered.map(|(raw, entered)| RwLockWriteGuard {
            raw,
            entered,
            not_send: PhantomData,
        }))
    }

    fn enter(
        &self,
        role: Role,
        mut request: LockRequest<'_>,
    ) -> Result<Option<(RawGuard, Entered)>> {
        let Some(entered) = self.locks.threads.enter(&self.path) else {
            return Err(lock::would_deadlock(&self.path));
        };
        let queue = Queue::of(&self.path, role);
        let raw = RawGuard::acquire(&self.locks.session, &queue, &mut request)?;
        Ok(raw.map(|raw| (raw, entered)))
    }
}

guard_methods!(RwLockReadGuard);
guard_methods!(RwLockWriteGuard);

impl RwLockReadGuard {
    /// Returns a number that is higher than that of every earlier writer. The numbers of readers
    /// that share the lock are in no particular order.
    pub fn fencing_token(&self) -> FencingToken {
        self.raw.token()
    }

    /// Returns the full path of the node that stands for the lock.
    pub fn node(&self) -> &str {
        self.raw.node()
    }

    /// Releases the lock and waits until the server confirms it.
    ///
    /// Blocks as [`MutexGuard::unlock`](crate::MutexGuard::unlock).
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Lost`](crate::Error::Lost) if the lock was lost before: a writer may
    /// have changed what was read.
    pub fn unlock(self) -> Result<()> {
        let Self { raw, entered, .. } = self;
        let released = raw.release();
        drop(entered);
        released
    }
}

impl RwLockWriteGuard {
    /// Returns a number that grows with every writer of this lock.
    pub fn fencing_token(&self) -> FencingToken {
        self.raw.token()
    }

    /// Returns the full path of the node that stands for the lock.
    pub fn node(&self) -> &str {
        self.raw.node()
    }

    /// Releases the lock and waits until the server confirms it.
    ///
    /// Blocks as [`MutexGuard::unlock`](crate::MutexGuard::unlock).
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Lost`](crate::Error::Lost) if the lock was lost before: other
    /// holders may have overlapped with this guard.
    pub fn unlock(self) -> Result<()> {
        let Self { raw, entered, .. } = self;
        let released = raw.release();
        drop(entered);
        released
    }

    /// Turns the writer into a reader, so that other readers can enter. There is no gap: no
    /// writer can come between, and waiting writers wait for the reader.
    ///
    /// The new guard keeps the writer's token. Blocks for one round trip; when the connection is
    /// lost, at most until the guard's deadline.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Lost`](crate::Error::Lost) if the lock was lost before, with
    /// [`Error::Suspect`](crate::Error::Suspect) if the server did not answer in time, and with
    /// [`Error::Exhausted`](crate::Error::Exhausted) near the end of the directory's sequence
    /// numbers. The lock is released then.
    pub fn downgrade(self) -> Result<RwLockReadGuard> {
        let Self {
            raw,
            entered,
            not_send,
        } = self;
        let raw = raw.downgrade()?;
        Ok(RwLockReadGuard {
            raw,
            entered,
            not_send,
        })
    }
}
