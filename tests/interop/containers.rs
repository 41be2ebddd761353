//! The directory of a lock, which goes when it is idle.

use std::thread;

use super::kinds::{KAZOO_AS_CURATOR, KAZOO_AS_CURATOR_READ, KAZOO_AS_CURATOR_WRITE};
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
        let mut raw = Raw::connect(&hosts);
        while raw.stat(&path).is_some() {
            thread::sleep(A_WHILE);
        }
        theirs.lock(kind.word, &path);
        theirs.held();
        theirs.release();
    }
}
