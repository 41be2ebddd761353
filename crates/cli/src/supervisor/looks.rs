//! When the command and its lock were last checked. The service manager's watchdog asks for that,
//! and a late check shows how long this process was stopped, as by Ctrl-Z. Nothing confirms a lock
//! meanwhile.

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

/// How long a look may take.
const STUCK: Duration = Duration::from_secs(10);

/// How long this process was stopped. Its `Display` continues the sentence about a lock, and is
/// empty if this process was not stopped since the lock was held.
#[derive(Debug)]
pub(super) struct Looks {
    /// When the last look was, by a clock that counts while the machine sleeps.
    last: Duration,
    /// How long the last stop was, and when the process went on.
    stopped: Option<(Duration, Instant)>,
    session_timeout: Duration,
}

impl Looks {
    pub(super) fn begin(session_timeout: Duration) -> Self {
        LAST.lock().replace(Instant::now());
        Self {
            last: since_boot(),
            stopped: None,
            session_timeout,
        }
    }

    /// Notes a look at this time since the start of the system.
    pub(super) fn look(&mut self, state: GuardState, now: Duration) {
        LAST.lock().replace(Instant::now());
        let since = now.saturating_sub(mem::replace(&mut self.last, now));
        if since > STOPPED.min(self.session_timeout / 6) {
            self.stopped = Some((since, Instant::now()));
        } else if state == GuardState::Held {
            self.stopped = None;
        }
    }

    /// Returns how long the servers still have to confirm the lock after a stop of this process. Nobody asked
    /// them during the stop, and the client asks as soon as it goes on.
    pub(super) fn answer_due(&self) -> Option<Duration> {
        let (_, went_on) = self.stopped?;
        let left = (self.session_timeout / 40).saturating_sub(went_on.elapsed());
        (!left.is_zero()).then_some(left)
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
        let Some((time, _)) = self.stopped else {
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

    #[test]
    fn a_short_stop_is_one_where_the_session_is_short() {
        let mut looks = Looks::begin(Duration::from_secs(15));
        looks.look(GuardState::Held, looks.last + Duration::from_millis(2_400));
        assert_eq!(looks.answer_due(), None);
        looks.look(GuardState::Held, looks.last + Duration::from_millis(2_600));
        assert!(looks.answer_due().is_some());
    }

    #[test]
    fn the_sleep_of_the_machine_is_a_stop_too() {
        let mut looks = Looks::begin(Duration::from_secs(20));
        looks.look(GuardState::Held, since_boot() + Duration::from_secs(1));
        assert_eq!(
            (looks.to_string(), looks.answer_due()),
            (String::new(), None)
        );
        looks.look(GuardState::Suspect, since_boot() + Duration::from_secs(8));
        assert!(
            looks
                .to_string()
                .starts_with(", as zklock was stopped for ")
        );
        assert!(looks.answer_due().is_some());
    }
}
