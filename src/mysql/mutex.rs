//! The mutex and its guards.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::guard::NotSend;
use crate::mysql::acquire::{Acquired, Until, acquire};
use crate::mysql::guard_methods::guard_methods;
use crate::mysql::held::Held;
use crate::mysql::shared_client::SharedClient;

/// A lock in the database that one thread in the whole cluster holds at a time.
///
/// Made by [`Client::mutex`](crate::mysql::Client::mutex). It is not reentrant. Threads that
/// want the same name through the same client wait in order of arrival. Among clients there
/// is no order, because the database has no queue: each client looks again after a pause. A
/// client goes on waiting while there is no connection to the database.
#[derive(Clone)]
pub struct Mutex {
    shared: Arc<SharedClient>,
    name: Arc<str>,
}

impl Mutex {
    pub(super) fn new(shared: Arc<SharedClient>, name: Arc<str>) -> Self {
        Self { shared, name }
    }

    /// Locks the mutex, waiting for as long as it takes.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::WouldDeadlock`](crate::Error::WouldDeadlock) at once if this thread holds
    /// the lock, with [`Error::Closed`](crate::Error::Closed) when the client is closed, and with
    /// [`Error::Database`](crate::Error::Database) when the database refuses, as a read-only one does.
    pub fn lock(&self) -> Result<MutexGuard> {
        loop {
            if let Some(guard) = self.lock_until(Until::never())? {
                return Ok(guard);
            }
        }
    }

    /// Locks the mutex if no client or thread holds it.
    ///
    /// Waits for the database's answer for at most five seconds, including the time for a release
    /// by this client that is in progress.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), and with [`Error::Database`](crate::Error::Database) if there is no
    /// answer, or if the lock is free but another program has locked what is needed to take it.
    pub fn try_lock(&self) -> Result<Option<MutexGuard>> {
        self.lock_until(Until::now())
    }

    /// Locks the mutex, waiting no longer than `limit`.
    ///
    /// # Errors
    ///
    /// As [`try_lock`](Self::try_lock).
    pub fn try_lock_for(&self, limit: Duration) -> Result<Option<MutexGuard>> {
        self.lock_until(Until::after(limit))
    }

    /// Like [`try_lock_for`](Self::try_lock_for), with a point in time.
    ///
    /// # Errors
    ///
    /// As [`try_lock`](Self::try_lock).
    pub fn try_lock_until(&self, deadline: Instant) -> Result<Option<MutexGuard>> {
        self.lock_until(Until::at(deadline))
    }

    /// Returns the lock's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn lock_until(&self, until: Until) -> Result<Option<MutexGuard>> {
        match acquire(&self.shared, &self.name, &until, None)? {
            Acquired::Taken(_) => Ok(None),
            Acquired::New(held) => Ok(Some(MutexGuard {
                held,
                thread: PhantomData,
            })),
        }
    }
}

/// An RAII guard: the mutex is held as long as [`check`](Self::check) returns `Ok`.
///
/// Dropping it releases the lock in the background, without waiting for the database. The
/// guard cannot leave the thread that took it; see [`into_send`](Self::into_send).
///
/// ```compile_fail
/// fn is_send<T: Send>() {}
/// is_send::<zklock::mysql::MutexGuard>();
/// ```
#[must_use = "the lock is released when the guard is dropped"]
pub struct MutexGuard {
    held: Held,
    thread: PhantomData<NotSend>,
}

/// A [`MutexGuard`] that can be sent to another thread.
///
/// If the thread that created it locks the mutex again, that thread waits for itself.
#[must_use = "the lock is released when the guard is dropped"]
pub struct SendMutexGuard {
    held: Held,
}

impl MutexGuard {
    /// Returns the same guard as one that can be sent to another thread.
    pub fn into_send(self) -> SendMutexGuard {
        self.held.row.detach();
        SendMutexGuard { held: self.held }
    }
}

guard_methods!(MutexGuard);
guard_methods!(SendMutexGuard);

impl MutexGuard {
    /// Releases the lock and waits for the answer, at most until the guard's deadline.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Lost`](crate::Error::Lost) if the lock was lost before, and with
    /// [`Error::Suspect`](crate::Error::Suspect) if there was no answer; the release then continues in
    /// the background.
    pub fn unlock(self) -> Result<()> {
        self.held.row.unlock()
    }
}

impl SendMutexGuard {
    /// Like [`MutexGuard::unlock`].
    ///
    /// # Errors
    ///
    /// As [`MutexGuard::unlock`].
    pub fn unlock(self) -> Result<()> {
        self.held.row.unlock()
    }
}

impl fmt::Debug for Mutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.describe("Mutex", Some(&self.name), f)
    }
}
