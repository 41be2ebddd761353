//! Tracks whether `zklock run` still supervises the lock: no other process does if it alone is stopped, or waits for a
//! disk that hangs.

use std::fs::File;
use std::io::Seek;
use std::time::Duration;

use rustix::process::getppid;
use rustix::time::{ClockId, clock_gettime};

use crate::descendants::is_held_up;

/// How long the lock can be trusted, according to `zklock run`.
#[derive(Debug)]
pub(super) struct Trust {
    /// The `stat` file of the first thread of `zklock run`, which supervises the lock. It stays
    /// open, so that a limit of open files does not hide it.
    zklock: Option<File>,
    until: Option<Duration>,
}

impl Trust {
    /// Creates the trust in the parent of this process.
    pub(super) fn new() -> Self {
        let of = |parent| File::open(format!("/proc/{parent}/stat")).ok();
        Self {
            zklock: getppid().and_then(of),
            until: None,
        }
    }

    /// Notes the time in a message, in milliseconds since the start of the system.
    pub(super) fn lasts(&mut self, until: &str) {
        self.until = until.parse().ok().map(Duration::from_millis);
    }

    /// Returns how long the lock can still be trusted; `None` without a limit.
    pub(super) fn left(&self) -> Option<Duration> {
        self.until.map(|until| until.saturating_sub(since_boot()))
    }

    /// Returns whether that time is over, and the process that would end the command cannot.
    pub(super) fn is_over(&self) -> bool {
        self.left().is_some_and(|left| left.is_zero()) && self.is_alone()
    }

    /// Returns whether `zklock run` does not go on.
    fn is_alone(&self) -> bool {
        self.zklock.as_ref().is_some_and(|mut stat| {
            let is_read_anew = stat.rewind().is_ok();
            is_read_anew && is_held_up(stat)
        })
    }
}

/// Returns the time by a clock that counts while the machine sleeps, as the lock's clock does.
pub(crate) fn since_boot() -> Duration {
    #[cfg(target_os = "linux")]
    let clock = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}
