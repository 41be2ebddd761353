//! The outcome of a request.

use core::time::Duration;

use zklock_jute::{ErrorCode, Reply};

/// How long to wait before repeating a request that failed although there is a connection.
pub const BREATHER: Duration = Duration::from_millis(10);

/// The answer to a request: its reply, or why there is none.
pub type Answered = Result<Reply, Failure>;

/// Why a request has no reply.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Failure {
    /// There was no connection: the request was not sent, and nothing happened.
    NotSent,
    /// The connection broke: the request may or may not have been carried out.
    Lost,
    /// The server refused the request.
    Refused(ErrorCode),
    /// The request or its reply is too long; nothing changed.
    TooLong(TooLong),
    /// The client is closed, for good.
    Closed,
}

impl Failure {
    /// Turns refusals that are about the connection, not the request, into [`Failure::Lost`].
    ///
    /// A server that has too many requests throws some away before it looks at them (`Request.isThrottled`).
    pub fn sorted(self) -> Self {
        match self {
            Self::Refused(ErrorCode::THROTTLED) => Self::NotSent,
            Self::Refused(code) if code.is_passing() => Self::Lost,
            failure => failure,
        }
    }
}

/// A request that was too long to send, or a read whose reply was too long to keep.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TooLong {
    /// Whether the reply is what is too long.
    pub reply: bool,
    /// The length that is too long.
    pub bytes: usize,
    /// The longest that is allowed.
    pub limit: usize,
}
