//! The first frame of each side.

use alloc::vec::Vec;
use core::fmt;

use super::codec::{Malformed, Reader, Writer, frame};

/// The version in the refusals of ClickHouse Keeper and RaftKeeper.
const REJECTED: i32 = 42;

/// A client's first frame on a connection.
#[derive(Clone, Eq, PartialEq)]
pub struct ConnectRequest {
    pub last_zxid: i64,
    pub timeout_ms: i32,
    pub session: i64,
    pub password: Vec<u8>,
    pub read_only: bool,
}

/// The server's first frame. Without a session and with a timeout of 0, it says that the session expired.
#[derive(Clone, Eq, PartialEq)]
pub struct ConnectReply {
    pub timeout_ms: i32,
    pub session: i64,
    pub password: Vec<u8>,
    pub read_only: bool,
}

impl ConnectRequest {
    /// Appends the frame, with its length.
    pub fn encode(&self, out: &mut Vec<u8>) {
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
    pub fn decode(frame: &[u8]) -> Result<Self, Malformed> {
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

    /// Returns whether the content of this length lacks the last field. The client is from before ZooKeeper
    /// 3.4 then, and expects none in the reply either.
    pub fn is_old(&self, length: usize) -> bool {
        let numbers = 4 + 8 + 4 + 8 + 4;
        length == numbers + self.password.len()
    }
}

impl ConnectReply {
    /// Returns the reply to a client whose session has ended.
    pub fn expired() -> Self {
        Self {
            timeout_ms: 0,
            session: 0,
            password: vec![0; 16],
            read_only: false,
        }
    }

    /// Appends the frame, with its length.
    pub fn encode(&self, out: &mut Vec<u8>) {
        frame(out, "", |writer| {
            self.write(writer);
            writer.bool(self.read_only);
        });
    }

    /// As [`encode`](Self::encode), for a client that [is old](ConnectRequest::is_old).
    pub fn encode_for_old(&self, out: &mut Vec<u8>) {
        frame(out, "", |writer| self.write(writer));
    }

    fn write(&self, writer: &mut Writer<'_>) {
        writer.int(0);
        writer.int(self.timeout_ms);
        writer.long(self.session);
        writer.bytes(&self.password);
    }

    /// Reads a frame's content.
    pub fn decode(frame: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(frame);
        match reader.int()? {
            0 => {}
            REJECTED if is_expiry(frame) => return Ok(Self::expired()),
            _ => {
                return Err(Malformed(
                    "another version of the protocol, as of a ClickHouse Keeper without a leader",
                ));
            }
        }
        Ok(Self {
            timeout_ms: reader.int()?,
            session: reader.long()?,
            password: reader.bytes()?.to_vec(),
            read_only: trailing_bool(&mut reader)?,
        })
    }
}

/// Returns whether a refusal says that the session has ended. RaftKeeper refuses such a session with a
/// timeout of -1 and that session. Without a leader it names the session -1.
fn is_expiry(frame: &[u8]) -> bool {
    let mut reader = Reader::new(frame);
    let fields = (reader.int(), reader.int(), reader.long());
    matches!(fields, (Ok(REJECTED), Ok(-1), Ok(session)) if 0 < session)
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
