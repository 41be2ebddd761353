//! Lost replies: the server has created the client's node, and the reply that says so is lost.

use std::thread;
use std::time::Duration;

use zklock::diagnostics::Hold;
use zklock::{Client, Error};

use super::{SOON, connect};
use crate::support::proxy::Proxy;
use crate::support::raw::{Raw, assert_nothing_left, children, op};
use crate::support::zookeeper::ZooKeeper;
use crate::support::{eventually, fresh_path, timed};

/// Returns a proxy, a client behind it and a lock whose directory exists already, so that the
/// first create makes a node.
fn stage(name: &str) -> (Proxy, Client, String) {
    let (server, path) = (ZooKeeper::shared(), fresh_path(name));
    Raw::connect(&server.hosts()).create_all(&path);
    let proxy = Proxy::start(&server.hosts());
    let client = connect(&proxy.hosts(), SOON);
    (proxy, client, path)
}

/// Locks the mutex, and checks that this took one node.
#[track_caller]
fn lock_with_one_node(client: &Client, path: &str) {
    let hosts = ZooKeeper::shared().hosts();
    let session = client.session_id();
    let mutex = client.mutex(path).unwrap();
    let (guard, took) = timed(|| mutex.try_lock_for(2 * SOON).unwrap());
    let guard = guard.expect("nobody is ahead of us, not even ourselves");
    assert!(took < SOON, "{took:?}");
    let (_, name) = guard.node().rsplit_once('/').unwrap();
    assert_eq!(children(&hosts, path), [name], "one node of ours");
    assert_eq!(client.session_id(), session);
    guard.verify().unwrap();
    guard.unlock().unwrap();
    assert_nothing_left(&hosts, path);
}

/// Makes a call with a create of this kind, loses the reply, and closes the way back.
fn unanswered<T: Send>(proxy: &Proxy, kind: i32, ask: impl FnOnce() -> T + Send) -> T {
    // The network is slow enough to close the way before the node is found.
    proxy.delay(Duration::from_millis(300));
    proxy.drop_next_reply_to(kind);
    thread::scope(|scope| {
        let asking = scope.spawn(ask);
        eventually("the reply is lost", || proxy.fired());
        proxy.refuse();
        asking.join().unwrap()
    })
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_create_whose_reply_is_lost_makes_one_node() {
    let (proxy, client, path) = stage("first");
    proxy.drop_next_reply_to(op::CREATE2);
    lock_with_one_node(&client, &path);
    assert!(proxy.fired());
    assert_eq!(proxy.requests(op::CREATE2), 1, "the node was found");
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_second_create_whose_reply_is_lost_makes_one_node() {
    let (proxy, client, path) = stage("second");
    // The network is slow enough to arrange the next loss in time.
    proxy.delay(Duration::from_millis(300));
    proxy.drop_next_request(op::CREATE2);
    thread::scope(|scope| {
        scope.spawn(|| lock_with_one_node(&client, &path));
        eventually("the create is lost", || proxy.fired());
        proxy.drop_next_reply_to(op::CREATE2);
    });
    assert!(proxy.fired());
    assert_eq!(proxy.requests(op::CREATE2), 2);
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_create_whose_reply_is_lost_for_good_leaves_nothing() {
    let (proxy, client, path) = stage("never");
    let session = client.session_id();
    let mutex = client.mutex(&path).unwrap();
    let locked = unanswered(&proxy, op::CREATE2, || {
        let locked = mutex.try_lock_for(Duration::from_secs(1));
        locked.map(|guard| guard.is_some())
    });
    // No server has said that the mutex is taken.
    assert!(
        matches!(locked, Err(Error::ConnectTimeout { .. })),
        "{locked:?}"
    );
    assert_eq!(children(&ZooKeeper::shared().hosts(), &path).len(), 1);
    proxy.accept();
    assert_nothing_left(&ZooKeeper::shared().hosts(), &path);
    drop(client.mutex(&path).unwrap().lock().unwrap());
    assert_eq!(
        client.session_id(),
        session,
        "the node did not go with a session"
    );
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_pause_that_nobody_could_look_for_is_unconfirmed_and_goes_later() {
    let (proxy, client, path) = stage("pause");
    let hold = Hold::new("a pause", None);
    let paused = unanswered(&proxy, op::CREATE, || client.pause(&path, &hold));
    assert!(
        matches!(paused, Err(Error::Unconfirmed { .. })),
        "{paused:?}"
    );
    assert_eq!(children(&ZooKeeper::shared().hosts(), &path).len(), 1);
    proxy.accept();
    assert_nothing_left(&ZooKeeper::shared().hosts(), &path);
}

/// Once, the call said that no server answers, while its node existed.
#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_pause_that_nobody_could_look_at_again_is_unconfirmed_and_goes_later() {
    let (proxy, client, path) = stage("pause-looked-at");
    let hold = Hold::new("a pause", None);
    // The network is slow enough to close the way before the queue is listed again.
    proxy.delay(Duration::from_millis(300));
    let paused = thread::scope(|scope| {
        let asking = scope.spawn(|| client.pause(&path, &hold));
        let hosts = ZooKeeper::shared().hosts();
        eventually("it stands", || children(&hosts, &path).len() == 1);
        proxy.swallow(op::GET_CHILDREN);
        asking.join().unwrap()
    });
    assert!(
        matches!(paused, Err(Error::Unconfirmed { .. })),
        "{paused:?}"
    );
    assert_nothing_left(&ZooKeeper::shared().hosts(), &path);
}
