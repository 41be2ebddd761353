//! A forked child has a copy of the client and of the guard; the lock is the parent's.
//!
//! The process that forks runs no other tests: the child would also have copies of their locks and
//! connections.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{self, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fork::{Fork, fork, waitpid_nohang};
use zklock::embedded::Server;
use zklock::{Client, Error, MutexGuard};

use crate::support::worker::alone;
use crate::support::{eventually, fresh_path, handle, run, within};

const THREADS: usize = 4;
const FORKS: usize = 30;
/// A time longer than a child lives unless it hangs.
const SOON: Duration = Duration::from_secs(10);

#[test]
fn what_a_forked_child_drops_or_closes_stays_with_the_parent() {
    alone(|| {
        let server = Server::start().unwrap();
        let [client, other] = [(); 2].map(|()| Client::connect(server.hosts()).unwrap());
        let path = fresh_path("forked");
        for end in [drop_all, close_first, use_it] {
            let mutex = client.mutex(&path).unwrap();
            let guard = mutex.lock().unwrap();
            let pid = match fork().unwrap() {
                Fork::Child => {
                    drop(mutex);
                    end(client, guard);
                    process::exit(0);
                }
                Fork::Parent(pid) => pid,
            };
            let mut status = None;
            eventually("the child ends", || {
                status = waitpid_nohang(pid).unwrap();
                status.is_some()
            });
            assert_eq!(status, Some(0));
            // This request comes after all that the child may have sent.
            guard.verify().unwrap();
            assert_eq!(client.contenders(&path).unwrap().len(), 1);
            let limit = Duration::from_millis(500);
            let theirs = other.mutex(&path).unwrap();
            assert!(theirs.try_lock_for(limit).unwrap().is_none());
            guard.unlock().unwrap();
            assert!(
                theirs
                    .try_lock_for(Duration::from_secs(30))
                    .unwrap()
                    .is_some()
            );
        }
        assert_eq!(client.metrics().reconnects, 0);
    });
}

#[test]
fn what_a_forked_child_asks_of_a_handle_fails_and_the_lock_stays_with_the_parent() {
    alone(|| {
        let server = Server::start().unwrap();
        let timeout = Duration::from_secs(60);
        let handle = handle::connect(server.hosts(), timeout, |_| ());
        let client = Client::from_zookeeper(handle, timeout).unwrap();
        let mutex = client.mutex(&fresh_path("forked")).unwrap();
        for ask in HANDLE_ASKS {
            let guard = mutex.lock().unwrap();
            let ended = ends(|| assert_eq!(ask(&client, &guard), Some(Error::Closed)));
            assert!(ended, "a child hangs, or is told something else");
            guard.verify().unwrap();
            guard.unlock().unwrap();
        }
    });
}

/// Requests of a child, and what it is told of them.
const HANDLE_ASKS: [fn(&Client, &MutexGuard) -> Option<Error>; 5] = [
    |client, _| client.semaphore("/permits", 2).unwrap().acquire().err(),
    |client, _| client.rwlock("/another").unwrap().read().err(),
    |client, _| client.contenders("/another").err(),
    |client, _| client.nodes().create("/another", "").err(),
    |_, guard| guard.verify().err(),
];

#[test]
fn what_a_forked_child_releases_or_drops_waits_for_no_thread_of_the_parent() {
    alone(|| {
        let server = Server::start().unwrap();
        let client = Client::connect(server.hosts()).unwrap();
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            // A mutex of the client that a thread of the parent has locked stays locked in a child.
            for i in 0..THREADS {
                let (mutex, over) = (
                    client.mutex(&fresh_path(&format!("busy-{i}"))).unwrap(),
                    &over,
                );
                scope.spawn(move || {
                    let guard = mutex.lock().unwrap().into_send();
                    while !over.load(Ordering::Relaxed) {
                        assert!(mutex.try_lock_for(Duration::ZERO).unwrap().is_none());
                    }
                    drop(guard);
                });
            }
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    client.metrics();
                }
            });
            let all_end = (0..FORKS).all(|_| child_ends(&client));
            over.store(true, Ordering::Relaxed);
            assert!(all_end, "a child hangs");
        });
    });
}

/// Returns whether children that release a lock, or drop everything, end.
fn child_ends(client: &Client) -> bool {
    let mutex = client.mutex(&fresh_path("forked")).unwrap();
    let released = mutex.lock().unwrap();
    if !ends(|| assert!(matches!(released.unlock(), Err(Error::Closed)))) {
        return false;
    }
    let guard = mutex.lock().unwrap();
    let reader = client
        .rwlock(&fresh_path("forked"))
        .unwrap()
        .read()
        .unwrap();
    ends(|| drop((reader, guard, mutex)))
}

/// Returns whether a child that does this ends well.
fn ends(what: impl FnOnce()) -> bool {
    match fork().unwrap() {
        Fork::Child => {
            let panicked = catch_unwind(AssertUnwindSafe(what)).is_err();
            process::exit(panicked.into());
        }
        Fork::Parent(pid) => {
            let mut status = None;
            let mut has_ended = || {
                status = waitpid_nohang(pid).unwrap();
                status.is_some()
            };
            if !within(SOON, &mut has_ended) {
                let _ = run(Command::new("kill").args(["-9", &pid.to_string()]));
                eventually("it is killed", has_ended);
            }
            status == Some(0)
        }
    }
}

fn drop_all(client: Client, guard: MutexGuard) {
    drop(guard);
    drop(client);
}

fn close_first(client: Client, guard: MutexGuard) {
    client.close().unwrap();
    drop((client, guard));
}

fn use_it(client: Client, guard: MutexGuard) {
    let mutex = client.mutex("/tests/another").unwrap();
    let refused = mutex.try_lock_for(Duration::from_secs(10));
    assert!(matches!(refused, Err(Error::Closed)));
    let rwlock = client.rwlock("/tests/another").unwrap();
    let refused = rwlock.try_read_for(Duration::from_secs(10));
    assert!(matches!(refused, Err(Error::Closed)), "{refused:?}");
    let written = guard.transaction().set("/x", "").commit();
    assert!(matches!(written, Err(Error::Closed)), "{written:?}");
    let released = guard.unlock();
    assert!(matches!(released, Err(Error::Closed)), "{released:?}");
}
