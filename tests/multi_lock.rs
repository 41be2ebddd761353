//! The promises of the multi-lock.

mod support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use support::eventually;
use zklock::embedded::Server;
use zklock::{Client, Error, GuardEvent};

fn client(server: &Server) -> Client {
    Client::connect(server.hosts()).unwrap()
}

fn left(client: &Client, paths: &[&str]) -> usize {
    let count = |path: &&str| client.contenders(path).unwrap().len();
    paths.iter().map(count).sum()
}

/// Curator's `InterProcessMultiLock` goes on with the others when one cannot be had.
#[test]
fn all_are_locked_or_none() {
    let server = Server::start().unwrap();
    let (ours, theirs) = (client(&server), client(&server));
    let all = ours.multi_lock(["/a/2", "/a/1", "/a/2"]).unwrap();
    assert_eq!(all.paths().collect::<Vec<_>>(), ["/a/1", "/a/2"]);

    let one = theirs.mutex("/a/2").unwrap().lock().unwrap();
    assert!(all.try_lock().unwrap().is_none());
    assert!(
        all.try_lock_for(Duration::from_millis(50))
            .unwrap()
            .is_none()
    );
    eventually("only the other one is left", || {
        left(&ours, &["/a/1", "/a/2"]) == 1
    });
    one.unlock().unwrap();

    let guard = all.try_lock().unwrap().unwrap();
    guard.verify().unwrap();
    assert!(theirs.mutex("/a/1").unwrap().try_lock().unwrap().is_none());
    assert!(theirs.mutex("/a/2").unwrap().try_lock().unwrap().is_none());
    let again = ours.mutex("/a/1").unwrap().lock().unwrap_err();
    assert_eq!(
        again,
        Error::WouldDeadlock {
            path: "/a/1".into()
        }
    );
    assert_eq!(guard.tokens().count(), 2);
    guard.unlock().unwrap();
    assert_eq!(left(&ours, &["/a/1", "/a/2"]), 0);
}

#[test]
fn when_one_is_lost_all_are() {
    let server = Server::start().unwrap();
    let (ours, theirs) = (client(&server), client(&server));
    let guard = ours.multi_lock(["/b/1", "/b/2"]).unwrap().lock().unwrap();
    theirs.contenders("/b/2").unwrap()[0].evict().unwrap();
    assert!(guard.events().iter().any(|event| event == GuardEvent::Lost));
    assert!(guard.unlock().unwrap_err().is_lost());
    eventually("nothing is left", || left(&ours, &["/b/1", "/b/2"]) == 0);
}

#[test]
fn bad_paths_and_no_paths_are_refused() {
    let server = Server::start().unwrap();
    let client = client(&server);
    assert!(client.multi_lock(["/a", "b"]).unwrap_err().is_bad_input());
    assert!(client.multi_lock([]).is_err());
}

fn multi_lockers_do_not_wait_for_each_other(duration: Duration) {
    const PATHS: [&str; 5] = ["/m/0", "/m/1", "/m/2", "/m/3", "/m/4"];
    let server = Server::start().unwrap();
    let busy: Vec<_> = PATHS.iter().map(|_| AtomicBool::new(false)).collect();
    let rounds = AtomicUsize::new(0);
    let end = Instant::now() + duration;
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let client = client(&server);
                while Instant::now() < end {
                    let mut mine: Vec<usize> = (0..PATHS.len()).collect();
                    fastrand::shuffle(&mut mine);
                    mine.truncate(fastrand::usize(1..=PATHS.len()));
                    let lock = client.multi_lock(mine.iter().map(|at| PATHS[*at])).unwrap();
                    let guard = lock.try_lock_for(Duration::from_secs(30)).unwrap();
                    let guard = guard.expect("nobody waits for long");
                    for at in &mine {
                        assert!(
                            !busy[*at].swap(true, Ordering::SeqCst),
                            "{at} is held twice"
                        );
                    }
                    for at in &mine {
                        busy[*at].store(false, Ordering::SeqCst);
                    }
                    drop(guard);
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    println!("{} rounds", rounds.load(Ordering::Relaxed));
    let client = client(&server);
    eventually("nothing is left", || left(&client, &PATHS) == 0);
}

#[test]
fn multi_lockers_of_any_order_never_wait_in_a_circle() {
    multi_lockers_do_not_wait_for_each_other(Duration::from_secs(3));
}

#[test]
#[ignore = "takes a minute"]
fn multi_lockers_of_any_order_never_wait_in_a_circle_for_a_minute() {
    multi_lockers_do_not_wait_for_each_other(Duration::from_secs(60));
}
