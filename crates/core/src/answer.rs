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
    /// Returns whether to send a request again that has failed so, in a moment, or through the next connection: unless
    /// it `can_be_repeated`, only if nothing happened.
    pub fn is_repeated(self, can_be_repeated: bool) -> bool {
        self == Self::NotSent || (can_be_repeated && self == Self::Lost)
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_sent_again_where_that_can_do_no_harm_and_may_help() {
        let long = TooLong {
            reply: true,
            bytes: 2,
            limit: 1,
        };
        let (throttled, moved) = (ErrorCode::THROTTLED, ErrorCode::SESSION_MOVED);
        for (failure, once, any) in [
            (Failure::NotSent, true, true),
            (Failure::Refused(throttled), true, true),
            (Failure::Lost, false, true),
            (Failure::Refused(moved), false, true),
            (Failure::Refused(ErrorCode::NO_AUTH), false, false),
            (Failure::TooLong(long), false, false),
            (Failure::Closed, false, false),
        ] {
            let repeats = [false, true].map(|any| failure.sorted().is_repeated(any));
            assert_eq!(repeats, [once, any], "{failure:?}");
        }
    }
}
