//! The state and the events of a session as users see them, the snapshot that the rest of the client
//! sees instead, and for how long the session is sure to live.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::{LossCell, LostReason};
use crate::time::nanos;
use zklock_core::lifetime::Lifetime;
use zklock_core::validity::Terms;

/// The state of a client's session.
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// use zklock::SessionState;
///
/// assert_eq!(client.state(), SessionState::Connected);
/// client.close()?;
/// assert_eq!(client.state(), SessionState::Closed);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum SessionState {
    /// There is no connection; the client tries to make one.
    Connecting,
    /// There is a connection to a server.
    Connected,
    /// The client is closed.
    Closed,
    /// The server refused the credentials; the client is closed.
    AuthFailed,
}

/// An event of a client's session; see [`Client::events`](crate::Client::events).
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let client = zklock::Client::connect(server.hosts())?;
/// use zklock::SessionEvent;
///
/// let session = client.session_id();
/// let events = client.events();
/// server.disconnect_all();
/// assert_eq!(events.recv()?, SessionEvent::Disconnected);
/// assert_eq!(events.recv()?, SessionEvent::Connected { session });
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum SessionEvent {
    /// A connection was made.
    Connected {
        /// The session of the connection: the same as before, or a new one after an expiry.
        session: i64,
    },
    /// The connection broke.
    Disconnected,
    /// The session expired: its locks are lost.
    Expired,
    /// The client was closed.
    Closed,
    /// The server refused the credentials; the client is closed.
    AuthFailed,
}

/// The state of the connection at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Snapshot {
    pub(crate) state: SessionState,
    /// The current session, or the last one of a closed client; 0 if there is none.
    pub(crate) session: i64,
    /// The shortest timeout that was negotiated in this session.
    pub(crate) timeout: Duration,
    /// The number of connections that were made so far.
    pub(crate) connects: u64,
    /// When the last connection was made; meaningless before the first.
    pub(crate) since: Duration,
    /// Whether the same session may continue after a break, in which case the transport reports whether it does.
    pub(crate) resumes: bool,
}

impl Snapshot {
    /// Returns whether the client has ended: there will be no further connection.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, SessionState::AuthFailed | SessionState::Closed)
    }

    /// Returns the current session, if the transport can tell it from the next one.
    pub(crate) fn known_session(&self) -> Option<i64> {
        self.resumes.then_some(self.session)
    }

    /// Returns why a lock is lost if an answer says that its node is gone.
    ///
    /// A client that gets an answer after its node went still has the session, so another client
    /// deleted the node. A transport that cannot tell one session from the next cannot tell why.
    pub(crate) fn why_missing(&self) -> LostReason {
        match self.resumes {
            true => LostReason::Evicted,
            false => LostReason::NodeGone,
        }
    }

    /// Returns why the locks of an earlier session are lost, or of this one if the client has ended.
    pub(crate) fn why_gone(&self) -> LostReason {
        match self.state {
            SessionState::AuthFailed => LostReason::AuthFailed,
            SessionState::Closed => LostReason::Closed,
            SessionState::Connecting | SessionState::Connected => LostReason::SessionExpired,
        }
    }
}

/// The [`Lifetime`] of one session, which guards read without a mutex.
#[derive(Debug, Default)]
pub(crate) struct SessionValidity {
    /// Why the session has ended, if it has.
    over: LossCell,
    timeout: AtomicU64,
    latest: AtomicU64,
    connected: AtomicU64,
}

impl SessionValidity {
    pub(crate) fn new(lifetime: &Lifetime) -> Arc<Self> {
        let new = Self::default();
        new.follow(lifetime);
        Arc::new(new)
    }

    /// Returns the current terms.
    pub(crate) fn terms(&self) -> Terms {
        let load = |nanos: &AtomicU64| Duration::from_nanos(nanos.load(Ordering::Acquire));
        let (latest, timeout) = (load(&self.latest), load(&self.timeout));
        Terms {
            timeout,
            latest,
            connected: load(&self.connected),
            // Read last: the session may end meanwhile.
            over: self.over.get().is_some(),
        }
    }

    pub(crate) fn follow(&self, lifetime: &Lifetime) {
        // Stored in this order and read in the opposite one: a reader that sees the later `latest`
        // must not see the longer timeout.
        let terms = lifetime.terms();
        self.timeout.store(nanos(terms.timeout), Ordering::Release);
        self.latest.store(nanos(terms.latest), Ordering::Release);
        self.connected
            .store(nanos(terms.connected), Ordering::Release);
    }

    /// Notes that the session has ended, for this reason unless it ended before.
    pub(crate) fn end(&self, why: LostReason) {
        self.over.settle(why);
    }

    /// Returns why the session has ended, if it has.
    pub(crate) fn ended(&self) -> Option<LostReason> {
        self.over.get()
    }
}
