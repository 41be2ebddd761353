//! Bugs by which waits last too long, are in vain, or cost the server something afterwards.

use std::thread;
use std::time::Duration;

use crossbeam_channel::bounded;

use zklock::embedded::Server;
use zklock::{Error, LockOptions};

use super::{PATH, SOON, client, nodes_in, wait_for_nodes};
use crate::support::raw::{EPHEMERAL_SEQUENTIAL, Raw};
use crate::support::{aside, eventually, timed};

/// etcd #19597: a waiter whose lease had expired went on waiting, in no queue.
#[test]
fn a_waiter_whose_session_expires_queues_again() {
    let server = Server::start().unwrap();
    let (ours, theirs) = (client(&server), client(&server));
    let guard = ours.mutex(PATH).unwrap().lock().unwrap();
    let mutex = theirs.mutex(PATH).unwrap();
    let waiting = aside(move || mutex.lock().map(|guard| guard.unlock()));
    // Now and then the server reports the node's end before that of the session.
    for _ in 0..3 {
        wait_for_nodes(&server, PATH, 2);
        let (queue, session) = (nodes_in(&server, PATH), theirs.session_id());
        assert!(server.expire_session(session));
        eventually("it is in the queue again", || {
            let now = nodes_in(&server, PATH);
            now.len() == 2 && now != queue && theirs.session_id() != session
        });
    }
    assert!(waiting.is_empty());
    guard.unlock().unwrap();
    assert_eq!(waiting.recv_timeout(SOON), Ok(Ok(Ok(()))));
}

/// kazoo waits for the whole timeout again after every wake-up; it has no number.
#[test]
fn being_woken_again_and_again_does_not_extend_a_limited_wait() {
    const LIMIT: Duration = Duration::from_millis(600);
    let server = Server::start().unwrap();
    let client = client(&server);
    let mut raw = Raw::connect(server.hosts());
    raw.create_all(PATH);
    let mut create = || {
        let name = format!("{PATH}/x-lock-");
        raw.create(&name, b"", EPHEMERAL_SEQUENTIAL).unwrap()
    };
    // There are enough nodes for each waiter to be woken twenty times within the limit.
    let mut ahead: Vec<_> = (0..40).map(|_| create()).collect();
    thread::scope(|scope| {
        let (done, is_done) = bounded::<()>(0);
        scope.spawn(move || {
            let goes_on = || {
                let done = is_done.recv_timeout(LIMIT / 3);
                done.is_err_and(|error| error.is_timeout())
            };
            while let Some(nearest) = ahead.pop().filter(|_| goes_on()) {
                raw.delete(&nearest).unwrap();
            }
        });
        let mutex = client.mutex(PATH).unwrap();
        let (result, took) = timed(|| mutex.try_lock_for(LIMIT));
        drop(done);
        assert!(result.unwrap().is_none());
        assert!(LIMIT <= took && took < 6 * LIMIT, "{took:?}");
    });
}

/// Curator's `InterProcessMultiLock` waits that long for each of its locks, and continues
/// with the others when one cannot be acquired; it has no number.
#[test]
fn a_limited_wait_for_many_locks_has_one_limit_and_keeps_none() {
    // The client looks at thirty queues meanwhile, on a busy machine.
    const LIMIT: Duration = Duration::from_secs(5);
    let server = Server::start().unwrap();
    let (ours, theirs) = (client(&server), client(&server));
    let paths: Vec<_> = (10..40).map(|i| format!("/many/{i}")).collect();
    let lock = |path: &String| ours.mutex(path).unwrap().lock().unwrap();
    // Every other lock is free.
    let guards: Vec<_> = paths.iter().step_by(2).map(lock).collect();
    let all = theirs.multi_lock(paths.iter().map(String::as_str)).unwrap();
    let (result, took) = timed(|| all.try_lock_for(LIMIT));
    assert!(result.unwrap().is_none());
    assert!(LIMIT <= took && took < 10 * LIMIT, "{took:?}");
    for (i, path) in paths.iter().enumerate() {
        wait_for_nodes(&server, path, (i + 1) % 2);
    }
    drop(guards);
    assert!(all.try_lock_for(SOON).unwrap().is_some());
}

