//! A pool that the application also uses.

use std::panic;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use mysql::prelude::Queryable;
use mysql::{OptsBuilder, Pool, PoolConstraints, PoolOpts};
use zklock::mysql::{CREATE_TABLE, Client};

use crate::database::{Database, Server, opts};
use crate::proxy::Proxy;
use crate::support::eventually;
use crate::{mutex, seconds};

/// The statement that shows the settings of an application's session.
const SETTINGS: &str = "SELECT CONCAT_WS(' ', @@autocommit, @@innodb_lock_wait_timeout, \
                        @@completion_type, @@unique_checks, @@sql_select_limit, \
                        @@lock_wait_timeout)";

/// The statement that the application's sessions run first.
const INIT: &str = "SET innodb_lock_wait_timeout = 7, completion_type = 'CHAIN'";

/// Returns a pool of at most three connections.
fn pool(url: &str, reset: bool) -> Pool {
    let pool = PoolOpts::new()
        .with_reset_connection(reset)
        .with_constraints(PoolConstraints::new(0, 3).unwrap());
    let opts = OptsBuilder::from_opts(opts(url))
        .init(vec![INIT])
        .read_timeout(Some(Duration::from_secs(2)))
        .pool_opts(pool);
    Pool::new(opts).unwrap()
}

/// Uses the connections that the locks have used, as an application does.
fn assert_writes_stay(database: &Database, pool: &Pool) {
    let mut root = database.conn();
    root.query_drop("CREATE TABLE IF NOT EXISTS app (i INT)")
        .unwrap();
    root.query_drop("DELETE FROM app").unwrap();
    let mut found = Vec::new();
    for i in 0..9 {
        let mut all = [(); 3].map(|()| pool.get_conn().unwrap());
        let conn = &mut all[i % 3];
        found.extend(conn.query_first::<String, _>(SETTINGS).unwrap());
        conn.query_drop(format!("INSERT INTO app VALUES ({i})"))
            .unwrap();
        let own = format!("SELECT i FROM app WHERE i = {i}");
        assert_eq!(conn.query_first(own).unwrap(), Some(i));
    }
    let there: Option<u8> = root.query_first("SELECT COUNT(*) FROM app").unwrap();
    assert_eq!(there, Some(9));
    let mut fresh = database.conn();
    fresh.query_drop(INIT).unwrap();
    let fresh: String = fresh.query_first(SETTINGS).unwrap().unwrap();
    assert_eq!(found, [fresh.as_str(); 9]);
}

#[test]
#[ignore = "needs MariaDB"]
fn an_applications_writes_stay_when_a_lock_failed_between_its_statements() {
    let database = Database::empty_on(Server::shared());
    let mut root = database.conn();
    root.query_drop(CREATE_TABLE).unwrap();
    root.query_drop("CREATE TABLE app (i INT)").unwrap();
    let (name, user) = (&database.name, format!("poor_{}", database.name));
    root.query_drop(format!("CREATE USER {user}@'%'")).unwrap();
    for grant in [
        "SELECT, INSERT, UPDATE, DELETE ON {}.database_lock",
        "SELECT ON {}.database_lock_token",
        "SELECT, INSERT, UPDATE, DELETE ON {}.app",
    ] {
        let grant = grant.replace("{}", name);
        root.query_drop(format!("GRANT {grant} TO {user}@'%'"))
            .unwrap();
    }
    for reset in [false, true] {
        let pool = pool(&database.url_of(&user), reset);
        let client = Client::from_pool(pool.clone()).unwrap();
        let mutex = client.mutex("a").unwrap();
        for _ in 0..3 {
            let error = mutex.lock().unwrap_err().to_string();
            assert!(error.contains("1142"), "{error}");
        }
        drop((mutex, client));
        assert_writes_stay(&database, &pool);
        assert_eq!(database.rows(), 0);
    }
}

#[test]
#[ignore = "needs MariaDB"]
fn an_applications_writes_stay_when_a_lock_was_never_answered() {
    let database = Database::new();
    for reset in [false, true] {
        let mut foreign = database.conn();
        foreign.query_drop("START TRANSACTION").unwrap();
        let gap = "SELECT 1 FROM database_lock WHERE `lock` = 'a' FOR UPDATE";
        foreign.query_drop(gap).unwrap();
        let pool = pool(&database.url(), reset);
        let client = Client::from_pool(pool.clone()).unwrap();
        let mutex = client.mutex("a").unwrap();
        assert!(mutex.try_lock_for(seconds(2)).is_err());
        drop((mutex, client));
        assert_writes_stay(&database, &pool);
        foreign.query_drop("ROLLBACK").unwrap();
        assert_writes_stay(&database, &pool);
    }
    thread::sleep(seconds(1));
    database.wait_for_rows(0);
}

