//! Leases, takeovers, other processes and other clocks.

use std::fs::File;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use mysql::prelude::Queryable;
use zklock::GuardEvent;
use zklock::mysql::{Client, Mutex, MutexGuard};

use crate::database::Database;
use crate::support::worker::{self, Worker};
use crate::support::zookeeper::Folder;
use crate::support::{eventually, faketime};
use crate::{client, mutex, next, seconds, try_lock};

#[test]
#[ignore = "needs MariaDB"]
fn a_living_holder_keeps_the_lock_beyond_its_lease() {
    let database = Database::new();
    let (a, b) = (
        mutex(&database.url(), seconds(6)),
        mutex(&database.url(), seconds(6)),
    );
    let guard = a.lock().unwrap();
    assert!(b.try_lock_for(seconds(8)).unwrap().is_none());
    guard.check().unwrap();
    guard.verify().unwrap();
    guard.unlock().unwrap();
}

/// Holds the lock until it is killed.
#[test]
#[ignore = "a worker process"]
pub(crate) fn worker_that_holds() {
    let Some(url) = worker::input() else { return };
    let _guard = mutex(&url, seconds(6)).lock().unwrap();
    worker::say("holds");
    worker::stay();
}

#[test]
#[ignore = "needs MariaDB"]
fn a_dead_holders_lock_is_taken_over_after_the_lease_and_not_before() {
    let database = Database::new();
    let mut conn = database.conn();
    let holder = Worker::spawn(worker_that_holds, &database.url());
    holder.expect("holds");
    let mutex = mutex(&database.url(), seconds(20));
    assert!(try_lock(&mutex).is_none());
    drop(holder);
    let end = "SELECT CAST(lease_end AS CHAR) FROM database_lock";
    let end: String = conn.query_first(end).unwrap().unwrap();
    let guard = mutex.try_lock_for(seconds(30)).unwrap().unwrap();
    let late = format!("SELECT TIMESTAMPDIFF(MICROSECOND, '{end}', UTC_TIMESTAMP(6))");
    let late: i64 = conn.query_first(late).unwrap().unwrap();
    assert!(
        (0..5_000_000).contains(&late),
        "{late} microseconds after the lease"
    );
    guard.unlock().unwrap();
}

#[test]
#[ignore = "needs MariaDB"]
fn of_many_takers_of_an_expired_lock_exactly_one_gets_it() {
    const TAKERS: usize = 6;
    const LOCKS: usize = 40;
    let database = Database::new();
    let mut conn = database.conn();
    for i in 0..LOCKS {
        let ended = "UTC_TIMESTAMP(6) - INTERVAL 1 SECOND";
        let values = format!("('n{i}', 'dead', {ended}, 0)");
        let into = "INSERT INTO database_lock (`lock`, owner, lease_end, token) VALUES";
        conn.query_drop(format!("{into} {values}")).unwrap();
    }
    let barrier = Arc::new(Barrier::new(TAKERS));
    let takers: Vec<_> = (0..TAKERS)
        .map(|_| {
            let (client, barrier) = (client(&database.url(), seconds(20)), barrier.clone());
            thread::spawn(move || {
                let locks = (0..LOCKS).map(|i| client.mutex(&format!("n{i}")).unwrap());
                let take = |mutex: Mutex| {
                    barrier.wait();
                    mutex.try_lock().unwrap().map(MutexGuard::into_send)
                };
                locks.map(take).collect::<Vec<_>>()
            })
        })
        .collect();
    let taken: Vec<_> = takers
        .into_iter()
        .map(|taker| taker.join().unwrap())
        .collect();
    for i in 0..LOCKS {
        let takers = taken.iter().filter(|guards| guards[i].is_some()).count();
        assert_eq!(takers, 1, "lock n{i}");
    }
}

/// Takes and releases the lock until it is killed; the file shows whether two hold at once.
#[test]
#[ignore = "a worker process"]
fn worker_that_contends() {
    let Some(input) = worker::input() else { return };
    let [url, path] = worker::words(&input);
    let mutex = mutex(&url, seconds(6));
    let file = File::open(path).unwrap();
    for ms in [0, 1, 2].into_iter().cycle() {
        let guard = mutex.lock().unwrap();
        // If the process is killed, the kernel releases this lock.
        let alone = file.try_lock().is_ok();
        let token = guard.fencing_token();
        thread::sleep(Duration::from_millis(ms));
        let valid = guard.is_valid();
        file.unlock().unwrap();
        let turn = if alone || !valid { "alone" } else { "OVERLAP" };
        worker::say(&format!("{turn} {token}"));
        drop(guard);
    }
}

