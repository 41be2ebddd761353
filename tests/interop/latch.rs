//! The queue of Curator's `LeaderLatch`, where a waiter notices a deletion and nothing else.

use std::time::Duration;

use zklock::{Client, Dialect, Error, LockOptions};

use super::A_WHILE;
use super::kinds::CURATOR_LATCH;
use super::peer::server;
use crate::support::raw::wait_for_children;
use crate::support::{aside, fresh_path};

#[test]
#[ignore = "needs a ZooKeeper server and Curator: tests/all.sh"]
fn nobody_in_the_queue_of_a_latch_is_asked() {
    let (hosts, path) = (server().hosts(), fresh_path("latch"));
    let [ours, other] = [(); 2].map(|()| client(&hosts));
    let guard = ours.mutex(&path).unwrap().lock().unwrap();
    let theirs = CURATOR_LATCH.contender(&hosts);
    theirs.lock(CURATOR_LATCH.word, &path);
    wait_for_children(&hosts, &path, 2);
    assert_eq!(theirs.hear_within(A_WHILE), None);
    for contender in other.contenders(&path).unwrap() {
        let asked = contender.revoke();
        assert!(matches!(asked, Err(Error::Unsupported { .. })), "{asked:?}");
    }
    guard.unlock().unwrap();
    theirs.held();
    theirs.release();
}

#[test]
#[ignore = "needs a ZooKeeper server and Curator: tests/all.sh"]
fn a_latch_leads_after_a_holder_that_somebody_behind_it_evicts() {
    let (hosts, path) = (server().hosts(), fresh_path("latch"));
    let [ours, last] = [(); 2].map(|()| client(&hosts));
    let guard = ours.mutex(&path).unwrap().lock().unwrap();
    let theirs = CURATOR_LATCH.contender(&hosts);
    theirs.lock(CURATOR_LATCH.word, &path);
    wait_for_children(&hosts, &path, 2);
    assert_eq!(theirs.hear_within(A_WHILE), None);
    let mutex = last.mutex(&path).unwrap();
    let waited = aside(move || {
        let soon = Duration::from_millis(100);
        let hurry = LockOptions::new().evict_overdue(soon, Duration::from_secs(3));
        mutex.lock_with(hurry).map(drop)
    });
    theirs.held();
    assert!(guard.unlock().is_err_and(|error| error.is_lost()));
    theirs.release();
    waited.recv().unwrap().unwrap();
}

fn client(hosts: &str) -> Client {
    let builder = Client::builder(hosts).dialect(Dialect::LeaderLatch);
    builder.connect().unwrap()
}
