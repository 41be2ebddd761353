//! Asking holders to let go, and making them.

mod support;

use std::thread;
use std::time::Duration;

use support::eventually;
use zklock::embedded::Server;
use zklock::{Client, Contender, Error, GuardEvent, LockGuard, LockOptions};

const PATH: &str = "/locks/report";

fn client(server: &Server) -> Client {
    Client::connect(server.hosts()).unwrap()
}

/// Waits until `count` contenders are in the queue, and returns them.
fn queue(client: &Client, path: &str, count: usize) -> Vec<Contender> {
    eventually("so many contenders", || {
        client.contenders(path).unwrap().len() == count
    });
    client.contenders(path).unwrap()
}

fn wait_for(guard: &impl LockGuard, event: GuardEvent) {
    assert!(guard.events().iter().any(|heard| heard == event));
}

#[test]
fn every_kind_of_holder_hears_that_it_is_asked_to_let_go() {
    let server = Server::start().unwrap();
    let (ours, theirs) = (client(&server), client(&server));
    let asked = |guard: &dyn LockGuard, dir: &str| {
        theirs.contenders(dir).unwrap()[0].revoke().unwrap();
        assert!(
            guard
                .events()
                .iter()
                .any(|event| event == GuardEvent::RevokeRequested)
        );
        // Nobody is forced.
        guard.verify().unwrap();
    };
    asked(&ours.mutex("/r/mutex").unwrap().lock().unwrap(), "/r/mutex");
    asked(
        &ours.reentrant_mutex("/r/again").unwrap().lock().unwrap(),
        "/r/again",
    );
    asked(&ours.rwlock("/r/read").unwrap().read().unwrap(), "/r/read");
    asked(
        &ours.rwlock("/r/write").unwrap().write().unwrap(),
        "/r/write",
    );
    let permit = ours.semaphore("/r/permits", 1).unwrap().acquire().unwrap();
    asked(&permit, "/r/permits/leases");
    asked(
        &ours.multi_lock(["/r/1", "/r/2"]).unwrap().lock().unwrap(),
        "/r/2",
    );
}

#[test]
fn a_holder_that_was_asked_at_once_hears_it_too() {
    let server = Server::start().unwrap();
    let (ours, theirs) = (client(&server), client(&server));
    let guard = ours.mutex(PATH).unwrap().lock().unwrap();
    for _ in 0..3 {
        theirs.contenders(PATH).unwrap()[0].revoke().unwrap();
        wait_for(&guard, GuardEvent::RevokeRequested);
    }
}

/// go-zookeeper: a waiter whose node was gone held with the next one.
#[test]
fn an_evicted_holder_has_lost_and_an_evicted_waiter_is_told() {
    let server = Server::start().unwrap();
    let (ours, theirs) = (client(&server), client(&server));
    let guard = ours.mutex(PATH).unwrap().lock().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| theirs.mutex(PATH).unwrap().lock().map(drop));
        let waiter = queue(&ours, PATH, 2).remove(1);
        assert!(!waiter.holds());
        waiter.evict().unwrap();
        // The waiter looks again when the holder goes.
        let holder = queue(&ours, PATH, 1).remove(0);
        assert!(holder.holds());
        holder.evict().unwrap();
        wait_for(&guard, GuardEvent::Lost);
        let evicted = waiting.join().unwrap().unwrap_err();
        assert_eq!(
            evicted,
            Error::Evicted {
                node: waiter.node().to_owned()
            }
        );
    });
    assert!(guard.unlock().unwrap_err().is_lost());
    assert!(theirs.mutex(PATH).unwrap().try_lock().unwrap().is_some());
}

/// zk-ruby #34: a stale client deleted somebody else's new lock.
#[test]
fn a_contender_that_went_is_not_evicted_in_place_of_another() {
    let server = Server::start().unwrap();
    let client = client(&server);
    drop(client.mutex(PATH).unwrap().lock().unwrap());
    let guard = client.mutex(PATH).unwrap().lock().unwrap();
    let seen = queue(&client, PATH, 1).remove(0);
    guard.unlock().unwrap();
    let guard = client.mutex(PATH).unwrap().lock().unwrap();
    seen.evict().unwrap();
    seen.revoke().unwrap();
    guard.verify().unwrap();
}

#[test]
fn an_overdue_holder_is_asked_and_then_evicted() {
    let server = Server::start().unwrap();
    let (ours, theirs) = (client(&server), client(&server));
    let stubborn = ours.mutex(PATH).unwrap().lock().unwrap();
    let short = Duration::from_millis(100);
    let options = LockOptions::new().evict_overdue(short, short);
    let guard = theirs
        .mutex(PATH)
        .unwrap()
        .lock_with(options)
        .unwrap()
        .unwrap();
    assert_eq!(stubborn.events().recv(), Ok(GuardEvent::RevokeRequested));
    wait_for(&stubborn, GuardEvent::Lost);
    guard.verify().unwrap();
}

#[test]
fn an_overdue_holder_that_lets_go_is_not_evicted() {
    let server = Server::start().unwrap();
    let (ours, theirs) = (client(&server), client(&server));
    let polite = ours.mutex(PATH).unwrap().lock().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let minute = Duration::from_secs(60);
            let options = LockOptions::new().evict_overdue(Duration::from_millis(100), minute);
            drop(
                theirs
                    .mutex(PATH)
                    .unwrap()
                    .lock_with(options)
                    .unwrap()
                    .unwrap(),
            );
        });
        wait_for(&polite, GuardEvent::RevokeRequested);
        polite.unlock().unwrap();
    });
}

#[test]
fn the_queue_tells_who_is_in_it() {
    let server = Server::start().unwrap();
    let ours = Client::builder(server.hosts())
        .note("nightly")
        .connect()
        .unwrap();
    let theirs = client(&server);
    assert!(theirs.contenders(PATH).unwrap().is_empty());
    let guard = ours.mutex(PATH).unwrap().lock().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let options = LockOptions::new().note("by hand").on_wait(|waiting| {
                let ahead = waiting.ahead().unwrap();
                assert_eq!(waiting.position(), 1);
                assert_eq!(ahead.owner().note.as_deref(), Some("nightly"));
                assert_eq!(ahead.owner().pid, Some(std::process::id()));
            });
            drop(
                theirs
                    .mutex(PATH)
                    .unwrap()
                    .lock_with(options)
                    .unwrap()
                    .unwrap(),
            );
        });
        let queue = queue(&ours, PATH, 2);
        assert_eq!(queue[0].node(), guard.node());
        assert_eq!(queue[0].token(), guard.fencing_token());
        assert_eq!(queue[0].session_id(), ours.session_id());
        assert_eq!(queue[1].owner().note.as_deref(), Some("by hand"));
        assert!(queue[0].holds() && !queue[1].holds());
        drop(guard);
    });
}
