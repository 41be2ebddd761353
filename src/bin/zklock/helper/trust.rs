//! Whether `zklock run` still looks after the lock: nobody else does if it alone is stopped.

use std::time::Duration;

use rustix::process::{Pid, getppid};
use rustix::time::{ClockId, clock_gettime};

use crate::descendants::is_stopped;

/// How long the lock can be trusted, as far as `zklock run` has said.
#[derive(Debug)]
pub(super) struct Trust {
    zklock: Option<Pid>,
    until: Option<Duration>,
}

impl Trust {
    /// Of the parent of this process.
    pub(super) fn new() -> Self {
        Self {
            zklock: getppid(),
            until: None,
        }
    }

    /// Takes in a message.
    pub(super) fn lasts(&mut self, text: &[u8]) {
        let millis = text.try_into().map(u64::from_le_bytes);
        self.until = millis.ok().map(Duration::from_millis);
    }

    /// How long that is from now; nothing if it is not limited.
    pub(super) fn left(&self) -> Option<Duration> {
        self.until.map(|until| until.saturating_sub(since_boot()))
    }

    /// Whether that is over, and who would end the command is stopped.
    pub(super) fn is_over(&self) -> bool {
        self.left().is_some_and(|left| left.is_zero()) && self.zklock.is_some_and(is_stopped)
    }
}

/// What a message says of the time since the start of the system.
pub(crate) fn message(until: Duration) -> [u8; 8] {
    let millis = u64::try_from(until.as_millis());
    millis.unwrap_or(u64::MAX).to_le_bytes()
}

/// The time by a clock that counts while the machine sleeps, too, as the lock's does.
pub(crate) fn since_boot() -> Duration {
    #[cfg(target_os = "linux")]
    let clock = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}
