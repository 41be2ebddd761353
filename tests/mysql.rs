//! The locks over a database, against a real MariaDB: `cargo test --features mysql --test
//! mysql -- --ignored`.

#![cfg(feature = "mysql")]

mod mysql_support;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use mysql::prelude::Queryable;
use zklock::mysql::{ALTER_TABLE, CREATE_TABLE, Client, Mutex, MutexGuard};
use zklock::{Error, GuardEvent, GuardState, LockGuard};

use crate::mysql_support::{Database, Proxy, Server, child, wait_until};

/// How late a deadline may be met.
const LATE: Duration = Duration::from_millis(100);

fn client(url: &str, lease: Duration) -> Client {
    let builder = Client::builder(url).lease(lease);
    builder.connect().expect("a connection")
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

#[test]
#[ignore = "needs MariaDB"]
fn one_client_at_a_time_has_the_lock() {
    let database = Database::new();
    let (a, b) = (
        mutex(&database.url(), seconds(20)),
        mutex(&database.url(), seconds(20)),
    );
    let guard = a.lock().unwrap();
    assert!(try_lock(&b).is_none());
    assert!(
        b.try_lock_for(Duration::from_millis(200))
            .unwrap()
            .is_none()
    );
    assert_eq!(guard.state(), GuardState::Held);
    guard.verify().unwrap();
    guard.unlock().unwrap();
    let guard = try_lock(&b).unwrap();
    assert!(try_lock(&a).is_none());
    drop(guard);
    database.wait_for_rows(0);
}

#[test]
#[ignore = "needs MariaDB"]
fn a_release_wakes_a_waiter() {
    let database = Database::new();
    let (a, b) = (
        mutex(&database.url(), seconds(20)),
        mutex(&database.url(), seconds(20)),
    );
    let guard = a.lock().unwrap();
    let waiter = thread::spawn(move || b.lock().unwrap().check());
    thread::sleep(Duration::from_millis(300));
    assert!(!waiter.is_finished());
    drop(guard);
    waiter.join().unwrap().unwrap();
}

#[test]
#[ignore = "needs MariaDB"]
fn a_thread_that_would_wait_for_itself_is_told_at_once() {
    let database = Database::new();
    let client = client(&database.url(), seconds(20));
    let (mutex, reentrant) = (
        client.mutex("a").unwrap(),
        client.reentrant_mutex("a").unwrap(),
    );
    let guard = mutex.lock().unwrap();
    assert!(matches!(mutex.lock(), Err(Error::WouldDeadlock { .. })));
    assert!(matches!(mutex.try_lock(), Err(Error::WouldDeadlock { .. })));
    assert!(matches!(reentrant.lock(), Err(Error::WouldDeadlock { .. })));
    // Not for itself: another thread may release it.
    let guard = guard.into_send();
    assert!(try_lock(&mutex).is_none());
    thread::spawn(move || guard.unlock())
        .join()
        .unwrap()
        .unwrap();
    // Nor after a release that is still under way.
    drop(mutex.lock().unwrap());
    drop(mutex.lock().unwrap());
}

#[test]
#[ignore = "needs MariaDB"]
fn a_reentrant_mutex_is_taken_again_by_its_thread_and_by_no_other() {
    let database = Database::new();
    let client = client(&database.url(), seconds(20));
    let mutex = client.reentrant_mutex("a").unwrap();
    let outer = mutex.lock().unwrap();
    // Another object, the same lock.
    let inner = client.reentrant_mutex("a").unwrap().lock().unwrap();
    assert_eq!(outer.fencing_token(), inner.fencing_token());
    let other = mutex.clone();
    let taken = thread::spawn(move || other.try_lock().unwrap().is_none());
    assert!(taken.join().unwrap());
    inner.unlock().unwrap();
    assert_eq!(database.rows(), 1);
    outer.unlock().unwrap();
    assert_eq!(database.rows(), 0);

    let outer = mutex.lock().unwrap();
    database
        .conn()
        .query_drop("DELETE FROM database_lock")
        .unwrap();
    assert!(outer.verify().unwrap_err().is_lost());
    assert!(mutex.lock().unwrap_err().is_lost());
}

#[test]
#[ignore = "needs MariaDB"]
fn a_panic_releases_the_lock() {
    let database = Database::new();
    let mutex = mutex(&database.url(), seconds(20));
    let panicking = mutex.clone();
    let thread = thread::spawn(move || {
        let _guard = panicking.lock().unwrap();
        panic!("on purpose");
    });
    assert!(thread.join().is_err());
    assert!(mutex.try_lock_for(seconds(10)).unwrap().is_some());
}

#[test]
#[ignore = "needs MariaDB"]
fn a_living_holder_keeps_the_lock_beyond_its_lease() {
    let database = Database::new();
    let (a, b) = (
        mutex(&database.url(), seconds(2)),
        mutex(&database.url(), seconds(2)),
    );
    let guard = a.lock().unwrap();
    assert!(b.try_lock_for(seconds(5)).unwrap().is_none());
    guard.check().unwrap();
    guard.verify().unwrap();
    guard.unlock().unwrap();
}

/// A child holds the lock until it is killed.
#[test]
#[ignore = "runs in a process of its own"]
fn child_that_holds() {
    let Ok(url) = std::env::var("ZKLOCK_TEST_HOLD") else {
        return;
    };
    let mutex = mutex(&url, seconds(3));
    let guard = mutex.lock().unwrap();
    println!("\nholds {}", guard.fencing_token());
    thread::sleep(seconds(60));
    drop(guard);
}

fn holding_child(wrapper: &[&str], url: &str) -> mysql_support::Killed {
    let mut holder = child(wrapper, "child_that_holds", &[("ZKLOCK_TEST_HOLD", url)]);
    let mut lines = BufReader::new(holder.0.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().starts_with("holds")));
    holder
}

