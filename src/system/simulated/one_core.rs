//! Keeps the threads of a run on one core of the machine: only one of them runs at a time, and
//! passing the baton is many times faster on one core than from core to core.

/// Keeps this thread, and those that it starts, on its current core. If that is not allowed, the
/// run is slower.
#[cfg(target_os = "linux")]
pub(super) fn stay_here() {
    use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};

    let mut here = CpuSet::new();
    here.set(sched_getcpu());
    let _ = sched_setaffinity(None, &here);
}

#[cfg(not(target_os = "linux"))]
pub(super) fn stay_here() {}
