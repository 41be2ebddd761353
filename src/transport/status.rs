//! The state of the connection, and its subscribers.
//!
//! A transport reports to the status. Waiting threads, the background thread and the user learn of
//! changes through channels, so that none of their code runs on the transport's thread.

mod subscribers;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use self::subscribers::Subscribers;
pub(crate) use self::subscribers::{Changes, Subscription};
use super::handover::Inherited;
pub(crate) use super::session_state::Snapshot;
use super::session_state::{SessionEvent, SessionState, SessionValidity};
use crate::error::{Error, LostReason};
use crate::metrics::RequestCounters;
use crate::system::channel::{Receiver, Sender, unbounded};
use crate::system::clock;
use crate::system::sync::Mutex;
use crate::time::nanos;
use zklock_core::lifetime::Lifetime;
use zklock_core::proof::{GrantProof, Next};
use zklock_core::validity::Stamp;

/// How many events a user's receiver keeps unread; later ones are dropped.
const UNREAD_EVENTS: usize = 1024;

/// After this long without an answer, a server's earlier complaint is outdated.
const OLD_NEWS: Duration = Duration::from_secs(1);

/// See the module's documentation.
pub(crate) struct Status {
    inner: Mutex<Inner>,
    /// The last session that the transport has given up, to be set before it is reported as expired; 0 if there is none.
    pub(crate) given_up: AtomicI64,
    /// When the last answer arrived, and how long it took: a hint, so a reader may mix two answers.
    answered_at: AtomicU64,
    took: AtomicU64,
    pub(crate) requests: RequestCounters,
    began: Duration,
}

struct Inner {
    snapshot: Snapshot,
    /// The session that a server granted last; the snapshot shows it once the connection is ready.
    granted: i64,
    /// The bounds of that session's life.
    lifetime: Lifetime,
    bounds: Arc<SessionValidity>,
    /// The last complaint from or about each server that gave no session.
    trouble: BTreeMap<String, String>,
    /// The server that is being asked for a session, the stage of the request, and since when.
    asked: Option<(String, &'static str, Duration)>,
    subscribers: Subscribers,
    expiries: u64,
    refusal: Option<Error>,
    listeners: Vec<Sender<SessionEvent>>,
}

impl Status {
    /// Creates the status of a client without a connection. `timeout` holds until a server grants another. `resumes`
    /// is false for a transport that cannot tell whether a session outlives its connection.
    pub(crate) fn new(timeout: Duration, resumes: bool) -> Self {
        let snapshot = Snapshot {
            state: SessionState::Connecting,
            session: 0,
            timeout,
            connects: 0,
            since: clock::since_boot(),
            resumes,
        };
        let lifetime = Lifetime::new(timeout, Duration::ZERO, Duration::ZERO);
        Self {
            inner: Mutex::new(Inner {
                snapshot,
                granted: 0,
                bounds: SessionValidity::new(&lifetime),
                lifetime,
                trouble: BTreeMap::new(),
                asked: None,
                subscribers: Subscribers::new(),
                expiries: 0,
                refusal: None,
                listeners: Vec::new(),
            }),
            given_up: AtomicI64::new(0),
            answered_at: AtomicU64::new(0),
            took: AtomicU64::new(0),
            requests: RequestCounters::default(),
            began: clock::since_boot(),
        }
    }

    /// Returns the bounds of the life of `session`.
    pub(crate) fn bounds(&self, session: i64) -> Arc<SessionValidity> {
        let inner = self.inner.lock();
        if inner.snapshot.session == session && !inner.snapshot.is_over() {
            return inner.bounds.clone();
        }
        let gone = SessionValidity::new(&inner.lifetime);
        gone.end(inner.snapshot.why_gone());
        gone
    }

    /// Returns the stamp of a check that is sent now.
    pub(crate) fn stamp(&self) -> Stamp {
        let inner = self.inner.lock();
        inner.lifetime.stamp(clock::since_boot())
    }

    /// Returns when a check can have a better stamp than this one, if that is known.
    pub(crate) fn better_at(&self, stamp: Stamp) -> Option<Duration> {
        self.inner.lock().lifetime.better_at(stamp)
    }

    /// Returns what to do next before a lock is granted.
    pub(crate) fn next_for_a_grant(&self, proof: &GrantProof) -> Next {
        let inner = self.inner.lock();
        proof.next(&inner.lifetime, clock::since_boot())
    }

    /// Returns how long no lock can be granted yet although a server answers, because the session may be due.
    pub(crate) fn holds_back_for(&self) -> Option<Duration> {
        let now = clock::since_boot();
        let provable_at = self.inner.lock().lifetime.provable_at(now);
        let answers = self.silent_for().is_none();
        provable_at?.checked_sub(now).filter(|_| answers)
    }

    /// Returns when to renew this proof, so that a lock can be granted on it at any time.
    pub(crate) fn renews_at(&self, proof: &GrantProof) -> Duration {
        proof.renews_at(&self.inner.lock().lifetime, clock::since_boot())
    }

