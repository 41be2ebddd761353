//! Dates in the format of ZooKeeper's reports.

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];

const MONTHS: [&str; 12] = [
    "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "Jan", "Feb",
];

/// Shows a time since the epoch, in milliseconds, as `Sun Nov 22 10:56:16 UTC 2026`.
pub(super) fn date(epoch_ms: u64) -> String {
    let seconds = epoch_ms / 1000;
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    let weekday = pick(&DAYS, days % 7);
    // Years are counted from March, four centuries at a time.
    let since_march = days + 719_468;
    let (era, day) = (since_march / 146_097, since_march % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year + u64::from(month >= 10);
    let month = pick(&MONTHS, month);
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    format!("{weekday} {month} {day:02} {hour:02}:{minute:02}:{second:02} UTC {year}")
}

fn pick(names: &[&'static str], place: u64) -> &'static str {
    let place = usize::try_from(place).unwrap_or(0);
    names.get(place).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_shown_as_java_shows_it() {
        for (seconds, shown) in [
            (0, "Thu Jan 01 00:00:00 UTC 1970"),
            (951_782_399, "Mon Feb 28 23:59:59 UTC 2000"),
            (951_782_400, "Tue Feb 29 00:00:00 UTC 2000"),
            (1_795_344_976, "Sun Nov 22 10:56:16 UTC 2026"),
            (4_107_542_400, "Mon Mar 01 00:00:00 UTC 2100"),
        ] {
            assert_eq!(date(seconds * 1000), shown);
        }
    }
}
