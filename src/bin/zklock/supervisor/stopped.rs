//! How long this process was stopped, as by Ctrl-Z: nothing confirms a lock meanwhile.

use std::fmt;
use std::mem;
use std::time::{Duration, Instant};

use zklock::GuardState;

use crate::table::brief;

/// Looks at the lock are at most a second apart, unless this process is stopped.
const NOTICED: Duration = Duration::from_secs(3);

/// Written, it continues the sentence about a lock; it is empty if this process was not stopped since
/// the lock was held.
#[derive(Debug)]
pub(super) struct Stopped {
    looked: Instant,
    time: Option<Duration>,
    session_timeout: Duration,
}

impl Stopped {
    pub(super) fn new(session_timeout: Duration) -> Self {
        Self {
            looked: Instant::now(),
            time: None,
            session_timeout,
        }
    }

    /// Notes that the lock is looked at, and the time since the last look.
    pub(super) fn look(&mut self, state: GuardState) {
        let since = mem::replace(&mut self.looked, Instant::now()).elapsed();
        if NOTICED < since {
            self.time = Some(since);
        } else if state == GuardState::Held {
            self.time = None;
        }
    }
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(time) = self.time else { return Ok(()) };
        write!(f, ", as zklock was stopped for {}", brief(time))?;
        match self.session_timeout {
            lasts if lasts <= time => {
                write!(f, ", and a session lasts {} without it", brief(lasts))
            }
            _ => Ok(()),
        }
    }
}
