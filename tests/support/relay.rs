//! Passes bytes on without reading them, as a load balancer does, until it is told to cut.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Each connection goes to the next server in turn, even if that is down.
pub(crate) struct Relay {
    pub(crate) hosts: String,
    open: Arc<Mutex<Vec<TcpStream>>>,
    picked: Arc<Mutex<Vec<usize>>>,
}

impl Relay {
    pub(crate) fn start(servers: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let hosts = listener.local_addr().unwrap().to_string();
        let (open, picked) = (Arc::<Mutex<Vec<TcpStream>>>::default(), Arc::default());
        let (sockets, turns) = (Arc::clone(&open), Arc::<Mutex<Vec<usize>>>::clone(&picked));
        // It ends with the test's process.
        thread::spawn(move || {
            for (client, turn) in listener.incoming().flatten().zip(0..) {
                let turn = turn % servers.len();
                turns.lock().unwrap().push(turn);
                // Otherwise the client's end is dropped, and the client sees that.
                if let Ok(server) = TcpStream::connect(&servers[turn]) {
                    for (from, to) in [(&client, &server), (&server, &client)] {
                        let (mut from, mut to) =
                            (from.try_clone().unwrap(), to.try_clone().unwrap());
                        sockets.lock().unwrap().push(from.try_clone().unwrap());
                        thread::spawn(move || {
                            let _ = io::copy(&mut from, &mut to);
                            let _ = to.shutdown(Shutdown::Both);
                        });
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

    pub(crate) fn cut(&self) {
        for socket in self.open.lock().unwrap().drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Which servers were picked, one for each connection so far.
    pub(crate) fn picked(&self) -> Vec<usize> {
        self.picked.lock().unwrap().clone()
    }
}
