//! The end of a client that is closed, or whose last owner is dropped.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::connect;
use crate::support::proxy::Proxy;
use crate::support::raw::wait_for_children;
use crate::support::zookeeper::ZooKeeper;
use crate::support::{aside, fresh_path, timed};

const TIMEOUT: Duration = Duration::from_secs(10);
const CLOSES: usize = 50;
/// The number of threads that keep the processors from a thread that is interrupted.
const LOAD: usize = 3;

#[test]
#[ignore = "needs a ZooKeeper server"]
fn no_guard_of_a_client_that_is_being_closed_passes_when_somebody_else_has_its_lock() {
    let hosts = ZooKeeper::shared().hosts();
    let next = connect(&hosts, TIMEOUT);
    let (over, overlaps) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..LOAD {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop()
                }
            });
        }
        for _ in 0..CLOSES {
            let path = fresh_path("closing");
            let client = connect(&hosts, TIMEOUT);
            let has_it = AtomicBool::new(false);
            thread::scope(|scope| {
                let (told, holds) = mpsc::channel();
                let (mutex, theirs) = (client.mutex(&path).unwrap(), next.mutex(&path).unwrap());
                let (has_it, overlaps) = (&has_it, &overlaps);
                scope.spawn(move || {
                    let guard = mutex.lock().unwrap();
                    told.send(()).unwrap();
                    loop {
                        let somebody_else = has_it.load(Ordering::SeqCst);
                        if guard.check().is_err() {
                            break;
                        }
                        if somebody_else {
                            overlaps.fetch_add(1, Ordering::SeqCst);
                            break;
                        }
                    }
                });
                holds.recv().unwrap();
                scope.spawn(move || {
                    let _guard = theirs.lock().unwrap();
                    has_it.store(true, Ordering::SeqCst);
                    // This is long enough for the other client to see it.
                    thread::sleep(Duration::from_millis(5));
                });
                wait_for_children(&hosts, &path, 2);
                client.close().unwrap();
            });
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(overlaps.into_inner(), 0, "of {CLOSES}");
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn when_the_last_owner_goes_the_session_ends_at_once_and_its_locks_are_free() {
    let hosts = ZooKeeper::shared().hosts();
    let path = fresh_path("last");
    let other = connect(&hosts, TIMEOUT);
    for _ in 0..20 {
        let client = connect(&hosts, TIMEOUT);
        let guard = client.mutex(&path).unwrap().lock().unwrap();
        drop(client);
        drop(guard);
        let (got, took) = timed(|| {
            other
                .mutex(&path)
                .unwrap()
                .try_lock_for(TIMEOUT / 2)
                .unwrap()
        });
        assert!(got.is_some(), "after {took:?}");
    }
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn to_drop_the_last_owner_of_a_client_without_a_network_does_not_wait_for_one() {
    let server = ZooKeeper::shared();
    for _ in 0..5 {
        let proxy = Proxy::start(&server.hosts());
        let client = connect(&proxy.hosts(), TIMEOUT);
        let guard = client.mutex(&fresh_path("gone")).unwrap().lock().unwrap();
        proxy.blackhole();
        let send = guard.into_send();
        let dropped = aside(move || timed(move || drop((client, send))).1);
        let took = dropped.recv().unwrap();
        // Once, that took a second.
        assert!(took < Duration::from_millis(700), "{took:?}");
    }
}
