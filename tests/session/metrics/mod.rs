//! The numbers that a client reports about itself.

#[cfg(feature = "metrics")]
mod recorder;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use zklock::embedded::Server;
use zklock::{Client, LockOptions};

use crate::support::{eventually, fresh_path};

#[test]
fn a_client_counts_its_grants_waits_and_requests() {
    let server = Server::start().unwrap();
    let client = Client::connect(server.hosts()).unwrap();
    let other = Client::connect(server.hosts()).unwrap();
    let path = fresh_path("metrics");
    let (mutex, theirs) = (client.mutex(&path).unwrap(), other.mutex(&path).unwrap());
    drop(mutex.lock().unwrap());
    let before = client.metrics();
    for _ in 0..3 {
        mutex.lock().unwrap().unlock().unwrap();
    }
    let guard = theirs.lock().unwrap();
    thread::scope(|scope| {
        let (told, waits) = mpsc::channel();
        let mutex = &mutex;
        let waiter = scope.spawn(move || {
            let options = LockOptions::new().on_wait(|_| told.send(()).unwrap());
            let guard = mutex.lock_with(options).unwrap();
            guard.unwrap().unlock().unwrap();
        });
        waits.recv_timeout(Duration::from_secs(30)).unwrap();
        drop(guard);
        waiter.join().unwrap();
    });
    let after = client.metrics();
    assert_eq!(after.acquires - before.acquires, 4);
    assert_eq!((before.waits, after.waits), (0, 1));
    assert_eq!(after.requests.creates - before.requests.creates, 4);
    assert_eq!(after.requests.deletes - before.requests.deletes, 4);
    assert_eq!(after.wait_time.count(), after.acquires);
    assert_eq!(after.hold_time.count(), after.acquires);
    assert!(after.wait_time.total() > before.wait_time.total());
    assert!(after.wait_time.quantile(1.0) > Duration::ZERO);
    assert_eq!((after.losses, after.reconnects, after.expiries), (0, 0, 0));
}

#[test]
fn the_first_locks_are_counted_each_and_the_others_together() {
    let server = Server::start().unwrap();
    let builder = Client::builder(server.hosts()).metrics_by_lock(2);
    let client = builder.connect().unwrap();
    let paths = [(); 4].map(|()| fresh_path("metrics"));
    for (at, path) in paths.iter().enumerate() {
        for _ in 0..=at {
            drop(client.mutex(path).unwrap().lock().unwrap());
        }
    }
    let guard = client.rwlock(&paths[1]).unwrap().read().unwrap();
    server.expire_session(client.session_id());
    eventually("a loss", || guard.check().is_err());
    drop(guard);
    let all = client.metrics_by_lock();
    let seen: Vec<_> = all
        .iter()
        .map(|(path, lock)| (&**path, lock.acquires, lock.hold_time.count(), lock.losses))
        .collect();
    let mut expected = [("", 7, 7, 0), (&*paths[0], 1, 1, 0), (&*paths[1], 3, 3, 1)];
    expected.sort_unstable();
    assert_eq!(seen, expected);
    assert_eq!(client.metrics().acquires, 11);
    let other = Client::connect(server.hosts()).unwrap();
    drop(other.mutex(&paths[0]).unwrap().lock().unwrap());
    assert!(other.metrics_by_lock().is_empty());
}

#[test]
fn a_client_counts_what_went_wrong() {
    let server = Server::start().unwrap();
    let client = Client::connect(server.hosts()).unwrap();
    let other = Client::connect(server.hosts()).unwrap();
    fail_in_every_way(&server, &client, &other);
    assert_eq!(client.metrics().losses, 1);
}

/// Makes the client give up a wait, reconnect, and lose its session, and a lock with it.
fn fail_in_every_way(server: &Server, client: &Client, other: &Client) {
    let path = fresh_path("metrics");
    let mutex = client.mutex(&path).unwrap();
    let taken = other.mutex(&path).unwrap().lock().unwrap();
    let limit = Duration::from_millis(500);
    assert!(mutex.try_lock_for(limit).unwrap().is_none());
    eventually("a leftover", || client.metrics().leftovers_deleted == 1);
    taken.unlock().unwrap();

    let guard = mutex.lock().unwrap();
    server.disconnect(client.session_id());
    eventually("a reconnect", || client.metrics().reconnects >= 1);
    eventually("a suspicion", || client.metrics().suspicions >= 1);
    server.expire_session(client.session_id());
    eventually("a loss", || client.metrics().losses == 1);
    assert!(guard.check().is_err());
    drop(guard);
    // The lock may be lost by the clock before the server reports the end of the session.
    eventually("an expiry", || client.metrics().expiries == 1);
}

#[test]
fn a_client_counts_local_hand_offs() {
    let server = Server::start().unwrap();
    let client = Client::builder(server.hosts()).local_handoffs(100);
    let client = client.connect().unwrap();
    let mutex = client.mutex(&fresh_path("metrics")).unwrap();
    let guard = mutex.lock().unwrap();
    thread::scope(|scope| {
        for _ in 0..5 {
            scope.spawn(|| drop(mutex.lock().unwrap()));
        }
        eventually("all in line", || {
            format!("{client:?}").contains("waiting: 5")
        });
        drop(guard);
    });
    let metrics = client.metrics();
    assert_eq!(metrics.local_handoffs, 5);
    assert_eq!(metrics.acquires, 6);
    assert_eq!(metrics.hold_time.count(), 6);
    assert_eq!(metrics.requests.deletes, 1);
}
