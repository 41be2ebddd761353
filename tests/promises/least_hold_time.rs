//! Locks with a least hold time, which are not released before it has passed: on every transport,
//! on the embedded server and on a real one.

use std::thread;
use std::time::{Duration, Instant};

use zklock::embedded::Server;
use zklock::{Client, LockOptions, MutexGuard, SessionEvent, SessionState};

use crate::support::proxy::Proxy;
use crate::support::raw::Raw;
use crate::support::{aside, eventually, fresh_path, timed};
use crate::transport::{Place, SOON, in_every_place};

in_every_place! {
    a_lock_is_held_for_at_least_as_long_as_asked
    each_of_several_locks_is_released_when_its_own_time_has_passed
    dropping_a_guard_does_not_wait_for_as_long_as_asked
    unlocking_and_closing_wait_for_as_long_as_asked
}

fn scene(place: Place) -> (Client, Client, String) {
    let hosts = place.shared().hosts();
    let path = fresh_path("least");
    (place.connect(&hosts), place.connect(&hosts), path)
}

fn lock_for_at_least(client: &Client, path: &str, time: Duration) -> MutexGuard {
    let options = LockOptions::new().hold_at_least(time);
    let mutex = client.mutex(path).unwrap();
    mutex.lock_with(options).unwrap().unwrap()
}

fn a_lock_is_held_for_at_least_as_long_as_asked(place: Place) {
    const LEAST: Duration = Duration::from_millis(400);
    let (early, late, path) = scene(place);
    let start = Instant::now();
    drop(lock_for_at_least(&early, &path, LEAST));
    let guard = late.mutex(&path).unwrap().lock().unwrap();
    assert!(LEAST <= start.elapsed());
    guard.unlock().unwrap();
}

fn each_of_several_locks_is_released_when_its_own_time_has_passed(place: Place) {
    let (early, late, path) = scene(place);
    let paths = [1, 2, 3].map(|turn| (turn, format!("{path}/{turn}")));
    for (turn, path) in &paths {
        drop(lock_for_at_least(
            &early,
            path,
            Duration::from_millis(300 * turn),
        ));
    }
    for (_, path) in &paths {
        let taken = late.mutex(path).unwrap().try_lock_for(SOON).unwrap();
        assert!(taken.is_some(), "{path} is not released");
    }
}

fn dropping_a_guard_does_not_wait_for_as_long_as_asked(place: Place) {
    const LEAST: Duration = Duration::from_secs(60);
    let (early, late, path) = scene(place);
    let guard = lock_for_at_least(&early, &path, LEAST);
    let node = guard.node().to_owned();
    let ((), took) = timed(|| drop(guard));
    assert!(took < LEAST / 2, "{took:?}");
    assert!(late.mutex(&path).unwrap().try_lock().unwrap().is_none());
    let mut raw = Raw::connect(&place.shared().hosts());
    raw.delete(&node).unwrap();
    assert!(late.mutex(&path).unwrap().try_lock().unwrap().is_some());
    // The last drop of the client waits.
    thread::spawn(move || drop(early));
}

fn unlocking_and_closing_wait_for_as_long_as_asked(place: Place) {
    const LEAST: Duration = Duration::from_millis(300);
    let (client, other, path) = scene(place);
    let start = Instant::now();
    lock_for_at_least(&client, &path, LEAST).unlock().unwrap();
    assert!(LEAST <= start.elapsed());
    let start = Instant::now();
    drop(lock_for_at_least(&client, &path, LEAST));
    drop(client);
    assert!(LEAST <= start.elapsed());
    assert!(other.mutex(&path).unwrap().lock().is_ok());
}

/// A wait would keep nobody out.
#[test]
fn a_lock_that_is_lost_is_not_waited_for_as_long_as_asked() {
    const LEAST: Duration = Duration::from_secs(60);
    let server = Server::start().unwrap();
    let [early, late] = [1, 2].map(|_| Client::connect(server.hosts()).unwrap());
    let path = fresh_path("least");
    let guard = lock_for_at_least(&early, &path, LEAST);
    late.contenders(&path).unwrap()[0].evict().unwrap();
    eventually("it is told", || !guard.is_valid());
    drop(guard);
    let (closed, took) = timed(|| early.close());
    closed.unwrap();
    assert!(took < LEAST / 2, "{took:?}");
}

