//! What an attempt knows of the holds ahead of it.

use std::time::{Duration, Instant};

use crate::system::clock;
use crate::time::clock::Moment;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct HoldsAhead {
    /// One was seen.
    pub(super) met: bool,
    /// When they are to be looked at again.
    pub(super) again: Option<Instant>,
    /// It was at least so late at the servers at that moment, since the epoch.
    clock: Option<(Duration, Moment)>,
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
        let (now, shown) = (Moment::now(), u64::try_from(shown).unwrap_or(0));
        let known = self.clock.map_or(Duration::ZERO, |(time, at)| {
            time.saturating_add(now.saturating_since(at))
        });
        let time = known.max(Duration::from_millis(shown));
        self.clock = Some((time, now));
        time
    }
}
