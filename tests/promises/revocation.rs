//! Requests to holders to release a lock, and evictions, on every transport, on the embedded server
//! and on a real one.

use std::thread;
use std::time::Duration;

use crossbeam_channel::bounded;
use zklock::embedded::Server;
use zklock::{Client, Contender, Dialect, Error, GuardEvent, LockGuard, LockOptions};

use crate::support::proxy::Proxy;
use crate::support::raw::{EPHEMERAL, Raw, assert_nothing_left, op};
use crate::support::{aside, eventually, fresh_path};
use crate::transport::{
    Place, SOON, Transport, in_every_place, on_every_server, wait_for, wait_for_queue,
};

in_every_place! {
    every_kind_of_holder_hears_that_it_is_asked_to_let_go
    a_holder_that_was_asked_at_once_hears_it_too
    a_node_of_no_session_is_not_written_to
    an_evicted_holder_has_lost_and_an_evicted_waiter_is_told
    a_contender_that_went_is_not_evicted_in_place_of_another
    an_overdue_holder_is_asked_and_then_evicted
    an_overdue_holder_that_lets_go_is_not_evicted
}

on_every_server! {
    the_queue_tells_who_is_in_it
    a_waiter_that_holds_now_is_a_change
    whoever_is_evicted_while_it_waits_is_told_at_once
}

/// Returns two clients, and a path that nobody else uses.
fn scene(place: Place) -> (Client, Client, String) {
    let hosts = place.shared().hosts();
    let (ours, theirs) = (place.connect(&hosts), place.connect(&hosts));
    (ours, theirs, fresh_path("revoke"))
}

/// Waits until `count` contenders are in the queue, and returns them.
#[track_caller]
fn queue(client: &Client, path: &str, count: usize) -> Vec<Contender> {
    wait_for_queue(client, path, count);
    client.contenders(path).unwrap()
}

fn a_node_of_no_session_is_not_written_to(place: Place) {
    let (ours, _, path) = scene(place);
    let mut raw = Raw::connect(&place.shared().hosts());
    let node = format!("{path}/6f9c1c9e5a0b4b579a3e0123456789ab");
    raw.create_all(&node);
    raw.set_data(&node, b"somebody's").unwrap();
    let refused = queue(&ours, &path, 1)[0].revoke();
    assert!(
        matches!(refused, Err(Error::Unmarked { .. })),
        "{refused:?}"
    );
    assert_eq!(raw.data(&node).unwrap(), b"somebody's");
}

fn every_kind_of_holder_hears_that_it_is_asked_to_let_go(place: Place) {
    let (ours, theirs, path) = scene(place);
    let at = |name: &str| format!("{path}/{name}");
    let asked = |guard: &dyn LockGuard, name: &str| {
        theirs.contenders(&at(name)).unwrap()[0].revoke().unwrap();
        wait_for(guard, GuardEvent::RevokeRequested);
        // The request forces nobody.
        guard.verify().unwrap();
    };
    let mutex = ours.mutex(&at("mutex")).unwrap();
    asked(&mutex.lock().unwrap(), "mutex");
    let reentrant = ours.reentrant_mutex(&at("again")).unwrap();
    asked(&reentrant.lock().unwrap(), "again");
    let rwlock = ours.rwlock(&at("read")).unwrap();
    asked(&rwlock.read().unwrap(), "read");
    let rwlock = ours.rwlock(&at("write")).unwrap();
    asked(&rwlock.write().unwrap(), "write");
    let semaphore = ours.semaphore(&at("permits"), 1).unwrap();
    asked(&semaphore.acquire().unwrap(), "permits/leases");
    if place.transport == Transport::Wire {
        let both = ours.multi_lock([&*at("1"), &*at("2")]).unwrap();
        asked(&both.lock().unwrap(), "2");
    }
}

fn a_holder_that_was_asked_at_once_hears_it_too(place: Place) {
    let (ours, theirs, path) = scene(place);
    let guard = ours.mutex(&path).unwrap().lock().unwrap();
    for _ in 0..3 {
        theirs.contenders(&path).unwrap()[0].revoke().unwrap();
        wait_for(&guard, GuardEvent::RevokeRequested);
    }
}

