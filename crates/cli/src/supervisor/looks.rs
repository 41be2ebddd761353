//! When the command and its lock were last checked. The service manager's watchdog asks for that,
//! and a late check shows how long this process was stopped, as by Ctrl-Z. Nothing confirms a lock
//! meanwhile. A check that is a little late shows that other processes use up the processors.

use std::fmt;
use std::mem;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use zklock::GuardState;

use crate::helper::trust::since_boot;
use crate::table::brief;

/// When the last look was, while there is a command.
static LAST: Mutex<Option<Instant>> = Mutex::new(None);

/// Looks are at most a second apart, and an eighth of a session timeout, unless this process is stopped.
const STOPPED: Duration = Duration::from_secs(3);

/// How late looks are where a processor is free only now and then: an answer may be there, and not be read yet.
const LATE: Duration = Duration::from_millis(1_350);

/// How long a look may take.
const STUCK: Duration = Duration::from_secs(10);

/// How long this process was stopped. Its `Display` continues the sentence about a lock, and is
/// empty if this process was not stopped since the lock was held.
#[derive(Debug)]
pub(super) struct Looks {
    /// When the last look was, by a clock that counts while the machine sleeps.
    last: Duration,
    /// How long the last stop was.
    stopped: Option<Duration>,
    /// When a look was last late.
    late: Option<Instant>,
    /// Until when the servers have time to answer, since the lock is in doubt.
    answer_due: Option<Instant>,
    session_timeout: Duration,
}

impl Looks {
    pub(super) fn begin(session_timeout: Duration) -> Self {
        LAST.lock().replace(Instant::now());
        Self {
            last: since_boot(),
            stopped: None,
            late: None,
            answer_due: None,
            session_timeout,
        }
    }

    /// Notes a look at this time since the start of the system.
    pub(super) fn look(&mut self, state: GuardState, now: Duration) {
        LAST.lock().replace(Instant::now());
        let since = now.saturating_sub(mem::replace(&mut self.last, now));
        if since > LATE.min(self.session_timeout / 6) {
            self.late = Some(Instant::now());
        }
        if since > STOPPED.min(self.session_timeout / 6) {
            self.stopped = Some(since);
        } else if state == GuardState::Held {
            self.stopped = None;
        }
        if state == GuardState::Held {
            self.answer_due = None;
        }
    }

    /// Returns how long the servers still have to confirm a lock that is in doubt, at most `limit`, if this
    /// process was stopped or late: nobody asked them, or has taken their answer.
    pub(super) fn answer_due(&mut self, limit: Duration) -> Option<Duration> {
        if !self.is_late() {
            return None;
        }
        let longest = limit.min(self.session_timeout / 20);
        let due = self
            .answer_due
            .get_or_insert_with(|| Instant::now() + longest);
        let left = due.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    /// Returns whether a look was late since the lock could last be confirmed.
    fn is_late(&self) -> bool {
        let recently = self.session_timeout / 2;
        self.late.is_some_and(|late| late.elapsed() < recently)
    }

    /// Returns what to say of a doubt of which this process may be the reason.
    pub(super) fn advice(&self) -> &'static str {
        match self.stopped {
            None if self.is_late() => {
                "; zklock itself gets a processor late: give it more of them, or a longer --session-timeout"
            }
            _ => "",
        }
    }
}

impl Drop for Looks {
    fn drop(&mut self) {
        LAST.lock().take();
    }
}

/// Returns whether the command, if there is one, is supervised.
pub(crate) fn is_attended() -> bool {
    let last = *LAST.lock();
    last.is_none_or(|last| last.elapsed() < STUCK)
}

impl fmt::Display for Looks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(time) = self.stopped else {
            return Ok(());
        };
        write!(f, ", as zklock was stopped for {}", brief(time))?;
        let lasts = self.session_timeout;
        if time < lasts {
            return Ok(());
        }
        write!(f, ", and a session lasts {} without it", brief(lasts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENOUGH: Duration = Duration::from_secs(5);

    /// Looks this long after the last look.
    fn look_after(looks: &mut Looks, millis: u64) {
        looks.look(GuardState::Held, looks.last + Duration::from_millis(millis));
    }

    #[test]
    fn a_late_look_is_one_where_the_session_is_short() {
        for (timeout, late) in [(20, 1_400), (6, 1_100)] {
            let mut looks = Looks::begin(Duration::from_secs(timeout));
            look_after(&mut looks, late - 150);
            assert_eq!(looks.answer_due(ENOUGH), None, "{timeout}");
            look_after(&mut looks, late);
            assert!(looks.answer_due(ENOUGH).is_some(), "{timeout}");
        }
    }

    #[test]
    fn servers_have_a_twentieth_of_the_timeout_once_and_no_more_than_there_is() {
        let mut looks = Looks::begin(Duration::from_secs(20));
        look_after(&mut looks, 2_000);
        look_after(&mut looks, 1_000);
        let due = looks.answer_due(ENOUGH).expect("time to answer");
        assert!(due <= Duration::from_secs(1), "{due:?}");
        assert!(
            looks
                .advice()
                .starts_with("; zklock itself gets a processor late")
        );
        looks.answer_due = Some(Instant::now());
        assert_eq!(looks.answer_due(ENOUGH), None);
        // The lock was confirmed.
        look_after(&mut looks, 1_000);
        assert!(
            looks
                .answer_due(Duration::from_millis(1))
                .is_none_or(|due| due.as_millis() < 2)
        );
    }

    #[test]
    fn the_sleep_of_the_machine_is_a_stop_too() {
        let mut looks = Looks::begin(Duration::from_secs(20));
        looks.look(GuardState::Held, since_boot() + Duration::from_secs(1));
        let said = looks.to_string();
        assert_eq!((said, looks.answer_due(ENOUGH)), (String::new(), None));
        looks.look(GuardState::Suspect, since_boot() + Duration::from_secs(8));
        assert!(
            looks
                .to_string()
                .starts_with(", as zklock was stopped for ")
        );
        assert!(looks.answer_due(ENOUGH).is_some());
    }
}
