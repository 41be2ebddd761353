//! A client's connection, as the server has it.

use zklock_embedded::RequestKind;
use zklock_embedded::parts::{Faults, Identity, ServerConfig, decode};
use zklock_jute::{ErrorCode, Request};

/// The number of a client's connection; no two of an ensemble have the same.
pub type ConnectionNo = u64;

/// What comes out of a connection at the client's end.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Output {
    /// Bytes; it is up to the client to find the frames.
    Bytes(Vec<u8>),
    /// The end; nothing follows.
    Closed,
}

/// What a client has sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Arrival {
    /// The first frame of a connection.
    Handshake,
    /// A request that the server passes to the leader.
    Write,
    /// Any other frame, such as a ping.
    Other,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) server: usize,
    pub(super) phase: Phase,
    /// 0 before the handshake.
    pub(super) session: i64,
    pub(super) timeout_ms: u64,
    pub(super) who: Vec<Identity>,
    received: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Phase {
    /// The first frame has not come.
    New,
    /// It has not been answered; what the client sends meanwhile is not read.
    Handshake,
    Open,
}

/// A client has sent bytes that are not a frame.
pub(super) struct BadFrame;

impl Connection {
    pub(super) fn new(server: usize, identity: Identity) -> Self {
        Self {
            server,
            phase: Phase::New,
            session: 0,
            timeout_ms: 0,
            who: vec![identity],
            received: Vec::new(),
        }
    }

    pub(super) fn take_in(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
    }

    /// Returns whether the length of the next frame has come.
    pub(super) fn has_begun(&self) -> bool {
        4 <= self.received.len()
    }

    /// Takes the next frame, once it is whole.
    pub(super) fn next_frame(
        &mut self,
        config: &ServerConfig,
    ) -> Result<Option<Vec<u8>>, BadFrame> {
        let Some((head, rest)) = self.received.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = config.frame_length(*head).ok_or(BadFrame)?;
        let Some(frame) = rest.get(..length).map(<[u8]>::to_vec) else {
            return Ok(None);
        };
        self.received.drain(..4 + length);
        Ok(Some(frame))
    }
}

/// A request as it came: its number, its kind, and itself.
pub(super) type Received = (i32, Option<RequestKind>, Result<Request, ErrorCode>);

/// Reads a frame after the first one; `None` if there is nothing to answer.
pub(super) fn read_request(frame: &[u8]) -> Option<Received> {
    let (xid, request) = decode(frame)?;
    let kind = request.as_ref().ok().and_then(Faults::kind);
    Some((xid, kind, request))
}
