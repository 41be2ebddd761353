//! The promises of the semaphore.

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use support::eventually;
use support::proxy::Proxy;
use zklock::embedded::Server;
use zklock::{Client, Error, GuardEvent, LockOptions, Permit, Semaphore};

const PATH: &str = "/limits/imports";

fn semaphore(server: &Server, permits: u32) -> (Client, Semaphore) {
    let client = Client::connect(server.hosts()).unwrap();
    let semaphore = client.semaphore(PATH, permits).unwrap();
    (client, semaphore)
}

fn left(client: &Client) -> usize {
    let count = |dir: &str| client.contenders(&format!("{PATH}/{dir}")).unwrap().len();
    count("locks") + count("leases")
}

/// kazoo #214: by trying one got in when as many as may be were.
#[test]
fn no_more_permits_are_out_than_there_are() {
    let server = Server::start().unwrap();
    let (client, ours) = semaphore(&server, 2);
    let (_other, theirs) = semaphore(&server, 2);
    let one = ours.acquire().unwrap();
    let two = theirs.try_acquire().unwrap().unwrap();
    assert!(ours.try_acquire().unwrap().is_none());
    assert!(
        theirs
            .try_acquire_for(Duration::from_millis(50))
            .unwrap()
            .is_none()
    );
    eventually("the one that gave up has gone", || left(&client) == 2);
    one.verify().unwrap();
    drop(one);
    let three = ours.acquire().unwrap();
    two.unlock().unwrap();
    three.unlock().unwrap();
    eventually("nothing is left", || left(&client) == 0);
}

/// Curator checks nothing here: each client counts by its own limit.
#[test]
fn permits_that_disagree_are_reported() {
    let server = Server::start().unwrap();
    let (client, two) = semaphore(&server, 2);
    let permit = two.acquire().unwrap();
    let (_other, three) = semaphore(&server, 3);
    let disagree = Error::PermitsDisagree {
        path: PATH.into(),
        ours: 3,
        theirs: 2,
    };
    assert_eq!(three.acquire().unwrap_err(), disagree);
    drop(permit);
    eventually("nothing is left", || left(&client) == 0);
    assert!(client.semaphore(PATH, 0).is_err());
}

#[test]
fn a_waiting_thread_is_told_and_gets_the_next_permit() {
    let server = Server::start().unwrap();
    let (_client, ours) = semaphore(&server, 1);
    let (_other, theirs) = semaphore(&server, 1);
    let permit = ours.acquire().unwrap();
    let (told, waits) = crossbeam_channel::bounded(1);
    thread::scope(|scope| {
        scope.spawn(move || {
            let options = LockOptions::new().on_wait(|waiting| {
                assert_eq!(waiting.position(), 1);
                let _ = told.try_send(());
            });
            let _permit = theirs.acquire_with(options).unwrap().unwrap();
        });
        waits.recv().unwrap();
        permit.unlock().unwrap();
    });
}

#[test]
fn a_permit_may_change_threads_and_is_lost_with_its_session() {
    let server = Server::start().unwrap();
    let (client, semaphore) = semaphore(&server, 1);
    let permit: Permit = semaphore.acquire().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| permit.verify().unwrap());
    });
    server.expire_session(client.session_id());
    assert!(
        permit
            .events()
            .iter()
            .any(|event| event == GuardEvent::Lost)
    );
    assert!(permit.unlock().unwrap_err().is_lost());
    drop(semaphore.acquire().unwrap());
}

#[test]
fn hundreds_wait_without_a_herd() {
    const PERMITS: usize = 5;
    let server = Server::start().unwrap();
    let inside = AtomicUsize::new(0);
    let (client, _) = semaphore(&server, PERMITS as u32);
    let semaphores: Vec<_> = (0..20)
        .map(|_| semaphore(&server, PERMITS as u32))
        .collect();
    thread::scope(|scope| {
        for (_, semaphore) in &semaphores {
            for _ in 0..10 {
                scope.spawn(|| {
                    let permit = semaphore.acquire().unwrap();
                    assert!(inside.fetch_add(1, Ordering::SeqCst) < PERMITS);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop(permit);
                });
            }
        }
    });
    eventually("nothing is left", || left(&client) == 0);
}

#[test]
fn a_cancel_at_any_time_is_heard() {
    let server = Server::start().unwrap();
    let network = Proxy::start(server.hosts());
    network.delay(Duration::from_millis(30));
    // The first call of a client has most to ask; it takes half a second here.
    for cancelled_after in (0..400).step_by(40).map(Duration::from_millis) {
        let client = Client::connect(&network.hosts()).unwrap();
        let semaphore = client.semaphore(PATH, 2).unwrap();
        let (cancel, cancelled) = crossbeam_channel::bounded(1);
        let (done, returned) = crossbeam_channel::bounded(1);
        thread::spawn(move || {
            let options = LockOptions::new().cancel(cancelled);
            let acquired = semaphore.acquire_with(options);
            drop(done.send(acquired.map(drop)));
        });
        thread::sleep(cancelled_after);
        network.blackhole();
        // Fails if the call has returned already.
        let _ = cancel.send(());
        let returned = returned.recv_timeout(Duration::from_secs(5));
        network.heal();
        returned
            .unwrap_or_else(|_| panic!("cancelled after {cancelled_after:?}, and not heard"))
            .unwrap();
    }
}