#[test]
#[ignore = "needs MariaDB"]
fn a_dead_holders_lock_is_taken_over_after_the_lease_and_not_before() {
    let database = Database::new();
    let mut conn = database.conn();
    let holder = holding_child(&[], &database.url());
    let mutex = mutex(&database.url(), seconds(3));
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

/// A child takes and releases the lock until it is killed; the file tells of two at once.
#[test]
#[ignore = "runs in a process of its own"]
fn child_that_contends() {
    let (Ok(url), Ok(path)) = (
        std::env::var("ZKLOCK_TEST_CONTEND"),
        std::env::var("ZKLOCK_TEST_FILE"),
    ) else {
        return;
    };
    let mutex = mutex(&url, seconds(2));
    let file = File::open(path).unwrap();
    for i in 0.. {
        let guard = mutex.lock().unwrap();
        // The kernel releases it for who is killed.
        let alone = file.try_lock().is_ok();
        let token = guard.fencing_token();
        thread::sleep(Duration::from_millis(i % 3));
        let valid = guard.is_held();
        file.unlock().unwrap();
        println!(
            "\n{} {token}",
            if alone || !valid { "alone" } else { "OVERLAP" }
        );
        drop(guard);
    }
}

#[test]
#[ignore = "needs MariaDB"]
fn processes_exclude_each_other_while_some_are_killed() {
    let database = Database::new();
    let file = std::env::temp_dir().join(format!("zklock-{}", std::process::id()));
    File::create(&file).unwrap();
    let (to, lines) = crossbeam_channel::unbounded();
    let start = || {
        let variables = [
            ("ZKLOCK_TEST_CONTEND", database.url()),
            ("ZKLOCK_TEST_FILE", file.display().to_string()),
        ];
        let variables = variables
            .each_ref()
            .map(|(name, value)| (*name, value.as_str()));
        let mut contender = child(&[], "child_that_contends", &variables);
        let (output, to) = (contender.0.stdout.take().unwrap(), to.clone());
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = to.send(line);
            }
        });
        contender
    };
    let mut contenders: Vec<_> = (0..4).map(|_| start()).collect();
    for round in 0..12 {
        thread::sleep(seconds(1));
        let place = round % contenders.len();
        contenders[place] = start();
    }
    drop(contenders);
    drop(to);
    std::fs::remove_file(&file).unwrap();
    let mut tokens = Vec::new();
    for line in lines.iter() {
        assert!(!line.contains("OVERLAP"), "two at once");
        let token = line
            .strip_prefix("alone ")
            .and_then(|token| token.parse::<i64>().ok());
        tokens.extend(token);
    }
    assert!(tokens.len() > 50, "only {} turns", tokens.len());
    let turns = tokens.len();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), turns, "a token was given twice");
}

