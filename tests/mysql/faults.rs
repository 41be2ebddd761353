//! Failures of the network and of the server.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use mysql::prelude::Queryable;
use zklock::mysql::{CREATE_TABLE, Client, Mutex};
use zklock::{Error, GuardEvent, GuardState};

use crate::database::{Database, Server, connections};
use crate::proxy::Proxy;
use crate::support::eventually;
use crate::{LATE, client, mutex, next, seconds};

#[test]
#[ignore = "needs MariaDB"]
fn a_holder_in_a_blackhole_is_suspect_then_lost_and_only_then_another_gets_the_lock() {
    let database = Database::new();
    let proxy = Proxy::new(&database.server);
    let (a, b) = (
        mutex(&database.url_through(&proxy), seconds(9)),
        mutex(&database.url(), seconds(9)),
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
    // A row whose lease has ended may stay.
    let live = "SELECT COUNT(*) FROM database_lock WHERE lease_end > UTC_TIMESTAMP(6)";
    let mut conn = database.conn();
    eventually("no row is left", || {
        conn.query_first(live).unwrap() == Some(0)
    });
}

pub(crate) trait Elsewhere {
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
    let builder = Client::builder_from_pool(pool).lease(seconds(8));
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
        // The lease is longer than this wait, so this cannot be a takeover.
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
    // The statement is on its way when the client gives up, and arrives later.
    assert!(mutex.try_lock_for(Duration::from_millis(200)).is_err());
    proxy.blackhole(false);
    thread::sleep(Duration::from_millis(500));
    database.wait_for_rows(0);
}

#[test]
#[ignore = "needs MariaDB"]
fn a_program_that_ends_after_it_gave_up_a_lock_leaves_no_row() {
    let database = Database::new();
    let proxy = Arc::new(Proxy::new(&database.server));
    let mutex = mutex(&database.url_through(&proxy), seconds(20));
    proxy.hold("INSERT INTO `database_lock` ");
    assert!(mutex.try_lock_for(Duration::from_millis(200)).is_err());
    let network = proxy.clone();
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(500));
        network.release();
    });
    drop(mutex);
    let tokens = "SELECT MAX(token) FROM database_lock_token";
    let drawn = database.conn().query_first(tokens).unwrap();
    assert_eq!(drawn, Some(Some(1)), "the statement is under way");
    assert_eq!(database.rows(), 0);
}

#[test]
#[ignore = "needs MariaDB"]
fn a_guard_survives_cut_connections() {
    let database = Database::new();
    let proxy = Proxy::new(&database.server);
    let mutex = mutex(&database.url_through(&proxy), seconds(6));
    let guard = mutex.lock().unwrap();
    // This lasts longer than the lease.
    for _ in 0..10 {
        thread::sleep(Duration::from_millis(700));
        proxy.cut();
    }
    guard.check().unwrap();
    eventually("it is held again", || guard.state() == GuardState::Held);
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
    eventually("it is renewed", || guard.valid_for() > seconds(10));
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
    let builder = Client::builder(&database.url_of("app")).connect_timeout(seconds(3));
    let mutex = builder.connect().unwrap().mutex("a").unwrap();
    let begun = Instant::now();
    let error = mutex.lock().unwrap_err().to_string();
    assert!(
        error.contains("1290") && error.contains("primary"),
        "{error}"
    );
    // The client must wait, because this could be a fail-over in progress.
    assert!(seconds(3) <= begun.elapsed());
    let limit = Duration::from_millis(500);
    let error = mutex.try_lock_for(limit).unwrap_err().to_string();
    assert!(error.contains("primary"), "{error}");
    let waiter = thread::spawn(move || mutex.lock().unwrap().unlock());
    thread::sleep(seconds(1));
    root.query_drop("SET GLOBAL read_only = 0").unwrap();
    waiter.join().unwrap().unwrap();
}

