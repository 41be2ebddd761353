//! The kernel's view of a thread, for states that no event reports.

use std::fs;

/// Returns the calling thread's folder in `/proc`.
pub fn own_task() -> String {
    let task = fs::read_link("/proc/thread-self").unwrap();
    format!("/proc/{}", task.display())
}

pub fn is_asleep(task: &str) -> bool {
    let stat = fs::read_to_string(format!("{task}/stat")).unwrap();
    // The state comes after the thread's name, which is in brackets.
    let state = stat.rsplit_once(") ").unwrap().1;
    state.starts_with('S')
}
