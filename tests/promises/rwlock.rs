//! The promises of the read-write lock, on every transport, on the embedded server and on
//! a real one.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use zklock::{Client, Error, GuardEvent, LockOptions, RwLock};

use crate::support::raw::assert_nothing_left;
use crate::support::{aside, fresh_path};
use crate::transport::{
    Place, Waiter, expire_owner, in_every_place, on_every_server, wait_for, wait_for_queue,
};

in_every_place! {
    readers_share_and_writers_do_not
    a_thread_that_comes_twice_is_told_so
    a_thread_that_has_the_path_as_another_lock_is_told_so
    a_writer_does_not_starve_behind_later_readers
    a_downgrade_lets_readers_in_and_no_writer_between
    a_reader_of_a_lost_session_is_told
    a_writer_of_a_lost_session_is_told
    a_writer_whose_session_expires_while_it_waits_queues_again
    a_reader_whose_session_expires_while_it_waits_queues_again
    readers_and_writers_never_overlap
}

// A handle has been given up by then.
on_every_server! {
    a_waiter_whose_node_is_gone_before_its_session_queues_again
}

fn lock(place: Place, path: &str) -> (Client, RwLock) {
    let client = place.connect(&place.shared().hosts());
    let lock = client.rwlock(path).unwrap();
    (client, lock)
}

fn readers_share_and_writers_do_not(place: Place) {
    let path = fresh_path("shared");
    let (client, ours) = lock(place, &path);
    let (_theirs_client, theirs) = lock(place, &path);
    let one = ours.read().unwrap();
    let other = theirs.try_read().unwrap().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| assert!(ours.try_write().unwrap().is_none()));
    });
    drop((one, other));
    wait_for_queue(&client, &path, 0);
    let writing = ours.write().unwrap();
    assert!(theirs.try_read().unwrap().is_none());
    assert!(theirs.try_write().unwrap().is_none());
    let shortly = Duration::from_secs(1);
    assert!(theirs.try_read_for(shortly).unwrap().is_none());
    writing.unlock().unwrap();
    // A contender that gave up may still be on its way out.
    wait_for_queue(&client, &path, 0);
    assert!(theirs.try_write().unwrap().is_some());
    wait_for_queue(&client, &path, 0);
}

/// Netflix/curator #75: the thread waited for itself, as it does for an upgrade.
fn a_thread_that_comes_twice_is_told_so(place: Place) {
    let path = fresh_path("twice");
    let (client, lock) = lock(place, &path);
    let would_deadlock = Error::WouldDeadlock { path: path.clone() };
    let reading = lock.read().unwrap();
    assert_eq!(lock.write().unwrap_err(), would_deadlock);
    assert_eq!(lock.try_read().unwrap_err(), would_deadlock);
    drop(reading);
    let writing = lock.write().unwrap();
    assert_eq!(lock.read().unwrap_err(), would_deadlock);
    drop(writing);
    drop(lock.read().unwrap());
    wait_for_queue(&client, &path, 0);
}

/// The two locks are one, so the thread would wait for itself on the server.
fn a_thread_that_has_the_path_as_another_lock_is_told_so(place: Place) {
    let path = fresh_path("other");
    let (client, lock) = lock(place, &path);
    let (mutex, reentrant) = (client.mutex(&path), client.reentrant_mutex(&path));
    let (mutex, reentrant) = (mutex.unwrap(), reentrant.unwrap());
    let several = client.multi_lock([path.as_str()]).unwrap();
    let shared = several.clone().reading([path.as_str()]).unwrap();
    let (soon, would_deadlock) = (Duration::from_millis(300), Error::WouldDeadlock { path });
    let reading = lock.read().unwrap();
    assert_eq!(mutex.try_lock_for(soon).unwrap_err(), would_deadlock);
    assert_eq!(mutex.try_lock().unwrap_err(), would_deadlock);
    assert_eq!(reentrant.try_lock_for(soon).unwrap_err(), would_deadlock);
    assert_eq!(several.try_lock_for(soon).unwrap_err(), would_deadlock);
    // Another thread may have the guard, and give it back.
    let sent = reading.into_send();
    assert!(mutex.try_lock_for(soon).unwrap().is_none());
    drop(sent);
    let locked = mutex.lock().unwrap();
    assert_eq!(lock.try_read_for(soon).unwrap_err(), would_deadlock);
    assert_eq!(lock.try_write().unwrap_err(), would_deadlock);
    assert_eq!(shared.try_lock_for(soon).unwrap_err(), would_deadlock);
    drop(locked);
    drop(reentrant.lock().unwrap());
    drop(lock.write().unwrap());
    wait_for_queue(&client, mutex.path(), 0);
}

fn a_writer_does_not_starve_behind_later_readers(place: Place) {
    let path = fresh_path("starve");
    let (client, lock) = lock(place, &path);
    let reading = lock.read().unwrap();
    let (told, order) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn({
            let (lock, told) = (&lock, told.clone());
            move || {
                let guard = lock.write().unwrap();
                told.send("writer").unwrap();
                drop(guard);
            }
        });
        wait_for_queue(&client, &path, 2);
        assert!(self::lock(place, &path).1.try_read().unwrap().is_none());
        scope.spawn({
            let (lock, told) = (&lock, told.clone());
            move || {
                let guard = lock.read().unwrap();
                told.send("later reader").unwrap();
                drop(guard);
            }
        });
        wait_for_queue(&client, &path, 3);
        drop(reading);
    });
    let order: Vec<_> = order.try_iter().collect();
    assert_eq!(order, ["writer", "later reader"]);
}

