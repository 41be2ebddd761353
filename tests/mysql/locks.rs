//! The promises of the mutexes and their guards.

use std::thread;
use std::time::Duration;

use mysql::prelude::Queryable;
use zklock::mysql::MutexGuard;
use zklock::{Error, GuardState, LockGuard};

use crate::database::Database;
use crate::proxy::Proxy;
use crate::support::eventually;
use crate::support::task::{is_asleep, own_task};
use crate::{client, mutex, seconds, try_lock};

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
    assert!(b.try_lock_for(seconds(2)).unwrap().is_none());
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
fn a_lock_is_free_for_the_thread_that_has_dropped_its_guard() {
    let database = Database::new();
    let client = client(&database.url(), seconds(20));
    let (mutex, reentrant) = (
        client.mutex("a").unwrap(),
        client.reentrant_mutex("a").unwrap(),
    );
    for round in 0..25 {
        drop(mutex.lock().unwrap());
        drop(try_lock(&mutex).unwrap_or_else(|| panic!("round {round}")));
        let guard = reentrant.try_lock().unwrap();
        drop(guard.unwrap_or_else(|| panic!("round {round}")));
    }
    // Another thread is next in line, and gets it.
    let guard = mutex.lock().unwrap();
    let other = mutex.clone();
    let (to, told) = crossbeam_channel::bounded(1);
    let thread = thread::spawn(move || {
        to.send(own_task()).unwrap();
        let guard = other.lock().unwrap();
        thread::sleep(seconds(2));
        drop(guard);
    });
    let task = told.recv().unwrap();
    eventually("the thread waits", || is_asleep(&task));
    drop(guard);
    assert!(try_lock(&mutex).is_none());
    assert!(!thread.is_finished());
    thread.join().unwrap();
}

/// Checks a lock that is free, while another program has locked what is needed to take it.
fn assert_is_not_told_as_taken(foreign: &str) {
    let database = Database::new();
    let client = client(&database.url(), seconds(20));
    let mutex = client.mutex("a").unwrap();
    mutex.lock().unwrap().unlock().unwrap();
    let mut conn = database.conn();
    conn.query_drop("START TRANSACTION").unwrap();
    conn.query_drop(foreign).unwrap();
    assert!(mutex.try_lock_for(seconds(2)).is_err());
    let release = thread::spawn(move || {
        thread::sleep(seconds(2));
        conn.query_drop("ROLLBACK").unwrap();
    });
    let guard = mutex.try_lock().unwrap().expect(foreign);
    release.join().unwrap();
    guard.unlock().unwrap();
}

#[test]
#[ignore = "needs MariaDB"]
fn a_free_lock_is_never_told_as_taken() {
    for foreign in [
        "UPDATE database_lock_token SET token = token + 1",
        "SELECT 1 FROM database_lock WHERE `lock` = 'a' FOR UPDATE",
        "INSERT INTO database_lock (`lock`, owner, lease_end, token) \
         VALUES ('a', 'dead', '2000-01-01', 1)",
    ] {
        assert_is_not_told_as_taken(foreign);
    }
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
    // The thread does not wait for itself: another thread may release the lock.
    let guard = guard.into_send();
    assert!(try_lock(&mutex).is_none());
    thread::spawn(move || guard.unlock())
        .join()
        .unwrap()
        .unwrap();
    // Nor does it wait for itself after a release that is still on its way.
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
    // A different object, but the same lock.
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
fn many_rounds_leave_no_row() {
    let database = Database::new();
    let threads: Vec<_> = (0..4)
        .map(|i| {
            let client = client(&database.url(), seconds(20));
            thread::spawn(move || {
                let mutex = client.mutex(&format!("n{}", i % 2)).unwrap();
                let own = client.mutex(&format!("own{i}")).unwrap();
                for _ in 0..250 {
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
        // For the database, the holder seems to be dead.
        let end = "UPDATE database_lock SET lease_end = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND";
        conn.query_drop(end).unwrap();
        let taken = b.lock().unwrap();
        grew(&taken, &mut conn);
        assert!(guard.verify().unwrap_err().is_lost());
        assert!(guard.unlock().unwrap_err().is_lost());
        // The row is found by its key, as in the client's own statements; otherwise they could
        // deadlock.
        let delete = "DELETE FROM database_lock WHERE `lock` = 'a'";
        conn.query_drop(delete).unwrap();
        let guard = a.lock().unwrap();
        grew(&guard, &mut conn);
        assert!(taken.unlock().unwrap_err().is_lost());
        guard.unlock().unwrap();
    }
}

#[test]
#[ignore = "needs MariaDB"]
fn a_row_says_which_thread_of_which_process_holds_the_lock() {
    let database = Database::new();
    let mutex = mutex(&database.url(), seconds(20));
    // The lock is free, or waited for, or taken over.
    for lease_end in [None, Some("INTERVAL 1 SECOND"), Some("INTERVAL -1 SECOND")] {
        if let Some(lease_end) = lease_end {
            let row = format!(
                "INSERT INTO database_lock (`lock`, owner, lease_end, token) \
                 VALUES ('a', 'dead', UTC_TIMESTAMP(6) + {lease_end}, 0)"
            );
            database.conn().query_drop(row).unwrap();
        }
        let mutex = mutex.clone();
        let thread = thread::Builder::new().name("reporter".to_owned());
        let guard = thread.spawn(move || mutex.lock().unwrap().into_send());
        let guard = guard.unwrap().join().unwrap();
        let text = "SELECT description FROM database_lock";
        let text: String = database.conn().query_first(text).unwrap().unwrap();
        let pid = format!("\"pid\":{},", std::process::id());
        assert!(text.contains("\"thread\":\"reporter\""), "{text}");
        assert!(text.contains(&pid), "{text}");
        guard.unlock().unwrap();
    }
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
            let (tell, told) = crossbeam_channel::bounded(1);
            let thread = thread::spawn(move || {
                tell.send(own_task()).unwrap();
                let guard = mutex.lock().unwrap();
                to.send((i, guard.fencing_token())).unwrap();
            });
            let task = told.recv().unwrap();
            eventually("the thread waits", || is_asleep(&task));
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

/// Works under the guard of any lock.
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

#[test]
#[ignore = "needs MariaDB"]
fn a_lock_that_is_granted_while_the_client_is_closed_is_lost() {
    let database = Database::new();
    let proxy = Proxy::new(&database.server);
    for _ in 0..50 {
        let client = client(&database.url_through(&proxy), seconds(20));
        let mutex = client.mutex("a").unwrap();
        proxy.hold_answer_to("INSERT INTO `database_lock` ");
        let locks = thread::spawn(move || mutex.lock().map(MutexGuard::into_send));
        eventually("it is held", || proxy.is_holding_answer());
        proxy.release_answer();
        thread::sleep(Duration::from_micros(fastrand::u64(..800)));
        client.close();
        match locks.join().unwrap() {
            Err(error) => assert!(matches!(error, Error::Closed), "{error}"),
            Ok(guard) => eventually("it is lost", || guard.state() == GuardState::Lost),
        }
        database.wait_for_rows(0);
    }
}
