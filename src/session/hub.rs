//! Where the state of the connection is kept and told.
//!
//! A transport reports to the hub; waiting threads, the supervisor and the user hear
//! of it through channels. Nothing of theirs runs on the transport's thread.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;

use crate::clock::Moment;
use crate::metrics;

/// How many events a user's receiver may leave unread before new ones are dropped.
const UNREAD_EVENTS: usize = 1024;

/// So many sleepers are not worth a look.
const CROWD: usize = 64;

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
    /// There is no connection at the moment, and the client tries to make one.
    Connecting,
    /// There is a connection.
    Connected,
    /// The client is closed.
    Closed,
    /// The server refused the credentials; the client is closed.
    AuthFailed,
}

/// What happened to a client's session; see [`Client::events`](crate::Client::events).
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
        /// The session it serves: the same as before, or a new one after an expiry.
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

/// What is known of the connection at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) state: SessionState,
    /// The current session, or the last one; 0 before the first.
    pub(crate) session: i64,
    /// The negotiated session timeout.
    pub(crate) timeout: Duration,
    /// Counts the connections that were made.
    pub(crate) connects: u64,
    /// When the last of them was made; of no meaning before the first.
    pub(crate) since: Moment,
}

impl Link {
    /// Returns whether there will never be a connection again.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, SessionState::AuthFailed | SessionState::Closed)
    }
}

/// A channel that is filled after every change of the link.
#[derive(Debug)]
pub(crate) struct Changes {
    receiver: Receiver<()>,
    _awake: Awake,
}

