//! A socket, and what turns our bytes into its bytes.
//!
//! Reading and writing go on at the same time from two threads. One thread reads; of
//! those that write, one at a time, whoever holds the [`Lane`].

use std::io::{self, ErrorKind, Read, Write};
use std::mem;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// How long a write may wait for room in the socket's buffer.
///
/// Callers never wait for the network: what does not fit is written later.
const WRITE_PATIENCE: Duration = Duration::from_millis(1);
/// A lane gives up memory beyond this when it has nothing to write.
const LANE_BYTES: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct Channel {
    stream: TcpStream,
}

/// Bytes on their way out.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// What was queued, until the channel has taken it in.
    pub(super) plain: Vec<u8>,
    /// What goes to the socket, and how much of it is gone.
    wire: Vec<u8>,
    done: usize,
    /// The position in the stream of requests behind the last byte taken in.
    pub(super) until: u64,
}

impl Channel {
    /// Connects, waiting no longer than `limit`.
    pub(super) fn connect(address: &SocketAddr, limit: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(address, limit)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(WRITE_PATIENCE))?;
        Ok(Self { stream })
    }

    /// Makes the connection secret, if that is asked for.
    pub(super) fn secure(&self, _host: &str, _limit: Duration) -> Result<(), String> {
        Ok(())
    }

    /// Whether there is something to write that nobody queued.
    pub(super) fn has_more(&self) -> bool {
        false
    }

    /// Sets how long a read waits for bytes.
    pub(super) fn set_patience(&self, limit: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(limit))
    }

    /// Reads once; 0 is the end of the stream.
    pub(super) fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        (&self.stream).read(into)
    }

    /// Writes what the lane holds; an error of time leaves the rest in it.
    pub(super) fn write(&self, lane: &mut Lane) -> io::Result<()> {
        lane.take_in();
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
        let left = self.plain.len() + self.wire.len() - self.done;
        self.until - left as u64
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

/// Whether a call on a socket ran out of time, and nothing worse.
pub(super) fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Interrupted | ErrorKind::TimedOut | ErrorKind::WouldBlock
    )
}
