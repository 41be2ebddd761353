//! The last answer of a server, for what an error says.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::time::clock::{Moment, nanos};

/// When it arrived, and how long it took. A reader may get one of two answers: a hint is all it is.
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

    /// When it arrived.
    pub(super) fn at(&self) -> Moment {
        Moment::from_nanos(self.at.load(Ordering::Relaxed))
    }

    /// How long it took, if it arrived so short a time ago.
    pub(super) fn took_within(&self, time: Duration) -> Option<Duration> {
        let is_new = Moment::now().saturating_since(self.at()) <= time;
        is_new.then(|| Duration::from_nanos(self.took.load(Ordering::Relaxed)))
    }
}
