//! How long a session lives at least, readable without a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::{LossCell, LostReason};
use crate::recipe::validity::{Lifetime, Terms};
use crate::time::clock::nanos;

/// The [`Lifetime`] of one session, for guards, which read it without a lock.
#[derive(Debug)]
pub(crate) struct SessionValidity {
    /// Why it is over.
    over: LossCell,
    timeout: AtomicU64,
    latest: AtomicU64,
}

impl SessionValidity {
    pub(crate) fn new(lifetime: &Lifetime) -> Arc<Self> {
        let new = Self {
            over: LossCell::default(),
            timeout: AtomicU64::new(0),
            latest: AtomicU64::new(0),
        };
        new.follow(lifetime);
        Arc::new(new)
    }

    /// Returns what holds at this moment.
    pub(crate) fn terms(&self) -> Terms {
        let load = |nanos: &AtomicU64| Duration::from_nanos(nanos.load(Ordering::Acquire));
        let (latest, timeout) = (load(&self.latest), load(&self.timeout));
        Terms {
            timeout,
            latest,
            // Looked at last: another session may begin with a longer timeout.
            over: self.over.get().is_some(),
        }
    }

    pub(crate) fn follow(&self, lifetime: &Lifetime) {
        // In this order, and read in the other: a reader that sees the later `latest` must
        // not see the longer timeout.
        let (timeout, latest) = (lifetime.timeout(), lifetime.latest());
        self.timeout.store(nanos(timeout), Ordering::Release);
        self.latest.store(nanos(latest), Ordering::Release);
    }

    /// The session is over, for this reason or an earlier one.
    pub(crate) fn end(&self, why: LostReason) {
        self.over.settle(why);
    }

    /// Returns why the session is over, if it is.
    pub(crate) fn ended(&self) -> Option<LostReason> {
        self.over.get()
    }
}
