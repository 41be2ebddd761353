//! Servers that do not vote, and servers that are read-only.

use std::time::Duration;

use zklock::{Client, Error};

use super::{SOON, connect};
use crate::support::ensemble::Ensemble;
use crate::support::zookeeper::ZooKeeper;
use crate::support::{aside, eventually, fresh_path};

const TIMEOUT: Duration = Duration::from_secs(4);

#[test]
#[ignore = "needs ZooKeeper servers"]
fn a_client_of_an_observer_and_one_of_a_voter_exclude_each_other() {
    let ensemble = Ensemble::start_with_observer();
    let observer = ensemble.server(2);
    let mode = observer.four_letter("srvr").unwrap();
    assert!(mode.contains("Mode: observer"), "{mode}");
    let here = connect(&observer.hosts(), TIMEOUT);
    let there = connect(&ensemble.server(0).hosts(), TIMEOUT);
    let path = fresh_path("observed");
    let (ours, theirs) = (here.mutex(&path).unwrap(), there.mutex(&path).unwrap());
    let mut token = None;
    for _ in 0..5 {
        for (holds, waits) in [(&ours, &theirs), (&theirs, &ours)] {
            let guard = holds.lock().unwrap();
            assert!(waits.try_lock().unwrap().is_none());
            let next = waits.clone();
            let next = aside(move || next.lock().unwrap().fencing_token());
            eventually("it waits", || here.contenders(&path).unwrap().len() == 2);
            guard.verify().unwrap();
            assert!(token < Some(guard.fencing_token()));
            assert!(next.is_empty());
            guard.unlock().unwrap();
            token = Some(next.recv_timeout(SOON).unwrap());
        }
    }
}

/// A leader commits to its followers before it executes what it has committed.
#[test]
#[ignore = "needs ZooKeeper servers"]
fn a_release_that_a_follower_has_answered_is_seen_by_who_tries_at_the_leader() {
    let ensemble = Ensemble::start_with(&ZooKeeper::builder().fsync(false));
    let leader = ensemble.wait_for_leader();
    let follower = ensemble.server((leader + 1) % 3);
    let [one, other] =
        [follower, ensemble.server(leader)].map(|server| connect(&server.hosts(), TIMEOUT));
    let path = fresh_path("ahead");
    let [mutex, tries] = [&one, &other].map(|client| client.mutex(&path).unwrap());
    let permits = format!("{path}-permits");
    let permits = [&one, &other].map(|client| client.semaphore(&permits, 1).unwrap());
    let parts = [format!("{path}-a"), format!("{path}-b")];
    let parts = parts.each_ref().map(String::as_str);
    let parts = [&one, &other].map(|client| client.multi_lock(parts).unwrap());
    for round in 0..400 {
        mutex.lock().unwrap().unlock().unwrap();
        assert!(tries.try_lock().unwrap().is_some(), "mutex, {round}");
        permits[0].acquire().unwrap().unlock().unwrap();
        let tried = permits[1].try_acquire().unwrap();
        assert!(tried.is_some(), "permit, {round}");
        drop(tried);
        parts[0].lock().unwrap().unlock().unwrap();
        assert!(parts[1].try_lock().unwrap().is_some(), "parts, {round}");
    }
}

#[test]
#[ignore = "needs ZooKeeper servers"]
fn a_server_that_only_reads_grants_no_lock_and_keeps_none() {
    let builder = ZooKeeper::builder().fsync(false);
    let ensemble = Ensemble::start_with(&builder.property("readonlymode.enabled", "true"));
    let last = ensemble.server(0);
    let client = connect(&last.hosts(), TIMEOUT);
    let mutex = client.mutex(&fresh_path("read-only")).unwrap();
    let guard = mutex.lock().unwrap();
    (1..3).for_each(|i| ensemble.kill(i));
    eventually("it only reads", || {
        let mode = last.four_letter("srvr");
        mode.is_ok_and(|mode| mode.contains("Mode: read-only"))
    });
    eventually("the guard is in doubt", || guard.check().is_err());
    let late = Client::builder(&last.hosts()).connect_timeout(Duration::from_secs(3));
    let error = late.connect().unwrap_err();
    assert!(matches!(error, Error::ConnectTimeout { .. }), "{error}");
    assert!(
        error.to_string().contains("a server without a quorum"),
        "{error}"
    );
    assert!(mutex.try_lock_for(Duration::from_millis(100)).is_err());

    drop(guard);
    (1..3).for_each(|i| ensemble.restart_without_waiting(i));
    let again = mutex.clone();
    let again = aside(move || again.lock().unwrap().check());
    again.recv_timeout(6 * SOON).expect("a quorum").unwrap();
}
