//! One queue with the real Curator, kazoo, go-zookeeper and ZooKeeper's own recipes.
//!
//! These tests make the tables of `docs/interop.md`; `ZKLOCK_BLESS=1` rewrites them.

mod containers;
mod contender;
mod crowd;
mod deploy;
mod failover;
mod holds;
mod kinds;
mod latch;
mod libraries;
mod many;
mod meeting;
mod operator;
mod ours;
mod peer;
mod permits;
mod queue;
mod stalls;
mod table;
mod writers;

use std::thread;
use std::time::Duration;

use zklock::embedded::Server;
use zklock::{Client, Dialect};
use zklock_testkit as support;

use crate::contender::Said;
use crate::crowd::{lasting_path, queue_in_order, start_all, through_mishaps, traffic};
use crate::kinds::{
    APACHE, CURATOR_LATCH, CURATOR_LEADER, CURATOR_MUTEX, CURATOR_READ, CURATOR_REVOCABLE,
    CURATOR_SEMAPHORE, CURATOR_SEMAPHORE_MUTEX, CURATOR_WRITE, GO, KAZOO_AS_CURATOR,
    KAZOO_AS_CURATOR_READ, KAZOO_AS_CURATOR_WRITE, KAZOO_ELECTION, KAZOO_LOCK, KAZOO_READ,
    KAZOO_SEMAPHORE_OF_TWO, KAZOO_WRITE, Kind, Side, of_ours,
};
use crate::libraries::Library;
use crate::meeting::Outcome;
use crate::peer::{Peer, server};
use crate::permits::TWO_AS_KAZOO;
use crate::queue::Queue;
use crate::support::proxy::Proxy;
use crate::support::raw::Raw;
use crate::support::{eventually, fresh_path};

const MUTEX: Kind = of_ours(Dialect::Curator, "mutex");
const READ: Kind = of_ours(Dialect::Curator, "read");
const WRITE: Kind = of_ours(Dialect::Curator, "write");
const PERMIT: Kind = of_ours(Dialect::Curator, "semaphore:1");
const KAZOO_MUTEX: Kind = of_ours(Dialect::Kazoo, "mutex");
const READ_AS_KAZOO: Kind = of_ours(Dialect::Kazoo, "read");
const WRITE_AS_KAZOO: Kind = of_ours(Dialect::Kazoo, "write");
const RECIPE_MUTEX: Kind = of_ours(Dialect::Recipe, "mutex");
const LATCH: Kind = of_ours(Dialect::LeaderLatch, "mutex");
const STANDBY: Kind = of_ours(Dialect::Curator, "standby");
const STANDBY_AS_LATCH: Kind = of_ours(Dialect::LeaderLatch, "standby");
const STANDBY_AS_KAZOO: Kind = of_ours(Dialect::Kazoo, "standby");

/// The least time in which a test can see that a contender waits and keeps waiting.
const A_WHILE: Duration = Duration::from_millis(500);

#[test]
#[ignore = "needs a ZooKeeper server, Curator and kazoo: tests/all.sh"]
fn the_tables_of_the_documentation_are_what_happens() {
    let cells = table::measure();
    // A permit is counted below the path, where nobody sees which other clients use it.
    for cell in cells.iter().filter(|cell| !cell.ours.counts()) {
        assert_ne!(
            cell.behind_them.outcome,
            Outcome::BothHeld,
            "ours pretends to exclude: {cell:?}"
        );
    }
    let mut tables = table::write(&cells, &table::committed());
    tables += "\n";
    tables += &table::downgrade_of_curators();
    table::compare_or_bless(&versions(), &tables);
}

#[test]
#[ignore = "needs a ZooKeeper server, Curator and kazoo: tests/all.sh"]
fn a_mixed_queue_is_served_in_the_order_of_its_numbers() {
    queue_in_order(MUTEX, &[MUTEX, CURATOR_MUTEX], 10);
    queue_in_order(MUTEX, &[MUTEX, GO], 10);
    queue_in_order(MUTEX, &[MUTEX, APACHE], 10);
    queue_in_order(MUTEX, &[MUTEX, CURATOR_LEADER], 10);
    queue_in_order(MUTEX, &[MUTEX, KAZOO_AS_CURATOR], 10);
    queue_in_order(KAZOO_MUTEX, &[KAZOO_MUTEX, KAZOO_LOCK], 10);
    queue_in_order(KAZOO_MUTEX, &[KAZOO_MUTEX, KAZOO_ELECTION], 10);
    queue_in_order(LATCH, &[LATCH, STANDBY_AS_LATCH, CURATOR_LATCH], 10);
    queue_in_order(
        STANDBY,
        &[STANDBY, MUTEX, CURATOR_LEADER, CURATOR_MUTEX],
        10,
    );
    queue_in_order(RECIPE_MUTEX, &[MUTEX, RECIPE_MUTEX, CURATOR_MUTEX, GO], 10);
}

