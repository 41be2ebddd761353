//! The error type.

use std::error;
use std::fmt;
use std::result;
use std::time::{Duration, SystemTime};

use crate::recipe::dialect::Dialect;

/// A `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = result::Result<T, E>;

/// Why an operation on a lock failed.
///
/// Finding a lock taken is not an error: the `try_` methods return `Ok(None)`. Each
/// message says in one sentence what happened, where, and what can be done.
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// use zklock::Error;
///
/// let mutex = client.mutex("/locks/nightly-report")?;
/// let guard = mutex.lock()?;
/// match mutex.lock() {
///     Err(Error::WouldDeadlock { path }) => assert_eq!(path, "/locks/nightly-report"),
///     other => panic!("the mutex is not reentrant: {other:?}"),
/// }
///
/// server.expire_session(client.session_id());
/// let error = guard.unlock().unwrap_err();
/// assert!(error.is_lost());
/// println!("{error}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// The lock was lost before it was released: someone else may hold it already.
    Lost {
        /// The lock.
        path: String,
    },
    /// The quorum did not confirm the lock in time; it is not known to be lost either.
    Suspect {
        /// The lock.
        path: String,
    },
    /// The calling thread holds the lock already, and would wait for itself.
    WouldDeadlock {
        /// The lock.
        path: String,
    },
    /// Somebody deleted our node while we waited in the queue.
    Evicted {
        /// The node that is gone.
        node: String,
    },
    /// The queue has a contender that would not wait for us, so there is no exclusion.
    ForeignContender {
        /// The contender's node.
        node: String,
        /// The library it looks like.
        library: &'static str,
        /// The dialect that excludes with it, if there is one.
        dialect: Option<Dialect>,
    },
    /// The path cannot name a lock.
    BadPath {
        /// The path as it was given.
        path: String,
        /// What is wrong with it.
        rule: &'static str,
    },
    /// The list of servers cannot be read.
    BadHosts {
        /// The list as it was given.
        hosts: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The certificates or the key for TLS cannot be used.
    BadTls {
        /// What is wrong with which of them.
        reason: String,
    },
    /// No server gave us a session in time.
    ConnectTimeout {
        /// How long we tried.
        limit: Duration,
        /// What each server said, `host:port: reason`.
        tried: Vec<String>,
    },
    /// The server refused our credentials, which ends the session.
    AuthFailed,
    /// The access control list of a node does not let us do what the lock needs.
    NoAuth {
        /// The node.
        path: String,
    },
    /// The client was closed.
    Closed,
    /// The server did not confirm the end of the session.
    Unconfirmed {
        /// How long we waited for it.
        limit: Duration,
    },
    /// The session expired; every lock held through it is lost.
    ///
    /// No call returns it at present: a guard of that session fails with
    /// [`Lost`](Self::Lost), and a waiter queues again in the next session.
    SessionExpired,
    /// The server turned a request down.
    Refused {
        /// The node the request was about.
        path: String,
        /// ZooKeeper's error code.
        code: i32,
        /// What the code means.
        text: &'static str,
    },
    /// A request is longer than servers accept, and was not sent.
    RequestTooLong {
        /// The node the request was about.
        path: String,
        /// The length of the request.
        bytes: usize,
        /// The limit, which [`ClientBuilder::max_buffer`](crate::ClientBuilder::max_buffer)
        /// sets.
        limit: usize,
    },
    /// The reply to a request is longer than this client accepts, and was thrown away.
    ///
    /// In most cases it lists a directory with far more nodes than a lock has.
    ReplyTooLong {
        /// The node the request was about.
        path: String,
        /// The length of the reply.
        bytes: usize,
        /// The limit, somewhat above what
        /// [`ClientBuilder::max_buffer`](crate::ClientBuilder::max_buffer) sets.
        limit: usize,
    },
    /// The server has used up the sequence numbers of the lock's directory, and without them
    /// there is no order.
    Exhausted {
        /// The lock.
        path: String,
        /// Why that matters here.
        reason: &'static str,
    },
    /// Somebody has a permit of a semaphore that has another number of permits for this
    /// client.
    PermitsDisagree {
        /// The semaphore.
        path: String,
        /// How many permits there are for this client.
        ours: u32,
        /// How many there are for those who have some.
        theirs: u32,
        /// One of them, by its own words, such as `db1 pid 4711 (report.sh)`.
        holder: String,
        /// Since when that one has its permit, by the server's clock.
        since: SystemTime,
    },
    /// The database did not do what the lock needs.
    Database {
        /// What was tried.
        what: &'static str,
        /// What the database or the connection to it said.
        message: String,
    },
    /// This client's transport or its server cannot do what was asked.
    Unsupported {
        /// What was asked.
        what: &'static str,
    },
}

