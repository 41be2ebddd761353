//! A relay that passes bytes on, as a load balancer does, until a test cuts its connections.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// A relay that connects each client to the next server in turn, even if that server is down.
pub struct Relay {
    pub hosts: String,
    open: Arc<Mutex<Vec<TcpStream>>>,
    picked: Arc<Mutex<Vec<usize>>>,
}

impl Relay {
    pub fn start(servers: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
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
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
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
