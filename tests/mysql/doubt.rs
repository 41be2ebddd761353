//! Statements whose answers were lost, and which the server carries out later.

use std::thread;
use std::time::{Duration, Instant};

use mysql::Conn;
use mysql::prelude::Queryable;
use zklock::mysql::Client;

use crate::database::Database;
use crate::proxy::Proxy;
use crate::support::eventually;
use crate::{client, mutex, seconds};

const T: Duration = Duration::from_secs(2);

/// Returns how long the row's lease lasts by the server's clock.
fn left(conn: &mut Conn) -> Duration {
    let left = "SELECT TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), lease_end) FROM database_lock";
    let left: i64 = conn.query_first(left).unwrap().expect("a row");
    Duration::from_micros(left.try_into().expect("a lease that lasts"))
}

#[test]
#[ignore = "needs MariaDB"]
fn a_row_that_an_earlier_statement_left_is_valid_for_as_long_as_that_statement_said() {
    let database = Database::new();
    let proxy = Proxy::new(&database.server);
    let (a, b) = (
        mutex(&database.url_through(&proxy), T),
        mutex(&database.url(), T),
    );
    // The INSERT has read the time and waits in the server, and its answer is lost.
    let mut foreign = database.conn();
    let gate = &database.name;
    let slow = format!(
        "CREATE TRIGGER slow BEFORE INSERT ON database_lock FOR EACH ROW \
         WHILE IS_FREE_LOCK('{gate}') = 0 DO DO SLEEP(0.01); END WHILE"
    );
    foreign.query_drop(slow).unwrap();
    let close = format!("DO GET_LOCK('{gate}', 0)");
    foreign.query_drop(close).unwrap();
    proxy.swallow_answer_to("INSERT INTO `database_lock` ");
    proxy.hold_after("UPDATE `database_lock` SET `lease_end`");
    let a = thread::spawn(move || a.lock().unwrap().into_send());
    eventually("the answer is lost", || proxy.has_swallowed());
    proxy.blackhole(true);
    thread::sleep(Duration::from_millis(650));
    proxy.blackhole(false);
    // The client has asked for the row, and found none.
    eventually("the client is about to go on", || proxy.is_holding());
    assert_eq!(database.rows(), 0);
    let open = format!("DO RELEASE_LOCK('{gate}')");
    foreign.query_drop(open).unwrap();
    eventually("it is carried out", || database.rows() == 1);
    proxy.release();
    let guard = a.join().unwrap();
    proxy.blackhole(true);
    let left = left(&mut database.conn());
    let valid = guard.valid_for();
    assert!(valid < left, "valid for {valid:?}, its row for {left:?}");
    let other = b.try_lock_for(seconds(30)).unwrap().unwrap();
    assert!(guard.check().is_err(), "two guards are valid");
    assert!(other.fencing_token() > guard.fencing_token());
}

#[test]
#[ignore = "needs MariaDB"]
fn a_row_that_a_statement_leaves_after_the_release_is_deleted_before_its_lease_ends() {
    let database = Database::new();
    let proxy = Proxy::new(&database.server);
    let mutex = mutex(&database.url_through(&proxy), seconds(20));
    proxy.hold("INSERT INTO `database_lock` ");
    let guard = mutex.lock().unwrap();
    assert!(proxy.is_holding());
    guard.unlock().unwrap();
    assert_eq!(database.rows(), 0);
    let begun = Instant::now();
    proxy.release();
    let mut conn = database.conn();
    let tokens = "SELECT MAX(token) FROM database_lock_token";
    eventually("the statement has arrived", || {
        conn.query_first(tokens).unwrap() == Some(2)
    });
    database.wait_for_rows(0);
    assert!(begun.elapsed() < seconds(10), "{:?}", begun.elapsed());
}