impl Error {
    /// Returns `true` if someone else may hold the lock by now.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::SessionExpired)
    }

    /// Returns `true` if the client is at its end, so that trying again is of no use.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Closed | Self::AuthFailed)
    }

    /// Returns `true` if what the caller passed in cannot be used.
    pub fn is_bad_input(&self) -> bool {
        matches!(
            self,
            Self::BadPath { .. } | Self::BadHosts { .. } | Self::BadTls { .. }
        )
    }
}

impl error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { path } => write!(
                f,
                "the lock {path} was lost before it was released: stop, someone else may raw it"
            ),
            Self::Suspect { path } => write!(
                f,
                "no quorum confirmed the lock {path} in time: pause until it is held again or lost"
            ),
            Self::WouldDeadlock { path } => write!(
                f,
                "this thread holds the lock {path} already: release it first, or use a reentrant mutex"
            ),
            Self::Evicted { node } => write!(
                f,
                "the node {node} was deleted by someone while it waited in the queue: lock again if that was not meant"
            ),
            Self::ForeignContender {
                node,
                library,
                dialect,
            } => {
                write!(f, "the contender {node} looks like {library}, which would not wait for us: ")?;
                match dialect {
                    Some(dialect) => write!(f, "use Dialect::{dialect:?} or another path"),
                    None => write!(f, "use another path"),
                }
            }
            Self::BadPath { path, rule } => write!(f, "the path {path:?} cannot name a lock: {rule}"),
            Self::BadHosts { hosts, reason } => write!(
                f,
                "cannot read the servers {hosts:?}: {reason}; write host:port,host:port/chroot"
            ),
            Self::BadTls { reason } => write!(
                f,
                "TLS cannot be set up: {reason}; name PEM files with certificates and their key"
            ),
            Self::ConnectTimeout { limit, tried } => {
                write!(f, "no ZooKeeper server gave a session within {limit:?}")?;
                for (i, reason) in tried.iter().enumerate() {
                    write!(f, "{}{reason}", if i == 0 { " (" } else { "; " })?;
                }
                f.write_str(if tried.is_empty() { "" } else { ")" })?;
                f.write_str(": check the host names and that the servers run")
            }
            Self::AuthFailed => f.write_str(
                "the server refused our credentials and closed the session: check scheme and password",
            ),
            Self::NoAuth { path } => write!(
                f,
                "the access control list of {path} does not allow what the lock needs: add credentials or change it"
            ),
            Self::Closed => f.write_str("the client is closed: connect a new one"),
            Self::Unconfirmed { limit } => write!(
                f,
                "the server did not confirm the end of the session within {limit:?}: its locks are free when it has timed out"
            ),
            Self::SessionExpired => {
                f.write_str("the ZooKeeper session expired: every lock held through it is lost")
            }
            Self::Refused { path, code, text } => {
                write!(f, "the server turned down a request for {path}: {text} ({code})")
            }
            Self::RequestTooLong { path, bytes, limit } => write!(
                f,
                "a request for {path} has {bytes} bytes and the limit is {limit}: shorten it, or raise jute.maxbuffer of the servers and max_buffer of this client"
            ),
            Self::ReplyTooLong { path, bytes, limit } => write!(
                f,
                "the reply to a request for {path} has {bytes} bytes and the limit is {limit}: delete what does not belong there, or raise max_buffer of this client"
            ),
            Self::Exhausted { path, reason } => write!(
                f,
                "the sequence numbers under {path} are used up, and {reason}: delete the directory when it is idle"
            ),
            Self::PermitsDisagree {
                path,
                ours,
                theirs,
                holder,
                since,
            } => write!(
                f,
                "the semaphore {path} has {theirs} permits for another client and {ours} for this one, and {holder} has one of them since {}: make the numbers agree, or wait, with a time limit, until all are given back",
                utc(*since)
            ),
            Self::Database { what, message } => write!(f, "cannot {what}: {message}"),
            Self::Unsupported { what } => {
                write!(f, "this client or its server does not support {what}")
            }
        }
    }
}

/// Writes a time as `2026-11-22T10:45:18Z`.
fn utc(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    let seconds = since.unwrap_or_default().as_secs();
    let (mut days, time) = (seconds / 86_400, seconds % 86_400);
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970 + 400 * (days / 146_097);
    days %= 146_097;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute, second) = (time / 3_600, time / 60 % 60, time % 60);
    let day = days + 1;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc() {
        let table = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (1_795_344_318, "2026-11-22T10:45:18Z"),
        ];
        for (seconds, text) in table {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(utc(time), text);
        }
    }
}
