//! The promises of a mutex, on every transport, on the embedded server and on a real one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::bounded;
use zklock::embedded::Server;
use zklock::{Client, Error, LockOptions, LostReason, SessionState, Waiting};

use crate::support::proxy::Proxy;
use crate::support::raw::{Raw, assert_nothing_left, children, wait_for_children};
use crate::support::worker::{self, Worker};
use crate::support::{Room, aside, eventually, fresh_path, timed};
use crate::transport::{Place, SOON, TIMEOUT, Transport, Waiter, in_every_place, on_every_server};

in_every_place! {
    a_lock_excludes_the_threads_of_one_client
    a_lock_excludes_clients
    a_lock_excludes_processes
    clients_get_the_lock_in_the_order_in_which_they_asked
    the_threads_of_one_client_show_the_server_one_node
    a_free_lock_is_got_without_waiting
    trying_a_taken_lock_finds_it_taken_and_leaves_nothing
    a_limited_wait_ends_in_time_and_leaves_nothing
    a_deadline_that_has_passed_does_not_block
    a_deadline_holds_while_the_server_is_stopped
    a_deadline_holds_while_the_server_is_gone
    a_cancelled_wait_ends_and_leaves_nothing
    a_cancel_in_the_local_queue_ends_the_wait
    dropping_a_guard_does_not_wait_for_a_stopped_server
    a_panic_in_the_critical_section_releases_the_lock
    the_lock_of_a_killed_process_is_free_after_its_session_timeout_and_not_before
    a_waiter_whose_session_expires_queues_again
    locking_twice_in_one_thread_is_an_error_at_once
    a_guard_that_may_change_threads_is_released_in_another
    fencing_tokens_grow_with_every_grant
    unlocking_waits_until_the_server_has_let_go
    whoever_waits_is_told_who_is_ahead
    whoever_waits_for_threads_of_its_client_is_told_how_many
    closing_a_client_frees_its_locks_and_ends_its_waits
    the_last_drop_of_a_client_frees_what_it_left
}

// A handle has been given up by then.
on_every_server! {
    a_waiter_whose_node_is_gone_before_its_session_queues_again
}

fn a_lock_excludes_the_threads_of_one_client(place: Place) {
    let (server, path) = (place.shared(), fresh_path("threads"));
    let client = place.connect(&server.hosts());
    let mutex = client.mutex(&path).unwrap();
    let room = Room::default();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..25 {
                    let guard = mutex.lock().unwrap();
                    room.visit();
                    guard.check().unwrap();
                }
            });
        }
    });
    assert_nothing_left(&server.hosts(), &path);
}

fn a_lock_excludes_clients(place: Place) {
    let (server, path) = (place.shared(), fresh_path("clients"));
    let room = Room::default();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let client = place.connect(&server.hosts());
                let mutex = client.mutex(&path).unwrap();
                for _ in 0..25 {
                    let guard = mutex.lock().unwrap();
                    room.visit();
                    guard.check().unwrap();
                }
            });
        }
    });
    assert_nothing_left(&server.hosts(), &path);
}

#[test]
#[ignore = "a worker process"]
fn worker_that_locks_and_waits() {
    let Some(input) = worker::input() else { return };
    let [transport, hosts, path, timeout] = worker::words(&input);
    let timeout = Duration::from_millis(timeout.parse().unwrap());
    let client = Transport::named(&transport).connect_with(&hosts, timeout);
    let mut told = false;
    let options = LockOptions::new().on_wait(|_| {
        if !std::mem::replace(&mut told, true) {
            worker::say("waits");
        }
    });
    let _guard = client.mutex(&path).unwrap().lock_with(options).unwrap();
    worker::say("locked");
    worker::stay();
}

/// Starts a process that holds the lock, or waits for it and then holds it.
fn holder(transport: Transport, hosts: &str, path: &str, timeout: Duration) -> Worker {
    let input = format!("{transport:?} {hosts} {path} {}", timeout.as_millis());
    Worker::spawn(worker_that_locks_and_waits, &input)
}

