//! Clients in other languages.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use zklock::embedded::Server;

/// Names a python that has kazoo; `python3` if it is not set.
const PYTHON: &str = "ZKLOCK_TEST_PYTHON";

#[test]
#[ignore = "needs kazoo"]
fn kazoo_creates_watches_locks_and_counts() {
    let server = Server::builder()
        .tick(Duration::from_millis(100))
        .start()
        .unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/kazoo_client.py");
    let python = std::env::var(PYTHON).unwrap_or_else(|_| "python3".to_owned());
    let output = Command::new(python)
        .arg(script)
        .arg(server.hosts())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{complaint}");
    assert!(said.ends_with("all is well\n"), "{said}{complaint}");
    assert_eq!(server.sessions(), [0_i64; 0]);
    assert_eq!(server.watch_count(), 0);
}
