//! Who makes a request, and what is sent in reply.

use super::acl::Identity;
use super::tree::Author;
use super::watches::ConnectionId;
use zklock_jute::{ErrorCode, Reply, ReplyHeader, Request};

pub(crate) type Result<T> = std::result::Result<T, ErrorCode>;

/// What is sent in reply to a request.
pub(crate) struct RequestAnswer {
    pub(crate) header: ReplyHeader,
    pub(crate) body: Option<Reply>,
    pub(crate) closes: bool,
}

/// The client that makes a request.
#[derive(Clone, Copy)]
pub(crate) struct Requester<'a> {
    pub(crate) connection: ConnectionId,
    pub(crate) session: i64,
    pub(crate) who: &'a [Identity],
}

impl RequestAnswer {
    pub(crate) fn new(xid: i32, zxid: i64, result: Result<Reply>) -> Self {
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

    /// Answers a token: where no login is configured with none, which has the length -1.
    pub(crate) fn without_login(xid: i32) -> Self {
        Self::new(xid, 0, Ok(Reply::Count(-1)))
    }

    /// Ends the connection after the answer.
    pub(crate) fn closing(self) -> Self {
        Self {
            closes: true,
            ..self
        }
    }
}

impl<'a> Requester<'a> {
    pub(crate) fn author(self) -> Author<'a> {
        Author {
            session: self.session,
            who: self.who,
        }
    }
}

/// Reads a request and its number; the request is an error if only the number can be read.
/// Returns `None` if there is nothing to answer.
pub(crate) fn decode(frame: &[u8]) -> Option<(i32, Result<Request>)> {
    match Request::decode(frame) {
        Ok((xid, request)) => Some((xid, Ok(request))),
        // A kind follows the number.
        Err(_) => frame.first_chunk::<8>().map(|[a, b, c, d, ..]| {
            let xid = i32::from_be_bytes([*a, *b, *c, *d]);
            (xid, Err(ErrorCode::MARSHALLING_ERROR))
        }),
    }
}
