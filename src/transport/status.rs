//! Where the state of the connection is kept and told.
//!
//! A transport reports to the status; waiting threads, the supervisor and the user hear
//! of it through channels. Nothing of theirs runs on the transport's thread.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;

use super::bounds::Bounds;
use super::session_state::{SessionEvent, SessionState};
use crate::metrics;
use crate::recipe::validity::{Lifetime, Stamp};
use crate::time::clock::{Moment, nanos};

/// How many events a user's receiver may leave unread before new ones are dropped.
const UNREAD_EVENTS: usize = 1024;

/// So many subscribers are not worth a look.
const CROWD: usize = 64;

/// What is known of the connection at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Snapshot {
    pub(crate) state: SessionState,
    /// The current session, or the last one; 0 before the first.
    pub(crate) session: i64,
    /// The shortest timeout that was negotiated in this session.
    pub(crate) timeout: Duration,
    /// Counts the connections that were made.
    pub(crate) connects: u64,
    /// When the last of them was made; of no meaning before the first.
    pub(crate) since: Moment,
}

impl Snapshot {
    /// Returns whether there will never be a connection again.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, SessionState::AuthFailed | SessionState::Closed)
    }
}

/// A channel that is filled after every change of the link.
#[derive(Debug)]
pub(crate) struct Changes {
    receiver: Receiver<()>,
    _awake: Subscription,
}