    /// Returns when the last message was sent that the leader had received in time, or zero.
    pub(crate) fn heard_of(&self) -> Duration {
        self.inner.lock().lifetime.heard_of()
    }

    /// Returns the present state.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.inner.lock().snapshot
    }

    /// Returns a channel that is filled after every change of the status. Subscribe before looking at the
    /// status, so that no change in between is missed.
    pub(crate) fn changes(&self) -> Changes {
        self.inner.lock().subscribers.changes()
    }

    /// Runs `notify` after every change of the status, until the subscription is dropped.
    ///
    /// `notify` runs on the transport's thread, and may only fill a channel.
    pub(crate) fn on_change(
        &self,
        notify: impl Fn(&Snapshot) + Send + Sync + 'static,
    ) -> Subscription {
        self.inner.lock().subscribers.add(notify)
    }

    /// Runs what runs after every change of the status, for those who wait for something else that has changed.
    pub(crate) fn remind(&self) {
        let mut inner = self.inner.lock();
        let now = inner.snapshot;
        inner.subscribers.tell(&now);
    }

    /// Returns a channel with every event from now on.
    pub(crate) fn events(&self) -> Receiver<SessionEvent> {
        // Who has left is forgotten at the next event only: until then it is to cost little.
        let (to, events) = unbounded();
        self.inner.lock().listeners.push(to);
        events
    }

    /// Returns why each server gave no session, one line per server.
    pub(crate) fn trouble(&self) -> Vec<String> {
        let inner = self.inner.lock();
        let mut trouble = inner.trouble.clone();
        if let Some((host, so_far, since)) = &inner.asked {
            let is_old = OLD_NEWS < clock::since_boot().saturating_sub(*since);
            if is_old || !trouble.contains_key(host) {
                trouble.insert(host.clone(), (*so_far).to_owned());
            }
        }
        let line = |(host, reason)| format!("{host}: {reason}");
        trouble.into_iter().map(line).collect()
    }

    /// Returns the error of a client that has ended.
    pub(crate) fn ending(&self) -> Error {
        let inner = self.inner.lock();
        match inner.snapshot.state {
            SessionState::AuthFailed => inner.refusal.clone().unwrap_or(Error::AuthFailed),
            _ => Error::Closed,
        }
    }

    /// Returns how long the last answer took, if it arrived within this time.
    pub(crate) fn round_trip_within(&self, time: Duration) -> Option<Duration> {
        let is_new = clock::since_boot().saturating_sub(self.answered_at()) <= time;
        is_new.then(|| Duration::from_nanos(self.took.load(Ordering::Relaxed)))
    }

    /// Returns how long no server has answered; `None` if one has answered on this connection, or
    /// the client has ended. A greeting is not an answer.
    pub(crate) fn silent_for(&self) -> Option<Duration> {
        let (snapshot, last) = (self.snapshot(), self.answered_at());
        let is_served = snapshot.state == SessionState::Connected && snapshot.since <= last;
        (!is_served && !snapshot.is_over())
            .then(|| clock::since_boot().saturating_sub(last.max(self.began)))
    }

    fn answered_at(&self) -> Duration {
        Duration::from_nanos(self.answered_at.load(Ordering::Relaxed))
    }

    /// Returns how many sessions have expired.
    pub(crate) fn expiries(&self) -> u64 {
        self.inner.lock().expiries
    }

    /// Returns the last session that the client has given up, which may last for a while.
    pub(crate) fn given_up(&self) -> Option<i64> {
        let session = self.given_up.load(Ordering::Acquire);
        (session != 0).then_some(session)
    }

    // The methods below are for transports.

    /// Notes that a server gave no session, or could not be reached.
    pub(crate) fn turned_away(&self, host: &str, reason: impl ToString) {
        let mut inner = self.inner.lock();
        inner.asked = None;
        inner.trouble.insert(host.to_owned(), reason.to_string());
    }

    /// Removes the complaint about this host's name.
    pub(crate) fn note_resolved(&self, host: &str) {
        self.inner.lock().trouble.remove(host);
    }

    /// Notes that a server is being asked for a session, and how far the request has got.
    pub(crate) fn asks(&self, host: impl fmt::Display, so_far: &'static str) {
        self.inner.lock().asked = Some((host.to_string(), so_far, clock::since_boot()));
    }

    /// Notes that a connect request is about to be sent, for the current session if there is one.
    /// Any server that receives it grants at least `least`, if that is stated.
    pub(crate) fn greets(&self, sent: Duration, least: Option<Duration>) {
        let mut inner = self.inner.lock();
        inner.lifetime.greets(sent, least);
        inner.bounds.follow(&inner.lifetime);
    }

