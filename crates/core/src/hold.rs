//! Holds: nodes in a queue that no session owns, and that stand for a pause.
//!
//! The time of a hold is the servers'. Nodes show how late it was there at least, and this machine's clock
//! counts from then on. So no hold is taken for over early, unless the servers' clock is set back, or a server
//! whose clock is behind comes to lead.

use core::time::Duration;

use serde_json::Value;

use zklock_jute::Stat;

/// How much later than the waiter ahead each waiter looks at a hold that is over: the first one removes it.
pub const ONE_AFTER_THE_OTHER: Duration = Duration::from_secs(1);

/// Reads the end of a hold from its node's data, since the epoch and by the servers' clock. A hold that
/// lasts until somebody releases it has none, and data that somebody has replaced tells nothing.
pub fn end(data: &[u8], stat: &Stat) -> Option<Duration> {
    let card: Value = serde_json::from_slice(data).ok()?;
    end_in(&card["hold"], stat)
}

/// As [`end`], for the part of the data that describes the hold.
pub fn end_in(hold: &Value, stat: &Stat) -> Option<Duration> {
    let millis = |key: &str| hold[key].as_u64().map(Duration::from_millis);
    let written = Duration::from_millis(u64::try_from(stat.mtime).unwrap_or(0));
    millis("until_ms").or_else(|| written.checked_add(millis("for_ms")?))
}

/// The servers' clock, as far as it is known.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServersClock {
    /// The least that the time was at the servers, since the epoch, and the moment here when it was.
    known: Option<(Duration, Duration)>,
}

impl ServersClock {
    /// Notes that a node has shown this time, in milliseconds since the epoch.
    pub fn saw(&mut self, millis: i64, now: Duration) {
        let shown = Duration::from_millis(u64::try_from(millis).unwrap_or(0));
        self.known = Some((shown.max(self.time(now)), now));
    }

    /// Returns the least that the time there can be, since the epoch; 0 if that is unknown.
    pub fn time(&self, now: Duration) -> Duration {
        self.known.map_or(Duration::ZERO, |(time, at)| {
            time.saturating_add(now.saturating_sub(at))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_ends_at_a_time_or_that_long_after_it_was_written() {
        let stat = Stat {
            mtime: 1_000,
            ..Stat::default()
        };
        let longest = Duration::from_millis(u64::MAX) + Duration::from_secs(1);
        for (data, expected) in [
            (
                &br#"{"hold":{"until_ms":5000,"for_ms":1}}"#[..],
                Some(Duration::from_millis(5_000)),
            ),
            (
                br#"{"host":"a","hold":{"by":"ann","for_ms":30}}"#,
                Some(Duration::from_millis(1_030)),
            ),
            (br#"{"hold":{}}"#, None),
            (br#"{"hold":{"for_ms":-1}}"#, None),
            (
                br#"{"hold":{"for_ms":18446744073709551615}}"#,
                Some(longest),
            ),
            (b"unlock", None),
            (b"", None),
        ] {
            assert_eq!(end(data, &stat), expected, "{data:?}");
        }
    }
}
