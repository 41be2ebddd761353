//! The error type.

mod lost_reason;
mod message;
mod tried;

use std::borrow::Cow;
use std::error;
use std::io;
use std::result;
use std::time::{Duration, SystemTime};

pub(crate) use self::lost_reason::LossCell;
pub use self::lost_reason::LostReason;
pub(crate) use self::tried::{
    ANSWERS_IN_TLS, NO_QUORUM, NO_TLS, OTHER_SERVICE, TLS_PORT, UNRESOLVED, by_reason,
    reasons_and_advice,
};
#[cfg(feature = "sasl")]
pub(crate) use self::tried::{NO_SASL_LOGIN, PREPARES_LOGIN};
#[cfg(feature = "sasl-gssapi")]
pub(crate) use self::tried::{NO_TICKET, NOT_GSSAPI};
use crate::time::limit::Limit;
use crate::token::FencingToken;
use zklock_core::answer::TooLong;
use zklock_core::dialect::Dialect;

/// A `Result` whose error is this crate's [`Error`].
pub type Result<T, E = Error> = result::Result<T, E>;

/// Why an operation on a lock failed.
///
/// A lock that is taken is not an error: the `try_` methods return `Ok(None)`. They do so only if a
/// server has said that another contender is ahead; without an answer they fail with
/// [`ConnectTimeout`](Error::ConnectTimeout). Each message says in one sentence what happened,
/// where, and what to do about it. `Debug` prints the message too, because `unwrap` and a `main`
/// that returns an error show `Debug`.
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
#[derive(Clone, Eq, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// The lock was lost while it was held: another client may hold it by now, unless a run took
    /// [too long](LostReason::OverTime).
    Lost {
        /// The lock.
        path: String,
        /// Why it was lost.
        why: LostReason,
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
    /// The wait would close a circle of clients that wait for each other; see
    /// [`LockOptions::detect_deadlock`](crate::LockOptions::detect_deadlock).
    Deadlock {
        /// The lock that this thread wanted.
        path: String,
        /// The locks of the circle: the holder of each waits for the next one.
        circle: Vec<String>,
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
        /// The library that it seems to come from.
        library: &'static str,
        /// The dialect whose locks and this contender exclude each other, if there is one.
        dialect: Option<Dialect>,
    },
    /// An argument is out of range.
    BadArgument {
        /// The argument.
        name: &'static str,
        /// What it must be.
        rule: Cow<'static, str>,
    },
    /// The path cannot name a lock, or the other node that was asked for.
    BadPath {
        /// The path as it was given.
        path: String,
        /// What is wrong with it.
        rule: &'static str,
    },
    /// The list of servers cannot be parsed.
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
    /// No server gave a session, or answered the requests of the call, in time. From a `try_`
    /// method or a call with a limit: no server has said that the lock is taken, so it is worth
    /// another try.
    ConnectTimeout {
        /// How long the client tried.
        limit: Duration,
        /// Why each server gave no session, as `host:port: reason`; empty with a connection.
        tried: Vec<String>,
        /// How long the last answer took, if a round trip is too long for the session timeout: a
        /// sixth of it or more. If it takes more than about a quarter, no lock is ever granted.
        round_trip: Option<Duration>,
        /// How long the client would have gone on without granting a lock, although a server answers: after an
        /// outage the servers may be about to end its session. A call that waits longer gets the lock.
        held_back: Option<Duration>,
    },
    /// The server refused the client's credentials, which ends the session.
    AuthFailed,
    /// A server refused the SASL login of the client, which ends the session.
    SaslRefused {
        /// The principal that the client claimed to be.
        principal: String,
        /// The server.
        server: String,
        /// What the server said.
        reason: String,
    },
    /// The access control list of a node does not allow the request.
    NoAuth {
        /// The node.
        path: String,
    },
    /// The client was closed.
    Closed,
    /// The server did not confirm a request in time, and the request may or may not be carried out:
    /// the end of the session or of a [`Job`](crate::Job)'s run, a write of
    /// [`Nodes`](crate::Nodes), or a [`Transaction`](crate::Transaction).
    Unconfirmed {
        /// The request.
        what: &'static str,
        /// What that means, and what to do.
        next: &'static str,
        /// How long the client waited.
        limit: Duration,
    },
    /// The wait for a [`Job`](crate::Job) ended, by its limit or by a cancellation, before a
    /// run began, and who runs it is not known: another waiter may be ahead.
    GaveUp {
        /// The job's path.
        path: String,
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
    /// Most often it is the listing of a directory that has far more nodes than a lock needs.
    ReplyTooLong {
        /// The node the request was about.
        path: String,
        /// The length of the reply.
        bytes: usize,
        /// The limit, slightly above what
        /// [`ClientBuilder::max_buffer`](crate::ClientBuilder::max_buffer) sets.
        limit: usize,
    },
    /// The sequence numbers of the lock's directory are used up, and without them there is
    /// no order.
    Exhausted {
        /// The lock.
        path: String,
        /// Why they are needed.
        reason: &'static str,
    },
    /// A held permit of the semaphore was granted for another number of permits than this client's.
    PermitsDisagree {
        /// The semaphore.
        path: String,
        /// The number of permits for this client.
        ours: u32,
        /// The number for the holders of permits.
        theirs: u32,
        /// One holder, as it describes itself, such as `db1 pid 4711 (report.sh)`.
        holder: String,
        /// Since when that holder has had its permit, by the server's clock.
        since: SystemTime,
    },
    /// A statement of the database failed.
    Database {
        /// What was tried.
        what: &'static str,
        /// What the database or the connection reported.
        message: String,
    },
    /// A higher fencing token was seen before, so a later holder has been at work; see
    /// [`fence::Highest`](crate::fence::Highest).
    Stale {
        /// The token that is too old.
        token: FencingToken,
        /// The highest token seen.
        highest: FencingToken,
    },
    /// The file with the highest fencing token cannot be read or written.
    Fence {
        /// The file.
        file: String,
        /// What the system said.
        reason: String,
    },
    /// The path's node was created for something else, such as a lock or the directory of other
    /// paths, and cannot keep the data of this use.
    Unmarked {
        /// The path.
        path: String,
        /// The use that it was not created for, such as `a job`.
        what: &'static str,
    },
    /// A job does not know any more whether a slot is done; see
    /// [`JobOptions::any_order`](crate::JobOptions::any_order).
    SlotForgotten {
        /// The job's path.
        path: String,
        /// The slot, which was not run.
        slot: String,
        /// The highest slot of which it is not known whether it is done.
        up_to: String,
    },
    /// The client's transport or its server cannot do what was asked.
    Unsupported {
        /// What was asked.
        what: &'static str,
    },
}

impl Error {
    /// Returns the error of a request about `path`.
    pub(crate) fn too_long(what: TooLong, path: &str) -> Self {
        let TooLong { bytes, limit, .. } = what;
        let path = path.to_owned();
        match what.reply {
            true => Self::ReplyTooLong { path, bytes, limit },
            false => Self::RequestTooLong { path, bytes, limit },
        }
    }

    /// Returns the error of a call whose thread could not be started.
    pub(crate) fn no_thread(error: io::Error) -> Self {
        let reason = error.to_string();
        Self::NoThread { reason }
    }

    /// Returns `true` if the holder must stop: another client may hold the lock by now, or the run
    /// took [longer than it may](LostReason::OverTime), after which another client gets the lock
    /// when it ends.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::SessionExpired)
    }

    /// Returns `true` if the client has ended, which makes trying again useless.
    pub fn is_closed(&self) -> bool {
        matches!(
            self,
            Self::Closed | Self::AuthFailed | Self::SaslRefused { .. }
        )
    }

    /// Returns the error of a write that may or may not have been carried out.
    pub(crate) fn unconfirmed_write(what: &'static str, limit: Duration) -> Self {
        Self::Unconfirmed {
            what,
            next: "it may be done or not, so look before you repeat it",
            limit,
        }
    }

    /// Returns the error of a run whose end may or may not have been recorded, at the end of the wait or before.
    pub(crate) fn unconfirmed_run(limit: &Limit, patience: Duration) -> Self {
        let limit = if limit.is_over() {
            patience
        } else {
            Duration::ZERO
        };
        Self::Unconfirmed {
            what: "the end of the job's run",
            next: "it may be written down or not, and the job's next call learns which",
            limit,
        }
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

    /// Returns what to do about servers that gave no session, for reasons such as these.
    #[doc(hidden)]
    pub fn to_do(tried: &[String]) -> &'static str {
        tried::to_do(tried)
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        static EXPIRED: Error = Error::SessionExpired;
        static CLOSED: Error = Error::Closed;
        static REFUSED: Error = Error::AuthFailed;
        match self {
            Self::Lost { why, .. } => match why {
                LostReason::SessionExpired => Some(&EXPIRED),
                LostReason::Closed => Some(&CLOSED),
                LostReason::AuthFailed => Some(&REFUSED),
                _ => None,
            },
            _ => None,
        }
    }
}
