//! When the command and its lock were looked at last: the service manager's watchdog asks, and a look that
//! comes late tells how long this process was stopped, as by Ctrl-Z. Nothing confirms a lock meanwhile.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use zklock::GuardState;

use crate::table::brief;

/// When that was, in milliseconds; 0 while there is no command.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Looks are at most a second apart, unless this process is stopped.
const STOPPED: Duration = Duration::from_secs(3);

/// How long a look may take.
const STUCK: Duration = Duration::from_secs(10);

/// Written, it continues the sentence about a lock; it is empty if this process was not stopped since
/// the lock was held.
#[derive(Debug)]
pub(super) struct Looks {
    stopped: Option<Duration>,
    session_timeout: Duration,
}

impl Looks {
    pub(super) fn begin(session_timeout: Duration) -> Self {
        LAST.store(now(), Ordering::Relaxed);
        Self {
            stopped: None,
            session_timeout,
        }
    }

    pub(super) fn look(&mut self, state: GuardState) {
        let since =
            Duration::from_millis(now().saturating_sub(LAST.swap(now(), Ordering::Relaxed)));
        if STOPPED < since {
            self.stopped = Some(since);
        } else if state == GuardState::Held {
            self.stopped = None;
        }
    }
}

impl Drop for Looks {
    fn drop(&mut self) {
        LAST.store(0, Ordering::Relaxed);
    }
}

/// Whether the command, if there is one, is looked after.
pub(crate) fn is_attended() -> bool {
    match LAST.load(Ordering::Relaxed) {
        0 => true,
        last => Duration::from_millis(now().saturating_sub(last)) < STUCK,
    }
}

fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_millis() as u64 + 1
}

impl fmt::Display for Looks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(time) = self.stopped else {
            return Ok(());
        };
        write!(f, ", as zklock was stopped for {}", brief(time))?;
        match self.session_timeout {
            lasts if lasts <= time => {
                write!(f, ", and a session lasts {} without it", brief(lasts))
            }
            _ => Ok(()),
        }
    }
}
