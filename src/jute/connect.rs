//! The first frame of each side.

use std::fmt;

use super::codec::{Malformed, Reader, frame};

/// A client's first frame on a connection.
#[derive(Clone, Eq, PartialEq)]
pub(crate) struct ConnectRequest {
    pub(crate) last_zxid: i64,
    pub(crate) timeout_ms: i32,
    pub(crate) session: i64,
    pub(crate) password: Vec<u8>,
    pub(crate) read_only: bool,
}

/// The server's first frame; without a session and with a timeout of 0 it says that the session
/// expired.
#[derive(Clone, Eq, PartialEq)]
pub(crate) struct ConnectReply {
    pub(crate) timeout_ms: i32,
    pub(crate) session: i64,
    pub(crate) password: Vec<u8>,
    pub(crate) read_only: bool,
}

impl ConnectRequest {
    /// Appends the frame, with its length.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        frame(out, "", |writer| {
            writer.int(0);
            writer.long(self.last_zxid);
            writer.int(self.timeout_ms);
            writer.long(self.session);
            writer.bytes(&self.password);
            writer.bool(self.read_only);
        });
    }

    /// Reads a frame's content.
    pub(crate) fn decode(frame: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(frame);
        reader.int()?;
        Ok(Self {
            last_zxid: reader.long()?,
            timeout_ms: reader.int()?,
            session: reader.long()?,
            password: reader.bytes()?.to_vec(),
            read_only: trailing_bool(&mut reader)?,
        })
    }
}

impl ConnectReply {
    /// The reply to a client whose session has ended.
    pub(crate) fn expired() -> Self {
        Self {
            timeout_ms: 0,
            session: 0,
            password: vec![0; 16],
            read_only: false,
        }
    }

    /// Appends the frame, with its length.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        frame(out, "", |writer| {
            writer.int(0);
            writer.int(self.timeout_ms);
            writer.long(self.session);
            writer.bytes(&self.password);
            writer.bool(self.read_only);
        });
    }

    /// Reads a frame's content.
    pub(crate) fn decode(frame: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(frame);
        if reader.int()? != 0 {
            return Err(Malformed(
                "another version of the protocol, as of a ClickHouse Keeper without a leader",
            ));
        }
        Ok(Self {
            timeout_ms: reader.int()?,
            session: reader.long()?,
            password: reader.bytes()?.to_vec(),
            read_only: trailing_bool(&mut reader)?,
        })
    }
}

/// Reads the last field, which peers from before ZooKeeper 3.4 leave out.
fn trailing_bool(reader: &mut Reader<'_>) -> Result<bool, Malformed> {
    if reader.is_empty() {
        Ok(false)
    } else {
        reader.bool()
    }
}

// The password is all that it takes to use the session, so `Debug` leaves it out.

impl fmt::Debug for ConnectRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectRequest")
            .field("last_zxid", &self.last_zxid)
            .field("timeout_ms", &self.timeout_ms)
            .field("session", &self.session)
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ConnectReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectReply")
            .field("timeout_ms", &self.timeout_ms)
            .field("session", &self.session)
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}
