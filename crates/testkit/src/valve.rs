//! Between a server and its leader: passes bytes on, or keeps what the server sends, as a network does that has
//! lost it and will send it again.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Passes connections to one port on; it ends with the test's process.
#[derive(Debug)]
pub struct Valve {
    port: u16,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    holds: bool,
    bytes: Vec<u8>,
    /// Where they belong.
    to: Option<TcpStream>,
}

impl Valve {
    /// Begins to pass on, to this port.
    pub fn start(to: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("its port").port();
        let kept = Arc::<Mutex<Kept>>::default();
        let of_connections = kept.clone();
        thread::spawn(move || {
            for from in listener.incoming().flatten() {
                // Otherwise the server sees its connection end.
                if let Ok(to) = TcpStream::connect(("127.0.0.1", to)) {
                    connect(&from, &to, &of_connections);
                }
            }
        });
        Self { port, kept }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on keeps what the server sends.
    pub fn hold(&self) {
        lock(&self.kept).holds = true;
    }

    /// How often this is in what is kept.
    pub fn keeps(&self, what: &[u8]) -> usize {
        let kept = lock(&self.kept);
        kept.bytes
            .windows(what.len())
            .filter(|it| *it == what)
            .count()
    }

    /// Passes on what is kept, all at once, and what follows.
    pub fn release(&self) {
        let mut kept = lock(&self.kept);
        kept.holds = false;
        let bytes = std::mem::take(&mut kept.bytes);
        if let Some(mut to) = kept.to.take() {
            to.write_all(&bytes).expect("its leader reads on");
        }
    }
}

fn lock(kept: &Mutex<Kept>) -> std::sync::MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

fn connect(from: &TcpStream, to: &TcpStream, kept: &Arc<Mutex<Kept>>) {
    let kept = kept.clone();
    pump(from, to, move |to, bytes| {
        let mut kept = lock(&kept);
        if kept.holds {
            kept.bytes.extend_from_slice(bytes);
            kept.to = Some(to.try_clone()?);
            return Ok(());
        }
        // Under the lock, so that nothing overtakes what is released.
        to.write_all(bytes)
    });
    pump(to, from, |to, bytes| to.write_all(bytes));
}

fn pump(
    from: &TcpStream,
    to: &TcpStream,
    mut pass: impl FnMut(&mut TcpStream, &[u8]) -> io::Result<()> + Send + 'static,
) {
    let mut from = from.try_clone().expect("sharing a socket");
    let mut to = to.try_clone().expect("sharing a socket");
    to.set_nodelay(true).expect("an open socket");
    thread::spawn(move || {
        let mut piece = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from.read(&mut piece) {
            if pass(&mut to, &piece[..length]).is_err() {
                break;
            }
        }
        for socket in [from, to] {
            drop(socket.shutdown(Shutdown::Both));
        }
    });
}
