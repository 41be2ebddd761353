//! A system that can start no more threads.

use zklock::{Client, Error};

use crate::support::worker::{self, Worker, itself};

#[test]
fn a_system_that_starts_no_thread_is_an_error_that_says_so() {
    let mut command = itself();
    // This is more than any system has for a thread's stack.
    command.env("RUST_MIN_STACK", (1_u64 << 60).to_string());
    let worker = Worker::launch(command, worker_that_connects, "127.0.0.1:1");
    let said = worker.hear();
    assert!(said.contains("cannot start a thread"), "{said}");
}

#[test]
#[ignore = "a worker process"]
fn worker_that_connects() {
    let Some(hosts) = worker::input() else { return };
    let error = Client::connect(&hosts).map(drop).unwrap_err();
    assert!(matches!(error, Error::NoThread { .. }), "{error}");
    worker::say(&error.to_string());
}
