//! Reads the values of arguments, and says what to write instead of a bad one.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

/// A path; the library checks the rest of it.
pub(crate) fn absolute(text: &str) -> Result<String, String> {
    match text.strip_prefix('/') {
        Some("") => {
            Err("the root is no lock: write a path below it, such as /locks/nightly".to_owned())
        }
        None => Err("write an absolute path such as /locks/nightly".to_owned()),
        Some(_) => Ok(text.to_owned()),
    }
}

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok();
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.ok_or_else(|| "write a number of seconds, such as 1.5".to_owned())
}

pub(crate) fn number(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "write a number from 1 on".to_owned())
}

pub(crate) fn status(text: &str) -> Result<u8, String> {
    let status = text.parse();
    status.map_err(|_| "write a status from 0 to 255".to_owned())
}

/// An address or a name, which is looked up, and a port.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let address = text.to_socket_addrs().ok().and_then(|mut all| all.next());
    address.ok_or_else(|| "write an address and a port, such as 127.0.0.1:2181".to_owned())
}

/// Seconds, or a number with one of the units s, m, h and d.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let unit = |unit: char| match unit {
        's' => Some(1.0),
        'm' => Some(60.0),
        'h' => Some(3_600.0),
        'd' => Some(86_400.0),
        _ => None,
    };
    let (number, factor) = match text.chars().next_back().and_then(unit) {
        Some(factor) => (&text[..text.len() - 1], factor),
        None => (text, 1.0),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| "write a time such as 7d, 20h, 90m or 3600".to_owned())?;
    Duration::try_from_secs_f64(number * factor).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit_or_is_in_seconds() {
        let table = [
            ("20h", 72_000),
            ("90m", 5_400),
            ("1d", 86_400),
            ("7s", 7),
            ("60", 60),
        ];
        for (text, seconds) in table {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)));
        }
        for text in ["", "h", "-1h", "1w", "1e99d", "é"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn seconds_are_not_negative_and_end_somewhere() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["-1", "x", "1e30", "NaN", "inf", ""] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
