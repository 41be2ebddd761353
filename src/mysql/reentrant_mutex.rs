//! The mutex that the thread which has it may take again.

use std::marker::PhantomData;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::mysql::acquire::{Until, acquire};
use crate::mysql::held::{Held, guard_methods};
use crate::mysql::shared::Handle;

/// A mutex that the thread which has it may take again, at no cost.
///
/// Made by [`Client::reentrant_mutex`](crate::mysql::Client::reentrant_mutex). The lock
/// is released when the last of the thread's guards is dropped. In the database it is
/// the same lock as the [`Mutex`](crate::mysql::Mutex) of that name.
#[derive(Clone, Debug)]
pub struct ReentrantMutex {
    handle: Arc<Handle>,
    name: Arc<str>,
}

impl ReentrantMutex {
    pub(super) fn new(handle: Arc<Handle>, name: Arc<str>) -> Self {
        Self { handle, name }
    }

    /// Takes the lock, and waits for it as long as it takes.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`](crate::mysql::Mutex::lock); and with
    /// [`Error::Lost`](crate::Error::Lost) if this thread has the lock and it was lost.
    pub fn lock(&self) -> Result<ReentrantMutexGuard> {
        loop {
            if let Some(guard) = self.lock_until(Until::Never)? {
                return Ok(guard);
            }
        }
    }

    /// Takes the lock if nobody else has it.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), and with [`Error::Database`](crate::Error::Database) if
    /// there is no answer from the database.
    pub fn try_lock(&self) -> Result<Option<ReentrantMutexGuard>> {
        self.lock_until(Until::Now)
    }

    /// Takes the lock, and waits for it no longer than `limit`.
    ///
    /// # Errors
    ///
    /// As [`try_lock`](Self::try_lock).
    pub fn try_lock_for(&self, limit: Duration) -> Result<Option<ReentrantMutexGuard>> {
        self.lock_until(Until::after(limit))
    }

    /// As [`try_lock_for`](Self::try_lock_for), with a point in time.
    ///
    /// # Errors
    ///
    /// As [`try_lock`](Self::try_lock).
    pub fn try_lock_until(&self, deadline: Instant) -> Result<Option<ReentrantMutexGuard>> {
        self.lock_until(Until::At(deadline))
    }

    /// Returns the lock's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn lock_until(&self, until: Until) -> Result<Option<ReentrantMutexGuard>> {
        let local = self.handle.shared.local();
        if let Some(held) = local.entry(&self.name).and_then(|entry| entry.0.upgrade()) {
            let guard = ReentrantMutexGuard::new(held);
            guard.check()?;
            return Ok(Some(guard));
        }
        let Some(held) = acquire(&self.handle.shared, &self.name, until)? else {
            return Ok(None);
        };
        let held = Arc::new(held);
        local.set_entry(&self.name, Entry(Arc::downgrade(&held)));
        Ok(Some(ReentrantMutexGuard::new(held)))
    }
}

/// What the local queue keeps for the thread that has the turn: its guards, if any.
#[derive(Clone, Debug, Default)]
pub(super) struct Entry(Weak<Held>);

/// One of a thread's guards of a [`ReentrantMutex`].
#[derive(Debug)]
#[must_use = "the lock is released when the last guard is dropped"]
pub struct ReentrantMutexGuard {
    held: Arc<Held>,
    thread: PhantomData<*const ()>,
}

impl ReentrantMutexGuard {
    fn new(held: Arc<Held>) -> Self {
        Self {
            held,
            thread: PhantomData,
        }
    }

    /// Drops the guard; if it is the thread's last one, releases the lock and waits.
    ///
    /// # Errors
    ///
    /// As [`MutexGuard::unlock`](crate::mysql::MutexGuard::unlock).
    pub fn unlock(self) -> Result<()> {
        match Arc::try_unwrap(self.held) {
            Ok(held) => held.place.unlock(),
            Err(held) => held.check(),
        }
    }
}

guard_methods!(ReentrantMutexGuard);
