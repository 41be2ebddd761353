//! The socket at which a proxy waits for clients.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::net::Shutdown;

/// A listening socket and the thread that accepts on it; both end when this is dropped.
#[derive(Debug)]
pub(super) struct Listener {
    address: SocketAddr,
    open: Arc<Mutex<bool>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Listener {
    pub(super) fn start(socket: TcpListener, welcome: impl Fn(TcpStream) + Send + 'static) -> Self {
        let address = socket.local_addr().expect("the proxy's address");
        let open = Arc::new(Mutex::new(true));
        let still_open = Arc::clone(&open);
        let thread = thread::spawn(move || {
            for client in socket.incoming().flatten() {
                if !*still_open.lock().unwrap_or_else(PoisonError::into_inner) {
                    // A child that this process is just starting has the socket, too, until it executes
                    // its program: without this, the system would still accept connections.
                    let _ = rustix::net::shutdown(&socket, Shutdown::Both);
                    return;
                }
                welcome(client);
            }
        });
        Self {
            address,
            open,
            thread: Some(thread),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = false;
        // Wakes the thread, which waits for a client.
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_accepted_any_more_although_a_child_still_has_the_socket() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, childs) = (socket.local_addr().unwrap(), socket.try_clone().unwrap());
        drop(Listener::start(socket, drop));
        assert!(TcpStream::connect(address).is_err());
        drop(childs);
    }
}
