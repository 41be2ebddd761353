//! Parses a point in time as RFC 3339 writes it, and tells the present one.

use std::time::{Duration, SystemTime};

const RULE: &str = "write a time such as 2026-11-26T06:00:00Z or 2026-11-26T07:00+01:00";

/// Returns the time since 1970, or zero if the clock is before that.
pub(crate) fn since_1970() -> Duration {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()
}

/// Parses a point in time that is still to come.
pub(crate) fn future(text: &str) -> Result<SystemTime, String> {
    let time = parse(text).ok_or_else(|| RULE.to_owned())?;
    match SystemTime::now() < time {
        true => Ok(time),
        false => Err("that time is over".to_owned()),
    }
}

/// Parses `2026-11-26T06:00:00Z`. A space may replace the `T`, any offset the `Z`, and the seconds
/// may be left out.
fn parse(text: &str) -> Option<SystemTime> {
    let (local, offset) = match text.strip_suffix(['Z', 'z']) {
        Some(local) => (local, 0),
        None => {
            let (local, offset) = text.split_at_checked(text.len().checked_sub(6)?)?;
            (local, seconds_of_offset(offset)?)
        }
    };
    let (date, time) = local.split_once(['T', 't', ' '])?;
    let seconds = 86_400 * days(date)? + seconds(time)? - offset;
    let since = Duration::from_secs(u64::try_from(seconds).ok()?);
    SystemTime::UNIX_EPOCH.checked_add(since)
}

/// Returns the days from the epoch to `2026-11-26`.
fn days(date: &str) -> Option<i64> {
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = |month| match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if year < 1970 || !(1..=12).contains(&month) || !(1..=length(month)).contains(&day) {
        return None;
    }
    let leaps = |year: i64| year / 4 - year / 100 + year / 400;
    let years = 365 * (year - 1970) + leaps(year - 1) - leaps(1969);
    Some(years + (1..month).map(length).sum::<i64>() + day - 1)
}

/// Returns the seconds from midnight to `06:00:00`, without a fraction.
fn seconds(time: &str) -> Option<i64> {
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let is_fraction = !fraction.is_empty() && fraction.bytes().all(|b| b.is_ascii_digit());
    let [hour, minute, second] = match time.len() {
        5 => {
            let [hour, minute] = numbers(time, ':', [2, 2])?;
            [hour, minute, 0]
        }
        _ => numbers(time, ':', [2, 2, 2])?,
    };
    let is_time = hour < 24 && minute < 60 && second < 60 && is_fraction;
    is_time.then_some(3_600 * hour + 60 * minute + second)
}

/// Returns the seconds in `+01:00`.
fn seconds_of_offset(text: &str) -> Option<i64> {
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let [hours, minutes] = numbers(&text[1..], ':', [2, 2])?;
    let is_offset = hours < 24 && minutes < 60;
    is_offset.then_some(sign * (3_600 * hours + 60 * minutes))
}

/// Numbers of so many digits each, and what stands between them.
fn numbers<const N: usize>(text: &str, between: char, digits: [usize; N]) -> Option<[i64; N]> {
    let mut numbers = [0; N];
    let mut parts = text.split(between);
    for (number, digits) in numbers.iter_mut().zip(digits) {
        let part = parts.next()?;
        let is_number = part.len() == digits && part.bytes().all(|b| b.is_ascii_digit());
        *number = part.parse().ok().filter(|_| is_number)?;
    }
    parts.next().is_none().then_some(numbers)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zklock_testkit::fuzz;

    use super::*;

    const VALID: &[&str] = &[
        "2026-11-26T06:00:00Z",
        "2026-11-26 06:00:00.5+01:00",
        "2028-02-29t23:59-12:30",
    ];

    const WORDS: &[&str] = &[
        "-", ":", "T", "Z", "+", ".", " ", "0", "9", "é", "\u{661}", "\0",
    ];

    #[test]
    fn times_are_read_with_their_offset() {
        let table = [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-28T23:59:59Z", 951_782_399),
            ("2000-02-29T00:00:00Z", 951_782_400),
            ("2024-12-31T23:59:59Z", 1_735_689_599),
            ("2026-11-22T10:45:18Z", 1_795_344_318),
            ("2026-11-22T11:45:18+01:00", 1_795_344_318),
            ("2026-11-22t06:15:18.999-04:30", 1_795_344_318),
            ("2026-11-22 10:45z", 1_795_344_300),
        ];
        for (text, seconds) in table {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(parse(text), Some(time), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "Z",
            "now",
            "2026-11-26",
            "2026-11-26T06:00:00",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-11-31T00:00:00Z",
            "2026-11-26T24:00:00Z",
            "2026-11-26T06:60:00Z",
            "2026-11-26T06:00:00.Z",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00+01:00",
            "26-11-26T06:00:00Z",
            "2026-11-26T06:00:00+1:00",
            "2026-11-26T06:00:00é01:00",
            "+026-11-26T06:00:00Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_time_that_is_over_is_refused() {
        assert_eq!(
            future("2000-01-01T00:00:00Z"),
            Err("that time is over".to_owned())
        );
        assert!(future("9999-12-31T23:59:59Z").is_ok());
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn no_text_makes_the_parser_panic(text in fuzz::texts(VALID, WORDS), any: String) {
            let _ = (parse(&text), parse(&any));
        }
    }
}
