//! What a client does when anything goes wrong between it and a real ZooKeeper, and what it
//! tells of itself.
//!
//! All of it is about our own transport; what both transports promise is in
//! `tests/promises`. `ZKLOCK_LONG` in the environment makes the tests that
//! watch a client for a while do so for a minute.

mod access;
mod balancer;
mod blackhole;
mod closing;
mod expiry;
mod forked;
mod leaks;
mod logs;
mod lost_reply;
mod metrics;
mod names;
mod no_threads;
mod oversized;
mod refusing;
mod resets;
mod restart;
mod restored;
mod roles;
#[cfg(feature = "sasl")]
mod sasl;
mod secrets;
mod silent;
mod slow_log;
#[path = "../support/mod.rs"]
mod support;
mod waiting_log;
mod watches;

use std::env;
use std::time::Duration;

use zklock::Client;

/// Longer than any call takes that does not hang, shorter than a hang.
const SOON: Duration = Duration::from_secs(10);

/// How long clients are watched that are to do the right thing for a while.
fn a_while(short: Duration) -> Duration {
    match env::var_os("ZKLOCK_LONG") {
        Some(_) => Duration::from_secs(60),
        None => short,
    }
}

#[track_caller]
fn connect(hosts: &str, timeout: Duration) -> Client {
    let client = Client::builder(hosts).session_timeout(timeout).connect();
    let client = client.expect("a client");
    assert_eq!(client.session_timeout(), timeout, "the server's limits");
    client
}