/// The client's nodes went with the session.
#[test]
fn a_client_whose_session_ends_meanwhile_is_closed_at_once() {
    const LEAST: Duration = Duration::from_secs(12);
    let server = Server::start().unwrap();
    let client = Client::connect(server.hosts()).unwrap();
    let path = fresh_path("least");
    drop(lock_for_at_least(&client, &path, LEAST));
    let session = client.session_id();
    let closes = aside(move || timed(|| client.close()).1);
    thread::sleep(LEAST / 20);
    assert!(server.expire_session(session));
    let took = closes.recv().unwrap();
    assert!(took < LEAST / 2, "{took:?}");
}

/// The session may last for a moment more, which its client does not wait for.
#[test]
fn a_client_that_has_given_its_session_up_meanwhile_is_closed_at_once() {
    for is_back in [true, false] {
        closes_after_its_session_was_given_up(is_back);
    }
}

fn closes_after_its_session_was_given_up(is_back: bool) {
    const LEAST: Duration = Duration::from_secs(60);
    let server = Server::builder().tick(LEAST / 600).start().unwrap();
    let proxy = Proxy::start(server.hosts());
    let client = Client::builder(&proxy.hosts()).session_timeout(LEAST / 60);
    let client = client.connect().unwrap();
    let (events, path) = (client.events(), fresh_path("least"));
    drop(lock_for_at_least(&client, &path, LEAST));
    proxy.drop_greetings();
    proxy.cut();
    while events.recv().unwrap() != SessionEvent::Expired {}
    if is_back {
        proxy.heal();
        while !matches!(events.recv().unwrap(), SessionEvent::Connected { .. }) {}
    }
    let (closed, took) = timed(|| client.close());
    closed.unwrap();
    assert!(took < LEAST / 2, "{took:?}");
}

/// The unlock is told at once, and not only when it looks again.
#[test]
fn an_unlock_that_waits_is_told_that_its_lock_is_gone() {
    const LEAST: Duration = Duration::from_secs(60);
    let server = Server::start().unwrap();
    let [early, late] = [1, 2].map(|_| Client::connect(server.hosts()).unwrap());
    let path = fresh_path("least");
    let takes = || {
        let guard = lock_for_at_least(&early, &path, LEAST).into_send();
        let unlocked = aside(move || {
            assert!(guard.unlock().unwrap_err().is_lost());
            Instant::now()
        });
        // The unlock has just looked again.
        thread::sleep(Duration::from_millis(550));
        let evicted = Instant::now();
        late.contenders(&path).unwrap()[0].evict().unwrap();
        unlocked.recv().unwrap() - evicted
    };
    let best = (0..3).map(|_| takes()).min().unwrap();
    assert!(best < Duration::from_millis(200), "{best:?}");
}

/// The lock's node stays, as it does if the guard is dropped.
#[test]
fn a_lock_that_is_not_trusted_to_the_end_of_an_unlock_is_kept_for_as_long_as_asked() {
    const LEAST: Duration = Duration::from_secs(8);
    let server = Server::start().unwrap();
    let late = Client::connect(server.hosts()).unwrap();
    let kept_for = || {
        let proxy = Proxy::start(server.hosts());
        let early = Client::builder(&proxy.hosts()).session_timeout(Duration::from_secs(6));
        let early = early.connect().unwrap();
        let (path, session) = (fresh_path("least"), early.session_id());
        let start = Instant::now();
        let guard = lock_for_at_least(&early, &path, LEAST).into_send();
        let unlocked = aside(move || guard.unlock());
        proxy.blackhole();
        assert!(unlocked.recv().unwrap().unwrap_err().is_lost());
        proxy.heal();
        late.mutex(&path).unwrap().lock().unwrap().unlock().unwrap();
        let kept = start.elapsed();
        // On a busy machine, the session may have ended.
        eventually("it is connected again", || {
            early.state() == SessionState::Connected
        });
        (early.session_id() == session).then_some(kept)
    };
    let kept = (0..5).find_map(|_| kept_for()).unwrap();
    assert!(LEAST <= kept, "{kept:?}");
}
