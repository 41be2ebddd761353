//! The state that an application leaves on the connections of its pool, and the settings of its
//! sessions and its server.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use mysql::prelude::Queryable;
use mysql::{ChangeUserOpts, OptsBuilder, Pool, PoolConstraints, PoolOpts};
use zklock::mysql::{CREATE_TABLE, Client};

use crate::database::{Database, Server, opts};
use crate::support::eventually;
use crate::{mutex, seconds};

fn pool(url: &str, size: usize, reset: bool) -> Pool {
    let pool = PoolOpts::new()
        .with_reset_connection(reset)
        .with_constraints(PoolConstraints::new(0, size).unwrap());
    Pool::new(OptsBuilder::from_opts(opts(url)).pool_opts(pool)).unwrap()
}

#[test]
#[ignore = "needs MariaDB"]
fn a_connection_that_the_application_has_led_elsewhere_leads_to_no_other_lock() {
    let (one, two) = (Database::new(), Database::new());
    let other = mutex(&one.url(), seconds(20));
    for reset in [false, true] {
        let pool = pool(&one.url(), 6, reset);
        let lead = format!("USE {}", two.name);
        pool.get_conn().unwrap().query_drop(&lead).unwrap();
        let client = Client::from_pool(pool.clone()).unwrap();
        let guards = ["a", "b"].map(|name| client.mutex(name).unwrap().lock().unwrap());
        assert!(other.try_lock().unwrap().is_none());
        assert_eq!((one.rows(), two.rows()), (2, 0));
        drop((guards, client));
        one.wait_for_rows(0);
    }
    // This leads a connection elsewhere for as long as it lasts.
    let pool = pool(&one.url(), 6, false);
    let client = Client::from_pool(pool.clone()).unwrap();
    let lead = ChangeUserOpts::new().with_db_name(Some(two.name.clone()));
    let mut conns = [(); 3].map(|()| pool.get_conn().unwrap());
    for conn in &mut conns {
        conn.as_mut().change_user(lead.clone()).unwrap();
    }
    drop(conns);
    let names = ["a", "b", "c", "d"].map(|name| client.mutex(name).unwrap());
    let guards = names.map(|mutex| thread::spawn(move || mutex.lock().unwrap().into_send()));
    let guards = guards.map(|guard| guard.join().unwrap());
    assert_eq!((one.rows(), two.rows()), (4, 0));
    drop(guards);
    one.wait_for_rows(0);
}

#[test]
#[ignore = "needs MariaDB"]
fn a_transaction_that_the_application_has_left_open_is_not_committed() {
    let database = Database::new();
    let mut root = database.conn();
    root.query_drop("CREATE TABLE app (i INT)").unwrap();
    let pool = pool(&database.url(), 6, false);
    for begin in ["START TRANSACTION", "SET autocommit = 0"] {
        let mut conn = pool.get_conn().unwrap();
        conn.query_drop(begin).unwrap();
        conn.query_drop("INSERT INTO app VALUES (1)").unwrap();
        drop(conn);
        let client = Client::from_pool(pool.clone()).unwrap();
        let mutex = client.mutex("a").unwrap();
        mutex.lock().unwrap().unlock().unwrap();
        drop((mutex, client));
        let there: Option<u8> = root.query_first("SELECT COUNT(*) FROM app").unwrap();
        assert_eq!(there, Some(0), "{begin}");
    }
}

#[test]
#[ignore = "needs MariaDB"]
fn a_prepared_transaction_that_the_application_has_left_is_in_nobodys_way() {
    let database = Database::new();
    let mut root = database.conn();
    root.query_drop("CREATE TABLE app (i INT)").unwrap();
    let pool = pool(&database.url(), 6, false);
    let id = format!("'{}'", database.name);
    let mut conn = pool.get_conn().unwrap();
    conn.query_drop(format!("XA START {id}")).unwrap();
    conn.query_drop("INSERT INTO app VALUES (1)").unwrap();
    conn.query_drop(format!("XA END {id}; XA PREPARE {id}"))
        .unwrap();
    drop(conn);
    let client = Client::from_pool(pool).unwrap();
    for name in ["a", "b", "c"] {
        let guard = client.mutex(name).unwrap().lock().unwrap();
        guard.verify().unwrap();
        guard.unlock().unwrap();
    }
    root.query_drop(format!("XA COMMIT {id}")).unwrap();
    let there: Option<u8> = root.query_first("SELECT COUNT(*) FROM app").unwrap();
    assert_eq!(there, Some(1));
}