#[test]
#[ignore = "needs a ZooKeeper server, Curator and kazoo: tests/all.sh"]
fn a_mixed_queue_of_readers_and_writers_lets_nobody_overtake() {
    queue_in_order(WRITE, &[READ, WRITE, CURATOR_READ, CURATOR_WRITE], 10);
    let kazoos = [READ, WRITE, KAZOO_AS_CURATOR_READ, KAZOO_AS_CURATOR_WRITE];
    queue_in_order(WRITE, &kazoos, 10);
    let kazoos = [READ_AS_KAZOO, WRITE_AS_KAZOO, KAZOO_READ, KAZOO_WRITE];
    queue_in_order(WRITE_AS_KAZOO, &kazoos, 10);
}

#[test]
#[ignore = "needs a ZooKeeper server, Curator and kazoo: tests/all.sh"]
fn nobody_is_in_beside_another_in_mixed_traffic() {
    // The WriteLock has its own path: it waits for Curator, but Curator does not wait for it.
    let paths: [&[Kind]; 9] = [
        &[
            MUTEX,
            RECIPE_MUTEX,
            CURATOR_MUTEX,
            CURATOR_LEADER,
            STANDBY,
            GO,
            KAZOO_AS_CURATOR,
        ],
        &[MUTEX, APACHE],
        &[LATCH, STANDBY_AS_LATCH, CURATOR_LATCH],
        &[
            KAZOO_MUTEX,
            WRITE_AS_KAZOO,
            KAZOO_LOCK,
            KAZOO_WRITE,
            KAZOO_ELECTION,
            STANDBY_AS_KAZOO,
        ],
        &[
            READ,
            WRITE,
            CURATOR_READ,
            CURATOR_WRITE,
            KAZOO_AS_CURATOR_READ,
            KAZOO_AS_CURATOR_WRITE,
        ],
        &[READ_AS_KAZOO, WRITE_AS_KAZOO, KAZOO_READ, KAZOO_WRITE],
        &[PERMIT, CURATOR_SEMAPHORE, CURATOR_SEMAPHORE_MUTEX],
        &many::KINDS,
        &[TWO_AS_KAZOO, KAZOO_SEMAPHORE_OF_TWO],
    ];
    thread::scope(|scope| {
        for kinds in paths {
            scope.spawn(move || {
                let hosts = server().hosts();
                let path = lasting_path(&hosts, "traffic");
                let room = traffic(&hosts, &start_all(kinds, 2), &path);
                for kind in kinds.iter().filter(|kind| kind.is_here()) {
                    println!(
                        "{:?} {}: {} times",
                        kind.side,
                        kind.label,
                        room.visits(*kind)
                    );
                    // A contender that waits for half a second at a time gets nothing on a slower machine.
                    let is_in_a_hurry = kind.label.ends_with(":500");
                    assert!(
                        is_in_a_hurry || room.visits(*kind) != 0,
                        "{} starved",
                        kind.label
                    );
                }
            });
        }
    });
}

#[test]
#[ignore = "needs a ZooKeeper server, Curator and kazoo: tests/all.sh"]
fn the_place_of_a_killed_contender_passes_on() {
    let pairs = [
        (Dialect::Curator, CURATOR_MUTEX),
        (Dialect::Curator, KAZOO_AS_CURATOR),
        (Dialect::Curator, GO),
        (Dialect::Kazoo, KAZOO_LOCK),
    ];
    thread::scope(|scope| {
        for (dialect, theirs) in pairs.into_iter().filter(|(_, kind)| kind.is_here()) {
            scope.spawn(move || a_killed_peer_then_ours(dialect, theirs));
            scope.spawn(move || ours_killed_then_a_peer(dialect, theirs));
        }
    });
}

