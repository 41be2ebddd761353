//! A clock that keeps running while the machine sleeps.
//!
//! `std::time::Instant` stops during suspend on Linux, but a guard must notice that it slept
//! through its deadline. Code that decides about the validity of a lock reads this clock; plain
//! timeouts use `Instant`.

use std::ops::Add;
use std::time::Duration;

use crate::system::clock;

/// A point in time, comparable within one boot of this machine.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Moment(u64);

impl Moment {
    /// Returns the current moment.
    pub(crate) fn now() -> Self {
        Self(nanos(clock::since_boot()))
    }

    /// Returns the moment that [`as_nanos`](Self::as_nanos) returned as a number.
    pub(crate) const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the moment at this time since boot.
    pub(crate) fn of(since_boot: Duration) -> Self {
        Self(nanos(since_boot))
    }

    /// Returns the moment as a number, for atomics.
    pub(crate) fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time since boot.
    pub(crate) fn since_boot(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// Returns the time from `earlier` to `self`, or zero if `earlier` is later.
    pub(crate) fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

/// Returns a duration as a number, for atomics.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zklock_core::validity::Stamp;

    /// A stamp of zero means that nothing is known.
    #[test]
    fn what_was_at_zero_is_longer_ago_than_any_session_lasts() {
        let longest = Duration::from_millis(i32::MAX as u64);
        let until = Stamp::NEVER.until(longest);
        assert!(until < Moment::now().since_boot(), "{until:?}");
    }

    #[test]
    fn time_goes_forward_and_never_wraps() {
        let before = Moment::now();
        assert!(before <= Moment::now());
        assert!(before < before + Duration::from_nanos(1));
        assert_eq!(before + Duration::MAX, Moment::from_nanos(u64::MAX));
        assert_eq!(
            before.saturating_since(before + Duration::from_secs(1)),
            Duration::ZERO
        );
    }
}
