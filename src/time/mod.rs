//! Limits to waits, and times in messages.
//!
//! There are two clocks, see [`system::clock`](crate::system::clock). `Instant` stops while the machine sleeps, but a
//! guard must notice that it slept through its deadline: code that decides about the validity of a lock goes by the
//! time since boot, plain timeouts by `Instant`.

pub(crate) mod limit;
pub(crate) mod utc;

use std::time::Duration;

/// Returns a duration as a number, for atomics.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::clock::since_boot;
    use zklock_core::validity::Stamp;

    /// A stamp of zero means that nothing is known.
    #[test]
    fn what_was_at_zero_is_longer_ago_than_any_session_lasts() {
        let longest = Duration::from_millis(i32::MAX as u64);
        let until = Stamp::NEVER.until(longest);
        assert!(until < since_boot(), "{until:?}");
    }

    #[test]
    fn time_goes_forward_and_the_longest_time_is_a_number() {
        assert!(since_boot() <= since_boot());
        assert_eq!(nanos(Duration::MAX), u64::MAX);
    }
}