/// Settings that an application may have made for the sessions of its pool.
const SETTINGS: &[&str] = &[
    "SET autocommit = 0",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "SET sql_mode = ''",
    "SET sql_mode = 'ANSI,TRADITIONAL,NO_BACKSLASH_ESCAPES,TIME_ROUND_FRACTIONAL'",
    "SET time_zone = '-11:00'",
    "SET timestamp = 1000000000",
    "SET completion_type = 'CHAIN'",
    "SET completion_type = 'RELEASE'",
    "SET unique_checks = 0, foreign_key_checks = 0",
    "SET sql_select_limit = 0",
    "SET sql_safe_updates = 1",
    "SET NAMES latin1",
];

#[test]
#[ignore = "needs MariaDB"]
fn what_an_application_has_set_for_its_sessions_changes_nothing() {
    thread::scope(|scope| {
        for setting in SETTINGS {
            scope.spawn(move || assert_changes_nothing(setting));
        }
    });
}

fn assert_changes_nothing(setting: &str) {
    let database = Database::new();
    let pool = Database::pool(&database.url(), setting);
    let client = Client::builder_from_pool(pool).lease(seconds(6));
    let client = client.connect().unwrap();
    let ours = client.mutex("\u{e9}").unwrap();
    let theirs = client_of(&database).mutex("\u{e9}").unwrap();
    let mut conn = database.conn();
    for round in 0..2 {
        let guard = ours.try_lock().unwrap().expect(setting);
        let first = left(&mut conn);
        assert!(
            seconds(4) < first && first <= seconds(6),
            "{setting}: {first:?}"
        );
        assert!(theirs.try_lock().unwrap().is_none(), "{setting}");
        thread::sleep(seconds(2));
        let later = left(&mut conn);
        assert!(
            seconds(4) < later && later <= seconds(6),
            "{setting}: {later:?}"
        );
        guard.verify().unwrap();
        guard.unlock().unwrap();
        assert_eq!(database.rows(), 0, "{setting}");
        // The first call takes the lock over, and the second one finds it taken.
        let other = theirs.try_lock().unwrap().expect(setting);
        assert!(ours.try_lock().unwrap().is_none(), "{setting} {round}");
        let end = "UPDATE database_lock SET lease_end = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND";
        conn.query_drop(end).unwrap();
        let guard = ours.try_lock().unwrap().expect(setting);
        assert!(other.verify().is_err(), "{setting}");
        assert!(other.fencing_token() < guard.fencing_token(), "{setting}");
        guard.unlock().unwrap();
    }
}

fn client_of(database: &Database) -> Client {
    client(&database.url(), seconds(6))
}

#[test]
#[ignore = "needs MariaDB"]
fn a_takeover_that_an_earlier_one_forestalled_proves_no_lease() {
    let database = Database::new();
    let proxy = Proxy::new(&database.server);
    let (a, b) = (
        mutex(&database.url_through(&proxy), T),
        mutex(&database.url(), T),
    );
    let mut conn = database.conn();
    let dead = "INSERT INTO database_lock (`lock`, owner, lease_end, token) \
                VALUES ('a', 'dead', UTC_TIMESTAMP(6) - INTERVAL 10 SECOND, 0)";
    conn.query_drop(dead).unwrap();
    // The statement of the first takeover takes longer than the client waits. It arrives after the server
    // has found the row still expired, but before the client has that answer.
    let takeover = "UPDATE `database_lock` SET `owner`";
    proxy.hold_both(takeover, "SELECT TIMESTAMPDIFF");
    let a = thread::spawn(move || a.lock().unwrap().into_send());
    eventually("the client looks", || proxy.is_holding_answer());
    proxy.release();
    let taken = "SELECT owner <> 'dead' FROM database_lock";
    eventually("it is carried out", || {
        conn.query_first(taken).unwrap() == Some(true)
    });
    thread::sleep(Duration::from_millis(1300));
    proxy.release_answer();
    let guard = a.join().unwrap();
    proxy.blackhole(true);
    let left = left(&mut conn);
    let valid = guard.valid_for();
    assert!(valid < left, "valid for {valid:?}, its row for {left:?}");
    let other = b.try_lock_for(seconds(30)).unwrap().unwrap();
    assert!(guard.check().is_err(), "two guards are valid");
    assert!(other.fencing_token() > guard.fencing_token());
}
