//! Keeps the threads of a run on one core of the machine: only one of them runs at a time, and
//! passing the baton is many times faster on one core than from core to core.

/// Returns the core that this thread is on.
#[cfg(target_os = "linux")]
pub(super) fn core() -> usize {
    rustix::thread::sched_getcpu()
}

/// Keeps this thread on this core. If that is not allowed, the run is slower.
#[cfg(target_os = "linux")]
pub(super) fn stay_on(core: usize) {
    let mut only = rustix::thread::CpuSet::new();
    only.set(core);
    let _ = rustix::thread::sched_setaffinity(None, &only);
}

#[cfg(not(target_os = "linux"))]
pub(super) fn core() -> usize {
    0
}

#[cfg(not(target_os = "linux"))]
pub(super) fn stay_on(_: usize) {}
