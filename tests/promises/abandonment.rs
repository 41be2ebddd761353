//! The next holder learns that the one before it died or panicked, on every transport that
//! supports this, on the embedded server and on a real one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use zklock::{Client, Error, LockOptions, MutexGuard, Result};

use crate::support::raw::{Raw, assert_nothing_left};
use crate::support::{aside, fresh_path, timed};
use crate::transport::{Place, SOON, expire_owner, on_every_server, wait_for_queue};

// Marks need transactions, which a handle does not have.
on_every_server! {
    a_clean_release_is_no_abandonment
    the_next_holder_learns_that_its_predecessor_died
    a_panic_in_the_critical_section_releases_the_mutex_and_is_told
    a_container_cannot_keep_the_mark
    a_release_leaves_what_has_taken_the_place_of_its_mark
    a_successor_waits_after_a_death_and_not_after_a_release
    a_close_ends_the_wait_of_a_successor
}

fn scene(place: Place) -> (Client, Client, String) {
    let hosts = place.shared().hosts();
    let path = fresh_path("abandoned");
    (place.connect(&hosts), place.connect(&hosts), path)
}

fn tracking() -> LockOptions<'static> {
    LockOptions::new().track_abandonment()
}

fn lock(client: &Client, path: &str, options: LockOptions<'_>) -> Result<Option<MutexGuard>> {
    client.mutex(path).unwrap().lock_with(options)
}

fn tracked(client: &Client, path: &str) -> MutexGuard {
    let guard = lock(client, path, tracking()).unwrap();
    guard.expect("a wait without a limit")
}

fn a_clean_release_is_no_abandonment(place: Place) {
    let (one, other, path) = scene(place);
    for client in [&one, &other, &one] {
        let guard = tracked(client, &path);
        assert_eq!(guard.abandoned(), None);
        drop(guard);
    }
    // A waiter that gave up has abandoned nothing.
    let guard = tracked(&one, &path);
    let shortly = Duration::from_millis(500);
    let given_up = lock(&other, &path, tracking().timeout(shortly)).unwrap();
    assert!(given_up.is_none());
    guard.unlock().unwrap();
    assert_eq!(tracked(&other, &path).abandoned(), None);
}

fn the_next_holder_learns_that_its_predecessor_died(place: Place) {
    let (dying, next, path) = scene(place);
    let guard = tracked(&dying, &path);
    expire_owner(place.shared(), guard.node());
    let heir = tracked(&next, &path);
    assert_eq!(heir.abandoned(), Some(guard.fencing_token()));
    drop(guard);
    heir.unlock().unwrap();
    assert_eq!(tracked(&dying, &path).abandoned(), None);
}

fn a_panic_in_the_critical_section_releases_the_mutex_and_is_told(place: Place) {
    let (client, _, path) = scene(place);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _guard = tracked(&client, &path);
        panic!("half way through the import");
    }));
    assert!(panicked.is_err());
    let guard = tracked(&client, &path);
    assert!(guard.abandoned().is_some());
    drop(guard);
    assert_eq!(tracked(&client, &path).abandoned(), None);
}

fn a_container_cannot_keep_the_mark(place: Place) {
    let (client, _, path) = scene(place);
    drop(client.mutex(&path).unwrap().lock().unwrap());
    let before = client.metrics().requests.creates;
    let error = lock(&client, &path, tracking()).unwrap_err();
    assert!(matches!(error, Error::Unmarked { .. }), "{error}");
    assert_eq!(client.metrics().requests.creates, before);
    assert_nothing_left(&place.shared().hosts(), &path);
}

fn a_release_leaves_what_has_taken_the_place_of_its_mark(place: Place) {
    let (client, _, path) = scene(place);
    let hosts = place.shared().hosts();
    let guard = tracked(&client, &path);
    let mut raw = Raw::connect(&hosts);
    raw.set_data(&path, b"somebody's").unwrap();
    guard.unlock().unwrap();
    assert_eq!(raw.data(&path).unwrap(), b"somebody's");
    assert_nothing_left(&hosts, &path);
}

fn a_successor_waits_after_a_death_and_not_after_a_release(place: Place) {
    const DELAY: Duration = Duration::from_millis(1500);
    const LONG: Duration = Duration::from_secs(3600);
    let (dying, next, path) = scene(place);
    let soon = || LockOptions::new().successor_delay(LONG).timeout(SOON);
    let patient = || lock(&dying, &path, soon()).unwrap().expect("nobody died");
    patient().unlock().unwrap();
    let abandoned = patient();
    expire_owner(place.shared(), abandoned.node());
    let patient = || LockOptions::new().successor_delay(DELAY);
    // Giving up during the delay leaves the mark for the next holder.
    let given_up = lock(&next, &path, patient().timeout(DELAY / 3)).unwrap();
    assert!(given_up.is_none());
    let (guard, took) = timed(|| lock(&next, &path, patient()).unwrap().unwrap());
    assert!(DELAY <= took, "{took:?}");
    assert!(guard.abandoned().is_some());
}

fn a_close_ends_the_wait_of_a_successor(place: Place) {
    let (dying, next, path) = scene(place);
    let abandoned = tracked(&dying, &path);
    expire_owner(place.shared(), abandoned.node());
    let mutex = next.mutex(&path).unwrap();
    let waits = aside(move || {
        let patient = LockOptions::new().successor_delay(Duration::from_secs(3600));
        mutex.lock_with(patient).map(drop)
    });
    wait_for_queue(&dying, &path, 1);
    next.close().unwrap();
    let closed = waits.recv_timeout(SOON).expect("an end");
    assert!(closed.is_err());
}
