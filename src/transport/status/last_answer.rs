//! The last answer of a server, as a hint for error messages.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::time::clock::{Moment, nanos};

/// When the last answer arrived, and how long it took. A reader may mix two answers, because this is only a hint.
#[derive(Debug, Default)]
pub(super) struct LastAnswer {
    at: AtomicU64,
    took: AtomicU64,
}

impl LastAnswer {
    pub(super) fn arrived(&self, at: Moment, took: Duration) {
        self.at.store(at.as_nanos(), Ordering::Relaxed);
        self.took.store(nanos(took), Ordering::Relaxed);
    }

    /// Returns when the last answer arrived.
    pub(super) fn at(&self) -> Moment {
        Moment::from_nanos(self.at.load(Ordering::Relaxed))
    }

    /// Returns how long the last answer took, if it arrived within this time.
    pub(super) fn took_within(&self, time: Duration) -> Option<Duration> {
        let is_new = Moment::now().saturating_since(self.at()) <= time;
        is_new.then(|| Duration::from_nanos(self.took.load(Ordering::Relaxed)))
    }
}
