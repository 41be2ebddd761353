//! A connection's socket, with or without TLS.
//!
//! One thread reads while another writes. There is one reader, and one writer: the thread that has
//! the [`Outbox`].

use std::io::{self, ErrorKind, Read, Write};
use std::mem;
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use super::cipher::{Cipher, Security};
use super::hosts::Target;
use crate::error::NO_TLS;
use crate::system::clock;
use crate::system::net::{self, TcpStream};
use zklock_core::connection::rotation::Refusal;

/// The complaint about a server that gives neither a session nor a reason.
pub(super) const HUNG_UP: &str = "it closed the connection instead of greeting";

/// The status of a server that has not greeted yet.
pub(super) const NOT_GREETED: &str = "it has accepted a connection, and has not greeted";

/// How long a write may wait for room in the socket's buffer.
///
/// Callers do not wait for the network: the rest is written later.
const WRITE_PATIENCE: Duration = Duration::from_millis(1);
/// An empty outbox frees memory beyond this size.
const OUTBOX_BYTES: usize = 64 * 1024;

pub(super) struct Channel {
    stream: TcpStream,
    /// Absent on a plain connection.
    cipher: Option<Cipher>,
}

/// Why an address does not serve: what the server did, if that tells where to go on, and the reason for people.
#[derive(Debug)]
pub(super) struct Failed(pub(super) Option<Refusal>, pub(super) String);

/// The bytes that a writer sends.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// Frames that the channel has not taken yet.
    pub(super) plain: Vec<u8>,
    /// The bytes for the socket, and how many of them are written.
    wire: Vec<u8>,
    done: usize,
    /// How many of the queued bytes the kernel has not taken.
    left: usize,
    /// The position in the stream of requests behind the last byte that this outbox has taken.
    pub(super) until: u64,
}

impl Channel {
    /// Connects; waits at most `limit`.
    pub(super) fn connect(
        target: &Target,
        limit: Duration,
        security: Option<&Security>,
    ) -> Result<Self, Failed> {
        let cipher = security.map(|security| Cipher::new(security, &target.server.host));
        let cipher = cipher.transpose()?;
        let stream = dial(&target.address, limit).map_err(|error| {
            let (refusal, reason) = match error.kind() {
                _ if is_hang_up(&error) => (Some(Refusal::HungUp), HUNG_UP),
                ErrorKind::TimedOut => (Some(Refusal::Unreached), "connection timed out"),
                // The network says so, perhaps after a while.
                ErrorKind::HostUnreachable => (Some(Refusal::Unreached), "no route to host"),
                _ => return error.to_string().into(),
            };
            Failed(refusal, reason.to_owned())
        })?;
        Ok(Self { stream, cipher })
    }

    /// Does the TLS handshake, if TLS is configured.
    pub(super) fn secure(&self, limit: Duration) -> Result<(), Failed> {
        let Some(cipher) = &self.cipher else {
            return Ok(());
        };
        let agreed = cipher.shake_hands(&self.stream, limit);
        agreed.map_err(|error| {
            let (refusal, how) = match error.kind() {
                // A server without a leader may do so to spare itself the handshake.
                ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
                    (Some(Refusal::HungUp), format!(": {HUNG_UP}, {NO_TLS}"))
                }
                ErrorKind::TimedOut => (None, format!(" within {limit:.1?}")),
                _ => (None, format!(": {error}")),
            };
            Failed(refusal, format!("TLS could not be agreed on{how}"))
        })
    }

    /// Returns whether TLS has something to write that no request queued.
    pub(super) fn has_more(&self) -> bool {
        self.cipher.as_ref().is_some_and(Cipher::has_more)
    }

    /// Sets how long a read waits for bytes.
    pub(super) fn set_patience(&self, limit: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(limit))
    }

    /// Reads once; 0 is the end of the stream, however the server ended it.
    pub(super) fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        let read = match &self.cipher {
            None => (&self.stream).read(into),
            Some(cipher) => cipher.read(&self.stream, into),
        };
        match read {
            Err(error) if is_hang_up(&error) => Ok(0),
            read => read,
        }
    }

    /// Writes the outbox; a timeout leaves the rest in it.
    pub(super) fn write(&self, outbox: &mut Outbox) -> io::Result<()> {
        match &self.cipher {
            None => outbox.take_in(),
            Some(cipher) => cipher.seal(&mut outbox.plain, &mut outbox.wire),
        }
        let written = self.write_out(outbox);
        // Encrypted bytes do not show which request they belong to: all of them may have left.
        outbox.left = match &self.cipher {
            None => outbox.wire.len() - outbox.done,
            Some(_) => 0,
        };
        written
    }

    fn write_out(&self, outbox: &mut Outbox) -> io::Result<()> {
        let mut full_since = None;
        while let Some(rest) = outbox
            .wire
            .get(outbox.done..)
            .filter(|rest| !rest.is_empty())
        {
            match (&self.stream).write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    outbox.done += written;
                    // A server that takes a few bytes at a time must not extend the wait.
                    if written < rest.len() {
                        let since = *full_since.get_or_insert_with(clock::now);
                        if clock::now().saturating_duration_since(since) >= WRITE_PATIENCE {
                            return Err(ErrorKind::WouldBlock.into());
                        }
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        outbox.reset();
        Ok(())
    }

    /// Ends the connection, which wakes the threads that read or write.
    pub(super) fn shut_down(&self) {
        // This fails if the server has ended it already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl From<String> for Failed {
    fn from(reason: String) -> Self {
        Self(None, reason)
    }
}

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.done == self.wire.len()
    }

    /// Returns the position in the stream of requests up to which the kernel may have the bytes.
    pub(super) fn handed(&self) -> u64 {
        self.until - self.left as u64
    }

    fn take_in(&mut self) {
        if self.done == self.wire.len() {
            self.wire.clear();
            self.done = 0;
            mem::swap(&mut self.plain, &mut self.wire);
        } else {
            self.wire.append(&mut self.plain);
        }
    }

    fn reset(&mut self) {
        self.wire.clear();
        self.wire.shrink_to(OUTBOX_BYTES);
        self.done = 0;
    }
}

fn dial(address: &SocketAddr, limit: Duration) -> io::Result<TcpStream> {
    let stream = net::connect(address, limit)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(WRITE_PATIENCE))?;
    Ok(stream)
}

/// Returns whether a call on a socket failed because the server closed the connection. Which error
/// that is depends on whether the server had read everything, and on whether more was written
/// meanwhile.
fn is_hang_up(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
    )
}
