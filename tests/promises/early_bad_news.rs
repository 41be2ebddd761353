//! A guard fails its check before another client can have its lock, whatever a server grants,
//! forgets or forwards late.
//!
//! `ZKLOCK_ROUNDS=100 cargo test --test early_bad_news -- --include-ignored` repeats each scenario;
//! `tests/chaos.sh --minutes` does so, too.

use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use zklock::{Client, Error, GuardEvent, GuardState, MutexGuard};

use crate::support::ensemble::Ensemble;
use crate::support::proxy::Proxy;
use crate::support::raw::{Raw, children, op};
use crate::support::zookeeper::{Builder, ZooKeeper};
use crate::support::{aside, eventually, fresh_path};
use crate::transport::{SOON, Transport, wait_for, wait_for_queue};

const T: Duration = Duration::from_secs(4);

fn connect(hosts: &str, timeout: Duration) -> Client {
    Client::builder(hosts)
        .session_timeout(timeout)
        .connect()
        .unwrap()
}

/// Returns how often each scenario is tried.
fn rounds() -> u32 {
    let asked = std::env::var("ZKLOCK_ROUNDS").ok();
    asked.and_then(|asked| asked.parse().ok()).unwrap_or(1)
}

/// Waits in a thread until the other client gets the lock; that client reports when, and keeps the
/// lock.
fn next_holder(hosts: &str, path: &str) -> Receiver<(Instant, Client)> {
    let (hosts, path) = (hosts.to_owned(), path.to_owned());
    aside(move || {
        let client = connect(&hosts, T);
        let guard = client.mutex(&path).unwrap().lock().unwrap();
        let granted = Instant::now();
        std::mem::forget(guard);
        (granted, client)
    })
}

/// Checks until a check fails, and returns when a check last passed.
fn last_pass(guard: &MutexGuard) -> Instant {
    let mut last = Instant::now();
    while guard.check().is_ok() {
        last = Instant::now();
        thread::sleep(Duration::from_millis(1));
    }
    last
}

#[track_caller]
fn assert_in_time(last: Instant, next: &Receiver<(Instant, Client)>) {
    let (granted, _client) = next
        .recv_timeout(Duration::from_secs(60))
        .expect("the next holder");
    assert!(
        last < granted,
        "two passed their check for {:?}",
        last - granted
    );
}

#[test]
#[ignore = "needs a ZooKeeper server: tests/all.sh"]
fn a_shorter_timeout_after_a_restart_counts_for_guards_that_were_granted_before() {
    (0..rounds()).for_each(|_| shorten());
}

fn shorten() {
    let server = ZooKeeper::builder().line("maxSessionTimeout=40000").start();
    let proxy = Proxy::start(&server.hosts());
    let client = connect(&proxy.hosts(), 10 * T);
    let path = fresh_path("shorter");
    let guard = client.mutex(&path).unwrap().lock().unwrap();
    assert!(guard.valid_for() > T, "the timeout is long at first");

    server.restart_with("maxSessionTimeout=4000");
    eventually("the client is back", || client.session_timeout() == T);
    // The guard is lost, if the server was slow to come back, or has been proven again.
    eventually("the guard knows", || {
        guard.verify().is_ok() || guard.state() == GuardState::Lost
    });
    assert!(guard.valid_for() <= T / 2, "{:?}", guard.valid_for());
    let next = next_holder(&server.hosts(), &path);
    wait_for_queue(&client, &path, 2);
    proxy.blackhole();
    assert_in_time(last_pass(&guard), &next);
}

#[test]
#[ignore = "needs a ZooKeeper server: tests/all.sh"]
fn a_connect_request_whose_answer_is_lost_may_have_shortened_the_session() {
    (0..rounds()).for_each(|_| {
        shorten_unheard(4, T);
    });
}

#[test]
#[ignore = "needs a ZooKeeper server: tests/all.sh"]
fn what_servers_grant_at_least_is_relied_on_while_a_connect_request_is_unanswered() {
    let trusted = shorten_unheard(12, 3 * T);
    let least = Duration::from_millis(4_200);
    assert!(least < trusted, "trusted for {trusted:?} after the request");
}

