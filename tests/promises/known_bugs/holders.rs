//! Bugs by which two clients both believe that they hold a lock, or one cannot tell.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::bounded;

use zklock::embedded::{RequestKind, Server};
use zklock::{Client, Dialect, Error, GuardEvent, MutexGuard, Result};

use super::{PATH, SOON, client, nodes_in, wait_for_nodes};
use crate::support::eventually;
use crate::support::raw::{EPHEMERAL_SEQUENTIAL, Raw};

/// kazoo #606, kazoo #730: after the last number everybody who came was let in.
#[test]
fn when_the_numbers_are_used_up_one_holds_at_a_time_in_the_order_of_arrival() {
    let server = Server::builder().start_counter(PATH, i32::MAX - 1);
    let server = server.start().unwrap();
    let first = client(&server).mutex(PATH).unwrap().lock().unwrap();
    let inside = AtomicUsize::new(0);
    let order = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for i in 0..6 {
            let (server, inside, order) = (&server, &inside, &order);
            scope.spawn(move || {
                let client = client(server);
                let guard = client.mutex(PATH).unwrap().lock().unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                order.lock().unwrap().push((i, guard.fencing_token()));
                guard.verify().unwrap();
                inside.fetch_sub(1, Ordering::SeqCst);
            });
            wait_for_nodes(server, PATH, i + 2);
        }
        let used_up = |node: &String| node.ends_with("2147483647");
        let queue = nodes_in(&server, PATH);
        assert_eq!(queue.iter().filter(|node| used_up(node)).count(), 6);
        first.unlock().unwrap();
    });
    let order = order.into_inner().unwrap();
    let arrivals: Vec<_> = order.iter().map(|(i, _)| *i).collect();
    assert_eq!(arrivals, [0, 1, 2, 3, 4, 5]);
    assert!(order.is_sorted_by_key(|(_, token)| *token), "{order:?}");
    wait_for_nodes(&server, PATH, 0);
}

/// The same, where other clients use the numbers alone: it is impossible to wait for them.
#[test]
fn when_the_numbers_are_used_up_who_goes_by_them_is_an_error() {
    let names = [
        (
            Dialect::Curator,
            "_c_6f9c1c9e-5a0b-4b57-9a3e-0123456789ab-lock-",
        ),
        (Dialect::Kazoo, "6f9c1c9e5a0b4b579a3e0123456789ab__lock__"),
    ];
    for (dialect, name) in names {
        let server = Server::builder().start_counter(PATH, i32::MAX - 2);
        let server = server.start().unwrap();
        let mut other = Raw::connect(server.hosts());
        let join = |other: &mut Raw| {
            other
                .create(&format!("{PATH}/{name}"), b"", EPHEMERAL_SEQUENTIAL)
                .unwrap()
        };
        let client = || {
            let client = Client::builder(server.hosts()).dialect(dialect);
            client.connect().unwrap().mutex(PATH).unwrap()
        };
        // One number before the end all is well; the number of the other client is the last but
        // one.
        let first = client().lock().unwrap();
        let node = join(&mut other);
        assert!(node.ends_with("2147483646"), "{node}");
        let exhausted = |result: Result<Option<MutexGuard>>| match result {
            Err(Error::Exhausted { path, .. }) => assert_eq!(path, PATH),
            other => panic!("{dialect:?}: {other:?}"),
        };
        exhausted(client().lock().map(Some));
        exhausted(client().try_lock_for(SOON));
        first.check().unwrap();
        wait_for_nodes(&server, PATH, 2);
        first.unlock().unwrap();
        // Only their node is left, with the last number, and the next one gets the same number.
        let last = join(&mut other);
        assert!(last.ends_with("2147483647"), "{last}");
        exhausted(client().try_lock());
        exhausted(client().lock().map(Some));
        other.delete(&node).unwrap();
        other.delete(&last).unwrap();
        // Our own clients can go on among themselves.
        client().lock().unwrap().unlock().unwrap();
    }
}

/// go-zookeeper: a waiter that was no longer in the queue took itself for the first, next to
/// the one that was; it has no number.
#[test]
fn a_waiter_that_is_not_in_the_queue_any_more_does_not_hold() {
    let server = Server::start().unwrap();
    let (one, two, client) = (client(&server), client(&server), client(&server));
    let holder = one.mutex(PATH).unwrap().lock().unwrap();
    thread::scope(|scope| {
        let (entered, inside) = bounded(1);
        let (leave, leaving) = bounded::<()>(0);
        scope.spawn(move || {
            let _guard = two.mutex(PATH).unwrap().lock().unwrap();
            entered.send(()).unwrap();
            let _ = leaving.recv();
        });
        wait_for_nodes(&server, PATH, 2);
        let waiting = scope.spawn(|| client.mutex(PATH).unwrap().lock().map(drop));
        wait_for_nodes(&server, PATH, 3);
        let last = client.contenders(PATH).unwrap().remove(2);
        last.evict().unwrap();
        holder.unlock().unwrap();
        inside.recv_timeout(SOON).unwrap();
        drop(leave);
        let node = last.node().to_owned();
        assert_eq!(waiting.join().unwrap(), Err(Error::Evicted { node }));
    });
    wait_for_nodes(&server, PATH, 0);
}

