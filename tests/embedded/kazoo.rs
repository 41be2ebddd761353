//! kazoo as the client.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use zklock::embedded::Server;

use super::support::{kazoo, run};

#[test]
#[ignore = "needs kazoo"]
fn kazoo_creates_watches_locks_and_counts() {
    let builder = Server::builder().tick(Duration::from_millis(500));
    let server = builder.start().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/embedded/kazoo_client.py");
    let said = run(Command::new(python()).arg(script).arg(server.hosts()));
    assert_eq!(said, "all is well\n");
    assert_eq!(server.sessions(), [0_i64; 0]);
    assert_eq!(server.watch_count(), 0);
}

/// Returns a Python that has kazoo.
fn python() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interop");
    fs::create_dir_all(&folder).expect("making the peers' folder");
    kazoo::python(&folder)
}
