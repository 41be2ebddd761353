//! Why a call that was asked until there was an answer has no reply.

use crate::error::{Error, Result};
use crate::jute::ErrorCode;
use crate::time::limit::LimitReached;
use crate::transport::Failure;
use crate::transport::session_state::SessionState;
use crate::transport::status::Snapshot;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) enum CallError {
    /// The server turned the request down, or a part of the transaction.
    Refused(ErrorCode),
    LimitReached,
    /// There is no reason to ask again.
    Over(Error),
}

impl CallError {
    /// What a failure of a request about `path` means; `None` if the request may be repeated.
    pub(crate) fn of(failure: Failure, path: &str, snapshot: &Snapshot) -> Option<Self> {
        match failure {
            Failure::Refused(code) => Some(Self::Refused(code)),
            Failure::TooLong(long) => Some(Self::Over(long.about(path))),
            Failure::Closed => Some(Self::Over(over(snapshot))),
            Failure::Lost | Failure::NotSent => None,
        }
    }

    /// The error of a request about `path`, or this at the limit.
    pub(crate) fn or<T>(self, path: &str, at_limit: T) -> Result<T> {
        match self {
            Self::Refused(code) => Err(refused(path, code)),
            Self::LimitReached => Ok(at_limit),
            Self::Over(error) => Err(error),
        }
    }

    /// As [`or`](Self::or), where the limit is an error, too.
    pub(crate) fn into_error(self, path: &str, at_limit: impl FnOnce() -> Error) -> Error {
        match self.or(path, ()) {
            Ok(()) => at_limit(),
            Err(error) => error,
        }
    }
}

impl From<Error> for CallError {
    fn from(error: Error) -> Self {
        Self::Over(error)
    }
}

impl From<LimitReached> for CallError {
    fn from(LimitReached: LimitReached) -> Self {
        Self::LimitReached
    }
}

/// The error of a client that is at its end.
pub(crate) fn over(snapshot: &Snapshot) -> Error {
    match snapshot.state {
        SessionState::AuthFailed => Error::AuthFailed,
        _ => Error::Closed,
    }
}

/// The error of directories that could not be made.
pub(crate) fn not_made(dir: &str, code: ErrorCode) -> Error {
    match code {
        // We make all that is above the directory, as far as we see.
        ErrorCode::NO_NODE => Error::Refused {
            path: dir.to_owned(),
            code: code.0,
            text: "the chroot at the end of the servers' addresses does not exist; create it",
        },
        code => refused(dir, code),
    }
}

/// The error of a request that was turned down.
pub(crate) fn refused(path: &str, code: ErrorCode) -> Error {
    match code {
        ErrorCode::NO_AUTH => Error::NoAuth {
            path: path.to_owned(),
        },
        ErrorCode::AUTH_FAILED => Error::AuthFailed,
        code => Error::Refused {
            path: path.to_owned(),
            code: code.0,
            text: code.text(),
        },
    }
}
