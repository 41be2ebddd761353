//! Bugs by which owners forget their nodes, behind which everybody else waits for ever.

use std::thread;
use std::time::Duration;

use crossbeam_channel::bounded;

use zklock::embedded::{RequestKind, Server};
use zklock::{Error, LockOptions};

use super::{PATH, SOON, client, nodes_in, wait_for_nodes};
use crate::support::raw::{EPHEMERAL, EPHEMERAL_SEQUENTIAL, PERSISTENT, Raw};

/// kazoo #732, kazoo #429: a client whose try failed, and that lost its connection while
/// cleaning up, left its node; a semaphore's node too.
#[test]
fn a_try_that_ends_while_nothing_gets_through_leaves_nothing() {
    let server = Server::start().unwrap();
    let (ours, theirs) = (client(&server), client(&server));
    let session = theirs.session_id();
    let guard = ours.mutex(PATH).unwrap().lock().unwrap();
    let permit = ours.semaphore("/permits", 1).unwrap().acquire().unwrap();
    let (mutex, semaphore) = (theirs.mutex(PATH), theirs.semaphore("/permits", 1));
    let (mutex, semaphore) = (mutex.unwrap(), semaphore.unwrap());
    for (dir, node) in [(PATH, guard.node()), ("/permits/leases", permit.node())] {
        let (cancel, cancelled) = bounded(1);
        let options = LockOptions::new().cancel(cancelled).on_wait(|_| {
            server.refuse();
            server.disconnect(session);
            let _ = cancel.try_send(());
        });
        match dir {
            PATH => assert!(mutex.lock_with(options).unwrap().is_none()),
            _ => assert!(semaphore.acquire_with(options).unwrap().is_none()),
        }
        assert_eq!(nodes_in(&server, dir).len(), 2);
        server.resume();
        wait_for_nodes(&server, dir, 1);
        assert_eq!(nodes_in(&server, dir), [node]);
    }
    wait_for_nodes(&server, "/permits/locks", 0);
    assert_eq!(theirs.session_id(), session, "the expiry did it");
}

/// samuel/go-zookeeper #229, Netflix/curator #3: the reply to the create was lost, and nobody
/// owned the node.
#[test]
fn who_gives_up_before_the_reply_to_its_create_leaves_nothing() {
    let server = Server::start().unwrap();
    let client = client(&server);
    let (mutex, session) = (client.mutex(PATH).unwrap(), client.session_id());
    mutex.lock().unwrap().unlock().unwrap();
    server.refuse();
    server.drop_next_reply_to(RequestKind::Create);
    thread::scope(|scope| {
        let (cancel, cancelled) = bounded(1);
        let locking = scope.spawn(|| {
            let options = LockOptions::new().cancel(cancelled);
            mutex.lock_with(options).map(|guard| guard.is_some())
        });
        wait_for_nodes(&server, PATH, 1);
        cancel.send(()).unwrap();
        assert_eq!(locking.join().unwrap(), Ok(false));
    });
    assert_eq!(nodes_in(&server, PATH).len(), 1);
    server.resume();
    wait_for_nodes(&server, PATH, 0);
    assert_eq!(client.session_id(), session, "the expiry did it");
}

/// CURATOR-43, go-zookeeper/zk #44: a child that is not a contender was an error.
#[test]
fn children_that_are_no_contenders_are_in_nobodys_way() {
    let server = Server::start().unwrap();
    let (ours, theirs) = (client(&server), client(&server));
    let mut raw = Raw::connect(server.hosts());
    raw.create_all(PATH);
    for (name, mode) in [
        ("README", PERSISTENT),
        ("0000000000", EPHEMERAL),
        ("config-", EPHEMERAL_SEQUENTIAL),
        ("a-lock", PERSISTENT),
    ] {
        raw.create(&format!("{PATH}/{name}"), b"", mode).unwrap();
    }
    let mutex = theirs.mutex(PATH).unwrap();
    let guard = ours.mutex(PATH).unwrap().lock().unwrap();
    assert!(mutex.try_lock().unwrap().is_none());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| mutex.lock().map(|guard| guard.unlock()));
        wait_for_nodes(&server, PATH, 6);
        guard.unlock().unwrap();
        assert_eq!(waiting.join().unwrap(), Ok(Ok(())));
    });
    assert_eq!(nodes_in(&server, PATH).len(), 4);
}

