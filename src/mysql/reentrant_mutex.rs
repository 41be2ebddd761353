//! The reentrant mutex and its guards.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::guard::NeverSend;
use crate::mysql::acquire::{Acquired, Until, acquire};
use crate::mysql::guard_methods::guard_methods;
use crate::mysql::held::Held;
use crate::mysql::shared_client::SharedClient;

/// A mutex that its holder can lock again at no cost.
///
/// Made by [`Client::reentrant_mutex`](crate::mysql::Client::reentrant_mutex). The lock is
/// released when the last of the thread's guards is dropped. In the database it is the same
/// lock as the [`Mutex`](crate::mysql::Mutex) with that name.
#[derive(Clone)]
pub struct ReentrantMutex {
    shared: Arc<SharedClient>,
    name: Arc<str>,
}

impl ReentrantMutex {
    pub(super) fn new(shared: Arc<SharedClient>, name: Arc<str>) -> Self {
        Self { shared, name }
    }

    /// Locks the mutex, waiting for as long as it takes.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`](crate::mysql::Mutex::lock), and with
    /// [`Error::Lost`](crate::Error::Lost) if this thread held the lock and has lost it.
    pub fn lock(&self) -> Result<ReentrantMutexGuard> {
        loop {
            if let Some(guard) = self.lock_until(Until::never())? {
                return Ok(guard);
            }
        }
    }

    /// Locks the mutex if no other client or thread holds it.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), and with [`Error::Database`](crate::Error::Database) if
    /// there is no answer from the database.
    pub fn try_lock(&self) -> Result<Option<ReentrantMutexGuard>> {
        self.lock_until(Until::now())
    }

    /// Locks the mutex, waiting no longer than `limit`.
    ///
    /// # Errors
    ///
    /// As [`try_lock`](Self::try_lock).
    pub fn try_lock_for(&self, limit: Duration) -> Result<Option<ReentrantMutexGuard>> {
        self.lock_until(Until::after(limit))
    }

    /// Like [`try_lock_for`](Self::try_lock_for), with a point in time.
    ///
    /// # Errors
    ///
    /// As [`try_lock`](Self::try_lock).
    pub fn try_lock_until(&self, deadline: Instant) -> Result<Option<ReentrantMutexGuard>> {
        self.lock_until(Until::at(deadline))
    }

    /// Returns the lock's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn lock_until(&self, until: Until) -> Result<Option<ReentrantMutexGuard>> {
        let thread = PhantomData;
        if let Some(held) = self.shared.turnstile.shared(&self.name) {
            held.check()?;
            return Ok(Some(ReentrantMutexGuard { held, thread }));
        }
        let Acquired::New(held) = acquire(&self.shared, &self.name, &until, None)? else {
            return Ok(None);
        };
        let held = Arc::new(held);
        held.row.share(&held);
        Ok(Some(ReentrantMutexGuard { held, thread }))
    }
}

/// One of a thread's guards of a [`ReentrantMutex`].
#[must_use = "the lock is released when the last guard is dropped"]
pub struct ReentrantMutexGuard {
    held: Arc<Held>,
    thread: PhantomData<NeverSend>,
}

impl ReentrantMutexGuard {
    /// Drops the guard; if it is the thread's last one, releases the lock and waits for the answer.
    ///
    /// # Errors
    ///
    /// As [`MutexGuard::unlock`](crate::mysql::MutexGuard::unlock).
    pub fn unlock(self) -> Result<()> {
        match Arc::try_unwrap(self.held) {
            Ok(held) => held.row.unlock(),
            Err(held) => held.check(),
        }
    }
}

guard_methods!(ReentrantMutexGuard);

impl fmt::Debug for ReentrantMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.describe("ReentrantMutex", Some(&self.name), f)
    }
}
