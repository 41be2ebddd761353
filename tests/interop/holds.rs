//! Other libraries wait for a hold as for any other contender, and get the lock after it.

use zklock::diagnostics::Hold;
use zklock::{Client, Contender, Dialect, LockGuard};

use super::A_WHILE;
use super::kinds::{
    APACHE, CURATOR_LATCH, CURATOR_MUTEX, CURATOR_READ, CURATOR_WRITE, GO, KAZOO_AS_CURATOR,
    KAZOO_LOCK, KAZOO_READ, Kind,
};
use super::peer::server;
use crate::support::fresh_path;
use crate::support::raw::wait_for_children;

#[test]
#[ignore = "needs a ZooKeeper server, Curator, kazoo and go-zookeeper: tests/all.sh"]
fn others_wait_behind_a_hold_and_get_the_lock_after_it() {
    let pairs = [
        (Dialect::Curator, false, CURATOR_MUTEX),
        (Dialect::Curator, false, KAZOO_AS_CURATOR),
        (Dialect::Curator, false, GO),
        (Dialect::Curator, false, APACHE),
        (Dialect::Curator, true, CURATOR_READ),
        (Dialect::Curator, true, CURATOR_WRITE),
        (Dialect::Kazoo, false, KAZOO_LOCK),
        (Dialect::Kazoo, false, KAZOO_READ),
        (Dialect::LeaderLatch, false, CURATOR_LATCH),
    ];
    for (dialect, writes, theirs) in pairs {
        meet(dialect, writes, theirs);
    }
}

/// Lets one of their contenders wait when the hold takes the place of a lock, and another one come
/// later.
fn meet(dialect: Dialect, writes: bool, theirs: Kind) {
    let (hosts, path) = (server().hosts(), fresh_path("hold"));
    let client = Client::builder(&hosts).dialect(dialect).connect().unwrap();
    let guard: Box<dyn LockGuard> = match writes {
        true => Box::new(client.rwlock(&path).unwrap().write().unwrap()),
        false => Box::new(client.mutex(&path).unwrap().lock().unwrap()),
    };
    let (early, late) = (theirs.contender(&hosts), theirs.contender(&hosts));
    early.lock(theirs.word, &path);
    wait_for_children(&hosts, &path, 2);
    let hold = Hold::new("deploy freeze", Some("ann"));
    guard.leave_hold(&hold).unwrap();
    drop(guard);
    client.close().unwrap();
    late.lock(theirs.word, &path);
    wait_for_children(&hosts, &path, 3);
    for one in [&early, &late] {
        assert_eq!(one.hear_within(A_WHILE), None, "{}", theirs.label);
    }
    let look = Client::connect(&hosts).unwrap();
    let contenders = look.contenders(&path).unwrap();
    let hold = contenders.iter().find(|one| one.hold().is_some());
    assert!(hold.is_some_and(Contender::holds), "{contenders:?}");
    hold.unwrap().evict().unwrap();
    early.held();
    early.release();
    late.held();
    late.release();
}