/// CURATOR-498, CURATOR-604: a client took the node of its dead session for its own.
#[test]
fn a_node_of_a_dead_session_is_not_taken_for_ours() {
    const LINGER: Duration = Duration::from_millis(500);
    let server = Server::start().unwrap();
    let client = client(&server);
    let mutex = client.mutex(PATH).unwrap();
    mutex.lock().unwrap().unlock().unwrap();
    let dead = client.session_id();

    // Nobody gets in until the session whose create was carried out has ended.
    server.refuse();
    server.linger_expired(LINGER);
    server.drop_next_reply_to(RequestKind::Create);
    thread::scope(|scope| {
        let locking = scope.spawn(|| {
            mutex
                .lock()
                .map(|guard| (guard.node().to_owned(), guard.unlock()))
        });
        wait_for_nodes(&server, PATH, 1);
        let ghost = nodes_in(&server, PATH).remove(0);
        assert!(server.expire_session(dead));
        server.resume();
        let (node, unlocked) = locking.join().unwrap().unwrap();
        assert_ne!(node, ghost);
        unlocked.unwrap();
    });
    assert_ne!(client.session_id(), dead);
    wait_for_nodes(&server, PATH, 0);
}

/// kazoo #2, kazoo #282: after an expiry the lock claimed to be held for ever, and could not
/// be acquired again.
#[test]
fn a_mutex_whose_lock_expired_says_so_and_can_be_locked_again() {
    let server = Server::start().unwrap();
    let (ours, theirs) = (client(&server), client(&server));
    let mutex = ours.mutex(PATH).unwrap();
    let expired = mutex.lock().unwrap();
    assert!(server.expire_session(ours.session_id()));
    let next = theirs.mutex(PATH).unwrap().lock().unwrap();
    while expired.events().recv_timeout(SOON).unwrap() != GuardEvent::Lost {}
    assert!(!expired.is_valid());
    assert!(expired.unlock().unwrap_err().is_lost());

    assert!(mutex.try_lock().unwrap().is_none());
    next.verify().unwrap();
    next.unlock().unwrap();
    assert!(mutex.try_lock_for(SOON).unwrap().is_some());
}

/// Curator's mutex and its read-write lock on one path let both in; it has no number.
#[test]
fn a_mutex_and_a_read_write_lock_of_curators_are_not_let_in_both() {
    let server = Server::start().unwrap();
    let ours = client(&server);
    let foreign = |error: Error| matches!(error, Error::ForeignContender { .. });
    let (mutex, rwlock) = (ours.mutex(PATH).unwrap(), ours.rwlock(PATH).unwrap());
    let mut raw = Raw::connect(server.hosts());
    raw.create_all(PATH);
    let stem = format!("{PATH}/_c_6f9c1c9e-5a0b-4b57-9a3e-0123456789ab");

    let theirs = raw.create(&format!("{stem}-lock-"), b"", EPHEMERAL_SEQUENTIAL);
    assert!(foreign(rwlock.read().unwrap_err()));
    assert!(foreign(rwlock.try_write().unwrap_err()));
    raw.delete(&theirs.unwrap()).unwrap();
    let theirs = raw.create(&format!("{stem}-__WRIT__"), b"", EPHEMERAL_SEQUENTIAL);
    assert!(foreign(mutex.lock().unwrap_err()));
    assert!(foreign(mutex.try_lock().unwrap_err()));
    raw.delete(&theirs.unwrap()).unwrap();
    wait_for_nodes(&server, PATH, 0);
}

/// CURATOR-486, CURATOR-678: a release while disconnected forgot the lock and left its node;
/// go-zookeeper's left its lock locked for ever.
#[test]
fn a_release_while_disconnected_is_made_up_for_and_the_mutex_stays_usable() {
    let server = Server::start().unwrap();
    let (ours, theirs) = (client(&server), client(&server));
    let (mutex, session) = (ours.mutex(PATH).unwrap(), ours.session_id());
    let guard = mutex.lock().unwrap();
    server.refuse();
    server.disconnect(session);
    drop(guard);
    assert!(theirs.mutex(PATH).unwrap().try_lock().unwrap().is_none());
    server.resume();
    for mutex in [theirs.mutex(PATH).unwrap(), mutex] {
        let guard = mutex.try_lock_for(SOON).unwrap();
        guard.expect("nobody has it").unlock().unwrap();
    }
    assert_eq!(ours.session_id(), session);
    wait_for_nodes(&server, PATH, 0);
}

/// Accumulo #1866: a create that was retried left several nodes of one contender.
#[test]
fn a_create_whose_reply_is_lost_on_a_lagging_server_leaves_one_node() {
    let server = Server::start().unwrap();
    let client = client(&server);
    let mutex = client.mutex(PATH).unwrap();
    mutex.lock().unwrap().unlock().unwrap();
    for _ in 0..5 {
        server.hide_next_create();
        server.drop_next_reply_to(RequestKind::Create);
        let guard = mutex.try_lock_for(SOON).unwrap();
        let guard = guard.expect("nobody is ahead but ourselves");
        guard.verify().unwrap();
        assert_eq!(nodes_in(&server, PATH), [guard.node()]);
        guard.unlock().unwrap();
    }
}

/// kazoo #430: a failed try to get a permit left the node of its inner lock.
#[test]
fn trying_in_vain_to_get_a_permit_leaves_nothing() {
    let server = Server::start().unwrap();
    let (ours, theirs) = (client(&server), client(&server));
    let semaphore = theirs.semaphore(PATH, 1).unwrap();
    let permit = ours.semaphore(PATH, 1).unwrap().acquire().unwrap();
    for _ in 0..5 {
        assert!(semaphore.try_acquire().unwrap().is_none());
        let shortly = Duration::from_millis(500);
        assert!(semaphore.try_acquire_for(shortly).unwrap().is_none());
    }
    let left = |dir: &str| nodes_in(&server, &format!("{PATH}/{dir}")).len();
    eventually("one permit is left", || {
        (left("locks"), left("leases")) == (0, 1)
    });
    permit.unlock().unwrap();
    assert!(semaphore.try_acquire().unwrap().is_some());
}