/// Kills a peer that holds, and one of ours that waits, while ours and theirs wait behind them.
fn a_killed_peer_then_ours(dialect: Dialect, theirs: Kind) {
    let mut line = Queue::new(dialect, theirs);
    let mut peer = line.start_peer();
    let doomed = peer.contender();
    doomed.lock(theirs.word, line.path());
    doomed.held();
    let mut worker = line.start_worker();
    worker.expect("waiting");
    let (mine, their) = (line.start_ours(), line.start_theirs());
    peer.kill();
    worker.kill();
    mine.held();
    mine.release();
    their.held();
    their.release();
}

/// As [`a_killed_peer_then_ours`], with the roles exchanged.
fn ours_killed_then_a_peer(dialect: Dialect, theirs: Kind) {
    let mut line = Queue::new(dialect, theirs);
    let mut worker = line.start_worker();
    worker.expect("held");
    let mut peer = line.start_peer();
    peer.contender().lock(theirs.word, line.path());
    line.grown();
    let (their, mine) = (line.start_theirs(), line.start_ours());
    worker.kill();
    peer.kill();
    their.held();
    their.release();
    mine.held();
    mine.release();
}

#[test]
#[ignore = "needs a ZooKeeper server, Curator and kazoo: tests/all.sh"]
fn curators_revoker_revokes_ours_and_we_revoke_a_revocable_mutex() {
    let hosts = server().hosts();
    let path = fresh_path("revoked");
    let (ours, theirs) = (MUTEX.contender(&hosts), CURATOR_REVOCABLE.contender(&hosts));
    ours.lock(MUTEX.word, &path);
    theirs.revoke(&ours.held());
    assert_eq!(ours.hear(), Said::Revoked);
    theirs.lock(CURATOR_REVOCABLE.word, &path);
    ours.release();

    let node = theirs.held();
    ours.revoke(&node);
    assert_eq!(theirs.hear(), Said::Revoked);
    theirs.release();
}

#[test]
#[ignore = "needs a ZooKeeper server, Curator and kazoo: tests/all.sh"]
fn everybody_can_read_who_holds() {
    let hosts = server().hosts();
    let pairs = [
        (MUTEX, CURATOR_MUTEX, "127.0.0."),
        (MUTEX, KAZOO_AS_CURATOR, "kazoo"),
        (KAZOO_MUTEX, KAZOO_LOCK, "kazoo"),
    ];
    for (kind, peer, their_text) in pairs {
        let path = fresh_path("owner");
        let (ours, theirs, reader) = (
            kind.contender(&hosts),
            peer.contender(&hosts),
            peer.contender(&hosts),
        );
        ours.lock(kind.word, &path);
        let node = ours.held();
        theirs.lock(peer.word, &path);
        let client = Client::connect(&hosts).unwrap();
        eventually("theirs is in the queue", || {
            client.contenders(&path).unwrap().len() == 2
        });

        let told = reader.contenders(&path);
        let card: serde_json::Value = serde_json::from_str(&told[0]).unwrap();
        assert_eq!(card["pid"], std::process::id());
        assert_eq!(told.len(), 2, "{told:?}");

        let queue = client.contenders(&path).unwrap();
        assert_eq!(queue[0].node(), node);
        assert_eq!((queue[0].holds(), queue[1].holds()), (true, false));
        let text = queue[1].owner().text.clone().unwrap_or_default();
        assert!(
            text.starts_with(their_text) || peer == CURATOR_MUTEX,
            "{text:?}"
        );
        ours.release();
        theirs.held();
        theirs.release();
    }
}

#[test]
#[ignore = "needs a ZooKeeper server, Curator and kazoo: tests/all.sh"]
fn a_writer_of_ours_that_becomes_a_reader_lets_their_readers_in_and_no_writer() {
    let hosts = server().hosts();
    let pairs = [
        (WRITE, CURATOR_READ, CURATOR_WRITE),
        (WRITE, KAZOO_AS_CURATOR_READ, KAZOO_AS_CURATOR_WRITE),
        (WRITE_AS_KAZOO, KAZOO_READ, KAZOO_WRITE),
    ];
    for (ours, read, write) in pairs {
        let path = fresh_path("downgrade");
        let (ours_there, reader, writer) = (
            ours.contender(&hosts),
            read.contender(&hosts),
            write.contender(&hosts),
        );
        ours_there.lock(ours.word, &path);
        ours_there.held();
        reader.lock(read.word, &path);
        let mut witness = Raw::connect(&hosts);
        eventually("their reader waits", || {
            witness.children(&path).unwrap().len() == 2
        });
        writer.lock(write.word, &path);
        eventually("their writer waits", || {
            witness.children(&path).unwrap().len() == 3
        });

        ours_there.downgrade();
        ours_there.held();
        reader.held();
        reader.release();
        assert_eq!(writer.hear_within(A_WHILE), None, "{}", write.label);
        ours_there.release();
        writer.held();
        writer.release();
    }
}