/// Lets a server that grants this many seconds answer a connect request, and loses the answer.
/// Returns how long the guard could be trusted from then on.
fn shorten_unheard(seconds: u32, stated: Duration) -> Duration {
    let server = ZooKeeper::builder().line("maxSessionTimeout=40000").start();
    let proxy = Proxy::start(&server.hosts());
    let client = Client::builder(&proxy.hosts())
        .session_timeout(10 * T)
        .granted_at_least(stated)
        .connect()
        .unwrap();
    let path = fresh_path("unheard");
    let guard = client.mutex(&path).unwrap().lock().unwrap();
    proxy.drop_greetings();
    server.restart_with(&format!("maxSessionTimeout={}", 1000 * seconds));
    wait_for(&guard, GuardEvent::Suspect);
    eventually("a connect request reaches the server", || {
        proxy.greetings() > 0
    });
    let asked = Instant::now();
    proxy.blackhole();
    let next = next_holder(&server.hosts(), &path);
    let last = last_pass(&guard);
    assert_in_time(last, &next);
    last.saturating_duration_since(asked)
}

/// Whoever took a lock over does not hear of the connect requests of others that try to.
#[test]
#[ignore = "needs a ZooKeeper server: tests/all.sh"]
fn a_late_rival_of_a_take_over_may_have_shortened_the_session() {
    let server = ZooKeeper::builder().line("maxSessionTimeout=40000").start();
    let proxy = Proxy::start(&server.hosts());
    let path = fresh_path("rival");
    let old = connect(&server.hosts(), 10 * T);
    let handover = old.mutex(&path).unwrap().lock().unwrap();
    let handover = handover.hand_over().unwrap();
    let taker = Client::builder(&proxy.hosts()).granted_at_least(T);
    let (_client, guard) = taker.take_over(&handover).unwrap();
    proxy.blackhole();
    server.restart_with("maxSessionTimeout=4000");
    let rival = Client::builder(&server.hosts()).take_over(&handover);
    assert!(rival.unwrap_err().is_lost());
    let next = next_holder(&server.hosts(), &path);
    assert_in_time(last_pass(&guard), &next);
}

#[test]
#[ignore = "needs a ZooKeeper server: tests/all.sh"]
fn a_longer_timeout_after_a_restart_does_not_let_a_guard_starve() {
    let server = ZooKeeper::builder().line("maxSessionTimeout=16000").start();
    let client = connect(&server.hosts(), 15 * T);
    let path = fresh_path("longer");
    let guard = client.mutex(&path).unwrap().lock().unwrap();
    server.restart_with("maxSessionTimeout=60000");
    wait_for(&guard, GuardEvent::Suspect);
    wait_for(&guard, GuardEvent::Held);
    assert_eq!(client.session_timeout(), 4 * T, "the shortest one counts");
    // This is longer than a third of the first timeout, and less than a sixth of the second.
    let news = guard.events().recv_timeout(T * 7 / 4);
    assert!(news.is_err(), "{news:?} on a connection that is well");
    guard.unlock().unwrap();
}

#[cfg(feature = "zookeeper")]
#[test]
#[ignore = "needs a ZooKeeper server: tests/all.sh"]
fn a_handle_believes_no_more_than_its_server_grants() {
    (0..rounds()).for_each(|_| clamp_a_handle());
}

#[cfg(feature = "zookeeper")]
fn clamp_a_handle() {
    let server = ZooKeeper::builder().line("maxSessionTimeout=4000").start();
    let proxy = Proxy::start(&server.hosts());
    let asked = Duration::from_secs(30);
    let handle = zookeeper::ZooKeeper::connect(&proxy.hosts(), asked, |_| {}).unwrap();
    let client = Client::from_zookeeper(handle, asked).unwrap();
    let path = fresh_path("handle");
    let guard = client.mutex(&path).unwrap().lock().unwrap();
    let next = next_holder(&server.hosts(), &path);
    wait_for_queue(&connect(&server.hosts(), T), &path, 2);
    proxy.blackhole();
    assert_in_time(last_pass(&guard), &next);
}

