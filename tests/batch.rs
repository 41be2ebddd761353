//! What batch jobs ask of a mutex: who died before me, and not twice a night.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

use support::eventually;
use zklock::embedded::Server;
use zklock::{Client, Error, LockOptions, Mutex};

const PATH: &str = "/jobs/import";

fn client(server: &Server) -> Client {
    Client::connect(server.hosts()).unwrap()
}

fn tracked(client: &Client) -> Mutex {
    client.mutex(PATH).unwrap().track_abandonment()
}

#[test]
fn a_clean_release_is_no_abandonment() {
    let server = Server::start().unwrap();
    let (one, other) = (client(&server), client(&server));
    for client in [&one, &other, &one] {
        let guard = tracked(client).lock().unwrap();
        assert_eq!(guard.abandoned(), None);
        drop(guard);
    }
    // Who waited and gave up has not abandoned anything.
    let guard = tracked(&one).lock().unwrap();
    assert!(
        tracked(&other)
            .try_lock_for(Duration::from_millis(30))
            .unwrap()
            .is_none()
    );
    guard.unlock().unwrap();
    assert_eq!(tracked(&other).lock().unwrap().abandoned(), None);
}

#[test]
fn the_next_holder_learns_that_its_predecessor_died() {
    let server = Server::start().unwrap();
    let (dying, next) = (client(&server), client(&server));
    let guard = tracked(&dying).lock().unwrap();
    server.expire_session(dying.session_id());
    let heir = tracked(&next).lock().unwrap();
    assert_eq!(heir.abandoned(), Some(guard.fencing_token()));
    drop(guard);
    heir.unlock().unwrap();
    assert_eq!(tracked(&dying).lock().unwrap().abandoned(), None);
}

#[test]
fn a_panic_in_the_critical_section_releases_the_mutex_and_is_told() {
    let server = Server::start().unwrap();
    let client = client(&server);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _guard = tracked(&client).lock().unwrap();
        panic!("half way through the import");
    }));
    assert!(panicked.is_err());
    let guard = tracked(&client).lock().unwrap();
    assert!(guard.abandoned().is_some());
    drop(guard);
    assert_eq!(tracked(&client).lock().unwrap().abandoned(), None);
}

#[test]
fn a_container_cannot_keep_the_mark() {
    let server = Server::start().unwrap();
    let client = client(&server);
    drop(client.mutex(PATH).unwrap().lock().unwrap());
    let error = tracked(&client).lock().unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    eventually("nothing is left", || {
        client.contenders(PATH).unwrap().is_empty()
    });
}

#[test]
fn a_successor_waits_after_a_death_and_not_after_a_release() {
    const DELAY: Duration = Duration::from_millis(300);
    let server = Server::start().unwrap();
    let (dying, next) = (client(&server), client(&server));
    let patient = next.mutex(PATH).unwrap().successor_delay(DELAY);
    let _abandoned = patient.lock().unwrap();
    server.expire_session(next.session_id());
    let patient = dying.mutex(PATH).unwrap().successor_delay(DELAY);
    // Giving up during the delay leaves the mark for the next one.
    assert!(patient.try_lock_for(DELAY / 3).unwrap().is_none());
    let start = Instant::now();
    let guard = patient.lock().unwrap();
    assert!(DELAY <= start.elapsed());
    assert!(guard.abandoned().is_some());
}

#[test]
fn a_lock_is_held_for_at_least_as_long_as_asked() {
    const LEAST: Duration = Duration::from_millis(400);
    let server = Server::start().unwrap();
    let (early, late) = (client(&server), client(&server));
    let start = Instant::now();
    let lock = |client: &Client| {
        let options = LockOptions::new().hold_at_least(LEAST);
        client
            .mutex(PATH)
            .unwrap()
            .lock_with(options)
            .unwrap()
            .unwrap()
    };
    drop(lock(&early));
    assert!(start.elapsed() < LEAST, "the drop does not wait");
    assert!(late.mutex(PATH).unwrap().try_lock().unwrap().is_none());
    let guard = late.mutex(PATH).unwrap().lock().unwrap();
    assert!(LEAST <= start.elapsed());
    guard.unlock().unwrap();

    // Unlocking waits, and so does the end of the program.
    let start = Instant::now();
    lock(&early).unlock().unwrap();
    assert!(LEAST <= start.elapsed());
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            let short_job = client(&server);
            drop(lock(&short_job));
        });
    });
    assert!(LEAST <= start.elapsed());
    assert!(late.mutex(PATH).unwrap().lock().is_ok());
}
