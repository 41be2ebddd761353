//! The guards of a read-write lock.

use std::marker::PhantomData;

use crate::error::Result;
use crate::guard::{NotSend, guard_methods};
use crate::local::thread_set::Entered;
use crate::lock::raw_guard::RawGuard;
use crate::token::FencingToken;

/// The guard of a reader: while it lives, no writer has the lock, unless the guard reports that it
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
#[must_use = "the lock is released when the guard is dropped"]
pub struct RwLockReadGuard {
    // Fields drop in this order: leave the queue first, then let this thread enter again.
    raw: RawGuard,
    _entered: Entered,
    not_send: PhantomData<NotSend>,
}

/// The guard of a writer: while it lives, no other client or thread has the lock, unless the guard
/// reports that it is lost.
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
#[must_use = "the lock is released when the guard is dropped"]
pub struct RwLockWriteGuard {
    // Fields drop in this order: leave the queue first, then let this thread enter again.
    raw: RawGuard,
    entered: Entered,
    not_send: PhantomData<NotSend>,
}

/// A reader's guard that can be sent to another thread; see [`RwLockReadGuard::into_send`].
#[must_use = "the lock is released when the guard is dropped"]
pub struct SendReadGuard {
    raw: RawGuard,
}

/// A writer's guard that can be sent to another thread; see [`RwLockWriteGuard::into_send`].
#[must_use = "the lock is released when the guard is dropped"]
pub struct SendWriteGuard {
    raw: RawGuard,
}

guard_methods!(RwLockReadGuard, raw, fencing_token);
guard_methods!(RwLockWriteGuard, raw, fencing_token);
guard_methods!(SendReadGuard, raw, as RwLockReadGuard);
guard_methods!(SendWriteGuard, raw, as RwLockWriteGuard);

impl RwLockReadGuard {
    pub(super) fn new(raw: RawGuard, entered: Entered) -> Self {
        Self {
            raw,
            _entered: entered,
            not_send: PhantomData,
        }
    }

    /// Returns a number that is higher than that of every earlier writer. The numbers of readers
    /// that share the lock are in no particular order.
    pub fn fencing_token(&self) -> FencingToken {
        self.raw.token()
    }

    /// Releases the lock and waits until the server confirms it.
    ///
    /// Blocks as [`MutexGuard::unlock`](crate::MutexGuard::unlock).
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Lost`](crate::Error::Lost) if the lock was lost before: a writer may
    /// have changed what was read. Otherwise as [`LockGuard::unlock`](crate::LockGuard::unlock).
    pub fn unlock(self) -> Result<()> {
        self.raw.release()
    }

    /// Turns the guard into one that can be sent to another thread.
    ///
    /// In exchange, the lock no longer knows which thread holds it: a thread that has such a guard
    /// and locks for writing waits for itself.
    ///
    /// # Example
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zklock::embedded::Server::start()?;
    /// # let client = zklock::Client::connect(server.hosts())?;
    /// let guard = client.rwlock("/locks/catalogue")?.read()?.into_send();
    /// let worker = std::thread::spawn(move || guard.unlock());
    /// worker.join().expect("it does not panic")?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "owned")]
    pub fn into_send(self) -> SendReadGuard {
        self.raw.lease().belongs(false);
        SendReadGuard { raw: self.raw }
    }
}

impl RwLockWriteGuard {
    pub(super) fn new(raw: RawGuard, entered: Entered) -> Self {
        Self {
            raw,
            entered,
            not_send: PhantomData,
        }
    }

    /// Returns a number that grows with every writer of this lock.
    pub fn fencing_token(&self) -> FencingToken {
        self.raw.token()
    }

    /// Releases the lock and waits until the server confirms it.
    ///
    /// Blocks as [`MutexGuard::unlock`](crate::MutexGuard::unlock).
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Lost`](crate::Error::Lost) if the lock was lost before: other
    /// holders may have overlapped with this guard. Otherwise as
    /// [`LockGuard::unlock`](crate::LockGuard::unlock).
    pub fn unlock(self) -> Result<()> {
        self.raw.release()
    }

    /// Turns the writer into a reader, which lets other readers enter. There is no gap: no writer
    /// can come between, and waiting writers wait for the reader.
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
        let Self { raw, entered, .. } = self;
        Ok(RwLockReadGuard::new(raw.downgrade()?, entered))
    }

    /// Turns the guard into one that can be sent to another thread.
    ///
    /// In exchange, the lock no longer knows which thread holds it: a thread that has such a guard
    /// and locks again waits for itself.
    pub fn into_send(self) -> SendWriteGuard {
        self.raw.lease().belongs(false);
        SendWriteGuard { raw: self.raw }
    }
}

impl SendWriteGuard {
    /// As [`RwLockWriteGuard::downgrade`].
    ///
    /// # Errors
    ///
    /// As [`RwLockWriteGuard::downgrade`].
    pub fn downgrade(self) -> Result<SendReadGuard> {
        let raw = self.raw.downgrade()?;
        raw.lease().belongs(false);
        Ok(SendReadGuard { raw })
    }
}

impl From<RwLockReadGuard> for SendReadGuard {
    fn from(guard: RwLockReadGuard) -> Self {
        guard.into_send()
    }
}

impl From<RwLockWriteGuard> for SendWriteGuard {
    fn from(guard: RwLockWriteGuard) -> Self {
        guard.into_send()
    }
}
