//! Two clocks: one for plain timeouts, and one that goes on while the machine sleeps.

use std::time::{Duration, Instant};

pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Returns the time since the machine started, sleep included.
#[cfg(unix)]
pub(crate) fn since_boot() -> Duration {
    use rustix::time::{ClockId, clock_gettime};

    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::Boottime;
    // On macOS this clock counts suspend; for other systems that is not known.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: ClockId = ClockId::Monotonic;

    let time = clock_gettime(CLOCK);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the time since the first call, sleep included.
#[cfg(not(unix))]
pub(crate) fn since_boot() -> Duration {
    use std::sync::OnceLock;

    // Counts suspend on Windows.
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed() + Duration::from_nanos(1)
}
