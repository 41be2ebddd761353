//! The error type.

use std::error;
use std::fmt;
use std::result;
use std::time::{Duration, SystemTime};

use crate::recipe::dialect::Dialect;
use crate::time::utc;

/// A `Result` whose error is this crate's [`Error`].
pub type Result<T, E = Error> = result::Result<T, E>;

/// Why an operation on a lock failed.
///
/// A lock that is taken is not an error: the `try_` methods return `Ok(None)`. Each message
/// says in one sentence what happened, where, and what to do about it.
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
    /// The lock was lost before it was released: another client may hold it by now.
    Lost {
        /// The lock.
        path: String,
    },
    /// The quorum did not confirm the lock in time; the lock is not known to be lost either.
    Suspect {
        /// The lock.
        path: String,
    },
    /// The calling thread holds the lock already, and would wait for itself.
    WouldDeadlock {
        /// The lock.
        path: String,
    },
    /// Another client deleted the node of a waiter.
    Evicted {
        /// The deleted node.
        node: String,
    },
    /// A contender in the queue would not wait for this client, so there is no exclusion.
    ForeignContender {
        /// The contender's node.
        node: String,
        /// The library it looks like.
        library: &'static str,
        /// The dialect that excludes with it, if there is one.
        dialect: Option<Dialect>,
    },
    /// An argument is out of range.
    BadArgument {
        /// The argument.
        name: &'static str,
        /// What it must be.
        rule: &'static str,
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
        /// Which of them, and what is wrong with it.
        reason: String,
    },
    /// No server gave a session in time.
    ConnectTimeout {
        /// How long the client tried.
        limit: Duration,
        /// Why each server gave none, as `host:port: reason`.
        tried: Vec<String>,
    },
    /// The server refused the client's credentials, which ends the session.
    AuthFailed,
    /// The access control list of a node does not allow what the lock needs.
    NoAuth {
        /// The node.
        path: String,
    },
    /// The client was closed.
    Closed,
    /// The server did not confirm the end of the session.
    Unconfirmed {
        /// How long the client waited.
        limit: Duration,
    },
    /// The system cannot start another thread, which a client needs.
    NoThread {
        /// What the system said.
        reason: String,
    },
    /// The session expired; every lock held through it is lost.
    ///
    /// No call returns it: a guard of that session fails with [`Lost`](Self::Lost), and a
    /// waiter queues again in the next session.
    SessionExpired,
    /// The server refused a request.
    Refused {
        /// The node the request was about.
        path: String,
        /// ZooKeeper's error code.
        code: i32,
        /// What the code means.
        text: &'static str,
    },
    /// A request is longer than the servers accept, and was not sent.
    RequestTooLong {
        /// The node the request was about.
        path: String,
        /// The length of the request.
        bytes: usize,
        /// The limit, which [`ClientBuilder::max_buffer`](crate::ClientBuilder::max_buffer)
        /// sets.
        limit: usize,
    },
    /// The reply to a request is longer than this client accepts, and was discarded.
    ///
    /// Most often it lists a directory that has far more nodes than a lock needs.
    ReplyTooLong {
        /// The node the request was about.
        path: String,
        /// The length of the reply.
        bytes: usize,
        /// The limit, somewhat above what
        /// [`ClientBuilder::max_buffer`](crate::ClientBuilder::max_buffer) sets.
        limit: usize,
    },
    /// The sequence numbers of the lock's directory are used up, and without them there is
    /// no order.
    Exhausted {
        /// The lock.
        path: String,
        /// Who goes by them.
        reason: &'static str,
    },
    /// A permit of the semaphore is out that was granted for another number of permits than
    /// this client's.
    PermitsDisagree {
        /// The semaphore.
        path: String,
        /// The number of permits for this client.
        ours: u32,
        /// The number for the holders of permits.
        theirs: u32,
        /// One holder, as it describes itself, such as `db1 pid 4711 (report.sh)`.
        holder: String,
        /// Since when that holder has its permit, by the server's clock.
        since: SystemTime,
    },
    /// A statement of the database failed.
    Database {
        /// What was tried.
        what: &'static str,
        /// What the database or the connection reported.
        message: String,
    },
    /// The client's transport or its server cannot do what was asked.
    Unsupported {
        /// What was asked.
        what: &'static str,
    },
}

impl Error {
    /// Returns `true` if another client may hold the lock by now.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::SessionExpired)
    }

    /// Returns `true` if the client has ended, so that trying again is useless.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Closed | Self::AuthFailed)
    }

    /// Returns `true` if an argument cannot be used.
    pub fn is_bad_input(&self) -> bool {
        matches!(
            self,
            Self::BadArgument { .. }
                | Self::BadHosts { .. }
                | Self::BadPath { .. }
                | Self::BadTls { .. }
        )
    }
}

impl error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Evicted { .. }
            | Self::Exhausted { .. }
            | Self::ForeignContender { .. }
            | Self::Lost { .. }
            | Self::Suspect { .. }
            | Self::WouldDeadlock { .. } => self.fmt_lock(f),
            Self::PermitsDisagree { .. } => self.fmt_permits(f),
            Self::BadArgument { .. }
            | Self::BadHosts { .. }
            | Self::BadPath { .. }
            | Self::BadTls { .. } => self.fmt_argument(f),
            Self::AuthFailed
            | Self::Closed
            | Self::ConnectTimeout { .. }
            | Self::NoThread { .. }
            | Self::SessionExpired
            | Self::Unconfirmed { .. } => self.fmt_session(f),
            Self::Database { .. }
            | Self::NoAuth { .. }
            | Self::Refused { .. }
            | Self::ReplyTooLong { .. }
            | Self::RequestTooLong { .. }
            | Self::Unsupported { .. } => self.fmt_request(f),
        }
    }
}

