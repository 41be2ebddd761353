//! The content of the file, in Prometheus' text format.

use std::fmt;
use std::mem;
use std::time::Duration;

/// The numbers about one lock's commands on this machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Page {
    /// The lock, escaped.
    lock: String,
    pub(super) waiting: bool,
    pub(super) active: bool,
    /// The points in time below are counted from 1970.
    pub(super) last_start: Option<Duration>,
    pub(super) last_success: Option<Duration>,
    pub(super) last_exit: Option<(Duration, u8)>,
    pub(super) last_wait: Option<Duration>,
    pub(super) last_hold: Option<Duration>,
    pub(super) starts: u64,
    pub(super) losses: u64,
}

/// A name, whether it is a counter, and its description, which must be the same in all files.
type About = (&'static str, bool, &'static str);

#[rustfmt::skip]
const ABOUT: [About; 10] = [
    ("waiting", false, "Whether zklock waits for the lock."),
    ("active", false, "Whether zklock has the lock and runs its command."),
    ("last_start_timestamp_seconds", false, "When a command last began."),
    ("last_success_timestamp_seconds", false, "When a command last ended with status 0 under its lock."),
    ("last_exit_timestamp_seconds", false, "When zklock last ended."),
    ("last_exit_status", false, "The exit status when zklock last ended, 128 and N for signal N."),
    ("last_wait_seconds", false, "How long the last command waited for the lock."),
    ("last_hold_seconds", false, "How long the last command that has ended had the lock."),
    ("starts_total", true, "How many commands have begun."),
    ("losses_total", true, "How often the lock was lost, or the command stopped because it was in doubt."),
];

impl Page {
    pub(super) fn new(lock: &str) -> Self {
        let lock = lock.replace('\\', "\\\\").replace('"', "\\\"");
        Self {
            lock: lock.replace('\n', "\\n"),
            ..Self::default()
        }
    }

    /// Takes out what has happened and is not written yet.
    pub(super) fn news(&mut self) -> Self {
        let rest = Self {
            lock: self.lock.clone(),
            waiting: self.waiting,
            active: self.active,
            ..Self::default()
        };
        mem::replace(self, rest)
    }

    /// Takes over from an earlier page what has not happened since, and adds up the counters. What
    /// was to happen after `now`, by a clock that was ahead, does not outlast what has happened.
    pub(super) fn follows(&mut self, earlier: &Self, now: Duration) {
        self.last_start = later(self.last_start, earlier.last_start, |at| *at <= now);
        self.last_success = later(self.last_success, earlier.last_success, |at| *at <= now);
        self.last_exit = later(self.last_exit, earlier.last_exit, |(at, _)| *at <= now);
        self.last_wait = self.last_wait.or(earlier.last_wait);
        self.last_hold = self.last_hold.or(earlier.last_hold);
        self.starts = self.starts.saturating_add(earlier.starts);
        self.losses = self.losses.saturating_add(earlier.losses);
    }

    /// Follows an earlier page in its written form. Returns whether the text had any numbers.
    pub(super) fn continues(&mut self, earlier: &str, now: Duration) -> bool {
        let number = |name| self.number_in(name, earlier);
        let time = |name| Duration::try_from_secs_f64(number(name)?).ok();
        let count = |name| number(name).unwrap_or_default() as u64;
        let status = number("last_exit_status").filter(|status| (0.0..256.0).contains(status));
        let earlier = Self {
            last_start: time("last_start_timestamp_seconds"),
            last_success: time("last_success_timestamp_seconds"),
            last_exit: time("last_exit_timestamp_seconds").zip(status.map(|status| status as u8)),
            last_wait: time("last_wait_seconds"),
            last_hold: time("last_hold_seconds"),
            starts: count("starts_total"),
            losses: count("losses_total"),
            ..Self::default()
        };
        let is_there = ABOUT.iter().any(|(name, ..)| number(name).is_some());
        self.follows(&earlier, now);
        is_there
    }

    /// Returns whether somebody waits, according to an earlier page in its written form.
    pub(super) fn waits_in(&self, earlier: &str) -> bool {
        self.number_in("waiting", earlier) == Some(1.0)
    }

    fn number_in(&self, name: &str, text: &str) -> Option<f64> {
        let sample = format!("{} ", self.sample(name));
        let mut found = text.lines().filter_map(|line| line.strip_prefix(&sample));
        let number: f64 = found.next()?.trim().parse().ok()?;
        (number.is_finite() && 0.0 <= number).then_some(number)
    }

    fn sample(&self, name: &str) -> String {
        format!("zklock_command_{name}{{lock=\"{}\"}}", self.lock)
    }

