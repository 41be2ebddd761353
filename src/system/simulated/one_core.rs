//! Keeps the threads of a run on one core of the machine: one of them runs at a time, and passes the
//! baton many times faster there than from core to core.

/// Keeps this thread, and those that it starts, on the core where it is. Where that is not allowed, the
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