/// The messages; each function writes those of its variants, and nothing for the others.
impl Error {
    fn fmt_lock(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { path } => write!(
                f,
                "the lock {path} was lost before it was released: stop, another client may hold it"
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
                "another client deleted the node {node} while it waited in the queue: lock again if that was not meant"
            ),
            Self::ForeignContender {
                node,
                library,
                dialect,
            } => {
                write!(
                    f,
                    "the contender {node} looks like {library}, which would not wait for this client: "
                )?;
                match dialect {
                    Some(dialect) => write!(f, "use Dialect::{dialect:?} or another path"),
                    None => f.write_str("use another path"),
                }
            }
            Self::Exhausted { path, reason } => write!(
                f,
                "the sequence numbers under {path} are used up, and {reason}: delete the directory when it is idle"
            ),
            _ => Ok(()),
        }
    }

    fn fmt_permits(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PermitsDisagree {
                path,
                ours,
                theirs,
                holder,
                since,
            } => write!(
                f,
                "the semaphore {path} has {theirs} permits for another client and {ours} for this one, and {holder} has one of them since {}: make the numbers agree, or wait, with a time limit, until all are given back",
                utc::written(*since)
            ),
            _ => Ok(()),
        }
    }

    fn fmt_argument(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadArgument { name, rule } => {
                write!(f, "the argument {name} cannot be used: {rule}")
            }
            Self::BadPath { path, rule } => {
                write!(f, "the path {path:?} cannot name a lock: {rule}")
            }
            Self::BadHosts { hosts, reason } => write!(
                f,
                "cannot read the servers {hosts:?}: {reason}; write host:port,host:port/chroot"
            ),
            Self::BadTls { reason } => write!(
                f,
                "TLS cannot be set up: {reason}; name PEM files with certificates and their key"
            ),
            _ => Ok(()),
        }
    }

    fn fmt_session(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
                Self::ConnectTimeout { limit, tried } => {
                    write!(f, "no ZooKeeper server gave a session within {limit:?}")?;
                    for (i, reason) in tried.iter().enumerate() {
                        write!(f, "{}{reason}", if i == 0 { " (" } else { "; " })?;
                    }
                    f.write_str(if tried.is_empty() { "" } else { ")" })?;
                    f.write_str(": check the host names and that the servers run")
                }
                Self::AuthFailed => f.write_str(
                    "the server refused the credentials and closed the session: check scheme and password",
                ),
                Self::Closed => f.write_str("the client is closed: connect a new one"),
                Self::NoThread { reason } => write!(
                    f,
                    "the system cannot start a thread for the client: {reason}; raise its limits, or use fewer clients"
                ),
                Self::Unconfirmed { limit } => write!(
                    f,
                    "the server did not confirm the end of the session within {limit:?}: its locks are free when it has timed out"
                ),
                Self::SessionExpired => {
                    f.write_str("the ZooKeeper session expired: every lock held through it is lost")
                }
                _ => Ok(()),
            }
    }

    fn fmt_request(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAuth { path } => write!(
                f,
                "the access control list of {path} does not allow what the lock needs: add credentials or change it"
            ),
            Self::Refused { path, code, text } => {
                write!(
                    f,
                    "the server refused a request for {path}: {text} ({code})"
                )
            }
            Self::RequestTooLong { path, bytes, limit } => write!(
                f,
                "a request for {path} has {bytes} bytes and the limit is {limit}: shorten it, or raise jute.maxbuffer of the servers and max_buffer of this client"
            ),
            Self::ReplyTooLong { path, bytes, limit } => write!(
                f,
                "the reply to a request for {path} has {bytes} bytes and the limit is {limit}: delete what does not belong there, or raise max_buffer of this client"
            ),
            Self::Database { what, message } => write!(f, "cannot {what}: {message}"),
            Self::Unsupported { what } => {
                write!(f, "this client or its server does not support {what}")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_a_message() {
        let (path, node) = (|| "/a".to_owned(), || "/a/n".to_owned());
        let (limit, since) = (Duration::from_secs(1), SystemTime::UNIX_EPOCH);
        let (reason, holder, message) = (String::new, String::new, String::new);
        let (rule, bytes, what) = ("", 2, "");
        #[rustfmt::skip]
        let errors = [
            Error::Lost { path: path() },
            Error::Suspect { path: path() },
            Error::WouldDeadlock { path: path() },
            Error::Evicted { node: node() },
            Error::ForeignContender { node: node(), library: "", dialect: None },
            Error::BadArgument { name: "", rule },
            Error::BadPath { path: path(), rule },
            Error::BadHosts { hosts: path(), reason: reason() },
            Error::BadTls { reason: reason() },
            Error::ConnectTimeout { limit, tried: Vec::new() },
            Error::AuthFailed,
            Error::NoAuth { path: path() },
            Error::Closed,
            Error::Unconfirmed { limit },
            Error::NoThread { reason: reason() },
            Error::SessionExpired,
            Error::Refused { path: path(), code: 0, text: "" },
            Error::RequestTooLong { path: path(), bytes, limit: 1 },
            Error::ReplyTooLong { path: path(), bytes, limit: 1 },
            Error::Exhausted { path: path(), reason: "" },
            Error::PermitsDisagree { path: path(), ours: 1, theirs: 2, holder: holder(), since },
            Error::Database { what, message: message() },
            Error::Unsupported { what },
        ];
        for error in errors {
            assert!(error.to_string().len() > 8, "{error:?}");
        }
    }
}