/// The settings of an application for its sessions, which would hinder the locks.
const SETTINGS: &[&str] = &[
    "SET SESSION TRANSACTION READ ONLY",
    "SET TRANSACTION READ ONLY",
    "SET autocommit = 0, completion_type = 'RELEASE'",
    "SET sql_select_limit = 0, max_statement_time = 0.000001",
    "SET sql_safe_updates = 1, sql_big_selects = 0, max_join_size = 1",
    "SET sql_mode = 'ORACLE,ANSI,EMPTY_STRING_IS_NULL,SIMULTANEOUS_ASSIGNMENT,NO_BACKSLASH_ESCAPES'",
    "SET sql_mode = 'MSSQL'",
    "SET sql_mode = '', character_set_results = ucs2, collation_connection = utf8mb3_general_ci",
    "SET group_concat_max_len = 4, time_zone = '+09:00', timestamp = 1",
    "SET innodb_lock_wait_timeout = 50, lock_wait_timeout = 9999, unique_checks = 0",
    "CREATE TEMPORARY TABLE database_lock_token AS SELECT 1",
    "LOCK TABLES mysql.user READ",
    "BEGIN",
];

fn assert_locks_work(pool: Pool, what: &str) {
    let client = Client::builder_from_pool(pool)
        .connect()
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let mutex = client.mutex("a").unwrap();
    for _ in 0..2 {
        let guard = mutex
            .lock()
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        guard.verify().unwrap();
        assert!(mutex.try_lock().is_err(), "{what}");
        guard.unlock().unwrap();
    }
}

#[test]
#[ignore = "needs MariaDB"]
fn whatever_an_application_has_set_for_its_sessions_the_locks_work() {
    let database = Database::new();
    for setting in SETTINGS {
        let pool = pool(&database.url(), 6, false);
        pool.get_conn().unwrap().query_drop(setting).unwrap();
        assert_locks_work(pool, setting);
        if !setting.starts_with("SET") {
            continue;
        }
        assert_locks_work(Database::pool(&database.url(), setting), setting);
    }
    assert_eq!(database.rows(), 0);
}

/// MariaDB does not answer if a statement's time is up just as it ends, which happens now and then.
#[test]
#[ignore = "needs MariaDB"]
fn a_time_that_is_up_just_as_a_statement_ends_leaves_no_connection_without_an_answer() {
    let database = Database::new();
    let connect = |round| {
        let pool = Database::pool(&database.url(), "SET max_statement_time = 0.000001");
        let client = Client::builder_from_pool(pool).connect();
        drop(client.unwrap_or_else(|error| panic!("round {round}: {error}")));
    };
    // That happens more often on a busy machine.
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..100).for_each(connect));
        }
    });
}

#[test]
#[ignore = "needs MariaDB"]
fn the_locks_work_whatever_the_servers_sessions_begin_with() {
    for option in [
        "--secure-timestamp=YES",
        "--log-bin --binlog-format=STATEMENT --transaction-isolation=READ-COMMITTED",
        "--transaction-read-only --autocommit=0 --sql-safe-updates",
        "--max-statement-time=0.001",
        "--init-connect=SET@@character_set_results=utf16",
    ] {
        let options: Vec<_> = option.split(' ').collect();
        let server = Arc::new(Server::start(&[]));
        let database = Database::empty_on(server.clone());
        let mut root = database.conn();
        root.query_drop(CREATE_TABLE).unwrap();
        // The first statements of a server are for users without special rights.
        let user = format!("CREATE USER app; GRANT ALL ON {}.* TO app", database.name);
        root.query_drop(user).unwrap();
        server.kill();
        server.resume(&options);
        let client = Client::builder(&database.url_of("app")).connect_timeout(seconds(3));
        let client = client
            .connect()
            .unwrap_or_else(|error| panic!("{option}: {error}"));
        let guard = client.mutex("a").unwrap().lock();
        let guard = guard.unwrap_or_else(|error| panic!("{option}: {error}"));
        guard.verify().unwrap();
        guard.unlock().unwrap();
    }
}

#[test]
#[ignore = "needs MariaDB"]
fn a_pool_that_cannot_read_the_servers_first_answer_is_told_why() {
    let server = Server::start(&["--init-connect=SET@@character_set_results=utf16"]);
    let database = Database::new_on(server.into());
    let user = format!("CREATE USER app; GRANT ALL ON {}.* TO app", database.name);
    database.conn().query_drop(user).unwrap();
    let pool = Database::pool(&database.url_of("app"), "DO 0");
    let refused = Client::builder_from_pool(pool).connect().unwrap_err();
    assert!(refused.to_string().contains("init_connect"), "{refused}");
}