/// The errors that pass by themselves, as in the table in `docs/mysql.md`.
const PASSING: &[u16] = &[
    1020, 1021, 1037, 1040, 1041, 1047, 1053, 1114, 1135, 1152, 1158, 1159, 1160, 1161, 1180, 1203,
    1205, 1206, 1213, 1226, 1290, 1317, 1637, 1792, 1836, 1927, 1969, 2002, 2003, 2005, 2006, 2013,
    2055, 3024, 3032, 3100, 3101, 3169, 3572, 4031, 9001, 9002,
];

#[test]
#[ignore = "needs MariaDB"]
fn errors_that_pass_end_no_wait_and_no_lease() {
    let database = Database::new();
    let proxy = Proxy::new(&database.server);
    let client = client(&database.url_through(&proxy), seconds(20));
    let mutex = client.mutex("a").unwrap();
    for &code in PASSING {
        proxy.refuse("INSERT INTO `database_lock` ", code);
        let guard = mutex.lock().unwrap_or_else(|error| panic!("{error}"));
        assert!(proxy.has_refused());
        proxy.refuse("UPDATE `database_lock` SET `lease_end`", code);
        guard
            .verify()
            .unwrap_or_else(|error| panic!("{code}: {error}"));
        assert!(proxy.has_refused());
        drop(guard);
    }
    for code in [1142, 1146, 1045, 1064, 1406] {
        proxy.refuse("INSERT INTO `database_lock` ", code);
        assert!(mutex.lock().is_err(), "{code}");
    }
}

/// MySQL Router greets a client so, and ProxySQL answers statements so.
#[test]
#[ignore = "needs MariaDB"]
fn a_proxy_that_cannot_reach_its_server_ends_no_wait() {
    let database = Database::new();
    let guard = mutex(&database.url(), seconds(60)).lock().unwrap();
    let proxy = Proxy::new(&database.server);
    proxy.greet_with(Some(2003));
    let url = database.url_through(&proxy);
    let mut conn = database.conn();
    let before = connections(&mut conn);
    let waiter = thread::spawn(move || {
        let client = Client::builder(&url).connect_timeout(seconds(60));
        client.connect()?.mutex("a")?.lock()?.unlock()
    });
    eventually("the client asks again", || proxy.greeted() > 1);
    proxy.greet_with(None);
    // It renews on one, and polls on the other one.
    eventually("the client waits", || before + 2 <= connections(&mut conn));
    for code in [2002, 9002] {
        proxy.greet_with(Some(code));
        proxy.cut();
        eventually("the client asks again", || proxy.greeted() > 1);
    }
    assert!(!waiter.is_finished());
    proxy.greet_with(None);
    guard.unlock().unwrap();
    waiter.join().unwrap().unwrap();
}

#[test]
#[ignore = "needs MariaDB"]
fn a_statement_that_the_server_cuts_short_ends_no_wait() {
    let database = Database::new();
    let mut foreign = database.conn();
    foreign.query_drop("START TRANSACTION").unwrap();
    let gap = "SELECT 1 FROM database_lock WHERE `lock` = 'a' FOR UPDATE";
    foreign.query_drop(gap).unwrap();
    let pool = Database::pool(&database.url(), "SET max_statement_time = 0.3");
    let mutex = Client::from_pool(pool).unwrap().mutex("a").unwrap();
    let waiter = thread::spawn(move || mutex.lock().unwrap().unlock());
    thread::sleep(seconds(2));
    assert!(!waiter.is_finished());
    foreign.query_drop("ROLLBACK").unwrap();
    waiter.join().unwrap().unwrap();
}

#[test]
#[ignore = "needs MariaDB"]
fn a_row_that_the_server_has_not_deleted_is_deleted_again() {
    let database = Database::new();
    let proxy = Proxy::new(&database.server);
    let mutex = mutex(&database.url_through(&proxy), seconds(60));
    // This is how MariaDB answers a DELETE that was ended with KILL QUERY.
    let delete = "DELETE FROM `database_lock` ";
    let guard = mutex.lock().unwrap();
    proxy.ignore(delete);
    guard.unlock().unwrap();
    assert_eq!(database.rows(), 0);
    let guard = mutex.lock().unwrap();
    proxy.ignore(delete);
    drop(guard);
    database.wait_for_rows(0);
}

