//! The directory of a lock, which the server deletes when it is idle.

use std::thread;

use zklock::{Client, Error};

use super::kinds::{
    CURATOR_MUTEX, KAZOO_AS_CURATOR, KAZOO_AS_CURATOR_READ, KAZOO_AS_CURATOR_WRITE,
};
use super::peer::server;
use super::{A_WHILE, MUTEX};
use crate::support::fresh_path;
use crate::support::raw::Raw;

#[test]
#[ignore = "needs a ZooKeeper server and kazoo: tests/all.sh"]
fn kazoo_locks_again_where_the_server_has_removed_the_directory() {
    let hosts = server().hosts();
    for kind in [
        KAZOO_AS_CURATOR,
        KAZOO_AS_CURATOR_READ,
        KAZOO_AS_CURATOR_WRITE,
    ] {
        let path = fresh_path("container");
        let (ours, theirs) = (MUTEX.contender(&hosts), kind.contender(&hosts));
        for (contender, word) in [(&ours, MUTEX.word), (&theirs, kind.word)] {
            contender.lock(word, &path);
            contender.held();
            contender.release();
        }
        wait_until_gone(&path);
        theirs.lock(kind.word, &path);
        theirs.held();
        theirs.release();
    }
}

#[test]
#[ignore = "needs a ZooKeeper server and Curator: tests/all.sh"]
fn a_namespace_of_curators_is_no_chroot() {
    let (hosts, namespace) = (server().hosts(), fresh_path("container"));
    let path = format!("{namespace}/x");
    let theirs = CURATOR_MUTEX.contender(&hosts);
    theirs.lock(CURATOR_MUTEX.word, &path);
    theirs.held();
    let below = Client::connect(&format!("{hosts}{namespace}")).unwrap();
    theirs.release();
    wait_until_gone(&namespace);

    let refused = below.mutex("/x").unwrap().try_lock().unwrap_err();
    assert!(matches!(refused, Error::Refused { .. }), "{refused}");
    let ours = MUTEX.contender(&hosts);
    ours.lock(MUTEX.word, &path);
    ours.held();
    ours.release();
}

fn wait_until_gone(path: &str) {
    let mut raw = Raw::connect(&server().hosts());
    while raw.stat(path).is_some() {
        thread::sleep(A_WHILE);
    }
}