#[test]
#[ignore = "needs a ZooKeeper server, Curator and kazoo: tests/all.sh"]
fn where_numbers_are_used_up_we_refuse_who_goes_by_them() {
    let path = "/used-up";
    let server = Server::builder()
        .start_counter(path, i32::MAX)
        .start()
        .unwrap();
    let pairs = [
        (Dialect::Curator, APACHE),
        (Dialect::Curator, CURATOR_MUTEX),
        (Dialect::Curator, GO),
        (Dialect::Kazoo, KAZOO_LOCK),
    ];
    for (dialect, kind) in pairs.into_iter().filter(|(_, kind)| kind.is_here()) {
        let Side::Theirs(library) = kind.side else {
            unreachable!("all of them are theirs")
        };
        let peer = Peer::start(library, server.hosts()).unwrap();
        let theirs = peer.contender();
        theirs.lock(kind.word, path);
        let node = theirs.held();
        assert!(node.ends_with("2147483647"), "{node}");
        let ours = ours::contender(server.hosts(), dialect);
        ours.lock(MUTEX.word, path);
        match ours.hear() {
            Said::Error(text) => assert!(text.contains("are used up"), "{text}"),
            other => panic!("{}: {other:?}", kind.label),
        }
        theirs.release();
        ours.lock(MUTEX.word, path);
        ours.held();
        ours.release();
    }
}

#[test]
#[ignore = "needs a ZooKeeper server, Curator and kazoo: tests/all.sh"]
fn nobody_is_in_beside_another_while_connections_are_cut() {
    let server = server();
    let proxies: Vec<_> = (0..4).map(|_| Proxy::start(&server.hosts())).collect();
    let java = Peer::start(Library::Java, &proxies[2].hosts()).unwrap();
    let kazoo = Peer::start(Library::Kazoo, &proxies[3].hosts()).unwrap();
    let (mut lock, mut permits) = (Vec::new(), Vec::new());
    for proxy in &proxies[..2] {
        let hosts = proxy.hosts();
        lock.push((MUTEX, MUTEX.contender(&hosts)));
        lock.push((CURATOR_MUTEX, java.contender()));
        lock.push((KAZOO_AS_CURATOR, kazoo.contender()));
        permits.push((TWO_AS_KAZOO, TWO_AS_KAZOO.contender(&hosts)));
        permits.push((KAZOO_SEMAPHORE_OF_TWO, kazoo.contender()));
    }
    let hosts = server.hosts();
    let crowds = [lock, permits].map(|crowd| (crowd, lasting_path(&hosts, "chaos")));
    let rooms = through_mishaps(&hosts, &crowds, [java, kazoo], || {
        thread::sleep(Duration::from_millis(fastrand::u64(50..500)));
        proxies[fastrand::usize(..proxies.len())].cut();
    });
    let mut witness = Raw::connect(&hosts);
    for ((crowd, path), room) in crowds.iter().zip(rooms) {
        for (kind, _) in crowd {
            println!("{}: {} times", kind.label, room.visits(*kind));
        }
        for dir in [path.clone(), format!("{path}-__lock__")] {
            eventually("nobody has left a node behind", || {
                witness.children(&dir).unwrap_or_default().is_empty()
            });
        }
    }
}

fn versions() -> String {
    let server = server().four_letter("srvr").unwrap_or_default();
    let server = server.split([' ', '-']).nth(2).unwrap_or("?");
    let mut versions = format!("ZooKeeper={server}");
    for library in [Library::Java, Library::Kazoo, Library::Go] {
        if let Some(peer) = Peer::shared(library) {
            versions = format!("{versions} {}", peer.versions());
        }
    }
    format!("Measured with {}.", versions.replace('=', " "))
}
