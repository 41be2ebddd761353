//! What an attempt knows of the holds ahead of it.

use std::time::{Duration, Instant};

use crate::system::clock;
use crate::time::clock::Moment;
use zklock_core::hold::ServersClock;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct HoldsAhead {
    /// One was seen.
    pub(super) met: bool,
    /// When they are to be looked at again.
    pub(super) again: Option<Instant>,
    clock: ServersClock,
    /// This client may not remove these.
    pub(super) kept: Vec<String>,
}

impl HoldsAhead {
    /// How long to sleep at most before they are looked at again.
    pub(super) fn pause(&self) -> Option<Duration> {
        self.again
            .map(|at| at.saturating_duration_since(clock::now()))
    }

    /// The least that it can be at the servers, one of whose nodes shows this time.
    pub(super) fn servers_time(&mut self, shown: i64) -> Duration {
        let now = Moment::now().since_boot();
        self.clock.saw(shown, now);
        self.clock.time(now)
    }
}