#[test]
#[ignore = "needs a ZooKeeper server: tests/all.sh"]
fn a_writer_that_was_evicted_cannot_become_a_reader() {
    let server = ZooKeeper::shared();
    for transport in Transport::all() {
        let client = transport.connect(&server.hosts());
        let path = fresh_path("downgrade");
        let lock = client.rwlock(&path).unwrap();
        for _ in 0..20 * rounds() {
            let writer = lock.write().unwrap();
            Raw::connect(&server.hosts()).delete(writer.node()).unwrap();
            // The client may not know of it yet, but no reader must remain after it.
            let error = writer.downgrade().map(|_| ()).unwrap_err();
            assert!(error.is_lost(), "{error}");
        }
        let next = lock.try_write_for(SOON).unwrap();
        assert!(next.is_some(), "a reader was left behind");
    }
}

#[test]
#[ignore = "needs a ZooKeeper server: tests/all.sh"]
fn a_waiter_whose_look_at_its_own_node_was_lost_hears_of_its_eviction() {
    (0..5 * rounds()).for_each(|_| lose_the_look());
}

fn lose_the_look() {
    let server = ZooKeeper::shared();
    let path = fresh_path("own");
    let holder = connect(&server.hosts(), T);
    let held = holder.mutex(&path).unwrap().lock().unwrap();
    let proxy = Proxy::start(&server.hosts());
    let client = connect(&proxy.hosts(), T);
    let mutex = client.mutex(&path).unwrap();
    // It reads its own node, and then the one ahead.
    proxy.drop_next_reply_to(op::GET_DATA);
    let waiting = aside(move || mutex.lock().map(|guard| guard.node().to_owned()));
    eventually("the answer is lost", || proxy.fired());
    eventually("the waiter is back, and watches", || {
        proxy.requests(op::GET_DATA) >= 4
    });
    evict_last(&server.hosts(), &path, held.node());
    held.unlock().unwrap();
    let outcome = waiting.recv_timeout(SOON).expect("an answer");
    assert!(matches!(outcome, Err(Error::Evicted { .. })), "{outcome:?}");
}

#[test]
#[ignore = "needs a ZooKeeper server: tests/all.sh"]
fn a_multi_lock_whose_node_went_while_it_waited_elsewhere_is_evicted() {
    (0..5 * rounds()).for_each(|_| evict_elsewhere());
}

fn evict_elsewhere() {
    let server = ZooKeeper::shared();
    let path = fresh_path("multi");
    let (first, second) = (format!("{path}/a"), format!("{path}/b"));
    let holder = connect(&server.hosts(), T);
    let held = holder.mutex(&second).unwrap().lock().unwrap();
    let client = connect(&server.hosts(), T);
    let all = client
        .multi_lock([first.as_str(), second.as_str()])
        .unwrap();
    let waiting = aside(move || all.lock().map(|guard| guard.nodes().len()));
    wait_for_queue(&holder, &second, 2);
    evict_last(&server.hosts(), &first, "");
    held.unlock().unwrap();
    let outcome = waiting.recv_timeout(SOON).expect("an answer");
    assert!(matches!(outcome, Err(Error::Evicted { .. })), "{outcome:?}");
}

/// Deletes the only contender of a lock beside the one that must stay.
fn evict_last(hosts: &str, path: &str, stays: &str) {
    let mut evicted = false;
    eventually("there is somebody to evict", || {
        for name in children(hosts, path) {
            let node = format!("{path}/{name}");
            evicted |= node != stays && Raw::connect(hosts).delete(&node).is_ok();
        }
        evicted
    });
}