fn a_lock_excludes_processes(place: Place) {
    let (server, path) = (place.shared(), fresh_path("processes"));
    let client = place.connect(&server.hosts());
    let mutex = client.mutex(&path).unwrap();
    let guard = mutex.lock().unwrap();

    let other = holder(
        place.transport,
        &server.hosts(),
        &path,
        Duration::from_secs(3),
    );
    other.expect("waits");
    assert!(other.lines().is_empty());
    guard.unlock().unwrap();
    other.expect("locked");
    assert!(mutex.try_lock().unwrap().is_none());

    drop(other);
    drop(mutex.lock().unwrap());
    assert_nothing_left(&server.hosts(), &path);
}

fn clients_get_the_lock_in_the_order_in_which_they_asked(place: Place) {
    let (server, path) = (place.shared(), fresh_path("order"));
    let client = place.connect(&server.hosts());
    let first = client.mutex(&path).unwrap().lock().unwrap();
    let order = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for i in 0..6 {
            let (order, path) = (&order, &path);
            scope.spawn(move || {
                let client = place.connect(&server.hosts());
                let _guard = client.mutex(path).unwrap().lock().unwrap();
                order.lock().unwrap().push(i);
            });
            wait_for_children(&server.hosts(), path, i + 2);
        }
        drop(first);
    });
    assert_eq!(order.into_inner().unwrap(), [0, 1, 2, 3, 4, 5]);
    assert_nothing_left(&server.hosts(), &path);
}

/// CURATOR-716: as many nodes as threads, and a stampede at each release.
fn the_threads_of_one_client_show_the_server_one_node(place: Place) {
    let (server, path) = (place.shared(), fresh_path("one-node"));
    let holder = place.connect(&server.hosts());
    let guard = holder.mutex(&path).unwrap().lock().unwrap();
    let client = place.connect(&server.hosts());
    let mutex = client.mutex(&path).unwrap();
    let most = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let _guard = mutex.lock().unwrap();
                let count = children(&server.hosts(), &path).len();
                most.fetch_max(count, Ordering::SeqCst);
            });
        }
        wait_for_children(&server.hosts(), &path, 2);
        drop(guard);
    });
    // Besides the holder's node, one that is about to be deleted may still exist.
    assert!(most.into_inner() <= 2);
    assert_nothing_left(&server.hosts(), &path);
}

fn a_free_lock_is_got_without_waiting(place: Place) {
    let (server, path) = (place.shared(), fresh_path("free"));
    let client = place.connect(&server.hosts());
    let mutex = client.mutex(&path).unwrap();
    assert_eq!(mutex.path(), path);
    let guard = mutex.try_lock().unwrap().expect("nobody has it");
    assert!(guard.is_valid());
    assert!(guard.valid_for() <= TIMEOUT);
    guard.verify().unwrap();
    let (dir, name) = guard.node().rsplit_once('/').unwrap();
    assert_eq!(
        (dir, children(&server.hosts(), &path)),
        (&*path, vec![name.to_owned()])
    );
    guard.unlock().unwrap();
    assert_nothing_left(&server.hosts(), &path);
}

fn trying_a_taken_lock_finds_it_taken_and_leaves_nothing(place: Place) {
    let (server, path) = (place.shared(), fresh_path("taken"));
    let (one, two) = (
        place.connect(&server.hosts()),
        place.connect(&server.hosts()),
    );
    let guard = one.mutex(&path).unwrap().lock().unwrap();
    // This is so across clients, and between the threads of one client.
    assert!(two.mutex(&path).unwrap().try_lock().unwrap().is_none());
    assert_eq!(children(&server.hosts(), &path).len(), 1);
    let mutex = one.mutex(&path).unwrap();
    let taken = thread::scope(|scope| scope.spawn(|| mutex.try_lock().unwrap().is_none()).join());
    assert!(taken.unwrap());
    drop(guard);
    assert_nothing_left(&server.hosts(), &path);
}

