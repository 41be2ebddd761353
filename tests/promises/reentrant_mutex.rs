//! The promises of the reentrant mutex, on every transport, on the embedded server and on a
//! real one.

use std::thread;

use zklock::{Error, GuardEvent};

use crate::support::fresh_path;
use crate::support::proxy::Proxy;
use crate::support::raw::assert_nothing_left;
use crate::transport::{Place, expire_owner, in_every_place, wait_for};

in_every_place! {
    the_thread_that_has_it_locks_it_again_without_a_request
    other_threads_wait_and_a_plain_mutex_of_the_same_thread_is_told_so
    a_lost_lock_is_not_entered_again
}

fn the_thread_that_has_it_locks_it_again_without_a_request(place: Place) {
    let (server, path) = (place.shared(), fresh_path("again"));
    let network = Proxy::start(&server.hosts());
    let client = place.connect(&network.hosts());
    let mutex = client.reentrant_mutex(&path).unwrap();
    let outer = mutex.lock().unwrap();
    // Another handle of the same client, as a function called from here would have.
    let twin = client.reentrant_mutex(&path).unwrap();
    let inner = twin.try_lock().unwrap().unwrap();
    assert_eq!(outer.fencing_token(), inner.fencing_token());
    assert_eq!(outer.node(), inner.node());
    network.blackhole();
    let third = mutex.lock().unwrap();
    third.unlock().unwrap();
    network.heal();

    let other = place.connect(&server.hosts()).mutex(&path).unwrap();
    outer.unlock().unwrap();
    assert!(other.try_lock().unwrap().is_none());
    inner.unlock().unwrap();
    assert!(other.try_lock().unwrap().is_some());
    assert_nothing_left(&server.hosts(), &path);
}

fn other_threads_wait_and_a_plain_mutex_of_the_same_thread_is_told_so(place: Place) {
    let (server, path) = (place.shared(), fresh_path("others"));
    let client = place.connect(&server.hosts());
    let mutex = client.reentrant_mutex(&path).unwrap();
    let guard = mutex.lock().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| assert!(mutex.try_lock().unwrap().is_none()));
    });
    let plain = client.mutex(&path).unwrap();
    let would_deadlock = Error::WouldDeadlock { path: path.clone() };
    assert_eq!(plain.lock().unwrap_err(), would_deadlock);
    drop(guard);
    let guard = plain.lock().unwrap();
    assert_eq!(mutex.lock().unwrap_err(), would_deadlock);
    drop(guard);
    assert_nothing_left(&server.hosts(), &path);
}

/// CURATOR-206: the answer was `true`, but the lock had expired, and another client held it.
fn a_lost_lock_is_not_entered_again(place: Place) {
    let (server, path) = (place.shared(), fresh_path("lost"));
    let client = place.connect(&server.hosts());
    let mutex = client.reentrant_mutex(&path).unwrap();
    let outer = mutex.lock().unwrap();
    expire_owner(server, outer.node());
    wait_for(&outer, GuardEvent::Lost);
    assert!(mutex.lock().unwrap_err().is_lost());
    assert!(mutex.try_lock().unwrap_err().is_lost());
    drop(outer);
    let again = place.survivor(&client).reentrant_mutex(&path).unwrap();
    drop(again.lock().unwrap());
    assert_nothing_left(&server.hosts(), &path);
}
