//! Nothing is lost, refused or late without a reason.

use std::convert::Infallible;
use std::thread;
use std::time::{Duration, Instant};

use mysql::Conn;
use mysql::prelude::Queryable;
use zklock::mysql::{Job, Mutex};
use zklock::{Error, GuardState, Once};

use crate::database::{Database, Server, opts};
use crate::proxy::Proxy;
use crate::relay::Relay;
use crate::support::eventually;
use crate::{client, mutex, seconds, try_lock, undisturbed};

/// Lets two threads wait, the second a little longer, while another client holds the lock or nothing answers;
/// returns what they are told.
fn two_that_give_up(database: &Database, answers_first: bool) -> [Option<Error>; 2] {
    let proxy = Proxy::new(&database.server);
    let mutex = mutex(&database.url_through(&proxy), seconds(60));
    // This opens the connection.
    drop(mutex.lock().unwrap());
    database.wait_for_rows(0);
    let holder = client(&database.url(), seconds(60)).mutex("a").unwrap();
    let _guard = holder.lock().unwrap();
    proxy.blackhole(!answers_first);
    let first = Instant::now() + seconds(1);
    let ask = move |mutex: Mutex, until| match mutex.try_lock_until(until) {
        Ok(None) => None,
        Ok(Some(guard)) => panic!("{guard:?}"),
        Err(error) => Some(error),
    };
    let (one, two) = (mutex.clone(), mutex);
    let one = thread::spawn(move || ask(one, first));
    thread::sleep(Duration::from_millis(300));
    let two = thread::spawn(move || ask(two, first + Duration::from_millis(200)));
    thread::sleep(Duration::from_millis(300));
    proxy.blackhole(true);
    [one, two].map(|thread| thread.join().unwrap())
}

#[test]
#[ignore = "needs MariaDB"]
fn a_thread_whose_turn_comes_at_its_limit_is_told_that_the_lock_is_taken() {
    let database = Database::new();
    assert_eq!(two_that_give_up(&database, true), [None, None]);
    let told = two_that_give_up(&database, false);
    let is_no_answer = |told: &Option<Error>| matches!(told, Some(Error::Database { .. }));
    assert!(told.iter().all(is_no_answer), "{told:?}");
}

#[test]
#[ignore = "needs MariaDB"]
fn leases_are_kept_where_the_server_takes_no_more_connections() {
    let database = Database::new_alone();
    let mutex = mutex(&database.url(), seconds(6));
    let guard = mutex.lock().unwrap();
    let mut root = database.conn();
    root.query_drop("SET GLOBAL max_connections = 10").unwrap();
    let connect = || Conn::new(opts(&database.url())).ok();
    let others: Vec<_> = std::iter::from_fn(connect).collect();
    let end = Instant::now() + seconds(8);
    while Instant::now() < end {
        assert_eq!(guard.state(), GuardState::Held);
        thread::sleep(Duration::from_millis(10));
    }
    guard.unlock().unwrap();
    drop(others);
}

#[test]
#[ignore = "needs MariaDB"]
fn a_server_that_ends_idle_connections_soon_ends_none_between_renewals() {
    let server = Server::start(&["--wait-timeout=1", "--interactive-timeout=1"]);
    let database = Database::new_on(server.into());
    let client = client(&database.url(), seconds(12));
    let guard = client.mutex("a").unwrap().lock().unwrap();
    thread::sleep(seconds(3));
    let connections = || {
        let mut root = database.server.root();
        let sql = "SHOW GLOBAL STATUS LIKE 'Connections'";
        let (_, count): (String, u64) = root.query_first(sql).unwrap().unwrap();
        count
    };
    let before = connections();
    thread::sleep(seconds(7));
    // One more is the connection that counts them.
    assert_eq!(connections(), before + 1);
    assert_eq!(guard.state(), GuardState::Held);
}

#[test]
#[ignore = "needs MariaDB"]
fn a_connection_that_was_killed_costs_no_answer() {
    let database = Database::new();
    let job = client(&database.url(), seconds(60)).job("a").unwrap();
    for round in 0..5 {
        let _ = job.once(&round.to_string(), |_| Ok::<_, ()>(())).unwrap();
        let mut root = database.conn();
        let others = format!(
            "SELECT ID FROM information_schema.PROCESSLIST WHERE DB = '{}' AND ID != CONNECTION_ID()",
            database.name
        );
        for id in root.query::<u64, _>(others).unwrap() {
            // The connection may have ended by itself.
            let _ = root.query_drop(format!("KILL {id}"));
        }
        assert!(job.last().unwrap().is_some());
        assert!(job.running().unwrap().is_none());
    }
}

#[test]
#[ignore = "needs MariaDB"]
fn many_waits_over_a_slow_link_do_not_hold_up_a_free_lock() {
    const TRIP: Duration = Duration::from_millis(50);
    let database = Database::new();
    let relay = Relay::new(database.server.port, |_| {
        thread::sleep(TRIP);
        None
    });
    let (near, far) = (
        client(&database.url(), seconds(60)),
        client(&database.url_by(relay.port), seconds(60)),
    );
    let names: Vec<_> = (0..60).map(|i| format!("w{i}")).collect();
    let taken: Vec<_> = names.iter().map(|name| near.mutex(name).unwrap()).collect();
    let guards: Vec<_> = taken.iter().map(|mutex| mutex.lock().unwrap()).collect();
    let wait = |name: &String| {
        let mutex = far.mutex(name).unwrap();
        thread::spawn(move || mutex.lock().map(drop))
    };
    let waits: Vec<_> = names.iter().map(wait).collect();
    // Each has been told that its lock is taken.
    thread::sleep(seconds(7));
    let free = far.mutex("free").unwrap();
    for _ in 0..5 {
        let begun = Instant::now();
        let guard = try_lock(&free).unwrap();
        guard.unlock().unwrap();
        let took = begun.elapsed();
        // Three round trips each, and the rest of one that was on its way.
        assert!(took < 14 * TRIP, "{took:?}");
    }
    drop(guards);
    far.close();
    for wait in waits {
        let _ = wait.join().unwrap();
    }
}

