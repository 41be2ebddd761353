//! The session ends while the client is away.

use std::io::Read;
use std::thread;
use std::time::Duration;

use zklock::{Error, GuardEvent, GuardState, SessionEvent, SessionState};

use super::{SOON, connect, logs};
use crate::support::proxy::Proxy;
use crate::support::raw::{Raw, assert_nothing_left, children, wait_for_children};
use crate::support::relay::listen;
use crate::support::worker::alone;
use crate::support::zookeeper::ZooKeeper;
use crate::support::{aside, eventually, fresh_path, timed};

const TIMEOUT: Duration = Duration::from_secs(5);

#[test]
#[ignore = "needs a ZooKeeper server"]
fn after_an_expiry_guards_are_lost_and_waiters_queue_again_in_the_new_session() {
    let server = ZooKeeper::shared();
    let proxy = Proxy::start(&server.hosts());
    let (victim, other) = (
        connect(&proxy.hosts(), TIMEOUT),
        connect(&server.hosts(), 2 * TIMEOUT),
    );
    let (session, events) = (victim.session_id(), victim.events());
    let [mine, theirs] = ["mine", "theirs"].map(fresh_path);
    let guard = victim.mutex(&mine).unwrap().lock().unwrap();
    let their_guard = other.mutex(&theirs).unwrap().lock().unwrap();
    thread::scope(|scope| {
        let mutex = victim.mutex(&theirs).unwrap();
        let waiting = scope.spawn(move || {
            let guard = mutex.lock().unwrap();
            guard.verify().unwrap();
            owner(guard.node())
        });
        wait_for_children(&server.hosts(), &theirs, 2);

        proxy.refuse();
        eventually("the server ends the session", || {
            children(&server.hosts(), &mine).is_empty()
        });
        assert_eq!(children(&server.hosts(), &theirs).len(), 1);
        assert!(guard.check().unwrap_err().is_lost(), "before anybody else");
        proxy.accept();
        wait_for_children(&server.hosts(), &theirs, 2);
        let new = victim.session_id();
        assert!(new != session && new != 0);
        let seen: Vec<_> = events.try_iter().collect();
        let told = [
            SessionEvent::Disconnected,
            SessionEvent::Expired,
            SessionEvent::Connected { session: new },
        ];
        assert_eq!(seen, told);

        assert_eq!(guard.state(), GuardState::Lost);
        let told: Vec<_> = guard.events().try_iter().collect();
        // A guard whose client was held up for long reports only the last state.
        assert_eq!(told.last(), Some(&GuardEvent::Lost));
        assert!(
            [GuardEvent::Suspect, GuardEvent::Lost].ends_with(&told),
            "{told:?}"
        );
        assert!(matches!(guard.verify(), Err(Error::Lost { .. })));
        assert!(matches!(guard.unlock(), Err(Error::Lost { .. })));

        thread::sleep(Duration::from_millis(100));
        assert!(!waiting.is_finished());
        their_guard.unlock().unwrap();
        let (owner, took) = timed(|| waiting.join().unwrap());
        assert!(took < SOON);
        assert_eq!(owner, Some(new));
    });
    assert_eq!(victim.state(), SessionState::Connected);
    drop(victim.mutex(&mine).unwrap().lock().unwrap());
    for path in [&mine, &theirs] {
        assert_nothing_left(&server.hosts(), path);
    }
}

