//! Whether a command is looked after, for the service manager's watchdog.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// When a supervisor last looked at its command, in milliseconds; 0 while there is no command.
static LAST: AtomicU64 = AtomicU64::new(0);

/// How long a look may take; there is one every second.
const STUCK: Duration = Duration::from_secs(10);

/// The time of a command.
pub(super) struct Attended;

/// Whether the command, if there is one, is looked after.
pub(crate) fn is_attended() -> bool {
    match LAST.load(Ordering::Relaxed) {
        0 => true,
        last => now().saturating_sub(last) < STUCK.as_millis() as u64,
    }
}

impl Attended {
    pub(super) fn look(&self) {
        LAST.store(now(), Ordering::Relaxed);
    }
}

impl Drop for Attended {
    fn drop(&mut self) {
        LAST.store(0, Ordering::Relaxed);
    }
}

fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_millis() as u64 + 1
}