/// kazoo #29, kazoo #151: a watch that was lost with its connection never woke its waiter.
#[test]
fn a_release_while_a_waiter_is_disconnected_wakes_it() {
    let server = Server::start().unwrap();
    let (ours, theirs) = (client(&server), client(&server));
    let guard = ours.mutex(PATH).unwrap().lock().unwrap();
    let (tell, told) = bounded(8);
    let mutex = theirs.mutex(PATH).unwrap();
    let waiting = aside(move || {
        let options = LockOptions::new().on_wait(move |_| tell.send(()).unwrap());
        mutex.lock_with(options).map(drop)
    });
    told.recv().unwrap();
    server.refuse();
    server.disconnect(theirs.session_id());
    guard.unlock().unwrap();
    assert!(waiting.is_empty());
    server.resume();
    assert_eq!(waiting.recv_timeout(SOON), Ok(Ok(())));
}

/// kazoo #649: a reader waited for a later writer, which waited for it.
#[test]
fn a_reader_does_not_wait_for_a_later_writer() {
    let server = Server::start().unwrap();
    let (one, two, three) = (client(&server), client(&server), client(&server));
    let writing = one.rwlock(PATH).unwrap().write().unwrap();
    let (leave, leaving) = bounded::<()>(0);
    let (entered, inside) = bounded(1);
    let reader = two.rwlock(PATH).unwrap();
    aside(move || {
        let _guard = reader.read().unwrap();
        entered.send(()).unwrap();
        let _ = leaving.recv();
    });
    wait_for_nodes(&server, PATH, 2);
    let writer = three.rwlock(PATH).unwrap();
    let later = aside(move || writer.write().map(drop));
    wait_for_nodes(&server, PATH, 3);
    writing.unlock().unwrap();
    assert_eq!(inside.recv_timeout(SOON), Ok(()));
    assert!(later.is_empty());
    drop(leave);
    assert_eq!(later.recv_timeout(SOON), Ok(Ok(())));
}

/// kazoo #61: a directory that was known to exist, but was gone, was an error.
#[test]
fn a_lock_whose_directory_vanishes_time_and_again_can_be_had() {
    let server = Server::builder().container_check(Duration::from_millis(1));
    let server = server.start().unwrap();
    let client = client(&server);
    let mutex = client.mutex(PATH).unwrap();
    let all = client.multi_lock(["/all/1", "/all/2", PATH]).unwrap();
    let semaphore = client.semaphore("/permits", 2).unwrap();
    for round in 0..100 {
        mutex.lock().unwrap().unlock().unwrap();
        all.lock().unwrap().unlock().unwrap();
        semaphore.acquire().unwrap().unlock().unwrap();
        assert!(mutex.try_lock().unwrap().is_some(), "mutex, {round}");
        assert!(all.try_lock().unwrap().is_some(), "all, {round}");
        let tried = semaphore.try_acquire().unwrap();
        assert!(tried.is_some(), "permit, {round}");
        drop(tried);
        if round % 10 == 0 {
            let gone = |dir: &str| !server.nodes().iter().any(|node| node == dir);
            eventually("the directories are gone", || {
                ["/all/1", PATH, "/permits/locks"].into_iter().all(gone)
            });
        }
    }
}

/// CURATOR-107, CURATOR-654: every wait that timed out left its watch on the server.
#[test]
fn waits_that_were_given_up_leave_no_watch() {
    let server = Server::start().unwrap();
    let (ours, theirs) = (client(&server), client(&server));
    let name = |kind: &str, i: usize| format!("/watches/{kind}-{i}");
    let mut guards = Vec::new();
    for i in 0..10 {
        guards.push(ours.mutex(&name("mutex", i)).unwrap().lock().unwrap());
    }
    let reading = ours.rwlock("/watches/rw").unwrap().read().unwrap();
    let permit = ours
        .semaphore("/watches/permits", 1)
        .unwrap()
        .acquire()
        .unwrap();
    // Each guard watches its node.
    let before = 12;
    eventually("the guards have settled", || server.watch_count() == before);
    for i in 0..10 {
        let mutex = theirs.mutex(&name("mutex", i)).unwrap();
        give_up_waiting(&server, before, |options| {
            mutex.lock_with(options).unwrap().is_none()
        });
    }
    let rwlock = theirs.rwlock("/watches/rw").unwrap();
    give_up_waiting(&server, before, |options| {
        rwlock.write_with(options).unwrap().is_none()
    });
    let semaphore = theirs.semaphore("/watches/permits", 1).unwrap();
    give_up_waiting(&server, before, |options| {
        semaphore.acquire_with(options).unwrap().is_none()
    });
    drop((guards, reading, permit));
    eventually("no watch is left", || server.watch_count() == 0);
}