fn a_limited_wait_ends_in_time_and_leaves_nothing(place: Place) {
    let (server, path) = (place.shared(), fresh_path("limit"));
    let (one, two) = (
        place.connect(&server.hosts()),
        place.connect(&server.hosts()),
    );
    let guard = one.mutex(&path).unwrap().lock().unwrap();
    let limit = Duration::from_secs(1);
    let mutex = two.mutex(&path).unwrap();
    let (result, took) = timed(|| mutex.try_lock_for(limit));
    assert!(result.unwrap().is_none());
    assert!(limit <= took && took < limit + SOON, "{took:?}");
    wait_for_children(&server.hosts(), &path, 1);

    drop(guard);
    assert!(mutex.try_lock_for(SOON).unwrap().is_some());
    assert_nothing_left(&server.hosts(), &path);
}

fn a_deadline_that_has_passed_does_not_block(place: Place) {
    let (server, path) = (place.shared(), fresh_path("passed"));
    let client = place.connect(&server.hosts());
    let mutex = client.mutex(&path).unwrap();
    let other = place.connect(&server.hosts());
    let _guard = other.mutex(&path).unwrap().lock().unwrap();
    let (result, took) = timed(|| mutex.try_lock_until(Instant::now()));
    // No server has said that it is taken, unless the answer was there before the thread looked.
    assert!(matches!(
        result,
        Err(Error::ConnectTimeout { .. }) | Ok(None)
    ));
    assert!(took < SOON, "{took:?}");
    wait_for_children(&server.hosts(), &path, 1);
}

fn a_deadline_holds_while_the_server_is_stopped(place: Place) {
    let server = place.start();
    let client = place.connect(&server.hosts());
    let mutex = client.mutex("/stopped").unwrap();
    server.pause();
    let limit = Duration::from_millis(500);
    let (result, took) = timed(|| mutex.try_lock_for(limit));
    // No server has said that it is taken, unless the answer was there before the thread looked.
    assert!(matches!(
        result,
        Err(Error::ConnectTimeout { .. }) | Ok(None)
    ));
    assert!(limit <= took && took < limit + SOON / 2, "{took:?}");
    server.resume();
    assert_nothing_left(&server.hosts(), "/stopped");
}

/// CURATOR-559, spring-integration #1863: a try hung while the server was down.
fn a_deadline_holds_while_the_server_is_gone(place: Place) {
    let server = place.start();
    let client = place.connect(&server.hosts());
    let mutex = client.mutex("/gone").unwrap();
    let guard = mutex.lock().unwrap();
    server.kill();
    let ((), took) = timed(|| drop(guard));
    assert!(took < SOON / 2, "{took:?}");
    let limit = Duration::from_millis(500);
    let (result, took) = timed(|| mutex.try_lock_for(limit));
    // A handle may have been given up by then.
    assert!(
        matches!(result, Err(Error::ConnectTimeout { .. } | Error::Closed)),
        "{result:?}"
    );
    assert!(took < limit + SOON / 2, "{took:?}");
    server.restart();
    assert_nothing_left(&server.hosts(), "/gone");
}

fn a_cancelled_wait_ends_and_leaves_nothing(place: Place) {
    let (server, path) = (place.shared(), fresh_path("cancel"));
    let (one, two) = (
        place.connect(&server.hosts()),
        place.connect(&server.hosts()),
    );
    let guard = one.mutex(&path).unwrap().lock().unwrap();
    let (cancel, cancelled) = bounded(1);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let options = LockOptions::new().cancel(cancelled);
            two.mutex(&path)
                .unwrap()
                .lock_with(options)
                .unwrap()
                .is_none()
        });
        wait_for_children(&server.hosts(), &path, 2);
        cancel.send(()).unwrap();
        assert!(waiter.join().unwrap());
    });
    wait_for_children(&server.hosts(), &path, 1);
    guard.unlock().unwrap();
    assert_nothing_left(&server.hosts(), &path);
}

