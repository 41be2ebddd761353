//! Clocks that are set while locks are held: the database's, and a client's.

use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use zklock::GuardEvent;
use zklock::mysql::CREATE_TABLE;

use mysql::prelude::Queryable;

use crate::database::{Database, Server};
use crate::leases::worker_that_holds;
use crate::proxy::Proxy;
use crate::support::faketime;
use crate::support::worker::{self, Worker};
use crate::support::zookeeper::Folder;
use crate::{mutex, next, seconds};

/// The wall clock of one process, which the test sets.
struct Clock(Folder);

impl Clock {
    fn new() -> Self {
        let clock = Self(Folder::new());
        clock.set("+0");
        clock
    }

    fn set(&self, offset: &str) {
        // The file changes in one step, because the process may read it at any time.
        fs::write(self.0.path("new"), offset).unwrap();
        fs::rename(self.0.path("new"), self.0.path("clock")).unwrap();
    }

    fn environment(&self) -> Vec<(&'static str, std::path::PathBuf)> {
        let library = faketime::library("libfaketimeMT.so.1").expect("the package libfaketime");
        vec![
            ("LD_PRELOAD", library),
            ("FAKETIME_TIMESTAMP_FILE", self.0.path("clock")),
            ("FAKETIME_NO_CACHE", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
        ]
    }
}

/// Returns a database with a clock of its own.
fn database() -> (Database, Clock) {
    let clock = Clock::new();
    let server = Server::prepare(clock.environment());
    server.resume(&[]);
    let database = Database::empty_on(Arc::new(server));
    database.conn().query_drop(CREATE_TABLE).unwrap();
    (database, clock)
}

fn hour(database: &Database) -> i64 {
    let hour = "SELECT TIMESTAMPDIFF(HOUR, '2020-01-01', UTC_TIMESTAMP())";
    database.conn().query_first(hour).unwrap().unwrap()
}

#[test]
#[ignore = "needs MariaDB and faketime"]
fn a_database_clock_that_is_set_back_loses_no_lock_and_gives_none_away() {
    let (database, clock) = database();
    let [a, b] = [(); 2].map(|()| mutex(&database.url(), seconds(3)));
    let guard = a.lock().unwrap();
    let before = hour(&database);
    clock.set("-2h");
    assert!(hour(&database) < before);
    assert!(b.try_lock_for(seconds(6)).unwrap().is_none());
    guard.verify().unwrap();
    let token = guard.fencing_token();
    guard.unlock().unwrap();
    let guard = b.try_lock_for(seconds(10)).unwrap().unwrap();
    assert!(token < guard.fencing_token());
    assert!(a.try_lock_for(seconds(6)).unwrap().is_none());
    guard.unlock().unwrap();
    assert_eq!(database.rows(), 0);
}

#[test]
#[ignore = "needs MariaDB and faketime"]
fn a_database_clock_that_is_set_forward_by_less_than_a_quarter_gives_no_lock_away_early() {
    let (database, clock) = database();
    let proxy = Proxy::new(&database.server);
    let a = mutex(&database.url_through(&proxy), seconds(8));
    let b = mutex(&database.url(), seconds(8));
    let guard = a.lock().unwrap();
    proxy.blackhole(true);
    clock.set("+1.8s");
    let waiter = thread::spawn(move || {
        let guard = b.lock().unwrap();
        (Instant::now(), guard.fencing_token())
    });
    assert_eq!(next(&guard), GuardEvent::Suspect);
    assert_eq!(next(&guard), GuardEvent::Lost);
    let lost = Instant::now();
    let (taken, token) = waiter.join().unwrap();
    assert!(lost < taken, "taken {:?} too early", lost - taken);
    assert!(guard.fencing_token() < token);
}

#[test]
#[ignore = "needs MariaDB and faketime"]
fn a_database_clock_that_is_set_far_forward_costs_locks_whose_holders_are_told() {
    let (database, clock) = database();
    let [a, b] = [(); 2].map(|()| mutex(&database.url(), seconds(12)));
    let guard = a.lock().unwrap();
    clock.set("+2h");
    // The other client is not excluded: for the database, the lease has ended. The token tells the
    // two apart.
    let other = b.try_lock_for(seconds(2)).unwrap().unwrap();
    assert!(guard.fencing_token() < other.fencing_token());
    let begun = Instant::now();
    assert_eq!(next(&guard), GuardEvent::Lost, "with the next renewal");
    assert!(begun.elapsed() < seconds(4), "{:?}", begun.elapsed());
    other.verify().unwrap();
    other.unlock().unwrap();
}

#[test]
#[ignore = "needs MariaDB and faketime"]
fn a_client_whose_clock_is_set_keeps_its_lock_and_takes_none() {
    let database = Database::new();
    let clock = Clock::new();
    let start = |clock: &Clock| {
        let mut command = worker::itself();
        command.envs(clock.environment());
        Worker::launch(command, worker_that_holds, &database.url())
    };
    let mutex = mutex(&database.url(), seconds(6));
    let holder = start(&clock);
    holder.expect("holds");
    for offset in ["+2h", "-2h", "+0"] {
        clock.set(offset);
        assert!(mutex.try_lock_for(seconds(8)).unwrap().is_none());
    }
    drop(holder);
    let guard = mutex.try_lock_for(seconds(30)).unwrap().unwrap();
    let waiter = start(&clock);
    for offset in ["+2h", "-2h"] {
        clock.set(offset);
        thread::sleep(seconds(4));
        guard.verify().unwrap();
    }
    assert!(waiter.lines().is_empty());
    drop(waiter);
    guard.unlock().unwrap();
}
