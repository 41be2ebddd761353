//! The fencing token.

use std::fmt;

/// A number that grows with every grant of one lock.
///
/// Send it with each write to what the lock protects, and have that refuse a number lower than the
/// highest it has seen. Nothing else protects against a holder that was paused and acts late.
/// Compare only tokens of one path on one ensemble.
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// let mutex = client.mutex("/locks/nightly-report")?;
/// let late = mutex.lock()?.fencing_token(); // and then the holder is paused
/// let newer = mutex.lock()?.fencing_token();
///
/// // The storage keeps the highest token, and refuses a lower one.
/// let mut highest = late;
/// for (token, accepted) in [(newer, true), (late, false)] {
///     assert_eq!(highest <= token, accepted);
///     highest = highest.max(token);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FencingToken(i64);

/// Converts a token sent as a number; see [`Client::is_current`](crate::Client::is_current).
impl From<i64> for FencingToken {
    fn from(token: i64) -> Self {
        Self(token)
    }
}

impl FencingToken {
    pub(crate) fn new(token: i64) -> Self {
        Self(token)
    }

    /// Returns the number.
    pub fn get(self) -> i64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
