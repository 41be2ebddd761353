//! How long a session is sure to live, readable without a mutex.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::{LossCell, LostReason};
use crate::time::clock::nanos;
use zklock_core::lifetime::Lifetime;
use zklock_core::validity::Terms;

/// The [`Lifetime`] of one session, which guards read without a mutex.
#[derive(Debug, Default)]
pub(crate) struct SessionValidity {
    /// Why the session has ended, if it has.
    over: LossCell,
    timeout: AtomicU64,
    latest: AtomicU64,
    connected: AtomicU64,
}

impl SessionValidity {
    pub(crate) fn new(lifetime: &Lifetime) -> Arc<Self> {
        let new = Self::default();
        new.follow(lifetime);
        Arc::new(new)
    }

    /// Returns the current terms.
    pub(crate) fn terms(&self) -> Terms {
        let load = |nanos: &AtomicU64| Duration::from_nanos(nanos.load(Ordering::Acquire));
        let (latest, timeout) = (load(&self.latest), load(&self.timeout));
        Terms {
            timeout,
            latest,
            connected: load(&self.connected),
            // Read last: the session may end meanwhile.
            over: self.over.get().is_some(),
        }
    }

    pub(crate) fn follow(&self, lifetime: &Lifetime) {
        // Stored in this order and read in the opposite one: a reader that sees the later `latest`
        // must not see the longer timeout.
        let terms = lifetime.terms();
        self.timeout.store(nanos(terms.timeout), Ordering::Release);
        self.latest.store(nanos(terms.latest), Ordering::Release);
        self.connected
            .store(nanos(terms.connected), Ordering::Release);
    }

    /// Notes that the session has ended, for this reason unless it ended before.
    pub(crate) fn end(&self, why: LostReason) {
        self.over.settle(why);
    }

    /// Returns why the session has ended, if it has.
    pub(crate) fn ended(&self) -> Option<LostReason> {
        self.over.get()
    }
}