/// Each connect request extends the session, even if no answer reaches the client.
#[test]
#[ignore = "needs a ZooKeeper server"]
fn the_locks_of_a_client_whose_connect_requests_are_taken_and_never_answered_become_free() {
    alone(|| {
        logs::keep();
        let server = ZooKeeper::shared();
        let proxy = Proxy::start(&server.hosts());
        // The requests of shorter sessions come too late to extend them.
        let timeout = Duration::from_secs(9);
        let client = connect(&proxy.hosts(), timeout);
        let path = fresh_path("unanswered");
        let guard = client.mutex(&path).unwrap().lock().unwrap();
        let (next, events) = (connect(&server.hosts(), TIMEOUT), client.events());
        let next = next.mutex(&path).unwrap();
        proxy.drop_greetings();
        proxy.cut();
        let granted = next.try_lock_for(5 * timeout).unwrap();
        assert!(granted.is_some(), "it is taken");
        assert!(guard.check().unwrap_err().is_lost());
        assert!(2 < proxy.greetings(), "it tries on");
        let expected = [SessionEvent::Disconnected, SessionEvent::Expired];
        assert_eq!(events.try_iter().collect::<Vec<_>>(), expected);
        let lines = logs::take();
        let told = |what: &str| lines.iter().any(|line| line.contains(what));
        assert!(told("is given up") && !told("expired"), "{lines:#?}");
    });
}

/// A dead server behind a proxy, or one that no client may reach, says nothing about the others.
#[test]
#[ignore = "needs a ZooKeeper server"]
fn one_server_that_hangs_up_keeps_no_lock_from_becoming_free_that_others_extend() {
    let server = ZooKeeper::shared();
    let silent = [(); 2].map(|()| Proxy::start(&server.hosts()));
    let hangs_up = listen(|mut client| drop(client.read(&mut [0; 64])));
    let timeout = Duration::from_secs(9);
    let hosts = format!("{},{hangs_up},{}", silent[0].hosts(), silent[1].hosts());
    let client = connect(&hosts, timeout);
    let path = fresh_path("hangs_up");
    let _guard = client.mutex(&path).unwrap().lock().unwrap();
    let next = connect(&server.hosts(), TIMEOUT);
    let next = next.mutex(&path).unwrap();
    silent.iter().for_each(Proxy::drop_greetings);
    silent.iter().for_each(Proxy::cut);
    let granted = next.try_lock_for(5 * timeout).unwrap();
    assert!(granted.is_some(), "it is taken");
}

/// The session lasts for a while when its client is back in another one.
#[test]
#[ignore = "needs a ZooKeeper server"]
fn what_was_released_before_a_session_was_given_up_is_free_once_its_client_is_back() {
    let server = ZooKeeper::builder().line("maxSessionTimeout=40000").start();
    let proxy = Proxy::start(&server.hosts());
    let timeout = Duration::from_secs(20);
    let client = connect(&proxy.hosts(), timeout);
    let path = fresh_path("released");
    let guard = client.mutex(&path).unwrap().lock().unwrap();
    let (other, events) = (connect(&server.hosts(), TIMEOUT), client.events());
    let (next, awaited) = (other.mutex(&path).unwrap(), fresh_path("awaited"));
    let theirs = other.mutex(&awaited).unwrap().lock().unwrap();
    let mutex = client.mutex(&awaited).unwrap();
    let waiting = aside(move || mutex.lock().map(drop));
    wait_for_children(&server.hosts(), &awaited, 2);
    proxy.drop_greetings();
    proxy.cut();
    eventually("the connection is lost", || {
        client.state() == SessionState::Connecting
    });
    drop(guard);
    while events.recv().unwrap() != SessionEvent::Expired {}
    assert!(next.try_lock().unwrap().is_none(), "the session lasts");
    proxy.heal();
    proxy.cut();
    while !matches!(events.recv().unwrap(), SessionEvent::Connected { .. }) {}
    let (granted, took) = timed(|| next.lock().unwrap());
    assert!(took < TIMEOUT, "{took:?}");
    drop(granted);
    // The waiter has a new node, and the old one is in nobody's way.
    theirs.unlock().unwrap();
    waiting.recv_timeout(TIMEOUT).expect("it is free").unwrap();
}

fn owner(node: &str) -> Option<i64> {
    let mut raw = Raw::connect(&ZooKeeper::shared().hosts());
    raw.stat(node).map(|stat| stat.owner)
}