/// Holds locks in more threads than there are connections, for longer than their lease; checks that
/// all are kept.
fn assert_all_are_kept(database: &Database, size: usize) {
    const T: Duration = Duration::from_secs(4);
    let pool = pool(&database.url(), size, false);
    let client = Client::builder_from_pool(pool).lease(T).connect().unwrap();
    thread::scope(|scope| {
        for number in 0..6 {
            let client = &client;
            scope.spawn(move || {
                let mutex = client.mutex(&format!("n{number}")).unwrap();
                let begun = Instant::now();
                let guard = mutex.lock().unwrap();
                thread::sleep(seconds(8));
                guard.check().unwrap();
                guard.unlock().unwrap();
                assert!(
                    begun.elapsed() < seconds(11),
                    "{size}: {:?}",
                    begun.elapsed()
                );
            });
        }
    });
    assert_eq!(database.rows(), 0);
}

#[test]
#[ignore = "needs MariaDB"]
fn a_small_pool_keeps_all_leases_and_one_that_is_too_small_is_refused() {
    let database = Database::new();
    for size in [2, 3, 4] {
        assert_all_are_kept(&database, size);
    }
    let builder = Client::builder_from_pool(pool(&database.url(), 1, false));
    let begun = Instant::now();
    let refused = builder.connect_timeout(seconds(3)).connect();
    let refused = refused.expect_err("no connection for renewals").to_string();
    assert!(refused.contains("two connections"), "{refused}");
    assert!(begun.elapsed() < seconds(5), "{:?}", begun.elapsed());
}

#[test]
#[ignore = "needs MariaDB"]
fn leases_are_kept_in_a_small_pool_whose_connections_are_killed() {
    const T: Duration = Duration::from_secs(4);
    let database = Database::new();
    let mut root = database.conn();
    let user = format!("small_{}", database.name);
    root.query_drop(format!(
        "CREATE USER {user}@'%'; GRANT ALL ON *.* TO {user}@'%'"
    ))
    .unwrap();
    let pool = pool(&database.url_of(&user), 2, false);
    let client = Client::builder_from_pool(pool).lease(T).connect().unwrap();
    let guards = ["a", "b", "c"].map(|name| client.mutex(name).unwrap().lock().unwrap());
    let waiters = ["a", "b", "c"].map(|name| {
        let mutex = client.mutex(name).unwrap();
        thread::spawn(move || mutex.try_lock_for(seconds(20)).unwrap().is_some())
    });
    for _ in 0..4 {
        root.query_drop(format!("KILL USER {user}")).unwrap();
        thread::sleep(seconds(2));
        guards.iter().for_each(|guard| guard.check().unwrap());
    }
    for guard in guards {
        guard.verify().unwrap();
        guard.unlock().unwrap();
    }
    assert!(waiters.into_iter().all(|waiter| waiter.join().unwrap()));
}

#[test]
#[ignore = "needs MariaDB"]
fn a_pool_of_an_old_server_runs_its_first_statements_on_every_connection() {
    // The driver cannot reset a session there: it logs in again, without those statements.
    let server = Arc::new(Server::start(&["--version=5.5.5-10.2.6-MariaDB"]));
    let database = Database::empty_on(server);
    database.conn().query_drop(CREATE_TABLE).unwrap();
    for size in [3, 6] {
        let opts = OptsBuilder::from_opts(opts(&database.url()))
            .init(vec!["SET innodb_lock_wait_timeout = 7"])
            .pool_opts(
                PoolOpts::new()
                    .with_reset_connection(false)
                    .with_constraints(PoolConstraints::new(0, size).unwrap()),
            );
        let pool = Pool::new(opts).unwrap();
        let client = Client::from_pool(pool.clone()).unwrap();
        client.mutex("a").unwrap().lock().unwrap().unlock().unwrap();
        drop(client);
        eventually("all are there", || {
            let conns = (0..size).map(|_| pool.try_get_conn(Duration::from_millis(100)));
            let conns: Vec<_> = conns.collect();
            conns.into_iter().all(|conn| {
                let Ok(mut conn) = conn else { return false };
                let set = conn.query_first("SELECT @@innodb_lock_wait_timeout");
                assert_eq!(set.unwrap(), Some(7));
                true
            })
        });
    }
}
