//! The run's clock, as a process sees it.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::scheduler::{Here, try_here};

static BASE: OnceLock<Instant> = OnceLock::new();

fn base() -> Instant {
    *BASE.get_or_init(Instant::now)
}

/// Returns the time of the clock for plain timeouts, which stands still while the process is suspended.
pub fn now() -> Instant {
    let Some(here) = try_here() else {
        return base();
    };
    let state = here.state();
    let suspended = state.processes[state.tasks[here.me].process].suspended;
    base() + Duration::from_nanos(state.now - suspended.min(state.now))
}

/// Returns the same name for all processes: those of a run are on one machine.
pub(crate) fn name() -> Option<String> {
    Some("simulated".to_owned())
}

/// Returns the time of the clock that goes on while the process is suspended.
pub(crate) fn since_boot() -> Duration {
    // The machine has been up for a day.
    let day = Duration::from_secs(24 * 60 * 60);
    try_here().map_or(day, |here| day + Duration::from_nanos(here.state().now))
}

/// Converts a time of the calling thread's plain clock to the run's clock.
pub(super) fn at(here: &Here, time: Instant) -> u64 {
    let state = here.state();
    let suspended = state.processes[state.tasks[here.me].process].suspended;
    let since = time.saturating_duration_since(base()).as_nanos();
    u64::try_from(since)
        .unwrap_or(u64::MAX / 2)
        .saturating_add(suspended)
}

/// Returns the time on the run's clock at `time` from now.
pub(super) fn after(here: &Here, time: Duration) -> u64 {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 2);
    here.state().now.saturating_add(nanos)
}