#[test]
#[ignore = "needs MariaDB"]
fn connecting_takes_five_requests_and_a_lock_and_its_release_one_each() {
    let database = Database::new();
    let relay = Relay::new(database.server.port, |_| None);
    let client = undisturbed(&database.url_by(relay.port)).connect().unwrap();
    // These are the login, two to prepare the session, and two to look at the tables.
    assert_eq!(relay.requests(), 5);
    let mutex = client.mutex("a").unwrap();
    // One thread and its connection are enough.
    for round in 0..100 {
        let guard = mutex.lock().unwrap();
        assert_eq!(relay.requests(), 6 + 3 * round);
        guard.verify().unwrap();
        assert_eq!(relay.requests(), 7 + 3 * round);
        guard.unlock().unwrap();
        assert_eq!(relay.requests(), 8 + 3 * round);
    }
}

#[test]
#[ignore = "needs MariaDB"]
fn who_has_seen_a_free_lock_and_was_too_late_does_not_look_first_again() {
    const TAKE: &str = "INSERT INTO `database_lock` ";
    let database = Database::new();
    let proxy = Proxy::new(&database.server);
    let (near, far) = (
        mutex(&database.url(), seconds(60)),
        mutex(&database.url_through(&proxy), seconds(60)),
    );
    let guard = near.lock().unwrap();
    let waiter = thread::spawn(move || far.lock().map(drop));
    thread::sleep(seconds(1));
    proxy.hold(TAKE);
    guard.unlock().unwrap();
    eventually("the waiter has seen the free lock", || proxy.is_holding());
    let guard = near.lock().unwrap();
    proxy.release();
    proxy.hold(TAKE);
    eventually("the waiter tries to take it at once", || proxy.is_holding());
    guard.unlock().unwrap();
    proxy.release();
    waiter.join().unwrap().unwrap();
}

/// Returns how many of these statements the server has carried out.
fn carried_out(conn: &mut Conn, kind: &str) -> u64 {
    let sql = format!("SHOW GLOBAL STATUS LIKE 'Com_{kind}'");
    let row: Option<(String, u64)> = conn.query_first(sql).unwrap();
    row.expect("a variable of the server").1
}

#[test]
#[ignore = "needs MariaDB"]
fn a_wait_costs_one_select_a_poll_whatever_answers_were_lost() {
    const LOOK: &str = "SELECT TIMESTAMPDIFF";
    let database = Database::new_alone();
    let proxy = Proxy::new(&database.server);
    let poll = Duration::from_millis(20);
    let near = undisturbed(&database.url()).connect().unwrap();
    let far = undisturbed(&database.url_through(&proxy)).poll_interval(poll, poll);
    let far = far.connect().unwrap();
    let mut conn = database.conn();
    let mut writes_after_polls = || {
        let before = carried_out(&mut conn, "select");
        eventually("the client polls", || {
            before + 20 < carried_out(&mut conn, "select")
        });
        ["insert", "update", "delete"].map(|kind| carried_out(&mut conn, kind))
    };
    for (name, lost) in [("a", "INSERT INTO `database_lock` "), ("b", LOOK)] {
        let [near, far] = [&near, &far].map(|client| client.mutex(name).unwrap());
        let guard = near.lock().unwrap();
        if lost != LOOK {
            proxy.swallow_answer_to(lost);
        }
        let waiter = thread::spawn(move || far.lock().unwrap().unlock());
        // A statement that may have taken the lock is followed by those that find out.
        let before = writes_after_polls();
        if lost == LOOK {
            proxy.swallow_answer_to(lost);
        }
        eventually("the answer is lost", || proxy.has_swallowed());
        assert_eq!(writes_after_polls(), before, "after {lost}");
        guard.unlock().unwrap();
        waiter.join().unwrap().unwrap();
    }
}

#[test]
#[ignore = "needs MariaDB"]
fn a_run_takes_seven_requests_and_a_look_at_a_slot_that_is_done_takes_one() {
    let database = Database::new();
    let relay = Relay::new(database.server.port, |_| None);
    let job = || {
        let client = undisturbed(&database.url_by(relay.port)).connect();
        client.unwrap().job("a").unwrap()
    };
    let is_done = |job: &Job, slot: &str| {
        let ran = job.once(slot, |_| Ok::<_, Infallible>(())).unwrap();
        matches!(ran, Once::Done(()))
    };
    // The end of a client's connection would be a request too.
    let jobs = [(); 4].map(|()| job());
    // The first run creates the journal.
    for (job, (slot, requests)) in jobs.iter().zip([("0", 8), ("1", 7), ("2", 7)]) {
        let before = relay.requests();
        assert!(is_done(job, slot));
        database.wait_for_rows(0);
        assert_eq!(relay.requests() - before, requests);
    }
    let [.., job] = &jobs;
    let before = relay.requests();
    for look in 1..100 {
        assert!(!is_done(job, "0"));
        // One thread and its connection are enough.
        assert_eq!(relay.requests() - before, look);
    }
}
