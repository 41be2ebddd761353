//! Who makes a request, and what is sent for it.

use super::acl::Identity;
use super::tree::Author;
use super::watches::ConnectionId;
use crate::jute::{ErrorCode, Reply, ReplyHeader};

pub(super) type Result<T> = std::result::Result<T, ErrorCode>;

/// What is sent for a request.
pub(super) struct RequestAnswer {
    pub(super) header: ReplyHeader,
    pub(super) body: Option<Reply>,
    pub(super) closes: bool,
}

/// The client that makes a request.
#[derive(Clone, Copy)]
pub(super) struct Requester<'a> {
    pub(super) connection: ConnectionId,
    pub(super) session: i64,
    pub(super) who: &'a [Identity],
}

impl RequestAnswer {
    pub(super) fn new(xid: i32, zxid: i64, result: Result<Reply>) -> Self {
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

    /// Ends the connection after the answer.
    pub(super) fn closing(self) -> Self {
        Self {
            closes: true,
            ..self
        }
    }
}

impl<'a> Requester<'a> {
    pub(super) fn author(self) -> Author<'a> {
        Author {
            session: self.session,
            who: self.who,
        }
    }
}
