//! A client that locks the same mutex again and again, and so stops looking for others, still
//! excludes them. On every transport, on the embedded server and on a real one.

use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::bounded;
use zklock::{LockOptions, Mutex};

use crate::support::raw::{EPHEMERAL_SEQUENTIAL, PERSISTENT, Raw, assert_nothing_left};
use crate::support::{Room, eventually, fresh_path};
use crate::transport::{Place, SOON, in_every_place, wait_for_queue};

in_every_place! {
    who_was_alone_for_long_waits_for_who_has_come
    clients_that_come_back_in_bursts_exclude_each_other
    who_comes_back_waits_for_who_is_in_a_directory_made_anew
    who_comes_back_waits_for_the_end_of_its_own_time
}

/// The number of times in a row after which the client expects nobody else.
const OFTEN: usize = 40;

/// A limit long enough for a lock that is free.
const MOMENT: Duration = Duration::from_secs(1);

/// Takes the lock so often that the client expects nobody else; returns the last node's number.
fn come_back_often(mutex: &Mutex) -> usize {
    let mut number = String::new();
    for _ in 0..OFTEN {
        let guard = mutex.lock().unwrap();
        number = guard.node()[guard.node().len() - 10..].to_owned();
        guard.unlock().unwrap();
    }
    number.parse().unwrap()
}

fn who_was_alone_for_long_waits_for_who_has_come(place: Place) {
    let (server, path) = (place.shared(), fresh_path("alone"));
    let [ours, theirs] = [(); 2].map(|()| place.connect(&server.hosts()));
    let mutex = ours.mutex(&path).unwrap();
    come_back_often(&mutex);
    let holder = theirs.mutex(&path).unwrap().lock().unwrap();
    assert!(mutex.try_lock_for(MOMENT).unwrap().is_none());
    assert!(mutex.try_lock().unwrap().is_none());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| mutex.lock().unwrap().fencing_token());
        wait_for_queue(&theirs, &path, 2);
        let token = holder.fencing_token();
        holder.unlock().unwrap();
        assert!(token < waiter.join().unwrap());
    });
    assert_nothing_left(&server.hosts(), &path);
}

fn clients_that_come_back_in_bursts_exclude_each_other(place: Place) {
    let (server, path) = (place.shared(), fresh_path("bursts"));
    let room = Room::default();
    thread::scope(|scope| {
        for burst in [1, 2, 7, 25] {
            let (room, path) = (&room, &path);
            scope.spawn(move || {
                let client = place.connect(&server.hosts());
                let mutex = client.mutex(path).unwrap();
                for at in 0..100 {
                    if at % burst == 0 {
                        thread::sleep(Duration::from_millis(fastrand::u64(..20)));
                    }
                    let guard = mutex.lock().unwrap();
                    room.visit();
                    guard.check().unwrap();
                }
            });
        }
    });
    assert_nothing_left(&server.hosts(), &path);
}

/// The numbers start again, and our next number is the one that would have come anyway.
fn who_comes_back_waits_for_who_is_in_a_directory_made_anew(place: Place) {
    let (server, path) = (place.shared(), fresh_path("anew"));
    let client = place.connect(&server.hosts());
    let mutex = client.mutex(&path).unwrap();
    let last = come_back_often(&mutex);
    let mut raw = Raw::connect(&server.hosts());
    raw.delete(&path).unwrap();
    raw.create(&path, b"", PERSISTENT).unwrap();
    let mut holder = String::new();
    for number in 0..=last {
        let node = format!("{path}/lock-");
        holder = raw.create(&node, b"", EPHEMERAL_SEQUENTIAL).unwrap();
        assert!(holder.ends_with(&format!("{number:010}")));
        if number < last {
            raw.delete(&holder).unwrap();
        }
    }
    let (told, found) = bounded(1);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let options = LockOptions::new().on_wait(move |waiting| {
                let ahead = waiting.ahead().unwrap().node().to_owned();
                let _ = told.try_send(ahead);
            });
            mutex.lock_with(options).unwrap().unwrap().unlock()
        });
        assert_eq!(found.recv_timeout(SOON).as_ref(), Ok(&holder));
        raw.delete(&holder).unwrap();
        waiter.join().unwrap().unwrap();
    });
}

fn who_comes_back_waits_for_the_end_of_its_own_time(place: Place) {
    let (server, path) = (place.shared(), fresh_path("least"));
    let client = place.connect(&server.hosts());
    let mutex = client.mutex(&path).unwrap();
    come_back_often(&mutex);
    let least = Duration::from_secs(1);
    let begun = Instant::now();
    let options = LockOptions::new().hold_at_least(least);
    drop(mutex.lock_with(options).unwrap().unwrap());
    drop(mutex.lock().unwrap());
    assert!(least <= begun.elapsed());
    eventually("nobody is left", || {
        client.contenders(&path).unwrap().is_empty()
    });
}
