//! Ports for the servers of the tests.

use std::net::TcpListener;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// Returns a port of the loopback interface that was free a moment ago.
///
/// It lies below the ranges from which the system takes the ports of outgoing connections
/// and the embedded server its own. Each test process has a range of its own and takes each
/// port once before it begins again, so a server can be stopped and started again on it.
pub fn free_port() -> u16 {
    const EACH: u32 = 100;
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let first = 12_000 + process::id() % 80 * EACH;
    loop {
        let port = first + TAKEN.fetch_add(1, Ordering::Relaxed) % EACH;
        let port = u16::try_from(port).expect("below 20,000");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
