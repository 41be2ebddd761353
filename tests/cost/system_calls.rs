//! The number of system calls of a lock, on all threads of its client together.
//!
//! strace counts the calls of a process that does nothing else. The numbers of sleeps and reads
//! depend on what arrives together, so their limits leave room; the limits of writes do not.

use std::collections::HashMap;
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use zklock::Client;
use zklock::embedded::Server;

use crate::support::worker::{self, Worker};
use crate::support::{eventually, free_port, fresh_path};

const CYCLES: u32 = 500;
/// The calls of the test harness and of the start of the session.
const BESIDE: u32 = 400;

#[test]
#[ignore = "needs strace: tests/all.sh"]
fn a_cycle_of_a_free_mutex_writes_twice_and_never_looks_in_vain() {
    let server = Server::start().unwrap();
    let input = format!("{} {}", server.hosts(), fresh_path("calls"));
    let calls = calls_of(worker_that_locks_and_unlocks, &input);
    let a_cycle = |name: &str| calls.get(name).map_or(0.0, |n| per_cycle(*n));
    println!("calls a cycle: {calls:?}");
    for (name, most) in [("sendto", 2.2), ("recvfrom", 4.0), ("futex", 8.0)] {
        assert!(a_cycle(name) <= most, "{name}: {}", a_cycle(name));
    }
    // This shows that calls are counted.
    assert!(0.5 < a_cycle("sendto"), "{calls:?}");
    // A wait that looks a few times before it sleeps yields.
    assert!(a_cycle("sched_yield") < 1.0, "{}", a_cycle("sched_yield"));
}

/// On a busy machine each yield may take as long as a time slice of every other thread.
#[test]
#[ignore = "needs strace: tests/all.sh"]
fn a_limit_that_is_reached_is_not_followed_by_yields() {
    let calls = calls_of(worker_that_finds_no_server, &free_port().to_string());
    println!("calls: {calls:?}");
    let yields = calls.get("sched_yield").map_or(0.0, |n| per_cycle(*n));
    // Each of two threads that wait yields four times before it sleeps.
    assert!(yields < 12.0, "{yields}");
}

/// Counts the calls of a worker.
fn calls_of<W: Fn()>(body: W, input: &str) -> HashMap<String, u32> {
    let name = format!("zklock-calls-{}", fresh_path("strace").replace('/', "-"));
    let report = env::temp_dir().join(name);
    let mut strace = Command::new("strace");
    strace.args(["--follow-forks", "--summary-only"]);
    strace.args(["--summary-columns=calls,name", "--output"]);
    strace.arg(&report).arg(worker::itself().get_program());
    let mut worker = Worker::launch(strace, body, input);
    worker.expect("done");
    // The report is complete only then, and not when the worker's output has ended.
    eventually("strace has ended", || worker.ended().is_some());
    let calls = counts(&fs::read_to_string(&report).unwrap());
    fs::remove_file(&report).unwrap();
    calls
}

fn per_cycle(count: u32) -> f64 {
    f64::from(count.saturating_sub(BESIDE)) / f64::from(CYCLES)
}

/// Returns the calls in a summary of strace, which has the requested columns.
fn counts(summary: &str) -> HashMap<String, u32> {
    let call = |line: &str| {
        let (calls, name) = line.trim().split_once(' ')?;
        Some((name.trim().to_owned(), calls.parse().ok()?))
    };
    summary.lines().filter_map(call).collect()
}

#[test]
#[ignore = "a worker process"]
fn worker_that_locks_and_unlocks() {
    let Some(input) = worker::input() else { return };
    let [hosts, path] = worker::words(&input);
    let client = Client::connect(&hosts).unwrap();
    let mutex = client.mutex(&path).unwrap();
    for _ in 0..CYCLES {
        mutex.lock().unwrap().unlock().unwrap();
    }
    drop(client);
    worker::say("done");
}

#[test]
#[ignore = "a worker process"]
fn worker_that_finds_no_server() {
    let Some(port) = worker::input() else { return };
    let limit = Duration::from_millis(5);
    for _ in 0..CYCLES {
        let builder = Client::builder(&format!("127.0.0.1:{port}"));
        builder.connect_timeout(limit).connect().unwrap_err();
    }
    worker::say("done");
}
