//! The client that makes a request, and what is sent in reply.

use super::acl::Identity;
use super::tree::Author;
use super::watches::ConnectionId;
use zklock_jute::{ErrorCode, Reply, ReplyHeader, Request};

pub(crate) type Result<T> = std::result::Result<T, ErrorCode>;

/// The reply to a request.
#[derive(Debug)]
pub struct RequestAnswer {
    pub header: ReplyHeader,
    pub body: Option<Reply>,
    pub closes: bool,
}

/// The client that makes a request.
#[derive(Clone, Copy, Debug)]
pub struct Requester<'a> {
    pub connection: ConnectionId,
    pub session: i64,
    pub who: &'a [Identity],
}

impl RequestAnswer {
    pub fn new(xid: i32, zxid: i64, result: Result<Reply>) -> Self {
        let (code, body) = match result {
            Ok(body) => (ErrorCode::OK, Some(body)),
            Err(code) => (code, None),
        };
        Self {
            header: ReplyHeader { xid, zxid, code },
            body,
            closes: false,
        }
    }

    /// Answers a login token where no login is configured: with no token, which has the length -1.
    pub fn without_login(xid: i32) -> Self {
        Self::new(xid, 0, Ok(Reply::Count(-1)))
    }

    /// Ends the connection after the answer.
    pub fn closing(self) -> Self {
        Self {
            closes: true,
            ..self
        }
    }
}

impl<'a> Requester<'a> {
    pub fn author(self) -> Author<'a> {
        Author {
            session: self.session,
            who: self.who,
        }
    }
}

/// Reads a request and its number; the request is an error if only the number can be read.
/// Returns `None` if there is nothing to answer.
pub fn decode(frame: &[u8]) -> Option<(i32, Result<Request>)> {
    match Request::decode(frame) {
        Ok((xid, request)) => Some((xid, Ok(request))),
        // The kind of the request follows its number.
        Err(_) => frame.first_chunk::<8>().map(|[a, b, c, d, ..]| {
            let xid = i32::from_be_bytes([*a, *b, *c, *d]);
            (xid, Err(ErrorCode::MARSHALLING_ERROR))
        }),
    }
}