/// Returns the token of a holder, from its report.
fn token(turn: &str) -> i64 {
    let token = turn.strip_prefix("alone ").expect("two at once");
    token.parse().expect("a token")
}

#[test]
#[ignore = "needs MariaDB"]
fn processes_exclude_each_other_while_some_are_killed() {
    let database = Database::new();
    let folder = Folder::new();
    let file = folder.path("inside");
    File::create(&file).unwrap();
    let input = format!("{} {}", database.url(), file.display());
    let start = || Worker::spawn(worker_that_contends, &input);
    let mut contenders: Vec<_> = (0..4).map(|_| start()).collect();
    let turns = |contender: &Worker| contender.lines().clone();
    let mut all_turns: Vec<_> = contenders.iter().map(turns).collect();
    for round in 0..12 {
        thread::sleep(seconds(1));
        let place = round % contenders.len();
        contenders[place] = start();
        all_turns.push(turns(&contenders[place]));
    }
    eventually("they have taken turns", || {
        50 <= all_turns.iter().map(Receiver::len).sum::<usize>()
    });
    drop(contenders);
    let turns = all_turns.iter().flat_map(Receiver::iter);
    let mut tokens: Vec<_> = turns.map(|turn| token(&turn)).collect();
    let given = tokens.len();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), given, "a token was given twice");
}

#[test]
#[ignore = "needs MariaDB"]
fn rows_that_another_program_has_locked_cost_no_other_lease() {
    thread::scope(|scope| {
        for locked in [&["a"][..], &["d"], &["a", "c", "d", "e"]] {
            for lease in [2, 4] {
                scope.spawn(move || assert_costs_no_other(locked, seconds(lease)));
            }
        }
    });
}

fn assert_costs_no_other(locked: &[&str], lease: Duration) {
    let database = Database::new();
    let client = client(&database.url(), lease);
    let names = ["a", "b", "c", "d", "e", "f"];
    let guards = names.map(|name| client.mutex(name).unwrap().lock().unwrap());
    let mut foreign = database.conn();
    foreign.query_drop("START TRANSACTION").unwrap();
    for name in locked {
        let lock = format!("SELECT 1 FROM database_lock WHERE `lock` = '{name}' FOR UPDATE");
        foreign.query_drop(lock).unwrap();
    }
    thread::sleep(3 * lease);
    for (guard, name) in guards.iter().zip(names) {
        assert_eq!(
            guard.is_valid(),
            !locked.contains(&name),
            "{name}, {locked:?}"
        );
    }
    foreign.query_drop("ROLLBACK").unwrap();
    for (guard, name) in guards.into_iter().zip(names) {
        assert_eq!(guard.unlock().is_ok(), !locked.contains(&name));
    }
    database.wait_for_rows(0);
}

#[test]
#[ignore = "needs MariaDB"]
fn a_server_that_needs_long_for_many_leases_is_asked_once_at_a_time() {
    const T: Duration = Duration::from_secs(12);
    let database = Database::new();
    let client = client(&database.url(), T);
    let take = |i| client.mutex(&format!("{i}")).unwrap().lock().unwrap();
    let guards: Vec<_> = (0..450).map(take).collect();
    // All of them take longer than T/3, after which a renewal without an answer is given up.
    let slow = "CREATE TRIGGER slow BEFORE UPDATE ON database_lock FOR EACH ROW \
                SET NEW.token = NEW.token + 0 * SLEEP(0.01)";
    let mut conn = database.conn();
    conn.query_drop(slow).unwrap();
    let mut connections = move || -> Vec<u64> {
        let all = "SELECT ID FROM information_schema.PROCESSLIST \
                   WHERE DB = DATABASE() AND ID <> CONNECTION_ID() ORDER BY ID";
        conn.query(all).unwrap()
    };
    eventually("the renewals have a connection", || {
        2 <= connections().len()
    });
    let before = connections();
    for _ in 0..20 {
        thread::sleep(seconds(1));
        // A renewal that is given up costs its connection, and the next one takes another.
        let known = |id: &u64| before.contains(id);
        assert!(connections().iter().all(known), "a renewal was given up");
    }
    drop(guards);
}

