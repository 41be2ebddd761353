//! Why a connection ended.

use std::fmt;

use crate::error::Error;
use zklock_jute::Malformed;

/// See the module's documentation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum End {
    /// The client asked for the end of the session.
    Closed,
    /// The server refused the credentials, which ends the client with this error.
    Refused(Error),
    /// The session expired.
    Expired,
    /// The server closed the connection.
    HungUp,
    /// The client leaves a server that does not answer its requests.
    Unanswered,
    /// The client leaves a server that is no longer a member of the ensemble.
    LeftOut,
    Broken(String),
}

impl From<Malformed> for End {
    fn from(malformed: Malformed) -> Self {
        Self::Broken(malformed.to_string())
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "the client was closed",
            Self::Refused(why) => return fmt::Display::fmt(why, f),
            Self::Expired => "the session expired",
            Self::HungUp => "the server closed the connection",
            Self::LeftOut => "the ensemble goes on without this server",
            Self::Unanswered => "it answers nothing any more",
            Self::Broken(reason) => reason,
        })
    }
}