#[test]
#[ignore = "needs MariaDB"]
fn a_holder_in_a_blackhole_is_suspect_then_lost_and_only_then_another_gets_the_lock() {
    let database = Database::new();
    let proxy = Proxy::new(&database.server);
    let (a, b) = (
        mutex(&database.url_through(&proxy), seconds(6)),
        mutex(&database.url(), seconds(6)),
    );
    let guard = a.lock().unwrap();
    let waiter = thread::spawn(move || {
        let guard = b.lock().unwrap();
        (Instant::now(), guard.fencing_token())
    });
    thread::sleep(seconds(1));
    proxy.blackhole(true);
    assert_eq!(next(&guard), GuardEvent::Suspect);
    guard.check().unwrap();
    assert!(guard.valid_for() > seconds(1));
    assert!(matches!(
        guard.verify(),
        Err(Error::Suspect { .. } | Error::Lost { .. })
    ));
    assert_eq!(next(&guard), GuardEvent::Lost);
    let lost = Instant::now();
    assert!(guard.check().unwrap_err().is_lost());
    assert!(guard.verify().unwrap_err().is_lost());
    assert_eq!(guard.valid_for(), Duration::ZERO);
    let (taken, token) = waiter.join().unwrap();
    assert!(taken > lost, "taken {:?} too early", lost - taken);
    assert!(token > guard.fencing_token());
    proxy.blackhole(false);
    assert!(guard.unlock().unwrap_err().is_lost());
}

#[test]
#[ignore = "needs MariaDB"]
fn nothing_hangs_in_a_blackhole() {
    let database = Database::new();
    let proxy = Proxy::new(&database.server);
    let url = database.url_through(&proxy);
    let client = client(&url, seconds(6));
    let (held, free) = (client.mutex("held").unwrap(), client.mutex("free").unwrap());
    let guard = held.lock().unwrap();
    let other = held.lock_elsewhere();
    proxy.blackhole(true);

    for limit in [0, 50, 500].map(Duration::from_millis) {
        let begun = Instant::now();
        assert!(
            free.try_lock_for(limit).is_err(),
            "nobody said that it is taken"
        );
        assert!(
            begun.elapsed() < limit + LATE,
            "{:?} for {limit:?}",
            begun.elapsed()
        );
    }
    let begun = Instant::now();
    assert!(free.try_lock().is_err());
    assert!(begun.elapsed() < seconds(5) + LATE);

    let valid = guard.valid_for();
    let begun = Instant::now();
    assert!(guard.verify().is_err());
    assert!(begun.elapsed() < valid + LATE);

    let begun = Instant::now();
    drop(guard);
    assert!(begun.elapsed() < LATE, "drop took {:?}", begun.elapsed());

    let begun = Instant::now();
    let builder = Client::builder(&url).connect_timeout(seconds(1));
    assert!(builder.connect().is_err());
    assert!(begun.elapsed() < seconds(1) + LATE);

    let begun = Instant::now();
    client.close();
    assert!(matches!(other.join().unwrap(), Err(Error::Closed)));
    drop((held, free, client));
    assert!(
        begun.elapsed() < seconds(2) + LATE,
        "drop took {:?}",
        begun.elapsed()
    );

    proxy.blackhole(false);
    // One whose lease has ended may stay.
    let live = "SELECT COUNT(*) FROM database_lock WHERE lease_end > UTC_TIMESTAMP(6)";
    let mut conn = database.conn();
    wait_until("no row is left", || {
        conn.query_first(live).unwrap() == Some(0)
    });
}

