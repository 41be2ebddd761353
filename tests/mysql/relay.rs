//! A relay between a client and the server, which cuts the connection at a given piece.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// How a connection ends at one piece of what it carries.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cut {
    Before,
    Within,
    After,
}

pub(crate) const CUTS: [Cut; 3] = [Cut::Before, Cut::Within, Cut::After];

/// Decides for each piece, by its number, whether and how the connection ends there.
type Rule = dyn Fn(u64) -> Option<Cut> + Send + Sync;

pub(crate) struct Relay {
    pub(crate) port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    rule: Box<Rule>,
    pieces: AtomicU64,
    /// The number of these that clients sent.
    requests: AtomicU64,
    stalled: AtomicBool,
    closed: AtomicBool,
    /// The ports by which the server knows the connections that were cut.
    cut: Mutex<HashSet<u16>>,
}

impl Relay {
    pub(crate) fn new(to: u16, rule: impl Fn(u64) -> Option<Cut> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::new(Shared {
            rule: Box::new(rule),
            pieces: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            stalled: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            cut: Mutex::default(),
        });
        let of_thread = shared.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if of_thread.closed.load(Ordering::Relaxed) {
                    break;
                }
                if let Ok(server) = TcpStream::connect(("127.0.0.1", to)) {
                    connect(&client, &server, &of_thread);
                }
            }
        });
        Self { port, shared }
    }

    /// Lets nothing through from now on; or passes data again, with all that was sent meanwhile.
    pub(crate) fn stall(&self, on: bool) {
        self.shared.stalled.store(on, Ordering::Relaxed);
    }

    /// Returns whether the connection that the server knows by this port was cut.
    pub(crate) fn has_cut(&self, port: u16) -> bool {
        self.shared.cut.lock().unwrap().contains(&port)
    }

    /// Returns how many pieces there were.
    pub(crate) fn pieces(&self) -> u64 {
        self.shared.pieces.load(Ordering::Relaxed)
    }

    /// Returns how many pieces clients sent.
    pub(crate) fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stall(false);
        self.shared.closed.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn connect(client: &TcpStream, server: &TcpStream, shared: &Arc<Shared>) {
    let port = server.local_addr().expect("an address").port();
    // An earlier connection may have had the same port.
    shared.cut.lock().unwrap().remove(&port);
    for (from, to, asks) in [(client, server, 1), (server, client, 0)] {
        from.set_nodelay(true).expect("no delay");
        let copy = |stream: &TcpStream| stream.try_clone().expect("a copy");
        let (from, to, shared) = (copy(from), copy(to), shared.clone());
        thread::spawn(move || pass_on(from, to, (port, asks), &shared));
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, (port, asks): (u16, u64), shared: &Shared) {
    let mut buffer = [0; 65536];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let number = shared.pieces.fetch_add(1, Ordering::Relaxed);
        shared.requests.fetch_add(asks, Ordering::Relaxed);
        while shared.stalled.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(5));
        }
        let cut = (shared.rule)(number);
        let passed = match cut {
            Some(Cut::Before) => 0,
            Some(Cut::Within) => length / 2,
            Some(Cut::After) | None => length,
        };
        if cut.is_some() {
            shared.cut.lock().unwrap().insert(port);
        }
        if to.write_all(&buffer[..passed]).is_err() || cut.is_some() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