#[test]
#[ignore = "needs MariaDB"]
fn a_client_that_stops_while_it_asks_costs_no_holder_its_lock() {
    const T: Duration = Duration::from_secs(2);
    let database = Database::new();
    let proxy = Proxy::new(&database.server);
    let guard = mutex(&database.url(), T).lock().unwrap();
    let waiter = mutex(&database.url_through(&proxy), T);
    // As a client stopped by SIGSTOP, this one never learns that there is a row, and sends nothing
    // more.
    proxy.hold_answer_to("INSERT INTO `database_lock` ");
    let waits = thread::spawn(move || waiter.try_lock_for(seconds(6)).map(|guard| guard.is_some()));
    eventually("it is held", || proxy.is_holding_answer());
    let begun = Instant::now();
    while begun.elapsed() < seconds(4) {
        guard.check().unwrap();
        thread::sleep(Duration::from_millis(10));
    }
    guard.unlock().unwrap();
    proxy.release_answer();
    assert!(waits.join().unwrap().unwrap());
}

#[test]
#[ignore = "needs MariaDB"]
fn a_client_that_stops_after_an_error_keeps_a_free_lock_for_a_second() {
    let database = Database::new();
    let proxy = Proxy::new(&database.server);
    let stops = mutex(&database.url_through(&proxy), seconds(20));
    let other = mutex(&database.url(), seconds(20));
    other.lock().unwrap().unlock().unwrap();
    let mut foreign = database.conn();
    foreign.query_drop("START TRANSACTION").unwrap();
    let counter = "SELECT 1 FROM database_lock_token FOR UPDATE";
    foreign.query_drop(counter).unwrap();
    // The client has the row, waits for the counter, is told that this took too long, and falls
    // silent.
    proxy.hold("ROLLBACK");
    let stops = thread::spawn(move || stops.try_lock_for(seconds(20)).map(|guard| guard.is_some()));
    eventually("it stops", || proxy.is_holding());
    foreign.query_drop("ROLLBACK").unwrap();
    let begun = Instant::now();
    let guard = other.try_lock_for(seconds(20)).unwrap().unwrap();
    assert!(begun.elapsed() < seconds(1) + LATE, "{:?}", begun.elapsed());
    guard.unlock().unwrap();
    proxy.release();
    assert!(stops.join().unwrap().unwrap());
}

#[test]
#[ignore = "needs MariaDB"]
fn a_server_that_forgets_commits_is_refused() {
    let option = |value| format!("--innodb-flush-log-at-trx-commit={value}");
    let server = Arc::new(Server::start(&[&option(0)]));
    let database = Database::empty_on(server.clone());
    database.conn().query_drop(CREATE_TABLE).unwrap();
    let refused = Client::connect(&database.url());
    let refused = refused.map(|_| ()).unwrap_err().to_string();
    assert!(
        refused.contains("innodb_flush_log_at_trx_commit"),
        "{refused}"
    );
    // A server that forgets only when its machine fails is not refused; the log mentions it.
    for value in [2, 1] {
        let set = format!("SET GLOBAL innodb_flush_log_at_trx_commit = {value}");
        database.conn().query_drop(set).unwrap();
        let [a, b] = [(); 2].map(|()| mutex(&database.url(), seconds(20)));
        let guard = a.lock().unwrap();
        server.kill();
        server.resume(&[]);
        assert!(b.try_lock().unwrap().is_none());
        guard.verify().unwrap();
        guard.unlock().unwrap();
    }
}

#[test]
#[ignore = "needs MariaDB"]
fn a_server_that_is_in_a_cluster_by_name_only_is_refused_if_it_forgets_commits() {
    let options = ["--wsrep-on=ON", "--innodb-flush-log-at-trx-commit=0"];
    let database = Database::empty_on(Arc::new(Server::start(&options)));
    let refused = Client::connect(&database.url());
    let refused = refused.map(|_| ()).unwrap_err().to_string();
    assert!(
        refused.contains("innodb_flush_log_at_trx_commit"),
        "{refused}"
    );
}

