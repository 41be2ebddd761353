//! What an operator sees of locks whose contenders speak four languages.

use std::thread;

use crossbeam_channel::bounded;
use zklock::{Client, LockOptions};

use super::A_WHILE;
use super::kinds::{CURATOR_MUTEX, GO, KAZOO_AS_CURATOR};
use super::libraries::Library;
use super::peer::{Peer, server};
use crate::support::{eventually, fresh_path};

/// Ours waits for Curator's, which waits for kazoo's, which waits for ours; and beside them another one of
/// ours waits for a holder in Go, which is at work.
#[test]
#[ignore = "needs a ZooKeeper server, Curator, kazoo and go-zookeeper: tests/all.sh"]
fn a_circle_through_three_languages_is_named_and_nobody_healthy_is_accused() {
    let hosts = server().hosts();
    // Sessions of their own: what others of one session wait for counts for all of them.
    let peers = [Library::Java, Library::Kazoo, Library::Go].map(|one| Peer::start(one, &hosts));
    let [Some(curator), Some(kazoo), Some(go)] = peers else {
        return;
    };
    let root = fresh_path("operator");
    let path = |name: &str| format!("{root}/{name}");
    let hold = |peer: &Peer, kind: &str, name: &str| {
        let contender = peer.contender();
        contender.lock(kind, &path(name));
        contender.held();
        contender
    };
    let of_curator = hold(&curator, CURATOR_MUTEX.word, "b");
    let of_kazoo = hold(&kazoo, KAZOO_AS_CURATOR.word, "c");
    let of_go = hold(&go, GO.word, "d");
    let look = Client::connect(&hosts).unwrap();
    let queues = |waiters: usize| {
        eventually("they wait", || {
            let queues = look.locks(&root).unwrap();
            queues
                .iter()
                .map(|queue| queue.waiters().count())
                .sum::<usize>()
                == waiters
        });
    };
    let (end, ended) = bounded::<()>(0);
    thread::scope(|scope| {
        let wait = |has: &'static str, wanted: &'static str| {
            let (client, ended) = (Client::connect(&hosts).unwrap(), ended.clone());
            let (has, wanted) = (path(has), path(wanted));
            scope.spawn(move || {
                let _has = client.mutex(&has).unwrap().lock().unwrap();
                let mutex = client.mutex(&wanted).unwrap();
                let waited = mutex.lock_with(LockOptions::new().cancel(ended)).unwrap();
                assert!(waited.is_none());
            });
        };
        wait("a", "b");
        wait("e", "d");
        queues(2);
        for name in ["a", "b", "c", "d", "e"] {
            let blockers = look.blockers(&path(name), &root).unwrap();
            assert_eq!(blockers.deadlock(), None, "{name}");
        }
        let (curators, kazoos) = (curator.contender(), kazoo.contender());
        curators.lock(CURATOR_MUTEX.word, &path("c"));
        kazoos.lock(KAZOO_AS_CURATOR.word, &path("a"));
        queues(4);

        for (name, circle) in [("a", ["a", "b", "c"]), ("c", ["c", "a", "b"])] {
            let blockers = look.blockers(&path(name), &root).unwrap();
            let circle = circle.map(&path);
            assert_eq!(blockers.deadlock(), Some(circle.as_slice()), "{blockers:?}");
        }
        for (name, chain) in [("d", vec![None]), ("e", vec![Some(path("d")), None])] {
            let blockers = look.blockers(&path(name), &root).unwrap();
            assert_eq!(blockers.deadlock(), None, "{blockers:?}");
            let waits = blockers
                .iter()
                .map(|one| one.waits_for().map(str::to_owned));
            assert_eq!(waits.collect::<Vec<_>>(), chain);
        }
        // It waits behind the circle, and is none of it.
        let behind = look.mutex(&path("b")).unwrap();
        let options = LockOptions::new().timeout(A_WHILE).detect_deadlock(&root);
        assert!(behind.lock_with(options).unwrap().is_none());
        drop(end);
        of_kazoo.release();
        curators.held();
        curators.release();
        kazoos.held();
        kazoos.release();
    });
    of_curator.release();
    of_go.release();
}