#[test]
#[ignore = "needs MariaDB"]
fn many_leases_on_a_slow_server_are_kept_as_far_as_it_can_renew_them_in_time() {
    const T: Duration = Duration::from_secs(12);
    let database = Database::new();
    let client = client(&database.url(), T);
    let slow = "CREATE TRIGGER slow BEFORE UPDATE ON database_lock FOR EACH ROW \
                SET NEW.token = NEW.token + 0 * SLEEP(0.1)";
    database.conn().query_drop(slow).unwrap();
    let take = |i| client.mutex(&format!("{i}")).unwrap().lock().unwrap();
    let kept = |guards: &[MutexGuard]| guards.iter().filter(|guard| guard.is_valid()).count();
    // They take nearly half a lease. In one packet, each would be as old as two of these.
    let mut guards: Vec<_> = (0..50).map(take).collect();
    thread::sleep(3 * T / 2);
    assert_eq!(kept(&guards), 50);
    // If each was renewed just before it is lost, none would be renewed in time.
    guards.extend((50..120).map(take));
    thread::sleep(3 * T / 2);
    let kept = kept(&guards);
    assert!(30 <= kept, "{kept}");
}

#[test]
#[ignore = "needs MariaDB"]
fn the_time_zones_of_sessions_do_not_matter() {
    let database = Database::new();
    let zone = |zone: &str| {
        let pool = Database::pool(&database.url(), &format!("SET time_zone = '{zone}'"));
        let client = Client::builder_from_pool(pool)
            .lease(seconds(20))
            .connect()
            .unwrap();
        client.mutex("a").unwrap()
    };
    let (west, east) = (zone("-01:00"), zone("+01:00"));
    for (holder, other) in [(&west, &east), (&east, &west)] {
        let guard = holder.lock().unwrap();
        assert!(other.try_lock_for(seconds(2)).unwrap().is_none());
        let left = "SELECT TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), lease_end) FROM database_lock";
        let left: i64 = database.conn().query_first(left).unwrap().unwrap();
        assert!((0..=21).contains(&left), "{left} seconds");
        guard.unlock().unwrap();
    }
}

/// Starts a holder whose wall clock is off by this much.
fn holder_with_clock(off: &str, url: &str) -> Worker {
    let library = faketime::library("libfaketime.so.1").expect("the package libfaketime");
    let mut command = worker::itself();
    command
        .env("LD_PRELOAD", library)
        .env("FAKETIME", off)
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    Worker::launch(command, worker_that_holds, url)
}

#[test]
#[ignore = "needs MariaDB and faketime"]
fn a_client_whose_clock_is_off_by_an_hour_excludes_and_is_excluded() {
    thread::scope(|scope| {
        for off in ["+1h", "-1h"] {
            scope.spawn(move || assert_excludes_and_is_excluded(off));
        }
    });
}

fn assert_excludes_and_is_excluded(off: &str) {
    let database = Database::new();
    let mutex = mutex(&database.url(), seconds(6));
    let holder = holder_with_clock(off, &database.url());
    holder.expect("holds");
    assert!(mutex.try_lock_for(seconds(8)).unwrap().is_none());
    drop(holder);
    let guard = mutex.try_lock_for(seconds(30)).unwrap().unwrap();
    // A waiter takes nothing from a holder whose clock is right.
    let waiter = holder_with_clock(off, &database.url());
    thread::sleep(seconds(8));
    guard.verify().unwrap();
    drop(waiter);
    guard.unlock().unwrap();
    drop(mutex.try_lock_for(seconds(30)).unwrap().unwrap());
}

#[test]
#[ignore = "needs MariaDB"]
fn who_loses_its_row_is_told() {
    let database = Database::new();
    let mutex = mutex(&database.url(), seconds(20));
    let guard = mutex.lock().unwrap();
    let deadline = Instant::now() + guard.valid_for();
    database
        .conn()
        .query_drop("DELETE FROM database_lock")
        .unwrap();
    // The guard is suspect first if the renewal that finds no row is late.
    while next(&guard) != GuardEvent::Lost {}
    assert!(Instant::now() < deadline, "the database did not tell");
    assert!(guard.check().unwrap_err().is_lost());
    assert!(guard.unlock().unwrap_err().is_lost());
}

#[test]
#[ignore = "needs MariaDB"]
fn rows_that_nobody_wants_are_tidied_up() {
    let database = Database::new();
    let mut conn = database.conn();
    let rows = "INSERT INTO database_lock (`lock`, owner, lease_end) VALUES \
                ('long ago', 'dead', '2000-01-01'), \
                ('just now', 'dead', UTC_TIMESTAMP(6)), \
                ('in use', 'alive', UTC_TIMESTAMP(6) + INTERVAL 1 HOUR), \
                ('plain', NULL, NULL)";
    conn.query_drop(rows).unwrap();
    let builder = Client::builder(&database.url());
    let _client = builder
        .clean_interval(Duration::from_millis(100))
        .connect()
        .unwrap();
    database.wait_for_rows(3);
    let gone = conn.query_first::<u8, _>("SELECT 1 FROM database_lock WHERE `lock` = 'long ago'");
    assert_eq!(gone.unwrap(), None);
}
