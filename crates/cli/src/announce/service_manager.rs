//! The service manager that has started this process, by the protocol of sd_notify(3).
//!
//! READY is sent once this machine is in the queue or active: a passive machine is well, and units
//! that wait for its start can go on. STATUS tells which of the two it is.

use std::env;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::sanitize::plain;
use crate::supervisor;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct ServiceManager {
    socket: UnixDatagram,
    address: SocketAddr,
    is_ready: AtomicBool,
}

impl ServiceManager {
    /// Returns `None` if there is no service manager.
    pub(super) fn new() -> Option<Self> {
        let manager = Self::open()?;
        if let Some(every) = watchdog() {
            let watched = Self::open()?;
            let pings = thread::Builder::new().name("zklock-watchdog".into());
            drop(pings.spawn(move || watched.keep_alive(every)));
        }
        Some(manager)
    }

    fn open() -> Option<Self> {
        let address = address(env::var_os("NOTIFY_SOCKET")?.to_str()?)?;
        let socket = UnixDatagram::unbound().ok()?;
        // A manager that does not read must not hold anything up.
        socket.set_nonblocking(true).ok()?;
        let is_ready = AtomicBool::new(false);
        Some(Self {
            socket,
            address,
            is_ready,
        })
    }

    pub(super) fn tell(&self, status: &str) {
        let status = plain(&status.replace(['\n', '\r'], " ")).to_string();
        let ready = match self.is_ready.load(Ordering::Relaxed) {
            true => "",
            false => "READY=1\n",
        };
        if self.send(&format!("{ready}STATUS={status}\n")) {
            self.is_ready.store(true, Ordering::Relaxed);
        }
    }

    /// Sends a message; returns whether it was sent.
    fn send(&self, message: &str) -> bool {
        let sent = self.socket.send_to_addr(message.as_bytes(), &self.address);
        sent.inspect_err(|error| log::info!("cannot tell the service manager: {error}"))
            .is_ok()
    }

    /// Reports from time to time that this process runs, as long as it supervises its command.
    fn keep_alive(&self, every: Duration) {
        loop {
            if supervisor::is_attended() {
                self.send("WATCHDOG=1\n");
            }
            thread::sleep(every);
        }
    }
}

impl Drop for ServiceManager {
    fn drop(&mut self) {
        self.send("STOPPING=1\n");
    }
}

/// Returns half of the time after which the manager takes this process for dead, if it watches it.
fn watchdog() -> Option<Duration> {
    let micros: u64 = env::var("WATCHDOG_USEC").ok()?.parse().ok()?;
    let ours = env::var("WATCHDOG_PID").map_or(true, |pid| pid == process::id().to_string());
    (ours && micros > 0).then(|| Duration::from_micros(micros / 2))
}

/// Parses a path, or an abstract name after an `@`.
fn address(text: &str) -> Option<SocketAddr> {
    match text.strip_prefix('@') {
        Some(name) => named(name),
        None => SocketAddr::from_pathname(text).ok(),
    }
}

#[cfg(target_os = "linux")]
fn named(name: &str) -> Option<SocketAddr> {
    use std::os::linux::net::SocketAddrExt;
    SocketAddr::from_abstract_name(name).ok()
}

#[cfg(not(target_os = "linux"))]
fn named(_: &str) -> Option<SocketAddr> {
    None
}
