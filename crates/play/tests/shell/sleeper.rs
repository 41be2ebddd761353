//! The place where a thread waits for the outcome of its ask, and what a guard believes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use parking_lot::Mutex;
use zklock_core::validity::Validity;
use zklock_play::Outcome;

/// A waiting thread.
pub(crate) struct Sleeper {
    thread: Thread,
    is_set: AtomicBool,
    outcome: Mutex<Option<Outcome>>,
    /// Whether its outcome comes from the server, so that the thread may read for all.
    reads: AtomicBool,
    /// Until when its guard may be trusted, in nanoseconds.
    until: AtomicU64,
}

impl Sleeper {
    pub(crate) fn new(reads: bool) -> Arc<Self> {
        Arc::new(Self {
            thread: thread::current(),
            is_set: AtomicBool::new(false),
            outcome: Mutex::new(None),
            reads: AtomicBool::new(reads),
            until: AtomicU64::new(0),
        })
    }

    pub(crate) fn wake(&self, outcome: Outcome) {
        *self.outcome.lock() = Some(outcome);
        self.is_set.store(true, Ordering::Release);
        // The thread itself may read for all.
        if self.thread.id() != thread::current().id() {
            self.thread.unpark();
        }
    }

    pub(crate) fn may_read(&self) {
        self.reads.store(true, Ordering::Release);
    }

    pub(crate) fn reads(&self) -> bool {
        self.reads.load(Ordering::Acquire)
    }

    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    pub(crate) fn take(&self) -> Option<Outcome> {
        self.is_set().then(|| self.outcome.lock().take())?
    }

    /// Sets what its guard may believe.
    pub(crate) fn tell(&self, trust: Validity) {
        let until = trust.until.as_nanos() as u64;
        self.until.store(until, Ordering::Release);
    }

    pub(crate) fn until(&self) -> Duration {
        Duration::from_nanos(self.until.load(Ordering::Acquire))
    }
}
