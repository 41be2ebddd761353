//! Encrypts and decrypts the bytes of a connection with TLS.
//!
//! The reading thread and the writing thread share one TLS connection. They lock it while they
//! compute, never while they wait for the socket.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use crate::system::clock::since_boot;
use crate::system::is_timeout;
use crate::system::net::TcpStream;
use crate::system::sync::Mutex;

/// How much to read from the socket at once: a whole TLS record.
const ROOM: usize = 18 * 1024;

/// Keys, certificates and trusted roots; see [`Tls`](crate::Tls).
#[derive(Clone)]
pub(crate) struct Security(Arc<Mutex<Renew>>);

impl UnwindSafe for Security {}
impl RefUnwindSafe for Security {}

/// A closure that returns the settings, from the files if these have changed.
type Renew = Box<dyn FnMut() -> Arc<ClientConfig> + Send>;

pub(super) struct Cipher {
    connection: Mutex<ClientConnection>,
    incoming: Mutex<Incoming>,
    /// Whether TLS has something to send that no request queued, such as new keys.
    has_more: AtomicBool,
}

/// Encrypted bytes that have arrived.
struct Incoming {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Security {
    pub(crate) fn new(renew: impl FnMut() -> Arc<ClientConfig> + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Box::new(renew))))
    }
}

impl Cipher {
    pub(super) fn new(security: &Security, host: &str) -> Result<Self, String> {
        // The zone of an address is not part of a certificate.
        let name = host
            .split_once('%')
            .map_or(host, |(address, _zone)| address);
        let name = ServerName::try_from(name.to_owned()).map_err(|error| error.to_string())?;
        let connection = ClientConnection::new(security.0.lock()(), name);
        let mut connection = connection.map_err(|error| error.to_string())?;
        connection.set_buffer_limit(None);
        let incoming = Incoming {
            bytes: vec![0; ROOM],
            start: 0,
            end: 0,
        };
        Ok(Self {
            connection: Mutex::new(connection),
            incoming: Mutex::new(incoming),
            has_more: AtomicBool::new(false),
        })
    }

    /// Agrees on keys with the server and checks its certificate; `limit` bounds all reads together.
    pub(super) fn shake_hands(&self, mut stream: &TcpStream, limit: Duration) -> io::Result<()> {
        let deadline = since_boot().saturating_add(limit);
        let mut out = Vec::new();
        loop {
            self.seal(&mut Vec::new(), &mut out);
            stream.write_all(&out)?;
            out.clear();
            if !self.connection.lock().is_handshaking() {
                return Ok(());
            }
            let left = deadline.saturating_sub(since_boot());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            stream.set_read_timeout(Some(left))?;
            match self.take_in(stream) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if is_timeout(&error) => {}
                Err(error) => {
                    // TLS has an alert to send to the server.
                    self.seal(&mut Vec::new(), &mut out);
                    let _ = stream.write_all(&out);
                    return Err(error);
                }
            }
        }
    }

    pub(super) fn has_more(&self) -> bool {
        self.has_more.load(Ordering::Relaxed)
    }

    /// Encrypts all of `plain`, and whatever else TLS has to send.
    pub(super) fn seal(&self, plain: &mut Vec<u8>, wire: &mut Vec<u8>) {
        self.has_more.store(false, Ordering::Relaxed);
        let mut connection = self.connection.lock();
        // Writing into memory without a limit does not fail.
        let _ = connection.writer().write_all(plain);
        plain.clear();
        while connection.wants_write() && connection.write_tls(wire).is_ok_and(|sent| sent > 0) {}
    }

    /// Reads plain bytes, from the socket if none are buffered. Waits for the socket at most once:
    /// half a record must not keep the caller past its limit. 0 is the end of the stream.
    pub(super) fn read(&self, stream: &TcpStream, into: &mut [u8]) -> io::Result<usize> {
        let mut waited = false;
        loop {
            let read = self.connection.lock().reader().read(into);
            match read {
                Err(error) if error.kind() == ErrorKind::WouldBlock && !waited => waited = true,
                // ZooKeeper closes without an alert; the frames show whether the stream was cut off.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            if self.take_in(stream)? == 0 {
                return Ok(0);
            }
        }
    }

    /// Gives encrypted bytes to TLS, from the socket if none are buffered; returns how many.
    fn take_in(&self, mut stream: &TcpStream) -> io::Result<usize> {
        let mut incoming = self.incoming.lock();
        let incoming = &mut *incoming;
        if incoming.start == incoming.end {
            incoming.end = stream.read(&mut incoming.bytes)?;
            incoming.start = 0;
        }
        let mut connection = self.connection.lock();
        let mut waiting = incoming
            .bytes
            .get(incoming.start..incoming.end)
            .unwrap_or_default();
        let taken = connection.read_tls(&mut waiting)?;
        incoming.start += taken;
        let processed = connection.process_new_packets();
        self.has_more
            .store(connection.wants_write(), Ordering::Relaxed);
        processed.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        Ok(taken)
    }
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Security")
    }
}
