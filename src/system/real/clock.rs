//! Two clocks: one for plain timeouts, and one that goes on while the machine sleeps.

use std::time::{Duration, Instant};

pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Added to the time since boot: longer than any session timeout. Whatever happened at zero, or is not known to
/// have happened at all, is then too long ago to rest on, also soon after the machine has started.
const BEFORE: Duration = Duration::from_millis(1 << 32);

/// Names the clock of [`since_boot`]: processes whose clocks have one name read the same times.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn name() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    // A container may have a clock of its own. Before Linux 5.6 there is no such file.
    let own = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    Some(format!("{} {}", boot.trim(), own.display()))
}

/// Elsewhere, clocks are not compared.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn name() -> Option<String> {
    None
}

/// Returns the time since long before the machine started, sleep included.
#[cfg(unix)]
pub(crate) fn since_boot() -> Duration {
    use rustix::time::{ClockId, clock_gettime};

    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::Boottime;
    // On macOS this clock counts suspend; for other systems that is not known.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: ClockId = ClockId::Monotonic;

    let time = clock_gettime(CLOCK);
    BEFORE + Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the time since long before the first call, sleep included.
#[cfg(not(unix))]
pub(crate) fn since_boot() -> Duration {
    use std::sync::OnceLock;

    // Counts suspend on Windows.
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed() + BEFORE
}
