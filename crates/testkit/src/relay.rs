//! A relay that passes bytes on, as a load balancer does, until a test cuts its connections.

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use crate::free_port;

/// A relay that connects each client to the next server in turn, even if that server is down.
pub struct Relay {
    pub hosts: String,
    open: Arc<Mutex<Vec<TcpStream>>>,
    picked: Arc<Mutex<Vec<usize>>>,
}

impl Relay {
    pub fn start(servers: Vec<String>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", free_port())).unwrap();
        let hosts = listener.local_addr().unwrap().to_string();
        let (open, picked) = (Arc::<Mutex<Vec<TcpStream>>>::default(), Arc::default());
        let (sockets, turns) = (Arc::clone(&open), Arc::<Mutex<Vec<usize>>>::clone(&picked));
        // The thread ends with the test's process.
        thread::spawn(move || {
            for (client, turn) in listener.incoming().flatten().zip(0..) {
                let turn = turn % servers.len();
                turns.lock().unwrap().push(turn);
                // Otherwise the client's socket is dropped, and the client sees that.
                if let Ok(server) = TcpStream::connect(&servers[turn]) {
                    for (from, to) in [(&client, &server), (&server, &client)] {
                        sockets.lock().unwrap().push(from.try_clone().unwrap());
                        pass_on(from, to, |_, _| Ok(()));
                    }
                }
            }
        });
        Self {
            hosts,
            open,
            picked,
        }
    }

    pub fn cut(&self) {
        for socket in self.open.lock().unwrap().drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Returns which servers were picked, one for each connection so far.
    pub fn picked(&self) -> Vec<usize> {
        self.picked.lock().unwrap().clone()
    }
}

/// Serves each connection in a thread of its own until the process ends; returns the address.
pub fn listen(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind(("127.0.0.1", free_port())).expect("a free port");
    let hosts = listener.local_addr().expect("its port").to_string();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let serve = Arc::clone(&serve);
            thread::spawn(move || serve(client));
        }
    });
    hosts
}

/// Returns addresses that lead to these, and at which each connection lasts a moment, even to a server that is down:
/// a handle of the `zookeeper` crate connects again at once, and would keep a core busy meanwhile.
pub fn unhurried(hosts: &str) -> String {
    static WAYS: OnceLock<Mutex<HashMap<String, String>>> = OnceLock::new();
    let (servers, chroot) = hosts.split_at(hosts.find('/').unwrap_or(hosts.len()));
    let mut ways = WAYS.get_or_init(Mutex::default).lock().unwrap();
    let ways = servers.split(',').map(|server| {
        let way = ways.entry(server.to_owned());
        way.or_insert_with_key(|server| lead_slowly_to(server.clone()))
            .clone()
    });
    ways.collect::<Vec<_>>().join(",") + chroot
}

fn lead_slowly_to(server: String) -> String {
    const MOMENT: Duration = Duration::from_millis(50);
    listen(move |client| {
        let since = Instant::now();
        // Whatever ends a connection to the server, its client sees an end.
        let _ = pass_both_ways(&client, &server);
        thread::sleep(MOMENT.saturating_sub(since.elapsed()));
        let _ = client.shutdown(Shutdown::Both);
    })
}

fn pass_both_ways(mut client: &TcpStream, server: &str) -> io::Result<()> {
    let mut server = TcpStream::connect(server)?;
    server.set_nodelay(true)?;
    client.set_nodelay(true)?;
    let (mut requests, mut to_server) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || {
        let _ = io::copy(&mut requests, &mut to_server);
        let _ = to_server.shutdown(Shutdown::Both);
    });
    io::copy(&mut server, &mut client)?;
    server.shutdown(Shutdown::Both)
}

/// Copies bytes until either side ends, the first ones as `begin` does.
pub fn pass_on(
    from: &TcpStream,
    to: &TcpStream,
    begin: impl FnOnce(&mut TcpStream, &mut TcpStream) -> io::Result<()> + Send + 'static,
) {
    let mut from = from.try_clone().expect("sharing a socket");
    let mut to = to.try_clone().expect("sharing a socket");
    to.set_nodelay(true).expect("an open socket");
    thread::spawn(move || {
        drop(begin(&mut from, &mut to).and_then(|()| io::copy(&mut from, &mut to)));
        for socket in [from, to] {
            drop(socket.shutdown(Shutdown::Both));
        }
    });
}
