//! Several permits at once, shared with the real Curator, which goes through the line once for each
//! permit.

use zklock::Dialect;

use super::A_WHILE;
use super::contender::Said;
use super::kinds::{Kind, of_curator, of_ours};
use super::peer::server;
use crate::support::raw::Raw;
use crate::support::{eventually, fresh_path};

/// The kinds that take some or one of four permits, on either side. A contender for several gives
/// up after a while: Curator's may hold one while it waits for the second behind ours, which waits
/// for that permit.
pub(crate) const KINDS: [Kind; 4] = [
    of_ours(Dialect::Curator, "semaphore:4"),
    of_ours(Dialect::Curator, "semaphore:4:3:2000"),
    of_curator("semaphore:4"),
    of_curator("semaphore:4:2:500"),
];

const OUR_TWO: Kind = of_ours(Dialect::Curator, "semaphore:4:2");
const OUR_THREE: Kind = of_ours(Dialect::Curator, "semaphore:4:3");
const OUR_THREE_LIMITED: Kind = of_ours(Dialect::Curator, "semaphore:4:3:400");
const THEIR_ONE: Kind = of_curator("semaphore:4");
const THEIR_TWO: Kind = of_curator("semaphore:4:2");
const THEIR_THREE_LIMITED: Kind = of_curator("semaphore:4:3:400");

#[test]
#[ignore = "needs a ZooKeeper server and Curator: tests/all.sh"]
fn curator_waits_until_ours_gives_its_permits_back() {
    let (hosts, path) = (server().hosts(), fresh_path("many"));
    let (mine, their) = (OUR_THREE.contender(&hosts), THEIR_TWO.contender(&hosts));
    mine.lock(OUR_THREE.word, &path);
    mine.held();
    assert_eq!(out(&path), 3);
    their.lock(THEIR_TWO.word, &path);
    assert_eq!(their.hear_within(A_WHILE), None);
    mine.release();
    their.held();
    assert_eq!(out(&path), 2);
    their.release();
}

#[test]
#[ignore = "needs a ZooKeeper server and Curator: tests/all.sh"]
fn ours_waits_until_curator_gives_its_permits_back_and_nobody_overtakes_it() {
    let (hosts, path) = (server().hosts(), fresh_path("many"));
    let (their, mine) = (THEIR_TWO.contender(&hosts), OUR_THREE.contender(&hosts));
    their.lock(THEIR_TWO.word, &path);
    their.held();
    mine.lock(OUR_THREE.word, &path);
    assert_eq!(mine.said().recv(), Ok(Said::Waiting));
    // One permit is free, and this contender needs only one.
    let late = THEIR_ONE.contender(&hosts);
    late.lock(THEIR_ONE.word, &path);
    assert_eq!(late.hear_within(A_WHILE), None);
    their.release();
    mine.held();
    late.held();
    assert_eq!(out(&path), 4);
    mine.release();
    late.release();
}

#[test]
#[ignore = "needs a ZooKeeper server and Curator: tests/all.sh"]
fn who_gives_up_gives_all_its_permits_back() {
    let hosts = server().hosts();
    let pairs = [
        (THEIR_TWO, OUR_THREE_LIMITED),
        (OUR_TWO, THEIR_THREE_LIMITED),
    ];
    for (first, second) in pairs {
        let path = fresh_path("many");
        let (holder, comer) = (first.contender(&hosts), second.contender(&hosts));
        holder.lock(first.word, &path);
        holder.held();
        comer.lock(second.word, &path);
        assert_eq!(comer.hear(), Said::Late, "{second:?}");
        eventually("its permits are back", || out(&path) == 2);
        let third = first.contender(&hosts);
        third.lock(first.word, &path);
        third.held();
        assert_eq!(out(&path), 4);
        holder.release();
        third.release();
    }
}

/// Counts the permits that are taken, or about to be.
fn out(path: &str) -> usize {
    let leases = format!("{path}/leases");
    let leases = Raw::connect(&server().hosts()).children(&leases);
    leases.map_or(0, |leases| leases.len())
}
