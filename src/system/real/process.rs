//! Describes this process to people who look up who holds a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

pub(crate) use std::process::id;

#[cfg(unix)]
pub(crate) fn host() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

#[cfg(not(unix))]
pub(crate) fn host() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

/// Returns the name of the running program's file.
pub(crate) fn program() -> String {
    let path = std::env::current_exe().ok();
    let name = path.as_deref().and_then(std::path::Path::file_name);
    name.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Returns a number that no other thread of this process has, whatever they are called.
pub(crate) fn thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.try_with(|number| *number).unwrap_or(0)
}

/// Returns the nodes of the locks that this process runs under, as `zklock` tells its command.
pub(crate) fn locks_around() -> Vec<String> {
    let nodes = std::env::var("ZKLOCK_NODES").unwrap_or_default();
    let nodes = nodes.lines().filter(|node| node.starts_with('/'));
    // The nearest come last.
    let nearest = nodes.rev().take(8);
    nearest.map(str::to_owned).collect()
}

/// Returns the wall clock's time since 1970.
pub(crate) fn since_epoch() -> Duration {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default()
}
