//! Parses the values of arguments, and says what to write instead of a bad one.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use crate::sanitize::plain;

/// The most characters of a reason that others are shown.
const LONGEST_REASON: usize = 512;

/// Parses a path; the library checks the rest of it.
pub(crate) fn absolute(text: &str) -> Result<String, String> {
    match text.strip_prefix('/') {
        Some("") => {
            Err("the root is no lock: write a path below it, such as /locks/nightly".to_owned())
        }
        None => Err("write an absolute path such as /locks/nightly".to_owned()),
        Some(rest) if rest.ends_with('/') => Err("leave the slash at the end out".to_owned()),
        Some(rest) if rest.contains("//") => Err("write one slash for two".to_owned()),
        Some(_) => Ok(text.to_owned()),
    }
}

/// Like [`absolute`], but accepts the root of all paths too.
pub(crate) fn absolute_or_root(text: &str) -> Result<String, String> {
    match text {
        "/" => Ok(text.to_owned()),
        _ => absolute(text),
    }
}

/// Parses a slot that the library accepts.
pub(crate) fn slot(text: &str) -> Result<String, String> {
    let is_good = (1..=256).contains(&text.len()) && !text.contains(char::is_control);
    let rule = "a slot has 1 to 256 bytes and no control characters, such as 2026-11-22";
    is_good
        .then(|| text.to_owned())
        .ok_or_else(|| rule.to_owned())
}

/// Parses the reason for an action, which others are shown.
pub(crate) fn reason(text: &str) -> Result<String, String> {
    let is_good = (1..=LONGEST_REASON).contains(&text.chars().count()) && plain(text) == text;
    is_good.then(|| text.to_owned()).ok_or_else(|| {
        format!("a reason has 1 to {LONGEST_REASON} characters, and none that hide or control")
    })
}

/// Parses a user and the hash of `user:password`, as access control lists have them.
pub(crate) fn digest(text: &str) -> Result<String, String> {
    // The 20 bytes of SHA-1 in Base64.
    let is_hash = |hash: &str| hash.len() == 28 && hash.ends_with('=');
    let is_good = text
        .split_once(':')
        .is_some_and(|(user, hash)| !user.is_empty() && is_hash(hash));
    is_good.then(|| text.to_owned()).ok_or_else(|| {
        "write a user and the hash of user:password, such as super:lK75jTNcA+U9vtVEw5vB51mj/w4="
            .to_owned()
    })
}

pub(crate) fn number(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "write a number from 1 on".to_owned())
}

pub(crate) fn token(text: &str) -> Result<i64, String> {
    let token = text.parse().ok().filter(|token| *token > 0);
    token.ok_or_else(|| "write a token, the number in ZKLOCK_TOKEN".to_owned())
}

pub(crate) fn status(text: &str) -> Result<u8, String> {
    let status = text.parse();
    status.map_err(|_| "write a status from 0 to 255".to_owned())
}

/// Parses an address, or a name, which is looked up, and a port.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let address = text.to_socket_addrs().ok().and_then(|mut all| all.next());
    address.ok_or_else(|| "write an address and a port, such as 127.0.0.1:2181".to_owned())
}

/// Like [`time`], but refuses zero.
pub(crate) fn time_above_zero(text: &str) -> Result<Duration, String> {
    match time(text)? {
        Duration::ZERO => Err("write a time above zero, such as 20 or 30s".to_owned()),
        time => Ok(time),
    }
}

/// Like [`time_above_zero`], but refuses a time beyond any calendar.
pub(crate) fn time_of_a_hold(text: &str) -> Result<Duration, String> {
    const CENTURY: Duration = Duration::from_secs(36_500 * 86_400);
    match time_above_zero(text)? {
        time if CENTURY < time => Err("write a time of a century at most: 36500d".to_owned()),
        time => Ok(time),
    }
}

/// Parses seconds, or a number with one of the units ms, s, m, h and d.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    /// The units in seconds; `ms` comes first, because it also ends with an `s`.
    const UNITS: [(&str, f64); 5] = [
        ("ms", 0.001),
        ("s", 1.0),
        ("m", 60.0),
        ("h", 3_600.0),
        ("d", 86_400.0),
    ];
    let with_unit = |(unit, factor): &(&str, f64)| Some((text.strip_suffix(unit)?, *factor));
    let (number, factor) = UNITS.iter().find_map(with_unit).unwrap_or((text, 1.0));
    let number: Option<f64> = number.parse().ok();
    let time = number.and_then(|number| Duration::try_from_secs_f64(number * factor).ok());
    time.ok_or_else(|| "write a time such as 90, 1.5, 30s, 10m, 20h or 7d".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit_or_is_in_seconds() {
        let table = [
            ("20h", 72_000_000),
            ("90m", 5_400_000),
            ("1d", 86_400_000),
            ("7s", 7_000),
            ("250ms", 250),
            ("60", 60_000),
            ("0.5", 500),
            ("1.5m", 90_000),
        ];
        for (text, millis) in table {
            assert_eq!(time(text), Ok(Duration::from_millis(millis)));
        }
    }

    #[test]
    fn a_time_is_not_negative_and_ends_somewhere() {
        for text in [
            "", "h", "ms", "-1h", "1w", "1e99d", "é", "-1", "x", "1e30", "NaN", "inf", "1 h",
        ] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