/// The holder, and others ahead, may stay for long.
fn whoever_is_evicted_while_it_waits_is_told_at_once(place: Place) {
    type Wait = fn(&Client, &str) -> Result<(), Error>;
    let lock: Wait = |client, path| client.mutex(path)?.lock().map(drop);
    let read: Wait = |client, path| client.rwlock(path)?.read().map(drop);
    let write: Wait = |client, path| client.rwlock(path)?.write().map(drop);
    let hosts = place.shared().hosts();
    for dialect in [Dialect::Curator, Dialect::Kazoo] {
        let builder = || Client::builder(&hosts).dialect(dialect);
        for (ahead, evicted) in [(write, read), (read, write), (lock, lock)] {
            let path = fresh_path("evicted");
            let ours = builder().connect().unwrap();
            let held = ours.rwlock(&path).unwrap().write().unwrap();
            let between = aside({
                let (client, path) = (builder().connect().unwrap(), path.clone());
                move || ahead(&client, &path)
            });
            wait_for_queue(&ours, &path, 2);
            let told = aside({
                let (client, path) = (builder().connect().unwrap(), path.clone());
                move || evicted(&client, &path)
            });
            let waiter = queue(&ours, &path, 3).remove(2);
            waiter.evict().unwrap();
            let node = waiter.node().to_owned();
            assert_eq!(told.recv_timeout(SOON), Ok(Err(Error::Evicted { node })));
            held.unlock().unwrap();
            assert_eq!(between.recv_timeout(SOON), Ok(Ok(())));
        }
    }
}

/// go-zookeeper: a waiter whose node was gone held the lock along with the next one.
fn an_evicted_holder_has_lost_and_an_evicted_waiter_is_told(place: Place) {
    let (ours, theirs, path) = scene(place);
    let guard = ours.mutex(&path).unwrap().lock().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| theirs.mutex(&path).unwrap().lock().map(drop));
        let waiter = queue(&ours, &path, 2).remove(1);
        assert!(!waiter.holds());
        waiter.evict().unwrap();
        // The waiter looks at the queue again when the holder leaves.
        let holder = queue(&ours, &path, 1).remove(0);
        assert!(holder.holds());
        holder.evict().unwrap();
        wait_for(&guard, GuardEvent::Lost);
        let node = waiter.node().to_owned();
        assert_eq!(waiting.join().unwrap(), Err(Error::Evicted { node }));
    });
    assert!(guard.unlock().unwrap_err().is_lost());
    assert!(theirs.mutex(&path).unwrap().try_lock().unwrap().is_some());
    assert_nothing_left(&place.shared().hosts(), &path);
}

/// zk-ruby #34: a stale client deleted another client's new lock.
fn a_contender_that_went_is_not_evicted_in_place_of_another(place: Place) {
    let (client, _, path) = scene(place);
    let mutex = client.mutex(&path).unwrap();
    mutex.lock().unwrap().unlock().unwrap();
    let guard = mutex.lock().unwrap();
    let seen = queue(&client, &path, 1).remove(0);
    guard.unlock().unwrap();
    let guard = mutex.lock().unwrap();
    seen.evict().unwrap();
    seen.revoke().unwrap();
    guard.verify().unwrap();
}

/// Other libraries' names recur, and a server that lags shows the node that had the name before.
#[test]
fn a_contender_whose_name_recurs_is_not_evicted_by_a_client_of_a_server_that_lags() {
    let server = Server::start().unwrap();
    let client = Client::connect(server.hosts()).unwrap();
    let mut other = Raw::connect(server.hosts());
    other.create_all("/lock");
    let node = other.create("/lock/lock-0000000000", b"", EPHEMERAL);
    let node = node.unwrap();
    let seen = queue(&client, "/lock", 1).remove(0);
    server.hide_next_create();
    other.replace(&node).unwrap();
    let recurred = other.stat(&node).unwrap().czxid;
    seen.evict().unwrap();
    assert_eq!(other.stat(&node).map(|stat| stat.czxid), Some(recurred));
}

/// Returns a client behind a link that leaves time between one request and the next, and a
/// contender of another client.
fn slow_scene() -> (Server, Proxy, Client, Raw) {
    let server = Server::start().unwrap();
    let proxy = Proxy::start(server.hosts());
    let client = Client::connect(&proxy.hosts()).unwrap();
    let mut other = Raw::connect(server.hosts());
    other.create_all("/lock");
    recur(&mut other).unwrap();
    proxy.delay(Duration::from_millis(50));
    (server, proxy, client, other)
}

/// Creates the contender of [`slow_scene`], unless its name exists.
fn recur(other: &mut Raw) -> Option<String> {
    let node = other.create("/lock/lock-0000000000", b"", EPHEMERAL);
    node.ok()
}

#[test]
fn a_contender_whose_name_recurs_is_not_evicted_after_a_lost_answer() {
    let (_server, proxy, client, mut other) = slow_scene();
    let seen = queue(&client, "/lock", 1).remove(0);
    let looks = proxy.requests(op::EXISTS);
    let node = thread::scope(|scope| {
        let evicting = scope.spawn(|| seen.evict());
        eventually("it looks", || looks < proxy.requests(op::EXISTS));
        proxy.drop_next_reply_to(op::DELETE);
        let mut node = None;
        eventually("it is deleted", || {
            node = recur(&mut other);
            node.is_some()
        });
        evicting.join().unwrap().unwrap();
        node.unwrap()
    });
    assert!(proxy.fired() && other.stat(&node).is_some());
}

