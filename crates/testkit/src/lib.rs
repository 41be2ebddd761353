//! The tools that the tests share: real servers, a network that misbehaves, processes.
//!
//! Each tool that starts something also ends it: when a test passes, when it panics, and when the
//! test process itself is killed. No tool uses the library under test, so that a fault in it cannot
//! hide itself; `tests/support`, which uses it, is compiled with each suite.

pub mod ensemble;
pub mod faketime;
pub mod folder;
pub mod frame;
pub mod fuzz;
pub mod handle;
pub mod jaas;
pub mod kazoo;
pub mod kdc;
pub mod keeper;
pub mod leash;
pub mod members;
pub mod netns;
pub mod port;
pub mod proxy;
pub mod python;
pub mod raw;
pub mod relay;
pub mod secure;
pub mod task;
pub mod valve;
pub mod worker;
pub mod zookeeper;

use std::env;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded};

pub use self::port::free_port;

/// How long [`eventually`] waits: far longer than any of its conditions should take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns where the program is, for suites of other packages than its own, for which Cargo does not build it.
#[track_caller]
pub fn program() -> PathBuf {
    let test = env::current_exe().expect("a test is a file");
    let folder = test.parent().and_then(|deps| deps.parent());
    let program = folder.expect("a folder of Cargo's").join("zklock");
    let is_built = program.exists();
    assert!(
        is_built,
        "there is no {program:?}: cargo build --all-features -p zklock-cli"
    );
    program
}

/// Runs a command that must succeed, and returns its output.
#[track_caller]
pub fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    let status = output.status;
    assert!(status.success(), "{command:?} failed: {said}{complaint}");
    said.into_owned()
}

/// Waits until `condition` holds.
#[track_caller]
pub fn eventually(what: &str, condition: impl FnMut() -> bool) {
    assert!(
        within(PATIENCE, condition),
        "not within {PATIENCE:?}: {what}"
    );
}

/// Returns whether `condition` came to hold within `limit`.
pub fn within(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if condition() {
            return true;
        }
        if limit < start.elapsed() {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Runs this on a thread of its own, which is left behind if it hangs.
pub fn aside<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (to, came) = bounded(1);
    thread::spawn(move || {
        // If the result comes too late, nobody listens any more.
        drop(to.send(run()));
    });
    came
}

/// Runs `f`; returns its result and how long it took.
pub fn timed<T>(f: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    (f(), start.elapsed())
}

/// Returns how long a test runs that could go on for any time: `ZKLOCK_TEST_SECONDS`, or the usual
/// time.
pub fn lasting(usual: u64) -> Duration {
    let asked = env::var("ZKLOCK_TEST_SECONDS").ok();
    let asked = asked.map(|asked| asked.parse().expect("a number of seconds"));
    Duration::from_secs(asked.unwrap_or(usual))
}

/// Counts the threads inside, and fails when there are two.
#[derive(Default)]
pub struct Room(AtomicUsize);

impl Room {
    #[track_caller]
    pub fn visit(&self) {
        assert_eq!(self.0.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
        thread::yield_now();
        assert_eq!(self.0.fetch_sub(1, Ordering::SeqCst), 1, "two are inside");
    }
}

/// Sets the flag when dropped, by a panic too.
pub struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns a path that no other test and no other run uses.
pub fn fresh_path(name: &str) -> String {
    format!("/tests/{name}-{:016x}", fastrand::u64(..))
}