trait Elsewhere {
    fn lock_elsewhere(&self) -> thread::JoinHandle<zklock::Result<()>>;
}

impl Elsewhere for Mutex {
    fn lock_elsewhere(&self) -> thread::JoinHandle<zklock::Result<()>> {
        let mutex = self.clone();
        thread::spawn(move || mutex.lock().map(drop))
    }
}

#[test]
#[ignore = "needs MariaDB"]
fn nothing_hangs_in_a_blackhole_with_a_pool_that_has_no_timeouts() {
    let database = Database::new();
    let proxy = Proxy::new(&database.server);
    let pool = Database::pool(&database.url_through(&proxy), "DO 1");
    let builder = Client::builder_from_pool(pool).lease(seconds(4));
    let client = builder.connect().unwrap();
    let guard = client.mutex("held").unwrap().lock().unwrap();
    proxy.blackhole(true);
    let (begun, limit) = (Instant::now(), Duration::from_millis(300));
    assert!(client.mutex("free").unwrap().try_lock_for(limit).is_err());
    assert!(begun.elapsed() < limit + LATE);
    assert_eq!(next(&guard), GuardEvent::Suspect);
    assert_eq!(next(&guard), GuardEvent::Lost);
    let begun = Instant::now();
    drop(guard);
    assert!(begun.elapsed() < LATE);
    proxy.blackhole(false);
    let guard = client
        .mutex("held")
        .unwrap()
        .try_lock_for(seconds(20))
        .unwrap();
    guard.unwrap().unlock().unwrap();
}

#[test]
#[ignore = "needs MariaDB"]
fn unlock_in_a_blackhole_ends_with_the_guards_deadline() {
    let database = Database::new();
    let proxy = Proxy::new(&database.server);
    let mutex = mutex(&database.url_through(&proxy), seconds(3));
    let guard = mutex.lock().unwrap();
    proxy.blackhole(true);
    let (begun, valid) = (Instant::now(), guard.valid_for());
    assert!(guard.unlock().is_err());
    assert!(begun.elapsed() < valid + LATE);
    proxy.blackhole(false);
    database.wait_for_rows(0);
}

#[test]
#[ignore = "needs MariaDB"]
fn programs_of_the_plain_form_are_excluded_and_exclude() {
    let database = Database::new();
    let mutex = mutex(&database.url(), seconds(20));
    let mut plain = database.conn();
    let insert = "INSERT INTO database_lock(`lock`, description) VALUES ('a', 'plain')";
    let delete = "DELETE FROM database_lock WHERE `lock` = 'a'";

    plain.query_drop(insert).unwrap();
    assert!(try_lock(&mutex).is_none());
    assert!(
        mutex
            .try_lock_for(Duration::from_millis(500))
            .unwrap()
            .is_none()
    );
    plain.query_drop(delete).unwrap();
    let guard = try_lock(&mutex).unwrap();
    let refused = plain.query_drop(insert).unwrap_err();
    assert!(refused.to_string().contains("1062"), "{refused}");
    guard.unlock().unwrap();
    plain.query_drop(insert).unwrap();
    plain.query_drop(delete).unwrap();

    // One that has not committed yet, and then takes it back.
    plain.query_drop("START TRANSACTION").unwrap();
    plain.query_drop(insert).unwrap();
    assert!(try_lock(&mutex).is_none());
    let limit = Duration::from_millis(300);
    let begun = Instant::now();
    assert!(!matches!(mutex.try_lock_for(limit), Ok(Some(_))));
    assert!(begun.elapsed() < limit + LATE);
    plain.query_drop("ROLLBACK").unwrap();
    let guard = mutex.try_lock_for(seconds(10)).unwrap().unwrap();
    guard.verify().unwrap();
    guard.unlock().unwrap();
}