/// Tells the status that somebody listens.
#[derive(Debug)]
pub(crate) struct Subscription(#[expect(dead_code, reason = "only its existence counts")] Arc<()>);

impl Changes {
    pub(crate) fn receiver(&self) -> &Receiver<()> {
        &self.receiver
    }
}

/// Somebody who wants to hear of changes, if still there.
struct Subscriber {
    tell: Box<dyn Fn(&Snapshot) + Send>,
    awake: Weak<()>,
}

impl Subscriber {
    fn is_awake(&self) -> bool {
        self.awake.strong_count() > 0
    }
}

impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber").finish_non_exhaustive()
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Status {
    inner: Mutex<Inner>,
    /// Messages that were sent before this say nothing new about the session.
    worth: AtomicU64,
    /// Whether a session may outlive its connection.
    resumes: bool,
}

#[derive(Debug)]
struct Inner {
    snapshot: Snapshot,
    /// The session that a server granted last; it is that of the link from when on the
    /// connection is ready.
    granted: i64,
    /// What bounds the life of that session.
    lifetime: Lifetime,
    bounds: Arc<Bounds>,
    /// What each server said when it last turned us away.
    trouble: BTreeMap<String, String>,
    subscribers: Vec<Subscriber>,
    /// How many subscribers there may be before those that are gone are looked for.
    crowd: usize,
    expiries: u64,
    listeners: Vec<Sender<SessionEvent>>,
}

impl Status {
    /// `timeout` stands until a server has negotiated another. Where a transport does not
    /// know whether a session outlives its connection, it does not `resume`.
    pub(crate) fn new(timeout: Duration, resumes: bool) -> Self {
        let snapshot = Snapshot {
            state: SessionState::Connecting,
            session: 0,
            timeout,
            connects: 0,
            since: Moment::now(),
        };
        let lifetime = Lifetime::new(timeout, Duration::ZERO);
        Self {
            inner: Mutex::new(Inner {
                snapshot,
                granted: 0,
                bounds: Bounds::new(&lifetime),
                lifetime,
                trouble: BTreeMap::new(),
                subscribers: Vec::new(),
                crowd: CROWD,
                expiries: 0,
                listeners: Vec::new(),
            }),
            worth: AtomicU64::new(0),
            resumes,
        }
    }

    /// Returns what bounds the life of `session`.
    pub(crate) fn bounds(&self, session: i64) -> Arc<Bounds> {
        let inner = self.inner.lock();
        if inner.snapshot.session == session && !inner.snapshot.is_over() {
            return inner.bounds.clone();
        }
        let gone = Bounds::new(&inner.lifetime);
        gone.end();
        gone
    }

    /// Returns the stamp of a check that is sent now.
    pub(crate) fn stamp(&self) -> Stamp {
        let inner = self.inner.lock();
        inner.lifetime.stamp(Moment::now().since_boot())
    }

    /// Returns when a check will have more to rest on than this one, if it is known.
    pub(crate) fn better_at(&self, stamp: Stamp) -> Option<Duration> {
        self.inner.lock().lifetime.better_at(stamp)
    }

    /// Returns whether a lock may be granted now on the strength of this stamp, after so many
    /// proofs.
    pub(crate) fn supports_a_grant(&self, stamp: Stamp, proofs: u32) -> bool {
        let inner = self.inner.lock();
        let now = Moment::now().since_boot();
        inner.lifetime.supports_a_grant(stamp, proofs, now)
    }

    /// Returns what is known now.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.inner.lock().snapshot
    }

    /// Returns a channel that is filled after every change of the link.
    ///
    /// A change may have happened before the caller looks: subscribe first, then look.
    pub(crate) fn changes(&self) -> Changes {
        let (to, receiver) = bounded(1);
        let _awake = self.on_change(move |_| {
            // Full means that it was said already.
            let _ = to.try_send(());
        });
        Changes { receiver, _awake }
    }

    /// Runs `tell` after every change of the link, until what this returns is dropped.
    ///
    /// It runs on the transport's thread: it may fill a channel, and nothing else.
    pub(crate) fn on_change(&self, tell: impl Fn(&Snapshot) + Send + 'static) -> Subscription {
        let awake = Arc::new(());
        let mut inner = self.inner.lock();
        if inner.subscribers.len() >= inner.crowd {
            // Changes are rare, and nobody else takes those out who left.
            inner.subscribers.retain(Subscriber::is_awake);
            inner.crowd = CROWD.max(2 * inner.subscribers.len());
        }
        inner.subscribers.push(Subscriber {
            tell: Box::new(tell),
            awake: Arc::downgrade(&awake),
        });
        Subscription(awake)
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

    /// A connect request is about to be sent, for the current session if there is one.
    pub(crate) fn greets(&self, sent: Moment) {
        let mut inner = self.inner.lock();
        inner.lifetime.greets(sent.since_boot());
        inner.bounds.follow(&inner.lifetime);
    }

    /// A server has granted `timeout` when asked at `sent`, and serves the session from now
    /// on; requests may be sent soon. Returns the timeout that counts.
    pub(crate) fn greeted(&self, session: i64, timeout: Duration, sent: Moment) -> Duration {
        let mut inner = self.inner.lock();
        if inner.granted == session {
            inner.lifetime.greeted(timeout, sent.since_boot());
            inner.bounds.follow(&inner.lifetime);
        } else {
            inner.bounds.end();
            inner.granted = session;
            inner.lifetime = Lifetime::new(timeout, sent.since_boot());
            inner.bounds = Bounds::new(&inner.lifetime);
        }
        self.worth.store(0, Ordering::Release);
        inner.snapshot.timeout = inner.lifetime.timeout();
        inner.snapshot.timeout
    }

    /// The answer to a message that was sent at `sent` was in hand `at` this moment.
    pub(crate) fn answered(&self, sent: Moment, at: Moment) {
        if sent.as_nanos() < self.worth.load(Ordering::Acquire) {
            return;
        }
        let mut inner = self.inner.lock();
        let worth = inner.lifetime.answered(sent.since_boot(), at.since_boot());
        self.worth.store(nanos(worth), Ordering::Release);
    }

    /// The connection is ready for requests; watches were set again.
    pub(crate) fn connected(&self, session: i64) {
        self.change(SessionEvent::Connected { session }, |snapshot| {
            snapshot.state = SessionState::Connected;
            snapshot.session = session;
            snapshot.connects += 1;
            snapshot.since = Moment::now();
        });
    }

    /// The connection broke; another will be tried.
    pub(crate) fn disconnected(&self) {
        self.change(SessionEvent::Disconnected, |snapshot| {
            snapshot.state = SessionState::Connecting;
            if !self.resumes {
                snapshot.session = 0;
            }
        });
    }

    /// The server said that the session is over; a new one will be asked for.
    pub(crate) fn expired(&self) {
        self.change(SessionEvent::Expired, |snapshot| {
            snapshot.state = SessionState::Connecting;
            snapshot.session = 0;
        });
    }

    /// It is over, for good.
    pub(crate) fn closed(&self) {
        self.change(SessionEvent::Closed, |snapshot| {
            snapshot.state = SessionState::Closed
        });
    }

    /// The server refused our credentials: it is over, for good.
    pub(crate) fn auth_failed(&self) {
        self.change(SessionEvent::AuthFailed, |snapshot| {
            snapshot.state = SessionState::AuthFailed;
        });
    }

    /// Nothing changes any more after the end.
    fn change(&self, event: SessionEvent, update: impl FnOnce(&mut Snapshot)) {
        let mut inner = self.inner.lock();
        if inner.snapshot.is_over() {
            return;
        }
        update(&mut inner.snapshot);
        let again = inner.snapshot.connects > 1;
        if event == SessionEvent::Expired {
            inner.expiries += 1;
        }
        if inner.snapshot.is_over() || inner.snapshot.session == 0 {
            inner.bounds.end();
            // A server that was set up anew may give the same number again.
            inner.granted = 0;
        }
        if inner.snapshot.state == SessionState::Connected {
            inner.trouble.clear();
        }
        inner.subscribers.retain(Subscriber::is_awake);
        for subscriber in &inner.subscribers {
            (subscriber.tell)(&inner.snapshot);
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
    fn a_timeout_that_was_granted_before_the_connection_was_ready_counts() {
        let status = Status::new(Duration::from_secs(40), true);
        let (short, long) = (Duration::from_secs(4), Duration::from_secs(40));
        assert_eq!(status.greeted(7, short, Moment::now()), short);
        // The connection breaks before the server has looked at our credentials, and another
        // server goes on with the session.
        assert_eq!(status.greeted(7, long, Moment::now()), short);
        status.connected(7);
        assert_eq!(status.snapshot().timeout, short);
        assert_eq!(status.bounds(7).terms().timeout, short);
        assert_eq!(
            status.greeted(8, long, Moment::now()),
            long,
            "another session"
        );
        status.connected(8);
        status.expired();
        assert_eq!(status.greeted(8, short, Moment::now()), short);
        status.connected(8);
        assert!(
            !status.bounds(8).terms().over,
            "another session of the same number"
        );
    }

    #[test]
    fn who_has_gone_is_forgotten_while_nothing_happens_to_the_connection() {
        let status = Status::new(Duration::from_secs(1), true);
        let stays: Vec<_> = (0..200).map(|_| status.changes()).collect();
        for _ in 0..10_000 {
            drop(status.changes());
        }
        assert!(status.inner.lock().subscribers.len() <= 2 * stays.len() + 1);
        status.closed();
        assert!(
            stays
                .iter()
                .all(|changes| changes.receiver.try_recv().is_ok())
        );
    }
}
