//! A socket, and what turns our bytes into its bytes.
//!
//! Reading and writing go on at the same time from two threads. One thread reads; of
//! those that write, one at a time, whoever holds the [`Lane`].

use std::io::{self, ErrorKind, Read, Write};
use std::mem;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use super::cipher::{Cipher, Security};
use super::hosts::Target;

/// How long a write may wait for room in the socket's buffer.
///
/// Callers never wait for the network: what does not fit is written later.
const WRITE_PATIENCE: Duration = Duration::from_millis(1);
/// A lane gives up memory beyond this when it has nothing to write.
const LANE_BYTES: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct Channel {
    stream: TcpStream,
    /// Absent on a plain connection.
    cipher: Option<Cipher>,
}

/// Bytes on their way out.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// What was queued, until the channel has taken it in.
    pub(super) plain: Vec<u8>,
    /// What goes to the socket, and how much of it is gone.
    wire: Vec<u8>,
    done: usize,
    /// How many of the queued bytes the kernel was not given.
    left: usize,
    /// The position in the stream of requests behind the last byte taken in.
    pub(super) until: u64,
}

impl Channel {
    /// Connects, waiting no longer than `limit`.
    pub(super) fn connect(
        target: &Target,
        limit: Duration,
        security: Option<&Security>,
    ) -> Result<Self, String> {
        let cipher = security.map(|security| Cipher::new(security, &target.server.host));
        let cipher = cipher.transpose()?;
        let stream = dial(&target.address, limit).map_err(|error| error.to_string())?;
        Ok(Self { stream, cipher })
    }

    /// Makes the connection secret, if that is asked for.
    pub(super) fn secure(&self, limit: Duration) -> Result<(), String> {
        let Some(cipher) = &self.cipher else {
            return Ok(());
        };
        let shaken = cipher.shake_hands(&self.stream, limit);
        shaken.map_err(|error| format!("TLS could not be agreed on: {error}"))
    }

    /// Whether there is something to write that nobody queued.
    pub(super) fn has_more(&self) -> bool {
        self.cipher.as_ref().is_some_and(Cipher::has_more)
    }

    /// Sets how long a read waits for bytes.
    pub(super) fn set_patience(&self, limit: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(limit))
    }

    /// Reads once; 0 is the end of the stream.
    pub(super) fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        match &self.cipher {
            None => (&self.stream).read(into),
            Some(cipher) => cipher.read(&self.stream, into),
        }
    }

    /// Writes what the lane holds; an error of time leaves the rest in it.
    pub(super) fn write(&self, lane: &mut Lane) -> io::Result<()> {
        match &self.cipher {
            None => lane.take_in(),
            Some(cipher) => cipher.seal(&mut lane.plain, &mut lane.wire),
        }
        let written = self.write_out(lane);
        // Of bytes that are mixed up with others it cannot be said that they did not leave.
        lane.left = match &self.cipher {
            None => lane.wire.len() - lane.done,
            Some(_) => 0,
        };
        written
    }

    fn write_out(&self, lane: &mut Lane) -> io::Result<()> {
        while let Some(rest) = lane.wire.get(lane.done..).filter(|rest| !rest.is_empty()) {
            match (&self.stream).write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => lane.done += written,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        lane.reset();
        Ok(())
    }

    /// Ends the connection; whoever reads or writes is woken.
    pub(super) fn shut_down(&self) {
        // It fails if the other side was faster, and that is as good.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl Lane {
    pub(super) fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.done == self.wire.len()
    }

    /// The position in the stream of requests up to which the kernel may know it.
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
        self.wire.shrink_to(LANE_BYTES);
        self.done = 0;
    }
}

fn dial(address: &SocketAddr, limit: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(address, limit)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(WRITE_PATIENCE))?;
    Ok(stream)
}

/// Whether a call on a socket ran out of time, and nothing worse.
pub(super) fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Interrupted | ErrorKind::TimedOut | ErrorKind::WouldBlock
    )
}
