//! The promises of the read-write lock.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use zklock::embedded::Server;
use zklock::{Client, Error, GuardEvent, LockOptions, RwLock};

const PATH: &str = "/locks/catalogue";

fn server() -> Server {
    Server::start().unwrap()
}

fn lock(server: &Server) -> (Client, RwLock) {
    let client = Client::connect(server.hosts()).unwrap();
    let lock = client.rwlock(PATH).unwrap();
    (client, lock)
}

/// Waits until `count` contenders are in the queue.
fn queued(client: &Client, count: usize) {
    for _ in 0..3_000 {
        if client.contenders(PATH).unwrap().len() == count {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!(
        "{count} contenders were expected: {:?}",
        client.contenders(PATH)
    );
}

#[test]
fn readers_share_and_writers_do_not() {
    let server = server();
    let (client, ours) = lock(&server);
    let (_theirs_client, theirs) = lock(&server);
    let one = ours.read().unwrap();
    let other = theirs.try_read().unwrap().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| assert!(ours.try_write().unwrap().is_none()));
    });
    drop((one, other));
    queued(&client, 0);
    let writing = ours.write().unwrap();
    assert!(theirs.try_read().unwrap().is_none());
    assert!(theirs.try_write().unwrap().is_none());
    assert!(
        theirs
            .try_read_for(Duration::from_millis(50))
            .unwrap()
            .is_none()
    );
    writing.unlock().unwrap();
    assert!(theirs.try_write().unwrap().is_some());
    queued(&client, 0);
}

/// Netflix/curator #75: the thread waited for itself, as it does for an upgrade.
#[test]
fn a_thread_that_comes_twice_is_told_so() {
    let server = server();
    let (_client, lock) = lock(&server);
    let would_deadlock = Error::WouldDeadlock { path: PATH.into() };
    let reading = lock.read().unwrap();
    assert_eq!(lock.write().unwrap_err(), would_deadlock);
    assert_eq!(lock.try_read().unwrap_err(), would_deadlock);
    drop(reading);
    let writing = lock.write().unwrap();
    assert_eq!(lock.read().unwrap_err(), would_deadlock);
    drop(writing);
    drop(lock.read().unwrap());
}

#[test]
fn a_writer_does_not_starve_behind_later_readers() {
    let server = server();
    let (client, lock) = lock(&server);
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
        queued(&client, 2);
        assert!(self::lock(&server).1.try_read().unwrap().is_none());
        scope.spawn({
            let (lock, told) = (&lock, told.clone());
            move || {
                let guard = lock.read().unwrap();
                told.send("later reader").unwrap();
                drop(guard);
            }
        });
        queued(&client, 3);
        drop(reading);
    });
    assert_eq!(
        order.try_iter().collect::<Vec<_>>(),
        ["writer", "later reader"]
    );
}

/// CURATOR-276, CURATOR-621: a queued writer got in.
#[test]
fn a_downgrade_lets_readers_in_and_no_writer_between() {
    let server = server();
    let (client, lock) = lock(&server);
    let writing = lock.write().unwrap();
    let token = writing.fencing_token();
    let writer_in = AtomicI32::new(0);
    thread::scope(|scope| {
        let early = scope.spawn(|| drop(lock.read().unwrap()));
        queued(&client, 2);
        scope.spawn(|| {
            let guard = lock.write().unwrap();
            writer_in.store(1, Ordering::SeqCst);
            drop(guard);
        });
        queued(&client, 3);
        let reading = writing.downgrade().unwrap();
        assert_eq!(reading.fencing_token(), token);
        early.join().unwrap();
        reading.verify().unwrap();
        queued(&client, 2);
        assert_eq!(writer_in.load(Ordering::SeqCst), 0);
        reading.unlock().unwrap();
    });
    assert_eq!(writer_in.load(Ordering::SeqCst), 1);
    queued(&client, 0);
}

#[test]
fn a_reader_of_a_lost_session_is_told() {
    let server = server();
    let (client, lock) = lock(&server);
    let reading = lock.read().unwrap();
    server.expire_session(client.session_id());
    let lost = reading
        .events()
        .iter()
        .find(|event| *event == GuardEvent::Lost);
    assert_eq!(lost, Some(GuardEvent::Lost));
    assert!(reading.check().unwrap_err().is_lost());
    assert!(reading.unlock().unwrap_err().is_lost());
    drop(lock.write().unwrap());
}

#[test]
fn readers_and_writers_never_overlap() {
    let server = server();
    let inside = Arc::new(AtomicI32::new(0));
    let clients: Vec<_> = (0..4).map(|_| lock(&server)).collect();
    thread::scope(|scope| {
        for (at, (_, lock)) in clients.iter().enumerate() {
            for _ in 0..4 {
                let inside = inside.clone();
                scope.spawn(move || {
                    for round in 0..50 {
                        if (round + at) % 5 == 0 {
                            let guard = lock.write().unwrap();
                            assert_eq!(inside.swap(-1, Ordering::SeqCst), 0);
                            inside.store(0, Ordering::SeqCst);
                            drop(guard);
                        } else {
                            let guard = lock.read_with(LockOptions::new()).unwrap().unwrap();
                            assert!(0 <= inside.fetch_add(1, Ordering::SeqCst));
                            inside.fetch_sub(1, Ordering::SeqCst);
                            drop(guard);
                        }
                    }
                });
            }
        }
    });
    queued(&clients[0].0, 0);
}