#[test]
#[ignore = "needs MariaDB"]
fn a_replaced_primary_grants_and_renews_nothing_for_an_account_that_may_write() {
    let database = Database::new_alone();
    let mut root = database.conn();
    let builder = Client::builder(&database.url()).lease(seconds(3));
    let client = builder.connect_timeout(seconds(1)).connect().unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| client.mutex(name).unwrap());
    let (guard, another) = (a.lock().unwrap(), c.lock().unwrap());
    guard.verify().unwrap();
    // This applies to all accounts but those with this right.
    root.query_drop("SET GLOBAL read_only = 1").unwrap();
    root.query_drop("CREATE TABLE app (i INT)").unwrap();
    assert!(guard.verify().is_err());
    let released = another.unlock();
    assert!(released.is_err(), "{released:?}");
    let error = b.lock().unwrap_err().to_string();
    assert!(error.contains("read-only"), "{error}");
    // The row of `c` stays until its lease ends: deleting it here would stop the replication.
    assert_eq!(database.rows(), 2, "the rows of `a` and `c`");
    eventually("the guard is lost", || guard.state() == GuardState::Lost);
    root.query_drop("SET GLOBAL read_only = 0").unwrap();
    drop(guard);
    a.lock().unwrap().verify().unwrap();
    b.lock().unwrap().verify().unwrap();
}

#[test]
#[ignore = "needs MariaDB"]
fn try_lock_ends_in_time_where_a_release_is_not_answered() {
    let database = Database::new();
    let proxy = Proxy::new(&database.server);
    let mutex = mutex(&database.url_through(&proxy), seconds(20));
    let guard = mutex.lock().unwrap();
    proxy.blackhole(true);
    drop(guard);
    thread::sleep(Duration::from_millis(300));
    let begun = Instant::now();
    assert!(mutex.try_lock().is_err());
    assert!(begun.elapsed() < seconds(6), "{:?}", begun.elapsed());
}

#[test]
#[ignore = "needs MariaDB"]
fn a_renewal_counts_only_with_the_answer_whether_the_server_is_read_only() {
    let database = Database::new();
    let proxy = Proxy::new(&database.server);
    let guard = mutex(&database.url_through(&proxy), seconds(3))
        .lock()
        .unwrap();
    guard.verify().unwrap();
    proxy.cut_answers_before_rows("GREATEST(`lease_end`");
    eventually("it is lost", || guard.state() == GuardState::Lost);
}

#[test]
#[ignore = "needs MariaDB"]
fn an_unlock_whose_first_try_was_refused_tells_that_the_row_is_gone() {
    let database = Database::new();
    let proxy = Proxy::new(&database.server);
    let ours = mutex(&database.url_through(&proxy), seconds(20));
    let guard = ours.lock().unwrap();
    proxy.refuse("DELETE FROM `database_lock`", 1205);
    let evict = "DELETE FROM database_lock";
    database.conn().query_drop(evict).unwrap();
    let other = mutex(&database.url(), seconds(20)).lock().unwrap();
    let unlocked = guard.unlock();
    assert!(proxy.has_refused());
    assert!(unlocked.as_ref().is_err_and(Error::is_lost), "{unlocked:?}");
    other.verify().unwrap();
}

#[test]
#[ignore = "needs MariaDB"]
fn an_answer_at_which_the_driver_panics_leaves_the_outcome_open() {
    let database = Database::new();
    let proxy = Proxy::new(&database.server);
    let mutex = mutex(&database.url_through(&proxy), seconds(20));
    proxy.empty_answer_to("INSERT INTO `database_lock` ");
    let guard = mutex.lock().unwrap();
    assert!(proxy.has_emptied());
    proxy.empty_answer_to("DELETE FROM `database_lock` ");
    guard.unlock().unwrap();
    assert!(proxy.has_emptied());
    assert_eq!(database.rows(), 0);
    assert!(mutex.try_lock().unwrap().is_some());
}
