//! One queue with Curator, kazoo, go-zookeeper and ZooKeeper's own recipes: the real ones.
//!
//! The tables of `docs/interop.md` are made here; `ZKLOCK_BLESS=1` rewrites them.

mod support;
mod interop {
    pub(crate) mod cast;
    pub(crate) mod meeting;
    pub(crate) mod ours;
    pub(crate) mod peer;
    pub(crate) mod seat;
    pub(crate) mod table;
    pub(crate) mod workshop;
}

use interop::cast::THEIRS;
use interop::meeting::Outcome;
use interop::peer::Peer;
use interop::table;
use interop::workshop::Library;
use support::zookeeper::ZooKeeper;

#[test]
#[ignore = "needs a ZooKeeper server, Curator and kazoo: tests/all.sh"]
fn the_tables_of_the_documentation_are_what_happens() {
    let cells = table::measure();
    for cell in &cells {
        assert_ne!(
            cell.behind_them.outcome,
            Outcome::BothHeld,
            "ours pretends to exclude: {cell:?}"
        );
    }
    let tables = table::write(&cells, &table::committed());
    table::compare_or_bless(&versions(), &tables);
}

fn versions() -> String {
    let server = ZooKeeper::shared().four_letter("srvr").unwrap_or_default();
    let server = server.split([' ', '-']).nth(2).unwrap_or("?");
    let mut versions = format!("ZooKeeper={server}");
    for library in [Library::Java, Library::Kazoo, Library::Go] {
        if let Some(peer) = Peer::shared(library) {
            versions = format!("{versions} {}", peer.versions());
        }
    }
    format!("Measured with {}.", versions.replace('=', " "))
}