fn a_cancel_in_the_local_queue_ends_the_wait(place: Place) {
    let (server, path) = (place.shared(), fresh_path("local-cancel"));
    let client = place.connect(&server.hosts());
    let mutex = client.mutex(&path).unwrap();
    let guard = mutex.lock().unwrap();
    // Nobody will ever send, which also counts as a cancel.
    let (cancel, cancelled) = bounded(0);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let options = LockOptions::new().cancel(cancelled);
            mutex.lock_with(options).unwrap().is_none()
        });
        drop(cancel);
        assert!(waiter.join().unwrap());
    });
    assert!(guard.is_valid());
    drop(guard);
    drop(mutex.lock().unwrap());
    assert_nothing_left(&server.hosts(), &path);
}

fn dropping_a_guard_does_not_wait_for_a_stopped_server(place: Place) {
    let server = place.start();
    let client = place.connect(&server.hosts());
    let guard = client.mutex("/drop").unwrap().lock().unwrap();
    server.pause();
    let ((), took) = timed(|| drop(guard));
    assert!(took < Duration::from_secs(3), "{took:?}");
    server.resume();
    assert_nothing_left(&server.hosts(), "/drop");
}

fn a_panic_in_the_critical_section_releases_the_lock(place: Place) {
    let (server, path) = (place.shared(), fresh_path("panic"));
    let client = place.connect(&server.hosts());
    let mutex = client.mutex(&path).unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _guard = mutex.lock().unwrap();
        panic!("in the critical section");
    }));
    assert!(panicked.is_err());
    assert!(mutex.try_lock_for(SOON).unwrap().is_some());
    assert_nothing_left(&server.hosts(), &path);
}

fn the_lock_of_a_killed_process_is_free_after_its_session_timeout_and_not_before(place: Place) {
    let (server, path) = (place.shared(), fresh_path("killed"));
    // The timeout is so long that a machine that stalls for a moment costs no session.
    let timeout = Duration::from_secs(8);
    let client = place.connect(&server.hosts());
    let mutex = client.mutex(&path).unwrap();
    let mut holder = holder(place.transport, &server.hosts(), &path, timeout);
    holder.expect("locked");
    let (guard, took) = timed(|| {
        holder.kill();
        mutex.lock().unwrap()
    });
    // The server counts from when it last heard of the session, at most a third of the
    // timeout before. Until half of it has passed, the holder would have trusted its lock.
    assert!(timeout / 2 < took, "{took:?}");
    assert!(took < timeout + SOON, "{took:?}");
    drop(guard);
    assert_nothing_left(&server.hosts(), &path);
}

/// etcd #19597: the waiter went on waiting, in no queue. A waiter of ours once took itself for
/// evicted.
fn a_waiter_whose_session_expires_queues_again(place: Place) {
    let (server, path) = (place.shared(), fresh_path("expired"));
    let (ours, waiter) = (place.connect(&server.hosts()), Waiter::connect(place));
    let guard = ours.mutex(&path).unwrap().lock().unwrap();
    let mutex = waiter.client.mutex(&path).unwrap();
    let waiting = aside(move || mutex.lock().map(drop));
    waiter.lose_sessions(&path, guard.node(), &waiting);
    drop(guard);
    place.assert_gets_in(&waiting);
    assert_nothing_left(&server.hosts(), &path);
}

/// The waiter's first news looks like an eviction.
fn a_waiter_whose_node_is_gone_before_its_session_queues_again(place: Place) {
    let (server, path) = (place.shared(), fresh_path("before"));
    let (ours, waiter) = (place.connect(&server.hosts()), Waiter::connect(place));
    let guard = ours.mutex(&path).unwrap().lock().unwrap();
    let mutex = waiter.client.mutex(&path).unwrap();
    let waiting = aside(move || mutex.lock().map(drop));
    // The waiter watches its own node.
    waiter.lose_node_and_session(&path, &[guard.node()], &waiting, || {});
    drop(guard);
    place.assert_gets_in(&waiting);
    assert_nothing_left(&server.hosts(), &path);
}

