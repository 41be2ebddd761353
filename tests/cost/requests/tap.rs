//! The bytes between a client and its server, write by write.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::support::raw::op;
use crate::support::{eventually, free_port};

/// A connection to a server on which everything that passes is recorded.
pub(super) struct Tap {
    pub(super) hosts: String,
    log: Arc<Mutex<Vec<Vec<i32>>>>,
}

impl Tap {
    pub(super) fn start(server: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", free_port())).unwrap();
        let hosts = listener.local_addr().unwrap().to_string();
        let log = Arc::<Mutex<Vec<Vec<i32>>>>::default();
        let (server, ours) = (server.to_owned(), log.clone());
        thread::spawn(move || {
            // One client, one connection.
            let (client, _) = listener.accept().unwrap();
            let server = TcpStream::connect(server).unwrap();
            for socket in [&client, &server] {
                socket.set_nodelay(true).unwrap();
            }
            let (from, to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || pass_on(from, to, |_| ()));
            let mut greeted = false;
            pass_on(client, server, move |bytes| match greeted {
                true => ours.lock().unwrap().push(opcodes(bytes)),
                false => greeted = true,
            });
        });
        Self { hosts, log }
    }

    pub(super) fn log(&self) -> Vec<Vec<i32>> {
        self.log.lock().unwrap().clone()
    }

    /// Returns what was written since the last time, except pings: the requests of each write.
    pub(super) fn take(&self) -> Vec<Vec<i32>> {
        let mut log = std::mem::take(&mut *self.log.lock().unwrap());
        log.retain(|write| *write != [op::PING]);
        for write in &mut log {
            write.retain(|op| *op != op::PING);
        }
        log
    }

    pub(super) fn write_down(&self, write: &[i32]) {
        self.log.lock().unwrap().push(write.to_vec());
    }

    /// Waits until such a request has been sent.
    pub(super) fn wait_for(&self, op: i32) {
        eventually("such a request has left", || {
            self.log().concat().contains(&op)
        });
    }
}

/// Passes on the bytes of one read in one write.
pub(super) fn pass_on(mut from: TcpStream, mut to: TcpStream, mut seen: impl FnMut(&[u8])) {
    let mut bytes = vec![0; 1 << 20];
    let ended: io::Result<()> = (|| {
        loop {
            let read = from.read(&mut bytes)?;
            if read == 0 {
                return Ok(());
            }
            seen(&bytes[..read]);
            to.write_all(&bytes[..read])?;
        }
    })();
    drop(ended);
    drop(to.shutdown(Shutdown::Both));
}

pub(super) fn opcodes(mut bytes: &[u8]) -> Vec<i32> {
    let int = |at: usize, bytes: &[u8]| i32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut all = Vec::new();
    while !bytes.is_empty() {
        all.push(int(8, bytes));
        bytes = &bytes[4 + int(0, bytes) as usize..];
    }
    all
}
