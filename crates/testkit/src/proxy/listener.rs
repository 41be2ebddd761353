//! The socket at which a proxy waits for clients.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

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
