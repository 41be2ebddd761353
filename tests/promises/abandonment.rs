//! The next holder learns that the one before it died or panicked, on every transport that
//! supports this, on the embedded server and on a real one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use zklock::{Client, Error, Mutex};

use crate::support::raw::assert_nothing_left;
use crate::support::{aside, fresh_path, timed};
use crate::transport::{Place, SOON, expire_owner, on_every_server, wait_for_queue};

// Marks need transactions, which a handle does not have.
on_every_server! {
    a_clean_release_is_no_abandonment
    the_next_holder_learns_that_its_predecessor_died
    a_panic_in_the_critical_section_releases_the_mutex_and_is_told
    a_container_cannot_keep_the_mark
    a_successor_waits_after_a_death_and_not_after_a_release
    a_close_ends_the_wait_of_a_successor
}

fn scene(place: Place) -> (Client, Client, String) {
    let hosts = place.shared().hosts();
    let path = fresh_path("abandoned");
    (place.connect(&hosts), place.connect(&hosts), path)
}

fn tracked(client: &Client, path: &str) -> Mutex {
    client.mutex(path).unwrap().track_abandonment()
}

fn a_clean_release_is_no_abandonment(place: Place) {
    let (one, other, path) = scene(place);
    for client in [&one, &other, &one] {
        let guard = tracked(client, &path).lock().unwrap();
        assert_eq!(guard.abandoned(), None);
        drop(guard);
    }
    // A waiter that gave up has not abandoned anything.
    let guard = tracked(&one, &path).lock().unwrap();
    let shortly = Duration::from_millis(30);
    let given_up = tracked(&other, &path).try_lock_for(shortly).unwrap();
    assert!(given_up.is_none());
    guard.unlock().unwrap();
    assert_eq!(tracked(&other, &path).lock().unwrap().abandoned(), None);
}

fn the_next_holder_learns_that_its_predecessor_died(place: Place) {
    let (dying, next, path) = scene(place);
    let guard = tracked(&dying, &path).lock().unwrap();
    expire_owner(place.shared(), guard.node());
    let heir = tracked(&next, &path).lock().unwrap();
    assert_eq!(heir.abandoned(), Some(guard.fencing_token()));
    drop(guard);
    heir.unlock().unwrap();
    assert_eq!(tracked(&dying, &path).lock().unwrap().abandoned(), None);
}

fn a_panic_in_the_critical_section_releases_the_mutex_and_is_told(place: Place) {
    let (client, _, path) = scene(place);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _guard = tracked(&client, &path).lock().unwrap();
        panic!("half way through the import");
    }));
    assert!(panicked.is_err());
    let guard = tracked(&client, &path).lock().unwrap();
    assert!(guard.abandoned().is_some());
    drop(guard);
    assert_eq!(tracked(&client, &path).lock().unwrap().abandoned(), None);
}

fn a_container_cannot_keep_the_mark(place: Place) {
    let (client, _, path) = scene(place);
    drop(client.mutex(&path).unwrap().lock().unwrap());
    let error = tracked(&client, &path).lock().unwrap_err();
    assert!(matches!(error, Error::Unmarked { .. }), "{error}");
    assert_nothing_left(&place.shared().hosts(), &path);
}

fn a_successor_waits_after_a_death_and_not_after_a_release(place: Place) {
    const DELAY: Duration = Duration::from_millis(300);
    const LONG: Duration = Duration::from_secs(3600);
    let (dying, next, path) = scene(place);
    let patient = dying.mutex(&path).unwrap().successor_delay(LONG);
    let lock = || patient.try_lock_for(SOON).unwrap().expect("nobody died");
    lock().unlock().unwrap();
    let abandoned = lock();
    expire_owner(place.shared(), abandoned.node());
    let patient = next.mutex(&path).unwrap().successor_delay(DELAY);
    // Giving up during the delay leaves the mark for the next holder.
    assert!(patient.try_lock_for(DELAY / 3).unwrap().is_none());
    let (guard, took) = timed(|| patient.lock().unwrap());
    assert!(DELAY <= took, "{took:?}");
    assert!(guard.abandoned().is_some());
}

fn a_close_ends_the_wait_of_a_successor(place: Place) {
    let (dying, next, path) = scene(place);
    let abandoned = tracked(&dying, &path).lock().unwrap();
    expire_owner(place.shared(), abandoned.node());
    let patient = next.mutex(&path).unwrap();
    let patient = patient.successor_delay(Duration::from_secs(3600));
    let waits = aside(move || patient.lock().map(drop));
    wait_for_queue(&dying, &path, 1);
    next.close().unwrap();
    let closed = waits.recv_timeout(SOON).expect("an end");
    assert!(closed.is_err());
}