/// Tells the hub that somebody listens.
#[derive(Debug)]
pub(crate) struct Awake(#[expect(dead_code, reason = "only its existence counts")] Arc<()>);

impl Changes {
    pub(crate) fn receiver(&self) -> &Receiver<()> {
        &self.receiver
    }
}

/// Somebody who wants to hear of changes, if still there.
struct Sleeper {
    tell: Box<dyn Fn() + Send>,
    awake: Weak<()>,
}

impl Sleeper {
    fn is_awake(&self) -> bool {
        self.awake.strong_count() > 0
    }
}

impl fmt::Debug for Sleeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleeper").finish_non_exhaustive()
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Hub {
    inner: Mutex<Inner>,
    /// The current session, for those who cannot wait for the lock.
    session: Arc<AtomicI64>,
    /// Whether a session may outlive its connection.
    resumes: bool,
}

#[derive(Debug)]
struct Inner {
    link: Link,
    /// What each server said when it last turned us away.
    trouble: BTreeMap<String, String>,
    sleepers: Vec<Sleeper>,
    /// How many sleepers there may be before those that are gone are looked for.
    crowd: usize,
    expiries: u64,
    listeners: Vec<Sender<SessionEvent>>,
}

impl Hub {
    /// `timeout` stands until a server has negotiated another. Where a transport does not
    /// know whether a session outlives its connection, it does not `resume`.
    pub(crate) fn new(timeout: Duration, resumes: bool) -> Self {
        let link = Link {
            state: SessionState::Connecting,
            session: 0,
            timeout,
            connects: 0,
            since: Moment::now(),
        };
        Self {
            inner: Mutex::new(Inner {
                link,
                trouble: BTreeMap::new(),
                sleepers: Vec::new(),
                crowd: CROWD,
                expiries: 0,
                listeners: Vec::new(),
            }),
            session: Arc::default(),
            resumes,
        }
    }

    /// Returns the id of the current session at any time; 0 while there is none.
    pub(crate) fn session(&self) -> Arc<AtomicI64> {
        self.session.clone()
    }

    /// Returns what is known now.
    pub(crate) fn link(&self) -> Link {
        self.inner.lock().link
    }

    /// Returns a channel that is filled after every change of the link.
    ///
    /// A change may have happened before the caller looks: subscribe first, then look.
    pub(crate) fn changes(&self) -> Changes {
        let (to, receiver) = bounded(1);
        let _awake = self.on_change(move || {
            // Full means that it was said already.
            let _ = to.try_send(());
        });
        Changes { receiver, _awake }
    }

    /// Runs `tell` after every change of the link, until what this returns is dropped.
    ///
    /// It runs on the transport's thread: it may fill a channel, and nothing else.
    pub(crate) fn on_change(&self, tell: impl Fn() + Send + 'static) -> Awake {
        let awake = Arc::new(());
        let mut inner = self.inner.lock();
        if inner.sleepers.len() >= inner.crowd {
            // Changes are rare, and nobody else takes those out who left.
            inner.sleepers.retain(Sleeper::is_awake);
            inner.crowd = CROWD.max(2 * inner.sleepers.len());
        }
        inner.sleepers.push(Sleeper {
            tell: Box::new(tell),
            awake: Arc::downgrade(&awake),
        });
        Awake(awake)
    }

    /// Returns a channel with every event from now on.
    pub(crate) fn events(&self) -> Receiver<SessionEvent> {
        let (to, events) = bounded(UNREAD_EVENTS);
        self.inner.lock().listeners.push(to);
        events
    }

    /// Returns what each server said when it last turned us away.
    pub(crate) fn trouble(&self) -> Vec<String> {
        let inner = self.inner.lock();
        let lines = inner
            .trouble
            .iter()
            .map(|(host, said)| format!("{host}: {said}"));
        lines.collect()
    }

    /// Returns how many sessions have expired.
    pub(crate) fn expiries(&self) -> u64 {
        self.inner.lock().expiries
    }

    // What follows is for transports.

    /// A server turned us away, or was not there.
    pub(crate) fn turned_away(&self, host: &str, said: impl ToString) {
        self.inner
            .lock()
            .trouble
            .insert(host.to_owned(), said.to_string());
    }

    /// A connection was made and is ready for requests; watches were set again.
    pub(crate) fn connected(&self, session: i64, timeout: Duration) {
        self.change(SessionEvent::Connected { session }, |link| {
            link.state = SessionState::Connected;
            link.session = session;
            link.timeout = timeout;
            link.connects += 1;
            link.since = Moment::now();
        });
    }

    /// The connection broke; another will be tried.
    pub(crate) fn disconnected(&self) {
        self.change(SessionEvent::Disconnected, |link| {
            link.state = SessionState::Connecting;
            if !self.resumes {
                link.session = 0;
            }
        });
    }

    /// The server said that the session is over; a new one will be asked for.
    pub(crate) fn expired(&self) {
        self.change(SessionEvent::Expired, |link| {
            link.state = SessionState::Connecting;
            link.session = 0;
        });
    }

    /// It is over, for good.
    pub(crate) fn closed(&self) {
        self.change(SessionEvent::Closed, |link| {
            link.state = SessionState::Closed
        });
    }

    /// The server refused our credentials: it is over, for good.
    pub(crate) fn auth_failed(&self) {
        self.change(SessionEvent::AuthFailed, |link| {
            link.state = SessionState::AuthFailed;
        });
    }

    /// Nothing changes any more after the end.
    fn change(&self, event: SessionEvent, update: impl FnOnce(&mut Link)) {
        let mut inner = self.inner.lock();
        if inner.link.is_over() {
            return;
        }
        update(&mut inner.link);
        let again = inner.link.connects > 1;
        if event == SessionEvent::Expired {
            inner.expiries += 1;
        }
        let session = match inner.link.is_over() {
            true => 0,
            false => inner.link.session,
        };
        self.session.store(session, Ordering::Release);
        if inner.link.state == SessionState::Connected {
            inner.trouble.clear();
        }
        inner.sleepers.retain(Sleeper::is_awake);
        for sleeper in &inner.sleepers {
            (sleeper.tell)();
        }
        inner
            .listeners
            .retain(|to| !matches!(to.try_send(event), Err(error) if error.is_disconnected()));
        // A recorder is a user's: it may take its time, or ask this client something.
        drop(inner);
        match event {
            SessionEvent::Connected { .. } if again => metrics::reconnected(),
            SessionEvent::Expired => metrics::expired(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_gone_is_forgotten_while_nothing_happens_to_the_connection() {
        let hub = Hub::new(Duration::from_secs(1), true);
        let stays: Vec<_> = (0..200).map(|_| hub.changes()).collect();
        for _ in 0..10_000 {
            drop(hub.changes());
        }
        assert!(hub.inner.lock().sleepers.len() <= 2 * stays.len() + 1);
        hub.closed();
        assert!(
            stays
                .iter()
                .all(|changes| changes.receiver.try_recv().is_ok())
        );
    }
}