#[test]
#[ignore = "needs MariaDB"]
fn many_rounds_leave_no_row() {
    let database = Database::new();
    let threads: Vec<_> = (0..4)
        .map(|i| {
            let client = client(&database.url(), seconds(20));
            thread::spawn(move || {
                let mutex = client.mutex(&format!("n{}", i % 2)).unwrap();
                let own = client.mutex(&format!("own{i}")).unwrap();
                for _ in 0..1250 {
                    drop(mutex.lock().unwrap());
                    own.lock().unwrap().unlock().unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(database.rows(), 0);
}

#[test]
#[ignore = "needs MariaDB"]
fn tokens_grow_across_release_takeover_and_deletion() {
    let database = Database::new();
    let (a, b) = (
        mutex(&database.url(), seconds(20)),
        mutex(&database.url(), seconds(20)),
    );
    let mut conn = database.conn();
    let mut last = 0;
    let mut grew = |guard: &MutexGuard, conn: &mut mysql::Conn| {
        let token = guard.fencing_token().get();
        assert!(token > last, "{token} after {last}");
        let row: i64 = conn
            .query_first("SELECT token FROM database_lock")
            .unwrap()
            .unwrap();
        assert_eq!(row, token);
        last = token;
    };
    for _ in 0..3 {
        let guard = a.lock().unwrap();
        grew(&guard, &mut conn);
        // The holder seems to be dead, for the database.
        let end = "UPDATE database_lock SET lease_end = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND";
        conn.query_drop(end).unwrap();
        let taken = b.lock().unwrap();
        grew(&taken, &mut conn);
        assert!(guard.verify().unwrap_err().is_lost());
        assert!(guard.unlock().unwrap_err().is_lost());
        conn.query_drop("DELETE FROM database_lock").unwrap();
        let guard = a.lock().unwrap();
        grew(&guard, &mut conn);
        assert!(taken.unlock().unwrap_err().is_lost());
        guard.unlock().unwrap();
    }
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
        assert!(
            other
                .try_lock_for(Duration::from_millis(300))
                .unwrap()
                .is_none()
        );
        let left = "SELECT TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), lease_end) FROM database_lock";
        let left: i64 = database.conn().query_first(left).unwrap().unwrap();
        assert!((15..=21).contains(&left), "{left} seconds");
        guard.unlock().unwrap();
    }
}

/// What runs a program with a wall clock that is off.
fn faketime(off: &str) -> [String; 4] {
    let folders = std::fs::read_dir("/usr/lib").unwrap().flatten();
    let library = folders
        .map(|folder| folder.path().join("faketime/libfaketime.so.1"))
        .find(|path| path.exists())
        .expect("the package libfaketime");
    [
        "env".to_owned(),
        format!("LD_PRELOAD={}", library.display()),
        format!("FAKETIME={off}"),
        "FAKETIME_DONT_FAKE_MONOTONIC=1".to_owned(),
    ]
}

#[test]
#[ignore = "needs MariaDB and faketime"]
fn a_client_whose_clock_is_off_by_an_hour_excludes_and_is_excluded() {
    let database = Database::new();
    let mutex = mutex(&database.url(), seconds(3));
    for off in ["+1h", "-1h"] {
        let wrapper = faketime(off);
        let wrapper = wrapper.each_ref().map(String::as_str);
        let holder = holding_child(&wrapper, &database.url());
        assert!(mutex.try_lock_for(seconds(5)).unwrap().is_none());
        drop(holder);
        let guard = mutex.try_lock_for(seconds(30)).unwrap().unwrap();
        // One that waits takes nothing from a holder whose clock is right.
        let variables = [("ZKLOCK_TEST_HOLD", database.url())];
        let variables = variables
            .each_ref()
            .map(|(name, value)| (*name, value.as_str()));
        let waiter = child(&wrapper, "child_that_holds", &variables);
        thread::sleep(seconds(5));
        guard.verify().unwrap();
        drop(waiter);
        guard.unlock().unwrap();
        drop(mutex.try_lock_for(seconds(30)).unwrap().unwrap());
    }
}

#[test]
#[ignore = "needs MariaDB"]
fn a_lock_whose_answer_was_lost_is_found_to_be_ours() {
    let database = Database::new();
    for text in [
        "INSERT INTO `database_lock` ",
        "UPDATE `database_lock` SET `owner`",
    ] {
        let proxy = Proxy::new(&database.server);
        let mutex = mutex(&database.url_through(&proxy), seconds(20));
        if text.starts_with("UPDATE") {
            let row = "INSERT INTO database_lock (`lock`, owner, lease_end, token) \
                       VALUES ('a', 'dead', '2000-01-01', 1)";
            database.conn().query_drop(row).unwrap();
        }
        proxy.swallow_answer_to(text);
        // The lease is longer: it cannot be a takeover.
        let guard = mutex
            .try_lock_for(seconds(10))
            .unwrap()
            .expect("our own row");
        assert!(proxy.has_swallowed());
        assert_eq!(database.rows(), 1);
        guard.verify().unwrap();
        proxy.swallow_answer_to("DELETE FROM `database_lock`");
        guard
            .unlock()
            .unwrap_or_else(|error| assert!(matches!(error, Error::Suspect { .. })));
        assert!(proxy.has_swallowed());
        database.wait_for_rows(0);
    }
}

#[test]
#[ignore = "needs MariaDB"]
fn a_lock_whose_answer_was_lost_and_that_nobody_wants_any_more_is_released() {
    let database = Database::new();
    let proxy = Proxy::new(&database.server);
    let mutex = mutex(&database.url_through(&proxy), seconds(20));
    mutex.lock().unwrap().unlock().unwrap();
    proxy.blackhole(true);
    // The statement is on its way when we give up, and arrives later.
    assert!(mutex.try_lock_for(Duration::from_millis(200)).is_err());
    proxy.blackhole(false);
    thread::sleep(Duration::from_millis(500));
    database.wait_for_rows(0);
}

#[test]
#[ignore = "needs MariaDB"]
fn a_guard_survives_cut_connections() {
    let database = Database::new();
    let proxy = Proxy::new(&database.server);
    let mutex = mutex(&database.url_through(&proxy), seconds(3));
    let guard = mutex.lock().unwrap();
    for _ in 0..6 {
        thread::sleep(Duration::from_millis(700));
        proxy.cut();
    }
    guard.check().unwrap();
    wait_until("it is held again", || guard.state() == GuardState::Held);
    guard.verify().unwrap();
    guard.unlock().unwrap();
    database.wait_for_rows(0);
}

#[test]
#[ignore = "needs MariaDB"]
fn a_restart_within_the_lease_keeps_the_lock_and_one_beyond_loses_it() {
    let server = Arc::new(Server::start(&[]));
    let database = Database::empty_on(server);
    let client = client(&database.url(), seconds(16));
    client.create_table().unwrap();
    let mutex = client.mutex("a").unwrap();
    let guard = mutex.lock().unwrap();
    let token = guard.fencing_token();
    database.server.kill();
    let waiter = mutex.lock_elsewhere();
    database.server.resume(&[]);
    wait_until("it is renewed", || guard.valid_for() > seconds(10));
    guard.check().unwrap();
    guard.verify().unwrap();
    assert!(!waiter.is_finished());
    guard.unlock().unwrap();
    waiter.join().unwrap().unwrap();

    let guard = mutex.lock().unwrap();
    assert!(guard.fencing_token() > token);
    database.server.kill();
    let events: Vec<_> = std::iter::from_fn(|| guard.events().recv_timeout(seconds(20)).ok())
        .take(2)
        .collect();
    assert_eq!(events, [GuardEvent::Suspect, GuardEvent::Lost]);
    database.server.resume(&[]);
    assert!(guard.verify().unwrap_err().is_lost());
    drop(guard);
    let guard = mutex.try_lock_for(seconds(30)).unwrap().unwrap();
    guard.unlock().unwrap();
}

#[test]
#[ignore = "needs MariaDB"]
fn a_server_that_takes_no_writes_is_named_as_such() {
    let server = Arc::new(Server::start(&[]));
    let database = Database::empty_on(server);
    let mut root = database.conn();
    root.query_drop(CREATE_TABLE).unwrap();
    root.query_drop("CREATE USER app@'%'").unwrap();
    let grant = "GRANT SELECT, INSERT, UPDATE, DELETE ON *.* TO app@'%'";
    root.query_drop(grant).unwrap();
    root.query_drop("SET GLOBAL read_only = 1").unwrap();
    let mutex = mutex(&database.url_of("app"), seconds(20));
    let error = mutex.lock().unwrap_err().to_string();
    assert!(
        error.contains("1290") && error.contains("primary"),
        "{error}"
    );
    root.query_drop("SET GLOBAL read_only = 0").unwrap();
    drop(mutex.lock().unwrap());
}

#[test]
#[ignore = "needs MariaDB"]
fn who_loses_its_row_is_told() {
    let database = Database::new();
    let mutex = mutex(&database.url(), seconds(3));
    let guard = mutex.lock().unwrap();
    database
        .conn()
        .query_drop("DELETE FROM database_lock")
        .unwrap();
    assert_eq!(next(&guard), GuardEvent::Lost);
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

#[test]
#[ignore = "needs MariaDB"]
fn threads_of_a_client_take_turns_in_order() {
    let database = Database::new();
    let client = client(&database.url(), seconds(20));
    let mutex = client.mutex("a").unwrap();
    let guard = mutex.lock().unwrap();
    let (to, order) = crossbeam_channel::unbounded();
    let threads: Vec<_> = (0..4)
        .map(|i| {
            let (mutex, to) = (mutex.clone(), to.clone());
            let thread = thread::spawn(move || {
                let guard = mutex.lock().unwrap();
                to.send((i, guard.fencing_token())).unwrap();
            });
            thread::sleep(Duration::from_millis(50));
            thread
        })
        .collect();
    drop(guard);
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    drop(to);
    let order: Vec<_> = order.iter().collect();
    assert!(order.is_sorted_by_key(|(_, token)| *token));
    assert_eq!(
        order.iter().map(|(i, _)| *i).collect::<Vec<_>>(),
        [0, 1, 2, 3]
    );
}

#[test]
#[ignore = "needs MariaDB"]
fn a_table_of_the_plain_form_is_refused_until_it_is_altered() {
    let database = Database::empty_on(Server::shared());
    let mut conn = database.conn();
    let plain = "CREATE TABLE database_lock (id BIGINT NOT NULL AUTO_INCREMENT, \
                 `lock` VARCHAR(64) NOT NULL, description VARCHAR(1024) NOT NULL DEFAULT '', \
                 PRIMARY KEY (id), UNIQUE KEY (`lock`))";
    conn.query_drop(plain).unwrap();
    let refused = Client::connect(&database.url()).unwrap_err();
    assert!(refused.to_string().contains("ALTER_TABLE"), "{refused}");
    conn.query_drop(ALTER_TABLE).unwrap();
    conn.query_drop(CREATE_TABLE).unwrap();
    conn.query_drop("INSERT INTO database_lock(`lock`, description) VALUES ('a', '')")
        .unwrap();
    let client = Client::connect(&database.url()).unwrap();
    assert!(try_lock(&client.mutex("a").unwrap()).is_none());
    assert!(try_lock(&client.mutex("A").unwrap()).is_some());
}

#[test]
#[ignore = "needs MariaDB"]
fn a_missing_table_is_named_and_created_on_request() {
    let database = Database::empty_on(Server::shared());
    let client = Client::connect(&database.url()).unwrap();
    let mutex = client.mutex("a").unwrap();
    let error = mutex.lock().unwrap_err().to_string();
    assert!(error.contains("create_table"), "{error}");
    client.create_table().unwrap();
    client.create_table().unwrap();
    mutex.lock().unwrap().unlock().unwrap();
}

#[test]
#[ignore = "needs MariaDB"]
fn credentials_are_refused_by_name_and_never_shown() {
    let database = Database::new();
    let url = database.url_of("nobody:secret");
    assert_eq!(Client::connect(&url).unwrap_err(), Error::AuthFailed);
    let builder = Client::builder(&url);
    assert!(!format!("{builder:?}").contains("secret"));
    let bad = "mysql://app:secret@db:port/app";
    let error = Client::connect(bad).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("secret"));
    let client = Client::connect(&database.url()).unwrap();
    let guard = client.mutex("a").unwrap().lock().unwrap();
    assert!(!format!("{client:?} {guard:?}").contains("127.0.0.1"));
}

fn openssl(words: &str) {
    let mut command = std::process::Command::new("openssl");
    let done = command
        .args(words.split_whitespace())
        .output()
        .expect("openssl");
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}

#[test]
#[ignore = "needs MariaDB and openssl"]
fn a_server_that_insists_on_tls_is_served_with_tls() {
    let folder = std::env::temp_dir().join(format!("zklock-tls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let f = folder.display();
    std::fs::write(
        folder.join("names"),
        "subjectAltName = DNS:localhost, IP:127.0.0.1",
    )
    .unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(&format!(
        "req -x509 {key} -subj /CN=ca -keyout {f}/ca.key -out {f}/ca.pem"
    ));
    openssl(&format!(
        "req {key} -subj /CN=db -keyout {f}/db.key -out {f}/db.csr"
    ));
    let ca = format!("-CA {f}/ca.pem -CAkey {f}/ca.key -CAcreateserial");
    openssl(&format!(
        "x509 -req -in {f}/db.csr {ca} -extfile {f}/names -out {f}/db.pem"
    ));

    let database = Database::empty_on(Arc::new(Server::start(&[])));
    database.server.kill();
    let (certificate, key) = (
        format!("--ssl-cert={f}/db.pem"),
        format!("--ssl-key={f}/db.key"),
    );
    database.server.resume(&[&certificate, &key]);
    let root = database.conn();
    let user = "CREATE USER tls@'%' REQUIRE SSL; GRANT ALL ON *.* TO tls@'%'";
    { root }.query_drop(user).unwrap();

    let url = database.url_of("tls");
    assert_eq!(Client::connect(&url).unwrap_err(), Error::AuthFailed);
    let client = Client::connect(&format!("{url}&root_cert_path={f}/ca.pem")).unwrap();
    client.create_table().unwrap();
    client.mutex("a").unwrap().lock().unwrap().unlock().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Written once for all guards.
fn work(guard: impl LockGuard) -> zklock::Result<()> {
    guard.check()?;
    guard.verify()?;
    guard.unlock()
}

#[test]
#[ignore = "needs MariaDB"]
fn a_job_can_be_written_for_any_guard() {
    let database = Database::new();
    let client = client(&database.url(), seconds(20));
    work(client.mutex("a").unwrap().lock().unwrap()).unwrap();
    work(client.mutex("a").unwrap().lock().unwrap().into_send()).unwrap();
    work(client.reentrant_mutex("a").unwrap().lock().unwrap()).unwrap();
}

#[test]
#[ignore = "needs MariaDB"]
fn names_that_the_database_would_confuse_are_refused() {
    let database = Database::new();
    let client = client(&database.url(), seconds(20));
    let long = "x".repeat(256);
    for name in ["", "a ", "a\n", "a\0", &long] {
        assert!(client.mutex(name).unwrap_err().is_bad_input(), "{name:?}");
    }
    let names = [
        "a",
        "A",
        "ä",
        "'; DROP TABLE database_lock; --",
        "\\'",
        "🔒",
        " a",
        "a%",
    ];
    let guards = names.map(|name| try_lock(&client.mutex(name).unwrap()).expect(name));
    assert_eq!(database.rows(), names.len() as u64);
    drop(guards);
}