    /// Takes over the session of another process, if there is one: the first connect request is for it. The connect
    /// requests of further processes may shorten it to `least`, if servers may grant that little.
    pub(crate) fn continues(&self, session: Option<&Inherited>, least: Option<Duration>) {
        let Some(session) = session else { return };
        let timeout = least.map_or(session.timeout, |least| least.min(session.timeout));
        let mut inner = self.inner.lock();
        inner.granted = session.key.id;
        inner.lifetime = Lifetime::new(timeout, session.heard_of, session.heard_of);
        inner.bounds = SessionValidity::new(&inner.lifetime);
    }

    /// Notes that a server granted `timeout` when asked at `sent`, and serves the session from now
    /// on; requests may be sent soon. Returns the timeout that counts.
    pub(crate) fn greeted(&self, session: i64, timeout: Duration, sent: Duration) -> Duration {
        let mut inner = self.inner.lock();
        let at = clock::since_boot();
        if inner.granted == session {
            inner.lifetime.greeted(timeout, sent, at);
            inner.bounds.follow(&inner.lifetime);
        } else {
            inner.bounds.end(LostReason::SessionExpired);
            inner.granted = session;
            inner.lifetime = Lifetime::new(timeout, sent, at);
            inner.bounds = SessionValidity::new(&inner.lifetime);
        }
        inner.snapshot.timeout = inner.lifetime.timeout();
        inner.snapshot.timeout
    }

    /// Notes that a request of this connection, sent at `sent`, was committed through a quorum. The answer names `zxid`.
    pub(crate) fn committed(&self, sent: Duration, zxid: i64) {
        let mut inner = self.inner.lock();
        inner.lifetime.committed(sent, zxid);
        inner.bounds.follow(&inner.lifetime);
    }

    /// Notes that the answer to a message that was sent at `sent` arrived at `at`.
    pub(crate) fn answered(&self, sent: Duration, at: Duration) {
        self.answered_at.store(nanos(at), Ordering::Relaxed);
        self.took
            .store(nanos(at.saturating_sub(sent)), Ordering::Relaxed);
        let mut inner = self.inner.lock();
        inner.lifetime.answered(sent, at);
    }

    /// Notes that the connection is ready for requests, and the watches are set again.
    pub(crate) fn connected(&self, session: i64) {
        self.change(SessionEvent::Connected { session }, |snapshot| {
            snapshot.state = SessionState::Connected;
            snapshot.session = session;
            snapshot.connects += 1;
            snapshot.since = clock::since_boot();
        });
    }

    /// Notes that the connection broke; the transport tries to make another.
    pub(crate) fn disconnected(&self) {
        self.change(SessionEvent::Disconnected, |snapshot| {
            snapshot.state = SessionState::Connecting;
            if !snapshot.resumes {
                snapshot.session = 0;
            }
        });
    }

    /// Notes that a server said that the session expired; the transport asks for a new one.
    pub(crate) fn expired(&self) {
        self.change(SessionEvent::Expired, |snapshot| {
            snapshot.state = SessionState::Connecting;
            snapshot.session = 0;
        });
    }

    /// Notes that the client was closed, for good.
    pub(crate) fn closed(&self) {
        self.change(SessionEvent::Closed, |snapshot| {
            snapshot.state = SessionState::Closed
        });
    }

    /// Notes that the server refused the credentials; the client has ended with this error.
    pub(crate) fn refused(&self, why: Error) {
        self.inner.lock().refusal.get_or_insert(why);
        self.change(SessionEvent::AuthFailed, |snapshot| {
            snapshot.state = SessionState::AuthFailed;
        });
    }

    /// Applies a change, unless the client has ended.
    fn change(&self, event: SessionEvent, update: impl FnOnce(&mut Snapshot)) {
        let mut inner = self.inner.lock();
        if inner.snapshot.is_over() {
            return;
        }
        update(&mut inner.snapshot);
        if event == SessionEvent::Expired {
            inner.expiries += 1;
        }
        if inner.snapshot.is_over() || inner.snapshot.session == 0 {
            inner.bounds.end(match event {
                SessionEvent::Expired | SessionEvent::Connected { .. } => {
                    LostReason::SessionExpired
                }
                SessionEvent::Disconnected => LostReason::Disconnected,
                SessionEvent::AuthFailed => LostReason::AuthFailed,
                SessionEvent::Closed => LostReason::Closed,
            });
            // A server that was set up anew may grant the same id again.
            inner.granted = 0;
        }
        if inner.snapshot.state == SessionState::Connected {
            inner.trouble.clear();
            inner.asked = None;
        } else {
            inner.lifetime.broke();
            inner.bounds.follow(&inner.lifetime);
        }
        let now = inner.snapshot;
        inner.subscribers.tell(&now);
        inner
            .listeners
            .retain(|to| UNREAD_EVENTS <= to.len() || to.send(event).is_ok());
    }
}

#[cfg(all(test, zklock_sim))]
mod orders;

#[cfg(test)]
mod tests;