#[test]
#[ignore = "needs a ZooKeeper server: tests/all.sh"]
fn a_new_guard_beside_another_is_not_suspect_while_the_connection_is_well() {
    let server = ZooKeeper::shared();
    let proxy = Proxy::start(&server.hosts());
    let client = connect(&proxy.hosts(), T);
    let path = fresh_path("beside");
    let beside = client.mutex(&format!("{path}/beside")).unwrap();
    let beside = beside.lock().unwrap();
    let other = connect(&server.hosts(), T);
    let mutex = other.mutex(&path).unwrap();
    let stays_held = |round: u32| {
        beside.events().try_iter().for_each(drop);
        proxy.delay(Duration::ZERO);
        let held = mutex.lock().unwrap();
        let ours = client.mutex(&path).unwrap();
        let (granted, done) = crossbeam_channel::bounded(0);
        let waiter = thread::spawn(move || {
            let guard = ours.lock().unwrap();
            granted.send(()).unwrap();
            let news = guard.events().recv_timeout(T / 2);
            news.is_err() && guard.state() == GuardState::Held
        });
        wait_for_queue(&other, &path, 2);
        // This gives the lock's own proof an age, and ends in each round at another moment between
        // two checks of the lock beside it.
        thread::sleep(T * (14 + 2 * (round % 5)) / 100);
        proxy.delay(Duration::from_millis(150));
        held.unlock().unwrap();
        done.recv_timeout(SOON).expect("a grant");
        waiter.join().unwrap() && beside.events().try_iter().count() == 0
    };
    for round in 0..6 * rounds() {
        // A machine that stands still for T/6 makes any guard suspect.
        assert!((0..3).any(|_| stays_held(round)), "round {round}");
    }
}

#[test]
#[ignore = "needs a ZooKeeper server: tests/all.sh"]
fn a_link_that_is_too_slow_for_its_session_grants_what_there_is() {
    let server = ZooKeeper::shared();
    let proxy = Proxy::start(&server.hosts());
    let client = connect(&proxy.hosts(), T);
    let path = fresh_path("slow");
    drop(client.mutex(&path).unwrap().lock().unwrap());
    // A round trip takes more than a sixth of the session timeout.
    proxy.delay(T / 11);
    let mutex = client.mutex(&path).unwrap();
    let locking = aside(move || mutex.lock().map(|guard| guard.valid_for()));
    let valid = locking.recv_timeout(2 * SOON).expect("a grant");
    assert!(valid.unwrap() <= T / 2);
}

/// The leader commits what a follower forwards without a touch: the touch comes with the
/// follower's answer to the next ping, if the follower lives long enough to answer it.
#[test]
#[ignore = "needs a ZooKeeper server: tests/all.sh"]
fn a_follower_that_stops_right_after_a_grant_takes_nothing_with_it() {
    let ensemble = Ensemble::start_with(&Builder::default().fsync(false));
    let leader = ensemble.wait_for_leader();
    for round in 0..3 * rounds() {
        let late = Duration::from_millis([2_450, 3_000, 3_600][round as usize % 3]);
        let follower = ensemble.follower().expect("a follower");
        let proxy = Proxy::start(&ensemble.server(follower).hosts());
        let client = connect(&proxy.hosts(), T);
        let path = fresh_path("late");
        // All directories are created beforehand, so that the lock takes one request.
        drop(client.mutex(&path).unwrap().lock().unwrap());
        let mutex = client.mutex(&path).unwrap();
        proxy.blackhole_at_next_request(op::CREATE2);
        let locking = aside(move || {
            let guard = mutex.lock()?;
            let granted = Instant::now();
            let last = last_pass(&guard);
            Ok::<_, Error>((granted, last))
        });
        eventually("the request is on its way", || proxy.fired());
        thread::sleep(late);
        proxy.heal();
        // The next client queues behind the node that results from the request, if any.
        eventually("the request arrives", || {
            !children(&ensemble.server(leader).hosts(), &path).is_empty()
        });
        let next = next_holder(&ensemble.server(leader).hosts(), &path);
        ensemble.pause(follower);
        // If the lock was not granted at all, that is fine too.
        let outcome = locking.recv_timeout(Duration::from_secs(5)).ok();
        if let Some(Ok((_, last))) = outcome {
            assert_in_time(last, &next);
        } else {
            next.recv_timeout(Duration::from_secs(60))
                .expect("the next holder");
        }
        ensemble.resume(follower);
    }
}