/// CURATOR-276, CURATOR-621: a queued writer got in.
fn a_downgrade_lets_readers_in_and_no_writer_between(place: Place) {
    let path = fresh_path("downgrade");
    let (client, lock) = lock(place, &path);
    let writing = lock.write().unwrap();
    let token = writing.fencing_token();
    let writer_in = AtomicI32::new(0);
    thread::scope(|scope| {
        let early = scope.spawn(|| drop(lock.read().unwrap()));
        wait_for_queue(&client, &path, 2);
        scope.spawn(|| {
            let guard = lock.write().unwrap();
            writer_in.store(1, Ordering::SeqCst);
            drop(guard);
        });
        wait_for_queue(&client, &path, 3);
        let reading = writing.downgrade().unwrap();
        assert_eq!(reading.fencing_token(), token);
        early.join().unwrap();
        reading.verify().unwrap();
        wait_for_queue(&client, &path, 2);
        assert_eq!(writer_in.load(Ordering::SeqCst), 0);
        reading.unlock().unwrap();
    });
    assert_eq!(writer_in.load(Ordering::SeqCst), 1);
    wait_for_queue(&client, &path, 0);
}

fn a_reader_of_a_lost_session_is_told(place: Place) {
    let (server, path) = (place.shared(), fresh_path("lost"));
    let (client, ours) = lock(place, &path);
    let reading = ours.read().unwrap();
    expire_owner(server, reading.node());
    wait_for(&reading, GuardEvent::Lost);
    assert!(reading.check().unwrap_err().is_lost());
    assert!(reading.unlock().unwrap_err().is_lost());
    let again = place.survivor(&client).rwlock(&path).unwrap();
    drop(again.write().unwrap());
    assert_nothing_left(&server.hosts(), &path);
}

fn a_writer_of_a_lost_session_is_told(place: Place) {
    let (server, path) = (place.shared(), fresh_path("lost"));
    let (client, ours) = lock(place, &path);
    let writing = ours.write().unwrap();
    expire_owner(server, writing.node());
    wait_for(&writing, GuardEvent::Lost);
    assert!(writing.check().unwrap_err().is_lost());
    assert!(writing.downgrade().unwrap_err().is_lost());
    let again = place.survivor(&client).rwlock(&path).unwrap();
    drop(again.read().unwrap());
    assert_nothing_left(&server.hosts(), &path);
}

/// etcd #19597: the waiter went on waiting, in no queue. A waiter of ours once took itself for
/// evicted.
fn a_writer_whose_session_expires_while_it_waits_queues_again(place: Place) {
    let (path, waiter) = (fresh_path("writer"), Waiter::connect(place));
    let (_client, ours) = lock(place, &path);
    let theirs = waiter.client.rwlock(&path).unwrap();
    let reading = ours.read().unwrap();
    let waiting = aside(move || theirs.write().map(drop));
    waiter.lose_sessions(&path, reading.node(), &waiting);
    drop(reading);
    place.assert_gets_in(&waiting);
    assert_nothing_left(&place.shared().hosts(), &path);
}

fn a_reader_whose_session_expires_while_it_waits_queues_again(place: Place) {
    let (path, waiter) = (fresh_path("reader"), Waiter::connect(place));
    let (_client, ours) = lock(place, &path);
    let theirs = waiter.client.rwlock(&path).unwrap();
    let writing = ours.write().unwrap();
    let waiting = aside(move || theirs.read().map(drop));
    waiter.lose_sessions(&path, writing.node(), &waiting);
    drop(writing);
    place.assert_gets_in(&waiting);
    assert_nothing_left(&place.shared().hosts(), &path);
}

/// The waiter's first news looks like an eviction.
fn a_waiter_whose_node_is_gone_before_its_session_queues_again(place: Place) {
    let (path, waiter) = (fresh_path("before"), Waiter::connect(place));
    let (_client, ours) = lock(place, &path);
    let (_other, others) = lock(place, &path);
    let theirs = waiter.client.rwlock(&path).unwrap();
    let (first, second) = (ours.read().unwrap(), others.read().unwrap());
    let (node, nearest) = (first.node().to_owned(), second.node().to_owned());
    let waiting = aside(move || theirs.write().map(drop));
    waiter.lose_node_and_session(&path, &[&node, &nearest], &waiting, || drop(second));
    drop(first);
    place.assert_gets_in(&waiting);
    assert_nothing_left(&place.shared().hosts(), &path);
}

fn readers_and_writers_never_overlap(place: Place) {
    let path = fresh_path("overlap");
    let inside = AtomicI32::new(0);
    let clients: Vec<_> = (0..4).map(|_| lock(place, &path)).collect();
    let inside = &inside;
    thread::scope(|scope| {
        for (at, (_, lock)) in clients.iter().enumerate() {
            for _ in 0..4 {
                scope.spawn(move || visit(lock, at, inside));
            }
        }
    });
    wait_for_queue(&clients[0].0, &path, 0);
}

/// Comes repeatedly, and notes in `inside` how many readers there are, or -1 for a writer.
fn visit(lock: &RwLock, offset: usize, inside: &AtomicI32) {
    for round in 0..20 {
        if (round + offset) % 5 == 0 {
            let guard = lock.write().unwrap();
            assert_eq!(inside.swap(-1, Ordering::SeqCst), 0);
            thread::yield_now();
            assert_eq!(inside.swap(0, Ordering::SeqCst), -1);
            drop(guard);
        } else {
            let guard = lock.read_with(LockOptions::new()).unwrap().unwrap();
            assert!(0 <= inside.fetch_add(1, Ordering::SeqCst));
            thread::yield_now();
            assert!(0 < inside.fetch_sub(1, Ordering::SeqCst));
            drop(guard);
        }
    }
}
