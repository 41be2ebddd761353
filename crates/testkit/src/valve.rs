//! A valve between a server and its leader: it passes bytes on, or keeps those that the server
//! sends, as a network does that has lost them and will send them again.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::relay::{listen, pass_on};

/// A valve that passes connections on to one port; it ends with the test's process.
#[derive(Debug)]
pub struct Valve {
    port: u16,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    holds: bool,
    bytes: Vec<u8>,
    /// The socket to which the kept bytes belong.
    to: Option<TcpStream>,
}

impl Valve {
    /// Starts a valve that passes connections on to this port.
    pub fn start(to: u16) -> Self {
        let kept = Arc::<Mutex<Kept>>::default();
        let of_connections = kept.clone();
        let hosts = listen(move |from| {
            // Otherwise the server sees the end of its connection.
            if let Ok(to) = TcpStream::connect(("127.0.0.1", to)) {
                let kept = of_connections.clone();
                pass_on(&from, &to, move |from, to| pass_or_keep(from, to, &kept));
                pass_on(&to, &from, |_, _| Ok(()));
            }
        });
        let (_, port) = hosts.split_once(':').expect("a host and a port");
        let port = port.parse().expect("a port");
        Self { port, kept }
    }

    /// Returns the port at which the valve listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Keeps what the server sends from now on.
    pub fn hold(&self) {
        lock(&self.kept).holds = true;
    }

    /// Returns how often these bytes occur in those that are kept.
    pub fn keeps(&self, what: &[u8]) -> usize {
        let kept = lock(&self.kept);
        kept.bytes
            .windows(what.len())
            .filter(|it| *it == what)
            .count()
    }

    /// Passes on the kept bytes, all at once, and those that follow.
    pub fn release(&self) {
        let mut kept = lock(&self.kept);
        kept.holds = false;
        let bytes = std::mem::take(&mut kept.bytes);
        if let Some(mut to) = kept.to.take() {
            to.write_all(&bytes).expect("its leader reads on");
        }
    }
}

fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Passes bytes on, or keeps them, until the connection ends.
fn pass_or_keep(from: &mut TcpStream, to: &mut TcpStream, kept: &Mutex<Kept>) -> io::Result<()> {
    let mut piece = vec![0; 64 * 1024];
    loop {
        let length = from.read(&mut piece)?;
        if length == 0 {
            return Ok(());
        }
        let mut kept = lock(kept);
        match kept.holds {
            true => {
                kept.bytes.extend_from_slice(&piece[..length]);
                kept.to = Some(to.try_clone()?);
            }
            // The lock is held, so that nothing overtakes the bytes that are released.
            false => to.write_all(&piece[..length])?,
        }
    }
}
