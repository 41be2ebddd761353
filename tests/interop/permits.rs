//! kazoo's semaphore, shared with the real kazoo.

use std::thread;

use zklock::{Client, Dialect, Role};

use super::contender::Said;
use super::kinds::{KAZOO_SEMAPHORE, KAZOO_SEMAPHORE_OF_TWO, Kind, of_ours};
use super::libraries::Library;
use super::peer::{Peer, server};
use super::queue::worker_that_queues;
use crate::support::raw::Raw;
use crate::support::worker::Worker;
use crate::support::{eventually, fresh_path};

pub(crate) const TWO_AS_KAZOO: Kind = of_ours(Dialect::Kazoo, "semaphore:2");
const ONE_AS_KAZOO: Kind = of_ours(Dialect::Kazoo, "semaphore:1");

#[test]
#[ignore = "needs a ZooKeeper server and kazoo: tests/all.sh"]
fn the_permit_of_a_killed_holder_passes_on() {
    thread::scope(|scope| {
        scope.spawn(a_permit_of_a_killed_peer_comes_to_us);
        scope.spawn(a_permit_of_ours_that_is_killed_goes_to_a_peer);
    });
}

fn a_permit_of_a_killed_peer_comes_to_us() {
    let (hosts, path) = (server().hosts(), fresh_path("permit"));
    let mut peer = Peer::start(Library::Kazoo, &hosts).expect("a library at hand");
    let doomed = peer.contender();
    doomed.lock(KAZOO_SEMAPHORE.word, &path);
    doomed.held();
    let mine = ONE_AS_KAZOO.contender(&hosts);
    mine.lock(ONE_AS_KAZOO.word, &path);
    assert_eq!(mine.said().recv(), Ok(Said::Waiting));
    peer.kill();
    mine.held();
    mine.release();
}

fn a_permit_of_ours_that_is_killed_goes_to_a_peer() {
    let (hosts, path) = (server().hosts(), fresh_path("permit"));
    let input = format!("{hosts} Kazoo {path} permit");
    let mut worker = Worker::spawn(worker_that_queues, &input);
    worker.expect("held");
    let their = KAZOO_SEMAPHORE.contender(&hosts);
    their.lock(KAZOO_SEMAPHORE.word, &path);
    let mut witness = Raw::connect(&hosts);
    eventually("theirs is in the line", || {
        let line = witness.children(&format!("{path}-__lock__"));
        line.is_some_and(|line| line.len() == 1)
    });
    worker.kill();
    their.held();
    their.release();
}

#[test]
#[ignore = "needs a ZooKeeper server and kazoo: tests/all.sh"]
fn who_counts_kazoos_permits_otherwise_is_told_on_both_sides() {
    let hosts = server().hosts();
    let (ours, two_of_ours) = (ONE_AS_KAZOO, TWO_AS_KAZOO);
    let (theirs, two_of_theirs) = (KAZOO_SEMAPHORE, KAZOO_SEMAPHORE_OF_TWO);
    let pairs = [
        (
            ours,
            two_of_theirs,
            "Inconsistent max leases: 1, expected: 2",
        ),
        (
            theirs,
            two_of_ours,
            "has 1 permits for another client and 2 for this one",
        ),
    ];
    for (first, second, complaint) in pairs {
        let path = fresh_path("disagreement");
        let (holder, comer) = (first.contender(&hosts), second.contender(&hosts));
        holder.lock(first.word, &path);
        holder.held();
        comer.lock(second.word, &path);
        match comer.hear() {
            Said::Error(text) => assert!(text.contains(complaint), "{text}"),
            other => panic!("{}: {other:?}", second.label),
        }
        holder.release();
    }
}

#[test]
#[ignore = "needs a ZooKeeper server and kazoo: tests/all.sh"]
fn kazoo_reads_who_has_a_permit_and_we_read_it() {
    let hosts = server().hosts();
    let path = fresh_path("holders");
    let (ours, theirs) = (TWO_AS_KAZOO, KAZOO_SEMAPHORE_OF_TWO);
    let (mine, their) = (ours.contender(&hosts), theirs.contender(&hosts));
    mine.lock(ours.word, &path);
    let node = mine.held();
    their.lock(theirs.word, &path);
    their.held();
    let third = ours.contender(&hosts);
    third.lock(ours.word, &path);
    assert_eq!(third.said().recv(), Ok(Said::Waiting));

    let told = theirs.contender(&hosts).contenders(&path);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told.contains(&"kazoo".to_owned()), "{told:?}");
    let client = Client::connect(&hosts).unwrap();
    let present = client.contenders(&path).unwrap();
    let (holders, waiting) = present.split_at(present.len().min(2));
    assert!(matches!(waiting, [third] if !third.holds()), "{present:?}");
    assert!(
        holders
            .iter()
            .all(|holder| holder.holds() && holder.role() == Role::Permit)
    );
    assert!(holders.iter().any(|holder| holder.node() == node));

    mine.release();
    third.held();
    third.release();
    their.release();
}
