//! The promises of the reentrant mutex.

use std::thread;

use zklock::embedded::Server;
use zklock::{Client, Error, GuardEvent};

const PATH: &str = "/locks/accounts";

#[test]
fn the_thread_that_has_it_locks_it_again_without_a_request() {
    let server = Server::start().unwrap();
    let client = Client::connect(server.hosts()).unwrap();
    let mutex = client.reentrant_mutex(PATH).unwrap();
    let outer = mutex.lock().unwrap();
    // Another handle of the same client, as a function called from here would have.
    let inner = client
        .reentrant_mutex(PATH)
        .unwrap()
        .try_lock()
        .unwrap()
        .unwrap();
    assert_eq!(outer.fencing_token(), inner.fencing_token());
    assert_eq!(outer.node(), inner.node());
    server.blackhole();
    let third = mutex.lock().unwrap();
    third.unlock().unwrap();
    server.resume();

    let other = Client::connect(server.hosts())
        .unwrap()
        .mutex(PATH)
        .unwrap();
    outer.unlock().unwrap();
    assert!(other.try_lock().unwrap().is_none());
    inner.unlock().unwrap();
    assert!(other.try_lock().unwrap().is_some());
}

#[test]
fn other_threads_wait_and_a_plain_mutex_of_the_same_thread_is_told_so() {
    let server = Server::start().unwrap();
    let client = Client::connect(server.hosts()).unwrap();
    let mutex = client.reentrant_mutex(PATH).unwrap();
    let guard = mutex.lock().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| assert!(mutex.try_lock().unwrap().is_none()));
    });
    let plain = client.mutex(PATH).unwrap();
    let would_deadlock = Error::WouldDeadlock { path: PATH.into() };
    assert_eq!(plain.lock().unwrap_err(), would_deadlock);
    drop(guard);
    let guard = plain.lock().unwrap();
    assert_eq!(mutex.lock().unwrap_err(), would_deadlock);
    drop(guard);
}

/// CURATOR-206: the answer was `true`; the lock was expired, and somebody else's.
#[test]
fn a_lost_lock_is_not_entered_again() {
    let server = Server::start().unwrap();
    let client = Client::connect(server.hosts()).unwrap();
    let mutex = client.reentrant_mutex(PATH).unwrap();
    let outer = mutex.lock().unwrap();
    server.expire_session(client.session_id());
    assert!(outer.events().iter().any(|event| event == GuardEvent::Lost));
    assert!(mutex.lock().unwrap_err().is_lost());
    assert!(mutex.try_lock().unwrap_err().is_lost());
    drop(outer);
    drop(mutex.lock().unwrap());
}
