//! Ours and the peers on three servers whose leader dies or hangs.

use std::thread;
use std::time::Duration;

use zklock::{Client, Dialect};

use super::contender::Contender;
use super::crowd::{lasting_path, through_mishaps};
use super::kinds::{CURATOR_SEMAPHORE, KAZOO_SEMAPHORE_OF_TWO, Kind, Side, of_curator, of_ours};
use super::libraries::Library;
use super::ours::start_with;
use super::peer::Peer;
use super::permits::TWO_AS_KAZOO;
use super::{
    CURATOR_MUTEX, CURATOR_READ, CURATOR_WRITE, KAZOO_AS_CURATOR, KAZOO_LOCK, KAZOO_MUTEX,
    KAZOO_READ, KAZOO_WRITE, MUTEX, PERMIT, READ, READ_AS_KAZOO, WRITE, WRITE_AS_KAZOO,
};
use crate::support::ensemble::Ensemble;
use crate::support::eventually;
use crate::support::raw::Raw;
use crate::support::zookeeper::ZooKeeper;

/// Longer than an election takes: no session ends, so no peer has a reason to lose its lock.
const SESSION: Duration = Duration::from_secs(20);

/// How long a leader hangs. Its followers elect another one.
const HANG: Duration = Duration::from_secs(4);

/// The kinds at each path. go-zookeeper is not among them: it leaves its node behind when its
/// connection breaks.
const PATHS: [&[Kind]; 7] = [
    &[MUTEX, MUTEX, CURATOR_MUTEX, KAZOO_AS_CURATOR],
    &[READ, WRITE, CURATOR_READ, CURATOR_WRITE],
    &[KAZOO_MUTEX, KAZOO_MUTEX, KAZOO_LOCK, KAZOO_WRITE],
    &[READ_AS_KAZOO, WRITE_AS_KAZOO, KAZOO_READ, KAZOO_WRITE],
    &[PERMIT, PERMIT, CURATOR_SEMAPHORE, CURATOR_SEMAPHORE],
    // Curator's client takes one permit after the other, so only one that takes one waits without a limit.
    &[
        of_ours(Dialect::Curator, "semaphore:4:3"),
        of_ours(Dialect::Recipe, "semaphore:4:2"),
        of_curator("semaphore:4:1"),
        of_curator("semaphore:4:2:700"),
    ],
    &[
        TWO_AS_KAZOO,
        TWO_AS_KAZOO,
        KAZOO_SEMAPHORE_OF_TWO,
        KAZOO_SEMAPHORE_OF_TWO,
    ],
];

#[test]
#[ignore = "needs a ZooKeeper server, Curator and kazoo: tests/all.sh"]
fn nobody_is_in_beside_another_while_leaders_die_and_hang() {
    let builder = ZooKeeper::builder().tick(Duration::from_secs(1));
    let ensemble = Ensemble::start_with(&builder.fsync(false));
    let hosts = ensemble.hosts();
    let start = |library| Peer::start_with(library, &hosts, SESSION).expect("a library at hand");
    let (java, kazoo) = (start(Library::Java), start(Library::Kazoo));
    let crowds = PATHS.map(|kinds| {
        let contender = |kind: &Kind| match kind.side {
            Side::Ours(dialect) => ours(&hosts, dialect),
            Side::Theirs(Library::Java) => java.contender(),
            Side::Theirs(_) => kazoo.contender(),
        };
        let crowd: Vec<_> = kinds.iter().map(|kind| (*kind, contender(kind))).collect();
        (crowd, lasting_path(&hosts, "failover"))
    });
    let rooms = through_mishaps(&hosts, &crowds, || {
        let leader = ensemble.wait_for_leader();
        ensemble.kill(leader);
        ensemble.restart(leader);
        let leader = ensemble.wait_for_leader();
        ensemble.pause(leader);
        thread::sleep(HANG);
        ensemble.resume(leader);
    });
    let mut witness = Raw::connect(&hosts);
    for ((crowd, path), room) in crowds.iter().zip(rooms) {
        for (kind, _) in crowd {
            println!(
                "{:?} {}: {} times",
                kind.side,
                kind.label,
                room.visits(*kind)
            );
        }
        for dir in [
            path.clone(),
            format!("{path}/locks"),
            format!("{path}/leases"),
            format!("{path}-__lock__"),
        ] {
            eventually("nobody has left a node behind", || {
                let left = witness.children(&dir).unwrap_or_default();
                left.iter()
                    .all(|name| ["locks", "leases"].contains(&name.as_str()))
            });
        }
    }
}

fn ours(hosts: &str, dialect: Dialect) -> Contender {
    let builder = Client::builder(hosts).dialect(dialect);
    start_with(
        builder
            .session_timeout(SESSION)
            .connect()
            .expect("a session"),
    )
}