/// The waiter is behind another contender, so that no event of the holder grants it anything.
#[test]
fn a_holder_whose_name_recurs_is_asked_before_it_is_evicted_after_a_lost_answer() {
    let (_server, proxy, client, mut other) = slow_scene();
    other
        .create("/lock/lock-0000000001", b"", EPHEMERAL)
        .unwrap();
    proxy.drop_next_reply_to(op::DELETE);
    let asked = proxy.requests(op::SET_DATA);
    let moment = Duration::from_millis(100);
    let mutex = client.mutex("/lock").unwrap();
    let waiting = aside(move || {
        let options = LockOptions::new().evict_overdue(moment, moment);
        mutex.lock_with(options).map(|guard| guard.is_some())
    });
    eventually("it is evicted", || recur(&mut other).is_some());
    assert!(waiting.recv_timeout(SOON).unwrap().unwrap());
    assert!(proxy.fired());
    // These are the holder, the contender that has its name, and the next one. Each is asked once; a write that is
    // refused comes before that, and before its eviction.
    assert_eq!(proxy.requests(op::SET_DATA), asked + 3 * 3);
}

fn an_overdue_holder_is_asked_and_then_evicted(place: Place) {
    let (ours, theirs, path) = scene(place);
    let stubborn = ours.mutex(&path).unwrap().lock().unwrap();
    let (short, grace) = (Duration::from_millis(100), Duration::from_secs(2));
    let options = LockOptions::new().evict_overdue(short, grace);
    let mutex = theirs.mutex(&path).unwrap();
    let guard = mutex.lock_with(options).unwrap().unwrap();
    wait_for(&stubborn, GuardEvent::RevokeRequested);
    wait_for(&stubborn, GuardEvent::Lost);
    guard.verify().unwrap();
}

fn an_overdue_holder_that_lets_go_is_not_evicted(place: Place) {
    let (ours, theirs, path) = scene(place);
    let polite = ours.mutex(&path).unwrap().lock().unwrap();
    let mutex = theirs.mutex(&path).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let minute = Duration::from_secs(60);
            let options = LockOptions::new().evict_overdue(Duration::from_millis(100), minute);
            drop(mutex.lock_with(options).unwrap().unwrap());
        });
        wait_for(&polite, GuardEvent::RevokeRequested);
        polite.unlock().unwrap();
    });
}

/// A client on a handle has no note, and does not know its session.
fn the_queue_tells_who_is_in_it(place: Place) {
    let hosts = place.shared().hosts();
    let (_, theirs, path) = scene(place);
    let ours = Client::builder(&hosts).note("nightly").connect().unwrap();
    assert!(theirs.contenders(&path).unwrap().is_empty());
    let guard = ours.mutex(&path).unwrap().lock().unwrap();
    let mutex = theirs.mutex(&path).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let options = LockOptions::new().note("by hand").on_wait(|waiting| {
                let ahead = waiting.ahead().unwrap();
                assert_eq!(waiting.position(), 1);
                assert_eq!(ahead.owner().note.as_deref(), Some("nightly"));
                assert_eq!(ahead.owner().pid, Some(std::process::id()));
            });
            drop(mutex.lock_with(options).unwrap().unwrap());
        });
        let queue = queue(&ours, &path, 2);
        assert_eq!(queue[0].node(), guard.node());
        assert_eq!(queue[0].token(), guard.fencing_token());
        assert_eq!(queue[0].session_id(), ours.session_id());
        assert_eq!(queue[1].owner().note.as_deref(), Some("by hand"));
        assert!(queue[0].holds() && !queue[1].holds());
        drop(guard);
    });
}

/// If the holder leaves before its node is read, a listing has only the waiter, which holds by
/// then.
fn a_waiter_that_holds_now_is_a_change(place: Place) {
    let (ours, theirs, path) = scene(place);
    let guard = ours.mutex(&path).unwrap().lock().unwrap();
    let next = theirs.mutex(&path).unwrap();
    let (release, released) = bounded::<()>(0);
    let next = aside(move || {
        let guard = next.lock().unwrap();
        let _ = released.recv();
        drop(guard);
    });
    let waits = queue(&ours, &path, 2).split_off(1);
    assert!(!waits[0].holds());
    drop(guard);
    eventually("the next one holds", || {
        ours.contenders(&path).unwrap()[0].holds()
    });
    let changed = aside(move || ours.wait_for_change(&path, &waits, 6 * SOON).unwrap());
    let present = changed.recv_timeout(SOON).expect("it is told");
    assert_eq!(present.len(), 1);
    assert!(present[0].holds());
    drop(release);
    next.recv_timeout(SOON).unwrap();
}