/// The same, for a client that never creates anything.
#[test]
fn who_only_looks_leaves_no_watch() {
    let server = Server::start().unwrap();
    let client = client(&server);
    for i in 0..10 {
        let moment = Duration::from_millis(50);
        let path = format!("/looked-at/{i}");
        let _ = client.wait_for_change(&path, &[], moment);
    }
    eventually("no watch is left", || server.watch_count() == 0);
}

/// Waits until there is a watch for the wait, and then gives up.
#[track_caller]
fn give_up_waiting(server: &Server, before: usize, gives_up: impl FnOnce(LockOptions<'_>) -> bool) {
    let (cancel, cancelled) = bounded(1);
    let options = LockOptions::new().cancel(cancelled).on_wait(move |_| {
        assert!(before < server.watch_count());
        let _ = cancel.try_send(());
    });
    assert!(gives_up(options));
    eventually("the watch is gone", || server.watch_count() == before);
}

/// CURATOR-716: a thousand threads on one mutex meant a thousand nodes, and a stampede.
#[test]
fn a_hundred_threads_on_one_mutex_are_one_node_at_a_time() {
    let server = Server::start().unwrap();
    let client = client(&server);
    let mutex = client.mutex(PATH).unwrap();
    thread::scope(|scope| {
        for _ in 0..100 {
            scope.spawn(|| {
                for _ in 0..3 {
                    let guard = mutex.lock().unwrap();
                    assert_eq!(nodes_in(&server, PATH), [guard.node()]);
                }
            });
        }
    });
    wait_for_nodes(&server, PATH, 0);
}

/// kazoo #83, kazoo #482: a lock of a closed client waited for ever.
#[test]
fn a_lock_of_a_closed_client_is_an_error_at_once() {
    let server = Server::start().unwrap();
    let client = client(&server);
    let mutex = client.mutex(PATH).unwrap();
    client.close().unwrap();
    let came = aside(move || {
        [
            mutex.lock().map(drop),
            mutex.try_lock().map(drop),
            mutex.try_lock_for(SOON).map(drop),
            client.rwlock(PATH).unwrap().read().map(drop),
            client.semaphore(PATH, 1).unwrap().acquire().map(drop),
        ]
    });
    for outcome in came.recv_timeout(SOON).unwrap() {
        assert_eq!(outcome, Err(Error::Closed));
    }
}

/// CURATOR-274, CURATOR-565: on a server without containers, locks did not work at all.
#[test]
fn every_lock_can_be_had_of_an_old_server() {
    let server = Server::builder().without_create2().without_containers();
    let server = server.start().unwrap();
    let client = client(&server);
    client
        .mutex("/old/1")
        .unwrap()
        .lock()
        .unwrap()
        .unlock()
        .unwrap();
    client
        .rwlock("/old/2")
        .unwrap()
        .read()
        .unwrap()
        .unlock()
        .unwrap();
    let all = client.multi_lock(["/old/1", "/old/3"]).unwrap();
    all.lock().unwrap().unlock().unwrap();
    let semaphore = client.semaphore("/old/4", 1).unwrap();
    semaphore.acquire().unwrap().unlock().unwrap();
}

/// The line of Curator's semaphore is a container, which vanishes while a client has a permit.
#[test]
fn a_semaphore_nobody_waits_for_is_no_place_for_a_lock() {
    let server = Server::builder().container_check(Duration::from_millis(1));
    let server = server.start().unwrap();
    let (ours, theirs) = (client(&server), client(&server));
    let permit = ours.semaphore(PATH, 1).unwrap().acquire().unwrap();
    let line = format!("{PATH}/locks");
    eventually("the line is gone", || !server.nodes().contains(&line));
    let refused = [
        theirs.mutex(PATH).unwrap().lock().map(drop),
        theirs.rwlock(PATH).unwrap().read().map(drop),
        theirs.rwlock(PATH).unwrap().write().map(drop),
    ];
    for result in refused {
        assert!(
            matches!(result, Err(Error::ForeignContender { .. })),
            "{result:?}"
        );
    }
    permit.unlock().unwrap();
}
