//! One client's connection through a proxy.

use std::collections::HashSet;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of a request that the proxy itself makes; clients count from 1.
pub(super) const OURS: i32 = i32::MAX;

/// One client's connection to the server.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) client: TcpStream,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
pub(super) struct Inner {
    server: Option<TcpStream>,
    cut: bool,
    pub(super) greeted: bool,
    pub(super) answered: bool,
    /// The requests whose replies are to be lost.
    pub(super) doomed: HashSet<i32>,
}

impl Connection {
    pub(super) fn new(client: TcpStream) -> Self {
        drop(client.set_nodelay(true));
        Self {
            client,
            inner: Mutex::default(),
        }
    }

    pub(super) fn attach(&self, server: TcpStream) {
        let mut inner = self.lock();
        if inner.cut {
            drop(server.shutdown(Shutdown::Both));
        }
        inner.server = Some(server);
    }

    /// Asks the server to close the session, in the client's name.
    pub(super) fn end_session(&self) {
        let words = [8, OURS, crate::raw::op::CLOSE];
        let request = words.map(i32::to_be_bytes).concat();
        if let Some(server) = &mut self.lock().server {
            // The connection may have ended meanwhile.
            drop(server.write_all(&request));
        }
    }

    pub(super) fn cut(&self) {
        let mut inner = self.lock();
        inner.cut = true;
        // Either side may have closed its socket before.
        drop(self.client.shutdown(Shutdown::Both));
        if let Some(server) = &inner.server {
            drop(server.shutdown(Shutdown::Both));
        }
    }

    pub(super) fn is_cut(&self) -> bool {
        self.lock().cut
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