/// Netflix/curator #75, kazoo #315: the thread waited for itself.
fn locking_twice_in_one_thread_is_an_error_at_once(place: Place) {
    let (server, path) = (place.shared(), fresh_path("twice"));
    let client = place.connect(&server.hosts());
    let mutex = client.mutex(&path).unwrap();
    let guard = mutex.lock().unwrap();
    let twin = client.clone().mutex(&path).unwrap();
    for result in [
        mutex.lock().map(Some),
        twin.lock().map(Some),
        twin.try_lock(),
        twin.try_lock_for(SOON),
    ] {
        assert_eq!(
            result.unwrap_err(),
            Error::WouldDeadlock { path: path.clone() }
        );
    }
    assert!(guard.is_valid());
    drop(guard);
    drop(twin.lock().unwrap());
    assert_nothing_left(&server.hosts(), &path);
}

fn a_guard_that_may_change_threads_is_released_in_another(place: Place) {
    let (server, path) = (place.shared(), fresh_path("send"));
    let client = place.connect(&server.hosts());
    let mutex = client.mutex(&path).unwrap();
    let guard = mutex.lock().unwrap().into_send();
    assert!(guard.is_valid());
    let releaser = thread::spawn(move || guard.unlock());
    // This thread waits: no trace is left that it had the lock.
    let again = mutex.lock().unwrap();
    releaser.join().unwrap().unwrap();
    drop(again);
    assert_nothing_left(&server.hosts(), &path);
}

fn fencing_tokens_grow_with_every_grant(place: Place) {
    let (server, path) = (place.shared(), fresh_path("tokens"));
    let clients = [
        place.connect(&server.hosts()),
        place.connect(&server.hosts()),
    ];
    let mut tokens = Vec::new();
    for i in 0..10 {
        let guard = clients[i % 2].mutex(&path).unwrap().lock().unwrap();
        let stat = Raw::connect(&server.hosts()).stat(guard.node()).unwrap();
        assert_eq!(guard.fencing_token().get(), stat.czxid);
        tokens.push(guard.fencing_token());
    }
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    assert_nothing_left(&server.hosts(), &path);
}

fn unlocking_waits_until_the_server_has_let_go(place: Place) {
    let (server, path) = (place.shared(), fresh_path("unlock"));
    let client = place.connect(&server.hosts());
    let mutex = client.mutex(&path).unwrap();
    for _ in 0..10 {
        mutex.lock().unwrap().unlock().unwrap();
        assert_eq!(children(&server.hosts(), &path), [""; 0]);
    }
}

fn whoever_waits_is_told_who_is_ahead(place: Place) {
    let (server, path) = (place.shared(), fresh_path("waiting"));
    let (one, two) = (
        place.connect(&server.hosts()),
        place.connect(&server.hosts()),
    );
    let guard = one.mutex(&path).unwrap().lock().unwrap();
    let node = guard.node().to_owned();
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let options = LockOptions::new().on_wait(|waiting| {
                let ahead = waiting.ahead().expect("somebody is ahead");
                let pid = ahead.owner().pid;
                let ahead = (ahead.node().to_owned(), ahead.holds(), pid);
                tell.send((waiting.position(), ahead)).unwrap();
            });
            drop(two.mutex(&path).unwrap().lock_with(options).unwrap());
        });
        let (position, ahead) = told.recv_timeout(SOON).unwrap();
        assert_eq!(position, 1);
        assert_eq!(ahead, (node, true, Some(std::process::id())));
        drop(guard);
    });
    assert_nothing_left(&server.hosts(), &path);
}

