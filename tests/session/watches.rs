//! Events that happen while a waiter cannot be told.

use std::thread;
use std::time::Duration;

use zklock::{GuardEvent, GuardState};

use super::{SOON, connect};
use crate::support::proxy::Proxy;
use crate::support::raw::{Raw, assert_nothing_left, op, wait_for_children};
use crate::support::zookeeper::ZooKeeper;
use crate::support::{eventually, fresh_path, timed};

const TIMEOUT: Duration = Duration::from_secs(10);

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_predecessor_that_goes_during_a_disconnect_is_noticed_within_one_reconnect() {
    for unplug in [Proxy::refuse, Proxy::blackhole] {
        let (server, path) = (ZooKeeper::shared(), fresh_path("unseen"));
        let proxy = Proxy::start(&server.hosts());
        let holder = connect(&server.hosts(), TIMEOUT);
        let waiter = connect(&proxy.hosts(), TIMEOUT);
        let session = waiter.session_id();
        let guard = holder.mutex(&path).unwrap().lock().unwrap();
        thread::scope(|scope| {
            let mutex = waiter.mutex(&path).unwrap();
            let waiting = scope.spawn(move || {
                let guard = mutex.try_lock_for(2 * SOON).unwrap();
                guard.expect("its turn").check()
            });
            wait_for_children(&server.hosts(), &path, 2);
            eventually("it watches", || proxy.requests(op::GET_DATA) > 0);
            unplug(&proxy);
            guard.unlock().unwrap();
            thread::sleep(Duration::from_millis(300));
            assert!(!waiting.is_finished());
            proxy.cut();
            proxy.heal();
            proxy.accept();
            let (held, took) = timed(|| waiting.join().unwrap());
            held.unwrap();
            println!("it has the lock {took:?} after the network came back");
            assert!(took < SOON);
        });
        assert_eq!(proxy.connections(), 2, "the first reconnect is enough");
        assert_eq!(waiter.session_id(), session);
        assert_nothing_left(&server.hosts(), &path);
    }
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn watches_are_set_again_so_that_a_holder_hears_a_request_to_let_go() {
    let (server, path) = (ZooKeeper::shared(), fresh_path("asked"));
    let proxy = Proxy::start(&server.hosts());
    let client = connect(&proxy.hosts(), TIMEOUT);
    let guard = client.mutex(&path).unwrap().lock().unwrap();
    eventually("the holder watches", || proxy.requests(op::GET_DATA) > 0);
    // Answers come in order: with this one, the watch is known to be set.
    guard.verify().unwrap();
    let reads = proxy.requests(op::GET_DATA);
    let mut raw = Raw::connect(&server.hosts());

    // This happens while nobody can hear it.
    proxy.refuse();
    eventually("the holder notices", || {
        guard.state() == GuardState::Suspect
    });
    raw.set_data(guard.node(), b"__REVOKE__").unwrap();
    proxy.accept();
    hears_a_request(guard.events());
    assert_eq!(proxy.requests(op::SET_WATCHES), 1);

    // This comes after the watch has been moved to another connection, and nothing else has.
    eventually("the holder watches again", || {
        proxy.requests(op::GET_DATA) > reads
    });
    guard.verify().unwrap();
    eventually("the lock is confirmed", || {
        guard.state() == GuardState::Held
    });
    proxy.cut();
    eventually("it has moved", || proxy.requests(op::SET_WATCHES) == 2);
    eventually("the lock is confirmed", || {
        guard.state() == GuardState::Held
    });
    raw.set_data(guard.node(), b"__REVOKE__").unwrap();
    hears_a_request(guard.events());
    guard.unlock().unwrap();
}

#[track_caller]
fn hears_a_request(events: &crossbeam_channel::Receiver<GuardEvent>) {
    loop {
        match events.recv_timeout(SOON) {
            Ok(GuardEvent::RevokeRequested) => return,
            Ok(GuardEvent::Held | GuardEvent::Suspect) => {}
            other => panic!("{other:?}"),
        }
    }
}
