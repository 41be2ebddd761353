//! How long a session lives at least, readable without a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::recipe::validity::{Lifetime, Stamp};
use crate::time::clock::nanos;

/// The [`Lifetime`] of one session, for guards, which read it without a lock.
#[derive(Debug)]
pub(crate) struct Bounds {
    over: AtomicBool,
    timeout: AtomicU64,
    latest: AtomicU64,
}

impl Bounds {
    pub(crate) fn new(lifetime: &Lifetime) -> Arc<Self> {
        let new = Self {
            over: AtomicBool::new(false),
            timeout: AtomicU64::new(0),
            latest: AtomicU64::new(0),
        };
        new.follow(lifetime);
        Arc::new(new)
    }

    /// Returns whether the session has ended, or another one has taken its place.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Returns the shortest timeout that was negotiated in this session.
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_nanos(self.timeout.load(Ordering::Acquire))
    }

    /// Returns from when on another client may have what `stamp` proves.
    pub(crate) fn until(&self, stamp: Stamp) -> Duration {
        let latest = Duration::from_nanos(self.latest.load(Ordering::Acquire));
        stamp.until(self.timeout()).min(latest)
    }

    pub(crate) fn follow(&self, lifetime: &Lifetime) {
        // In this order, and read in the other: a reader that sees the later `latest` must
        // not see the longer timeout.
        let (timeout, latest) = (lifetime.timeout(), lifetime.latest());
        self.timeout.store(nanos(timeout), Ordering::Release);
        self.latest.store(nanos(latest), Ordering::Release);
    }

    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
    }
}