#[test]
#[ignore = "needs MariaDB"]
fn a_pool_has_all_its_connections_when_the_locks_are_gone() {
    let database = Database::new();
    for reset in [false, true] {
        let pool = pool(&database.url(), reset);
        let client = Client::from_pool(pool.clone()).unwrap();
        let guard = client.mutex("a").unwrap().lock().unwrap();
        guard.unlock().unwrap();
        drop(client);
        eventually("it has three", || {
            let conns = [(); 3].map(|()| pool.try_get_conn(Duration::from_millis(100)));
            conns.iter().all(Result::is_ok)
        });
        assert_writes_stay(&database, &pool);
    }
}

/// Takes and releases a lock through a pool in which an answer may be outstanding.
fn assert_locks_hold(database: &Database, pool: &Pool) {
    let other = mutex(&database.url(), seconds(20));
    let ours = Client::from_pool(pool.clone()).unwrap().mutex("a").unwrap();
    let token = "SELECT token FROM database_lock WHERE lease_end > UTC_TIMESTAMP(6)";
    for _ in 0..5 {
        let guard = ours.lock().unwrap();
        let there = database.conn().query_first(token).unwrap();
        assert_eq!(there, Some(guard.fencing_token().get()));
        assert!(other.try_lock().unwrap().is_none());
        guard.verify().unwrap();
        database
            .conn()
            .query_drop("DELETE FROM database_lock")
            .unwrap();
        assert!(guard.verify().unwrap_err().is_lost());
        drop(guard);
        other.lock().unwrap().unlock().unwrap();
    }
}

#[test]
#[ignore = "needs MariaDB"]
fn a_connection_that_the_application_has_left_an_answer_on_is_not_used() {
    let database = Database::new();
    for reset in [false, true] {
        let pool = pool(&database.url(), reset);
        // The pool's read timeout is shorter, and the driver takes the connection back as it is.
        assert!(
            pool.get_conn()
                .unwrap()
                .query_drop("DO SLEEP(2.5)")
                .is_err()
        );
        thread::sleep(seconds(1));
        assert_locks_hold(&database, &pool);
        assert_writes_stay(&database, &pool);
    }
}

#[test]
#[ignore = "needs MariaDB"]
fn a_login_that_is_answered_late_panics_nobody_and_costs_the_pool_no_place() {
    static PANICS: AtomicU32 = AtomicU32::new(0);
    let others = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let thread = thread::current();
        if thread.name().is_some_and(|name| name.starts_with("zklock")) {
            PANICS.fetch_add(1, Ordering::Relaxed);
        }
        others(info);
    }));
    let database = Database::new();
    for reset in [false, true] {
        let proxy = Proxy::new(&database.server);
        let pool = pool(&database.url_through(&proxy), reset);
        drop(pool.get_conn().unwrap());
        // The locks log in again on a pooled connection; this is not an answer to a statement.
        proxy.hold_answer_to("root\0");
        let ours = pool.clone();
        let client = thread::spawn(move || Client::from_pool(ours).unwrap());
        eventually("it is sent", || proxy.is_holding_answer());
        thread::sleep(Duration::from_millis(700));
        proxy.release_answer();
        drop(client.join().unwrap());
        assert_writes_stay(&database, &pool);
        assert_locks_hold(&database, &pool);
    }
    assert_eq!(PANICS.load(Ordering::Relaxed), 0);
}

#[test]
#[ignore = "needs MariaDB"]
fn a_pool_gets_no_connection_back_on_which_an_answer_of_the_locks_is_outstanding() {
    let database = Database::new();
    for reset in [false, true] {
        for held in ["SET SESSION autocommit", "ROLLBACK"] {
            let proxy = Proxy::new(&database.server);
            let pool = pool(&database.url_through(&proxy), reset);
            if held == "ROLLBACK" {
                // The server has rolled the statement back, and the client tells it to end the
                // transaction.
                proxy.refuse("INSERT INTO `database_lock` ", 1213);
            }
            proxy.hold(held);
            let waits = pool.clone();
            let client = thread::spawn(move || {
                let client = Client::from_pool(waits).unwrap();
                client.mutex("a").unwrap().lock().unwrap().unlock().unwrap();
            });
            eventually("it is sent", || proxy.is_holding());
            // The answer comes too late for the client, but in time for the next user of the
            // connection.
            thread::sleep(Duration::from_millis(700));
            proxy.release();
            client.join().unwrap();
            assert_writes_stay(&database, &pool);
            assert_locks_hold(&database, &pool);
        }
    }
}
