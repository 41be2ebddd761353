//! Ours and the peers on three servers whose leader dies or hangs.

use std::thread;
use std::time::Duration;

use zklock::{Client, Dialect};

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
use crate::support::raw::Raw;
use crate::support::zookeeper::ZooKeeper;
use crate::support::{eventually, fresh_path};

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
    let mut clients = Vec::new();
    let crowds = PATHS.map(|kinds| {
        let mut contender = |kind: &Kind| match kind.side {
            Side::Ours(dialect) => {
                let client = connect(&hosts, dialect);
                clients.push(client.clone());
                start_with(client)
            }
            Side::Theirs(Library::Java) => java.contender(),
            Side::Theirs(_) => kazoo.contender(),
        };
        let crowd: Vec<_> = kinds.iter().map(|kind| (*kind, contender(kind))).collect();
        (crowd, lasting_path(&hosts, "failover"))
    });
    let calm_leader = || {
        calm(&clients);
        ensemble.wait_for_leader()
    };
    let rooms = through_mishaps(&hosts, &crowds, [java, kazoo], || {
        let leader = calm_leader();
        ensemble.kill(leader);
        ensemble.restart(leader);
        let leader = calm_leader();
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

fn connect(hosts: &str, dialect: Dialect) -> Client {
    let builder = Client::builder(hosts).dialect(dialect);
    let builder = builder.session_timeout(SESSION);
    builder.connect().expect("a session")
}

/// Waits until the servers have confirmed each session anew: two outages in a row may last longer than a guard may go
/// without.
fn calm(clients: &[Client]) {
    for client in clients {
        let mutex = client.mutex(&fresh_path("calm")).expect("a path");
        mutex
            .lock()
            .expect("a lock that nobody else has")
            .unlock()
            .expect("a lock");
    }
}
