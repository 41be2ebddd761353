//! Counts attempts at a lock that were refused because of another kind of lock, and spaces them.

use std::time::Duration;

use zklock::Contender;

/// How often a node that is not a contender's must refuse an attempt before it counts as permanent:
/// the directory of an idle semaphore of another library, and not of one that looked in for a
/// moment.
const MAX_EMPTY: u32 = 5;

/// Counts the attempts that were refused.
#[derive(Debug, Default)]
pub(crate) struct RefusedAttempts {
    pub(crate) count: u32,
    /// How many of the last attempts were refused although no contender was there.
    empty: u32,
    /// How many of the last attempts may have met another attempt, and not a holder.
    collisions: u32,
    pub(crate) has_told: bool,
}

impl RefusedAttempts {
    /// Counts an attempt; returns whether what refused it seems to be permanent.
    pub(crate) fn count(&mut self, present: &[Contender]) -> bool {
        self.count += 1;
        self.collisions += 1;
        self.empty = match present.is_empty() {
            true => self.empty + 1,
            false => 0,
        };
        MAX_EMPTY <= self.empty
    }

    /// Returns whether the last attempt was refused although no contender was there.
    pub(crate) fn met_nobody(&self) -> bool {
        self.empty > 0
    }

    /// Notes how long the other contenders stayed.
    pub(crate) fn stayed(&mut self, time: Duration) {
        if self.longest_pause() < time {
            self.collisions = 0;
        }
    }

    /// Returns a random pause, so that two attempts that met do not meet again; zero if this
    /// attempt met no other.
    pub(crate) fn pause(&self) -> Duration {
        match self.collisions {
            0 | 1 => Duration::ZERO,
            _ => self.longest_pause().mul_f64(0.5 + fastrand::f64() / 2.0),
        }
    }

    fn longest_pause(&self) -> Duration {
        Duration::from_millis(10) * 2_u32.pow(self.collisions.min(7))
    }
}
