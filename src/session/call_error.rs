//! Why a repeated call ended without a reply.

use crate::error::{Error, Result};
use crate::path;
use crate::time::limit::LimitReached;
use crate::transport::Failure;
use crate::transport::status::Status;
use zklock_jute::ErrorCode;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) enum CallError {
    /// The server refused the request, or a part of the transaction.
    Refused(ErrorCode),
    LimitReached,
    /// Repeating the request is useless.
    Over(Error),
}

/// The reason if not even the root exists.
const NO_CHROOT: &str = "the chroot at the end of the servers' addresses does not exist; create it, or set ClientBuilder::create_chroot";

impl CallError {
    /// Returns what a failure of a request about `path` means; `None` if the request can be repeated.
    pub(crate) fn of(failure: Failure, path: &str, status: &Status) -> Option<Self> {
        match failure {
            Failure::Refused(code) => Some(Self::Refused(code)),
            Failure::TooLong(long) => Some(Self::Over(Error::too_long(long, path))),
            Failure::Closed => Some(Self::Over(status.ending())),
            Failure::Lost | Failure::NotSent => None,
        }
    }

    /// Returns the error of a request about `path`, or `at_limit` if the limit was reached.
    pub(crate) fn or<T>(self, path: &str, at_limit: T) -> Result<T> {
        match self {
            Self::Refused(code) => Err(refused(path, code)),
            Self::LimitReached => Ok(at_limit),
            Self::Over(error) => Err(error),
        }
    }

    /// Like [`or`](Self::or), where reaching the limit is an error too.
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

/// Returns the error of a directory that could not be created.
pub(crate) fn not_made(dir: &str, code: ErrorCode) -> Error {
    match code {
        // Everything above the directory is created, up to the chroot.
        ErrorCode::NO_NODE => Error::Refused {
            path: dir.to_owned(),
            code: code.0,
            text: NO_CHROOT,
        },
        code => refused(dir, code),
    }
}

/// Returns the error of a node that was not created.
pub(crate) fn not_created(path: &str, code: ErrorCode) -> Error {
    match code {
        ErrorCode::NO_NODE => Error::Refused {
            path: path.to_owned(),
            code: code.0,
            text: match path::parent(path) {
                "" => NO_CHROOT,
                _ => "the node above it does not exist; create that first",
            },
        },
        code => refused(path, code),
    }
}

/// Returns what a code means, and what to do about it.
fn advice(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::BAD_VERSION => "somebody changed the node: read it again, with its version",
        ErrorCode::NO_NODE => "the node does not exist: create it first",
        ErrorCode::NODE_EXISTS => "the node exists already: set its data instead",
        ErrorCode::SASL_REQUIRED => {
            "it lets in only clients that have logged in: add a login by SASL"
        }
        ErrorCode::NOT_EMPTY => "the node has others below it: delete those first",
        code => code.text(),
    }
}

/// Returns the error of a refused request.
pub(crate) fn refused(path: &str, code: ErrorCode) -> Error {
    match code {
        ErrorCode::NO_AUTH => Error::NoAuth {
            path: path.to_owned(),
        },
        ErrorCode::AUTH_FAILED => Error::AuthFailed,
        code => Error::Refused {
            path: path.to_owned(),
            code: code.0,
            text: match (path, code) {
                ("/", ErrorCode::NO_NODE) => NO_CHROOT,
                (_, code) => advice(code),
            },
        },
    }
}
