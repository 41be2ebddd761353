//! kazoo as the client.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use zklock::embedded::Server;

const KAZOO: &str = "kazoo==2.11.0";

#[test]
#[ignore = "needs kazoo"]
fn kazoo_creates_watches_locks_and_counts() {
    let builder = Server::builder().tick(Duration::from_millis(100));
    let server = builder.start().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/embedded/kazoo_client.py");
    let said = run(Command::new(python()).arg(script).arg(server.hosts()));
    assert_eq!(said, "all is well\n");
    assert_eq!(server.sessions(), [0_i64; 0]);
    assert_eq!(server.watch_count(), 0);
}

/// A python that has kazoo: installed below Cargo's own folder, the first time.
fn python() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interop");
    let environment = folder.join("venv");
    let python = environment.join("bin/python");
    let installed = environment.join(KAZOO);
    if !installed.exists() {
        run(Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(&environment));
        run(Command::new(&python).args(["-m", "pip", "install", "--quiet", KAZOO]));
        fs::write(installed, "").expect("remembering that kazoo is installed");
    }
    python
}

/// Returns what the command said.
fn run(command: &mut Command) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("starting it");
    let (said, complaint) = (
        String::from_utf8_lossy(&stdout),
        String::from_utf8_lossy(&stderr),
    );
    assert!(status.success(), "{command:?} failed: {said}{complaint}");
    said.into_owned()
}
