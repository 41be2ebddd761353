//! Several permits at once.

use std::thread;
use std::time::Duration;

use zklock::{Error, GuardEvent, LockOptions};

use super::{dialects, left, nothing_is_left, semaphore};
use crate::support::raw::Raw;
use crate::support::{eventually, fresh_path};
use crate::transport::{Place, in_every_place, wait_for};

in_every_place! {
    several_permits_are_had_at_once_or_not_at_all
    who_wants_many_is_not_starved_by_those_who_want_one
    if_one_of_several_permits_is_lost_all_are
    two_who_want_all_permits_take_turns
}

fn several_permits_are_had_at_once_or_not_at_all(place: Place) {
    for &dialect in dialects(place) {
        let path = fresh_path("many");
        let (_client, ours) = semaphore(place, dialect, &path, 3);
        let (_other, theirs) = semaphore(place, dialect, &path, 3);
        let two = ours.acquire_many(2).unwrap();
        assert_eq!(two.nodes().len(), 2);
        // The client leaves the line without waiting for the answer.
        eventually("it has left the line", || {
            left(place, dialect, &path) == [0, 2]
        });
        assert!(theirs.try_acquire_many(2).unwrap().is_none());
        let shortly = || LockOptions::new().deadline(std::time::Instant::now() + SHORTLY);
        assert!(theirs.acquire_many_with(2, shortly()).unwrap().is_none());
        eventually("nothing stays of those that gave up", || {
            left(place, dialect, &path) == [0, 2]
        });
        let one = theirs.try_acquire().unwrap().unwrap();
        two.verify().unwrap();
        two.unlock().unwrap();
        let both = theirs.acquire_many_with(2, LockOptions::new()).unwrap();
        both.unwrap().unlock().unwrap();
        one.unlock().unwrap();
        for count in [0, 4] {
            let refused = ours.acquire_many(count);
            assert!(matches!(
                refused,
                Err(Error::BadArgument { name: "count", .. })
            ));
        }
        nothing_is_left(place, dialect, &path);
    }
}

/// A time longer than it takes to queue.
const SHORTLY: Duration = Duration::from_millis(500);

fn who_wants_many_is_not_starved_by_those_who_want_one(place: Place) {
    for &dialect in dialects(place) {
        let path = fresh_path("starved");
        let (_client, ours) = semaphore(place, dialect, &path, 2);
        let (_other, theirs) = semaphore(place, dialect, &path, 2);
        let (_third, late) = semaphore(place, dialect, &path, 2);
        let first = ours.acquire().unwrap();
        thread::scope(|scope| {
            let many = scope.spawn(|| theirs.acquire_many(2));
            eventually("it is first in the line", || {
                left(place, dialect, &path)[0] == 1
            });
            thread::sleep(SHORTLY);
            // There is room for one permit, but another contender came first.
            let limited = late.try_acquire_for(SHORTLY).unwrap();
            assert!(limited.is_none());
            drop(first);
            let many = many.join().unwrap().unwrap();
            assert_eq!(many.nodes().len(), 2);
            many.unlock().unwrap();
        });
        nothing_is_left(place, dialect, &path);
    }
}

fn if_one_of_several_permits_is_lost_all_are(place: Place) {
    for &dialect in dialects(place) {
        let path = fresh_path("one-lost");
        let (_client, ours) = semaphore(place, dialect, &path, 3);
        let many = ours.acquire_many(3).unwrap();
        let mut raw = Raw::connect(&place.shared().hosts());
        raw.delete(&many.nodes()[1]).unwrap();
        wait_for(&many, GuardEvent::Lost);
        assert!(many.unlock().unwrap_err().is_lost());
        nothing_is_left(place, dialect, &path);
    }
}

fn two_who_want_all_permits_take_turns(place: Place) {
    for &dialect in dialects(place) {
        let path = fresh_path("turns");
        let all = [(); 2].map(|()| semaphore(place, dialect, &path, 2));
        thread::scope(|scope| {
            for (_client, semaphore) in &all {
                scope.spawn(|| {
                    for _ in 0..3 {
                        let many = semaphore.acquire_many(2).unwrap();
                        many.verify().unwrap();
                        many.unlock().unwrap();
                    }
                });
            }
        });
        nothing_is_left(place, dialect, &path);
    }
}