fn whoever_waits_for_threads_of_its_client_is_told_how_many(place: Place) {
    let (server, path) = (place.shared(), fresh_path("waiting-in-line"));
    let (client, other) = (
        place.connect(&server.hosts()),
        place.connect(&server.hosts()),
    );
    let mutex = client.mutex(&path).unwrap();
    let (tell, told) = mpsc::channel();
    let (guard, mut behind) = (mutex.lock().unwrap(), Vec::new());
    for number in 1..=2 {
        let (mutex, tell) = (mutex.clone(), tell.clone());
        behind.push(thread::spawn(move || {
            let options = LockOptions::new().on_wait(|waiting| {
                let is_known = waiting.ahead().is_some();
                tell.send((number, waiting.position(), is_known)).unwrap();
            });
            drop(mutex.lock_with(options).unwrap());
        }));
        assert_eq!(told.recv_timeout(SOON), Ok((number, number, false)));
    }
    // The other client is next, so the first thread is told again, of a contender.
    let (go_on, goes_on) = mpsc::channel::<()>();
    behind.push(thread::spawn(move || {
        let _guard = other.mutex(&path).unwrap().lock().unwrap();
        goes_on.recv().unwrap_err();
    }));
    wait_for_children(&server.hosts(), mutex.path(), 2);
    drop(guard);
    assert_eq!(told.recv_timeout(SOON), Ok((1, 1, true)));
    drop(go_on);
    for thread in behind {
        thread.join().unwrap();
    }
    assert_nothing_left(&server.hosts(), mutex.path());
}

/// kazoo #83, kazoo #482: a lock of a closed client hung.
fn closing_a_client_frees_its_locks_and_ends_its_waits(place: Place) {
    let (server, path) = (place.shared(), fresh_path("close"));
    let held = fresh_path("close-held");
    let other = place.connect(&server.hosts());
    let taken = other.mutex(&path).unwrap().lock().unwrap();
    let client = place.connect(&server.hosts());
    let guard = client.mutex(&held).unwrap().lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| client.mutex(&path).unwrap().lock().map(drop));
        let local = scope.spawn(|| client.mutex(&held).unwrap().lock().map(drop));
        wait_for_children(&server.hosts(), &path, 2);
        client.close().unwrap();
        assert_eq!(waiter.join().unwrap(), Err(Error::Closed));
        assert_eq!(local.join().unwrap(), Err(Error::Closed));
    });
    let lost = Error::Lost {
        path: held.clone(),
        why: LostReason::Closed,
    };
    assert_eq!(guard.check(), Err(lost));
    assert_nothing_left(&server.hosts(), &held);
    wait_for_children(&server.hosts(), &path, 1);
    drop(taken);
    assert_nothing_left(&server.hosts(), &path);
}

fn the_last_drop_of_a_client_frees_what_it_left(place: Place) {
    let (server, path) = (place.shared(), fresh_path("last"));
    let client: Client = place.connect(&server.hosts());
    let guard = client.mutex(&path).unwrap().lock().unwrap();
    drop(client);
    guard.verify().unwrap();
    drop(guard);
    assert_nothing_left(&server.hosts(), &path);
}

#[test]
fn a_wait_lasts_from_the_call_on_although_no_server_was_there_then() {
    let (server, path) = (Server::start().unwrap(), fresh_path("since"));
    let proxy = Proxy::start(server.hosts());
    let (holder, waiter) = (
        Client::connect(server.hosts()).unwrap(),
        Client::connect(&proxy.hosts()).unwrap(),
    );
    let _guard = holder.mutex(&path).unwrap().lock().unwrap();
    proxy.refuse();
    proxy.cut();
    eventually("it is disconnected", || {
        waiter.state() == SessionState::Connecting
    });
    let (tell, told) = mpsc::channel();
    let (stop, cancel) = bounded(1);
    thread::scope(|scope| {
        let (begun, mutex) = (Instant::now(), waiter.mutex(&path).unwrap());
        scope.spawn(move || {
            let told = |waiting: &Waiting| tell.send(waiting.since()).unwrap();
            let options = LockOptions::new().cancel(cancel).on_wait(told);
            assert!(mutex.lock_with(options).unwrap().is_none());
        });
        thread::sleep(Duration::from_millis(500));
        let outage = begun.elapsed();
        proxy.accept();
        let since = told.recv_timeout(SOON).unwrap();
        stop.send(()).unwrap();
        assert!(outage / 2 < since, "{since:?}");
    });
}