    /// Returns the numbers in their order, as text; `None` for what has not happened.
    fn numbers(&self) -> [Option<String>; ABOUT.len()] {
        let yes = |is: bool| Some(u8::from(is).to_string());
        let seconds = |time: Duration| format!("{:.3}", time.as_secs_f64());
        [
            yes(self.waiting),
            yes(self.active),
            self.last_start.map(seconds),
            self.last_success.map(seconds),
            self.last_exit.map(|(at, _)| seconds(at)),
            self.last_exit.map(|(_, status)| status.to_string()),
            self.last_wait.map(seconds),
            self.last_hold.map(seconds),
            Some(self.starts.to_string()),
            Some(self.losses.to_string()),
        ]
    }
}

/// Returns the later one; the own one, if there is one, where the earlier one is not to be believed.
fn later<T: Ord>(own: Option<T>, earlier: Option<T>, is_past: impl Fn(&T) -> bool) -> Option<T> {
    match own {
        None => earlier,
        own => own.max(earlier.filter(is_past)),
    }
}

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((name, counts, help), number) in ABOUT.into_iter().zip(self.numbers()) {
            let Some(number) = number else { continue };
            let kind = if counts { "counter" } else { "gauge" };
            writeln!(f, "# HELP zklock_command_{name} {help}")?;
            writeln!(f, "# TYPE zklock_command_{name} {kind}")?;
            writeln!(f, "{} {number}", self.sample(name))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zklock_testkit::fuzz;

    use super::*;

    const LATE: Duration = Duration::from_secs(1_764_000_100);

    fn full() -> Page {
        let at = |seconds: u64| Some(Duration::from_millis(1_764_000_000_123 + seconds * 1000));
        Page {
            waiting: false,
            active: true,
            last_start: at(0),
            last_success: at(1),
            last_exit: at(2).map(|at| (at, 143)),
            last_wait: Some(Duration::from_millis(1)),
            last_hold: Some(Duration::from_secs(100_000)),
            starts: 3,
            losses: 1,
            ..Page::new("/jobs/a\"b\\c\nd, /é")
        }
    }

    #[test]
    fn what_has_not_happened_is_left_out_and_the_label_is_escaped() {
        let said = "\
# HELP zklock_command_waiting Whether zklock waits for the lock.
# TYPE zklock_command_waiting gauge
zklock_command_waiting{lock=\"/a\\\"\\\\\"} 0
";
        let text = Page::new("/a\"\\").to_string();
        assert!(text.starts_with(said), "{text}");
        assert!(!text.contains("_last_"), "{text}");
        let text = full().to_string();
        let at = "\nzklock_command_last_exit_status{lock=\"/jobs/a\\\"b\\\\c\\nd, /é\"} 143\n";
        assert!(text.contains(at), "{text}");
    }

    #[test]
    fn a_page_continues_an_earlier_one_about_the_same_lock() {
        let mut page = Page::new("/jobs/a\"b\\c\nd, /é");
        page.starts = 1;
        page.last_success = Some(Duration::from_secs(1_764_000_007));
        assert!(page.continues(&full().to_string(), LATE));
        let expected = Page {
            active: false,
            starts: 4,
            last_success: page.last_success,
            ..full()
        };
        assert_eq!(page.to_string(), expected.to_string());
        assert!(!Page::new("/other").continues(&full().to_string(), LATE));
    }

    #[test]
    fn what_a_clock_that_was_ahead_has_dated_is_replaced() {
        let now = Duration::from_secs(1_763_000_000);
        let mut page = Page::new("/jobs/a\"b\\c\nd, /é");
        page.last_success = Some(now);
        page.last_exit = Some((now, 0));
        assert!(page.continues(&full().to_string(), now));
        assert_eq!(page.last_success, Some(now));
        assert_eq!(page.last_exit, Some((now, 0)));
        // Nothing is known that is later.
        assert!(page.last_start.is_some_and(|at| now < at));
    }

    const VALID: &[&str] = &[
        "zklock_command_starts_total{lock=\"/a\"} 7\nzklock_command_last_exit_status{lock=\"/a\"} 3\n",
        "zklock_command_last_exit_timestamp_seconds{lock=\"/a\"} 1764000000.123\n",
    ];

    const WORDS: &[&str] = &[
        "NaN",
        "-1",
        "1e400",
        "1e300",
        "inf",
        "\n",
        " ",
        "zklock_command_losses_total{lock=\"/a\"} ",
        "18446744073709551616",
        "256",
        "0x7",
        "{",
        "}",
        "#",
    ];

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn a_page_continues_whatever_is_there(text in fuzz::texts(VALID, WORDS)) {
            let mut page = Page::new("/a");
            page.continues(&text, LATE);
            let mut again = Page::new("/a");
            assert!(again.continues(&page.to_string(), LATE));
        }
    }
}
