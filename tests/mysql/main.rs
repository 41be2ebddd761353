//! The locks over a database, against a real MariaDB: `cargo test --features mysql --test
//! mysql -- --ignored`.

#![cfg(feature = "mysql")]

mod addresses;
mod bounds;
#[allow(dead_code)] // Written for the chaos tests, like the next two.
#[path = "../chaos/checker.rs"]
mod checker;
mod clocks;
mod cuts;
mod database;
mod disk;
mod doubt;
mod faults;
mod first_mistakes;
mod forked;
#[allow(dead_code)]
#[path = "../chaos/history.rs"]
mod history;
mod job_faults;
mod jobs;
mod leases;
mod locks;
#[path = "../session/logs.rs"]
#[expect(dead_code, reason = "the tests of sessions ask for more")]
mod logs;
#[path = "../chaos/ops.rs"]
mod ops;
mod panicking_log;
#[path = "../session/panics.rs"]
mod panics;
mod patience;
mod pool;
mod proxy;
mod relay;
mod replicas;
mod secrets;
mod sessions;
mod storm;
#[allow(dead_code)]
#[path = "../chaos/story.rs"]
mod story;
mod tables;
mod tls;

use std::time::Duration;

use zklock::GuardEvent;
use zklock::mysql::{Client, ClientBuilder, Mutex, MutexGuard};
use zklock_testkit as support;

/// How late a deadline may be met: 100 ms are promised, and the rest is for a busy machine.
const LATE: Duration = Duration::from_secs(3);

fn client(url: &str, lease: Duration) -> Client {
    let builder = Client::builder(url).lease(lease);
    builder.connect().expect("a connection")
}

/// Returns a client for which no renewal and no cleaning is due during a test.
fn undisturbed(url: &str) -> ClientBuilder {
    const YEAR: Duration = Duration::from_secs(365 * 86_400);
    let builder = Client::builder(url).lease(seconds(3600));
    builder.clean_interval(YEAR)
}

fn mutex(url: &str, lease: Duration) -> Mutex {
    client(url, lease).mutex("a").expect("a good name")
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn try_lock(mutex: &Mutex) -> Option<MutexGuard> {
    mutex.try_lock().expect("an answer")
}

fn next(guard: &MutexGuard) -> GuardEvent {
    guard.events().recv_timeout(seconds(30)).expect("an event")
}