/// zk-ruby #51: an error after the node was created left the node.
#[test]
fn an_error_after_the_node_was_made_leaves_nothing() {
    let server = Server::start().unwrap();
    let client = client(&server);
    let mut raw = Raw::connect(server.hosts());
    raw.create_all(PATH);
    // kazoo would not wait for our client, which notices that once it is in the queue.
    let kazoos = format!("{PATH}/6f9c1c9e5a0b4b579a3e0123456789ab__lock__");
    let kazoos = raw.create(&kazoos, b"", EPHEMERAL_SEQUENTIAL).unwrap();
    for _ in 0..3 {
        let error = client.mutex(PATH).unwrap().lock().unwrap_err();
        assert!(matches!(error, Error::ForeignContender { .. }), "{error}");
    }
    wait_for_nodes(&server, PATH, 1);
    raw.delete(&kazoos).unwrap();
    assert!(
        client
            .mutex(PATH)
            .unwrap()
            .try_lock_for(SOON)
            .unwrap()
            .is_some()
    );
}

/// CURATOR-45, CURATOR-205, CURATOR-335, zk-ruby #49: an interrupt during the create or the
/// cleanup left a node, or a semaphore's lease.
#[test]
fn a_cancel_at_any_moment_leaves_nothing() {
    let server = Server::start().unwrap();
    let (holder, client) = (client(&server), client(&server));
    let (free, taken) = ("/cancel/free", "/cancel/taken");
    let _guard = holder.mutex(taken).unwrap().lock().unwrap();
    // There are several round trips, and cancels in between.
    server.delay(Duration::from_millis(8));
    for moment in (0..40).map(Duration::from_millis) {
        let options = || {
            let (cancel, cancelled) = bounded::<()>(0);
            thread::spawn(move || {
                thread::sleep(moment);
                drop(cancel);
            });
            LockOptions::new().cancel(cancelled)
        };
        let mutex = client.mutex(taken).unwrap();
        assert!(mutex.lock_with(options()).unwrap().is_none());
        // Both outcomes are right, depending on how far the call came.
        drop(client.rwlock(free).unwrap().write_with(options()).unwrap());
        let semaphore = client.semaphore("/cancel/permits", 1).unwrap();
        drop(semaphore.acquire_with(options()).unwrap());
    }
    server.delay(Duration::ZERO);
    wait_for_nodes(&server, taken, 1);
    wait_for_nodes(&server, free, 0);
    for dir in ["/cancel/permits/locks", "/cancel/permits/leases"] {
        wait_for_nodes(&server, dir, 0);
    }
}

/// ZooKeeper's own `WriteLock`: a client that had given up took the lock when its turn came,
/// in a new node, and kept it; it has no number.
#[test]
fn who_has_given_up_does_not_get_the_lock_when_its_turn_comes() {
    let server = Server::start().unwrap();
    let (one, two, three) = (client(&server), client(&server), client(&server));
    let guard = one.mutex(PATH).unwrap().lock().unwrap();
    let shortly = Duration::from_millis(500);
    let given_up = two.mutex(PATH).unwrap().try_lock_for(shortly).unwrap();
    assert!(given_up.is_none());
    guard.unlock().unwrap();
    for _ in 0..5 {
        let guard = three.mutex(PATH).unwrap().try_lock_for(SOON).unwrap();
        let guard = guard.expect("nobody else wants it");
        assert_eq!(nodes_in(&server, PATH).last().unwrap(), guard.node());
        wait_for_nodes(&server, PATH, 1);
        guard.unlock().unwrap();
    }
    // Nor does the session block a second contender of its own.
    drop(two.mutex(PATH).unwrap().lock().unwrap());
    wait_for_nodes(&server, PATH, 0);
}

/// Accumulo #1866: a waiter behind a contender with several nodes watched the wrong one.
#[test]
fn who_waits_behind_two_nodes_of_one_contender_waits_for_both() {
    let server = Server::start().unwrap();
    let client = client(&server);
    let mut raw = Raw::connect(server.hosts());
    raw.create_all(PATH);
    let theirs = format!("{PATH}/_c_6f9c1c9e-5a0b-4b57-9a3e-0123456789ab-lock-");
    let mut create = || raw.create(&theirs, b"", EPHEMERAL_SEQUENTIAL).unwrap();
    let (lower, higher) = (create(), create());
    thread::scope(|scope| {
        let (tell, told) = bounded(8);
        let client = &client;
        let waiting = scope.spawn(move || {
            let options = LockOptions::new().on_wait(|waiting| {
                let ahead = waiting.ahead().unwrap().node().to_owned();
                tell.send((waiting.position(), ahead)).unwrap();
            });
            client.mutex(PATH).unwrap().lock_with(options).map(drop)
        });
        assert_eq!(told.recv(), Ok((2, higher.clone())));
        raw.delete(&higher).unwrap();
        assert_eq!(told.recv(), Ok((1, lower.clone())));
        assert!(!waiting.is_finished());
        raw.delete(&lower).unwrap();
        assert_eq!(waiting.join().unwrap(), Ok(()));
    });
}
