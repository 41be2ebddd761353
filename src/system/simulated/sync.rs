//! Mutexes at which the scheduler decides which thread is first.

use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{self, PoisonError, TryLockError};
use std::time::Duration;

use super::clock;
use super::scheduler::{new_key, try_here};
use super::state::Key;

/// A mutex that does not poison.
pub(crate) struct Mutex<T> {
    key: Key,
    inner: sync::Mutex<T>,
}

/// A guard: the mutex is locked while this lives.
pub(crate) struct MutexGuard<'a, T> {
    lock: &'a Mutex<T>,
    inner: Option<sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            key: new_key(),
            inner: sync::Mutex::new(value),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        if let Some(here) = try_here() {
            here.step();
        }
        MutexGuard {
            lock: self,
            inner: Some(self.take()),
        }
    }

    fn try_take(&self) -> Option<sync::MutexGuard<'_, T>> {
        match self.inner.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn take(&self) -> sync::MutexGuard<'_, T> {
        match try_here() {
            Some(here) => here
                .wait(&[self.key], None, "for a lock in memory", || {
                    self.try_take()
                })
                .expect("a wait without a limit"),
            None => self.inner.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    fn wake(&self) {
        if let Some(here) = try_here() {
            here.state().wake(self.key);
        }
    }
}

impl<'a, T> MutexGuard<'a, T> {
    /// Unlocks the mutex while `run` runs.
    pub(crate) fn unlocked<R>(guard: &mut Self, run: impl FnOnce() -> R) -> R {
        guard.inner = None;
        guard.lock.wake();
        let result = run();
        guard.inner = Some(guard.lock.take());
        result
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner.as_ref().expect("it is locked")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect("it is locked")
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.inner = None;
        self.lock.wake();
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T: fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A condition variable.
#[derive(Debug, Default)]
pub(crate) struct Condvar {
    /// The keys of the waiting threads.
    waiting: sync::Mutex<VecDeque<Key>>,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    pub(crate) fn timed_out(self) -> bool {
        self.0
    }
}

impl Condvar {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.wait_until(guard, None);
    }

    pub(crate) fn wait_for<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        time: Duration,
    ) -> WaitTimeoutResult {
        let here = super::scheduler::here();
        let until = clock::after(&here, time);
        WaitTimeoutResult(!self.wait_until(guard, Some(until)))
    }

    /// Returns whether the thread was notified.
    fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, until: Option<u64>) -> bool {
        let here = super::scheduler::here();
        let key = new_key();
        self.waiting().push_back(key);
        guard.inner = None;
        guard.lock.wake();
        let told = here.wait(&[key], until, "on a condition", || {
            (!self.waiting().contains(&key)).then_some(())
        });
        self.waiting().retain(|other| *other != key);
        guard.inner = Some(guard.lock.take());
        told.is_some()
    }

    pub(crate) fn notify_one(&self) {
        let first = self.waiting().pop_front();
        wake(first);
    }

    pub(crate) fn notify_all(&self) {
        let all: Vec<_> = self.waiting().drain(..).collect();
        wake(all);
    }

    fn waiting(&self) -> sync::MutexGuard<'_, VecDeque<Key>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wake(keys: impl IntoIterator<Item = Key>) {
    if let Some(here) = try_here() {
        let mut state = here.state();
        keys.into_iter().for_each(|key| state.wake(key));
    }
}
