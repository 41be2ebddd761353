//! The server's error codes.

use core::fmt;

/// Why the server refused a request.
///
/// The network may send any number; the codes that this crate acts on have names.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct ErrorCode(pub i32);

macro_rules! codes {
    ($($name:ident = $number:literal $text:literal),* $(,)?) => {
        impl ErrorCode {
            $(pub const $name: Self = Self($number);)*

            /// Returns the meaning of the code, in ZooKeeper's words.
            pub fn text(self) -> &'static str {
                match self.0 {
                    $($number => $text,)*
                    _ => "unknown error",
                }
            }
        }
    };
}

codes! {
    OK = 0 "no error",
    RUNTIME_INCONSISTENCY = -2 "runtime inconsistency",
    CONNECTION_LOSS = -4 "connection loss",
    MARSHALLING_ERROR = -5 "marshalling error",
    UNIMPLEMENTED = -6 "unimplemented",
    OPERATION_TIMEOUT = -7 "operation timeout",
    BAD_ARGUMENTS = -8 "bad arguments",
    NO_NODE = -101 "no such node",
    NO_AUTH = -102 "not authorised",
    BAD_VERSION = -103 "bad version",
    NO_CHILDREN_FOR_EPHEMERALS = -108 "ephemeral nodes, such as those of the contenders for a lock, have nothing below them; use another path",
    NODE_EXISTS = -110 "the node exists",
    NOT_EMPTY = -111 "the node has children",
    SESSION_EXPIRED = -112 "the session expired",
    INVALID_ACL = -114 "the access control list is not valid, or it is for credentials and the client has none",
    AUTH_FAILED = -115 "authentication failed",
    SESSION_MOVED = -118 "the session moved to another server",
    NOT_READ_ONLY = -119 "the server is read-only",
    NO_WATCHER = -121 "no such watcher",
    SASL_REQUIRED = -124 "the server lets in only clients that have logged in, by SASL",
    QUOTA_EXCEEDED = -125 "a quota for this path, or for one above it, is used up",
    THROTTLED = -127 "throttled",
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl ErrorCode {
    /// Returns whether the code is about the connection, so that the request may succeed later.
    pub fn is_passing(self) -> bool {
        matches!(
            self,
            Self::CONNECTION_LOSS
                | Self::OPERATION_TIMEOUT
                | Self::SESSION_EXPIRED
                | Self::SESSION_MOVED
                | Self::THROTTLED
        )
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.text(), self.0)
    }
}
