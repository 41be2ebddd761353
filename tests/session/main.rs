//! The behaviour of a client when something goes wrong between it and a real ZooKeeper, and its
//! reports about itself.
//!
//! All tests are about our own transport; `tests/promises` has what both transports promise.
//! With `ZKLOCK_LONG` in the environment, the tests that watch a client for a while do so for
//! a minute.

mod access;
mod balancer;
mod blackhole;
mod chroot;
mod closing;
mod dropping;
mod expiry;
mod far;
mod forked;
mod garbled;
mod hanging;
mod hasty;
mod keeper;
mod kept_nodes;
mod late_creates;
mod late_transactions;
mod leaks;
mod logs;
mod lost_reply;
mod metrics;
mod names;
mod no_threads;
mod oversized;
mod panicking_log;
mod panics;
mod reconfigured;
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
mod throttled;
mod unanswered;
mod unreachable;
mod waiting_log;
mod watches;

use std::env;
use std::time::Duration;

use zklock::Client;
use zklock_testkit as support;

/// A time longer than any call takes unless it hangs, and shorter than a hang.
const SOON: Duration = Duration::from_secs(10);

/// Returns how long a test watches clients that must do the right thing for a while.
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
