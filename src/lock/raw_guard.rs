//! What every guard owns: a place at the head of a queue, and the duty to give it up.
//!
//! Of the parts of a guard only [`RawGuard`] acts on drop: the guards are plain structs around it,
//! so that they can be destructured. A place that has no guard yet is given up by its driver.

mod release;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::driver::{self, Early, Reached};
use super::request::{LockRequest, Queue};
use crate::error::Result;
use crate::local::turnstile;
use crate::path;
use crate::session::Session;
use crate::session::caller::Caller;
use crate::session::early_create::EarlyCreate;
use crate::session::lease::Lease;
use crate::system::{clock, contained};
use crate::time::limit::from_now;
use crate::token::FencingToken;
use crate::transport::session_state::SessionState;
use zklock_core::acquisition::may_read_less;
use zklock_core::attempt::{Origin, OwnNode};
use zklock_core::dialect::Role;
use zklock_core::predecessor_mark::Mark;
use zklock_core::seen_ahead::SeenAhead;
use zklock_core::skip_listing::LastGrant;

/// The create that a thread in line wants sent with the release, if the lock does not come with the
/// turn.
pub(super) type Wish = Option<Arc<EarlyCreate>>;
/// The line in which the threads of one client wait for its locks.
pub(crate) type Turnstile = turnstile::Turnstile<RawGuard, Grant, Wish>;
pub(crate) type Turn = turnstile::Turn<RawGuard, Grant, Wish>;

/// The version of the directory's data that a release note may replace, once it is known; `None` if
/// that data must stay.
pub(super) type Replaces = Arc<OnceLock<Option<i32>>>;

/// See the module's documentation.
pub(crate) struct RawGuard {
    session: Arc<Session>,
    lease: Arc<Lease>,
    token: FencingToken,
    /// The id of the lease; taken when the nodes are given up.
    watched: Option<u64>,
    closing: Option<Box<Closing>>,
    /// Set if the release is to leave a note.
    noted: OnceLock<Replaces>,
    /// The time until which the nodes must stay.
    at_least_until: Option<Instant>,
    /// The line of the next threads, which may inherit the lock.
    heirs: Option<Turnstile>,
    /// The connection through which a wait for other clients ended.
    waited: Option<u64>,
    /// See [`seen`](Self::seen).
    pub(super) seen: Option<SeenAhead>,
    /// Whether the node is deleted already.
    has_left: AtomicBool,
    /// Whether a transaction that checks the nodes may still be carried out, as long as they exist.
    in_doubt: AtomicBool,
    /// When the lock was granted; absent if this does not count as a grant of its own.
    pub(super) since: Option<Instant>,
}

/// What a release writes into the directory, in the transaction that deletes the node.
///
/// A write replaces data only if it still has the version that this client has seen: later data is not this client's.
#[derive(Debug)]
pub(crate) enum Closing {
    /// The data that the mark decides on.
    Mark(Mark),
    /// This data, over this version.
    Data(Vec<u8>, i32),
    /// This data, over this version, if the thread panics.
    IfPanicking(Vec<u8>, i32),
}

/// A lock, and the turn of the thread that waited for it.
pub(crate) struct Grant {
    // Leave the queue first, then let the next thread in: fields drop in this order, and `turn` drops
    // after a release of `raw`.
    pub(crate) raw: RawGuard,
    pub(crate) turn: Turn,
}

impl RawGuard {
    /// Creates a guard of nodes that are at the head of their queues.
    pub(super) fn new(session: &Arc<Session>, lease: Lease, token: FencingToken) -> Self {
        let lease = Arc::new(lease);
        let watched = session.leases.begin(lease.clone());
        Self::watched_as(watched, session, lease, token)
    }

    /// Like [`new`](Self::new), over nodes whose lease already has this id.
    fn watched_as(
        watched: u64,
        session: &Arc<Session>,
        lease: Arc<Lease>,
        token: FencingToken,
    ) -> Self {
        Self {
            watched: Some(watched),
            session: session.clone(),
            lease,
            token,
            closing: None,
            noted: OnceLock::new(),
            at_least_until: None,
            heirs: None,
            waited: None,
            seen: None,
            has_left: AtomicBool::new(false),
            in_doubt: AtomicBool::new(false),
            since: None,
        }
    }

    /// Goes through a queue; returns `None` if the lock is taken or the limit was reached. The
    /// first requests may be `prepared`, and another thread may have sent them.
    pub(crate) fn acquire(
        session: &Arc<Session>,
        queue: &Queue<'_>,
        request: &mut LockRequest<'_>,
        prepared: Option<(Caller, Early)>,
    ) -> Result<Option<Self>> {
        // Whatever the outcome, the previous grant is no longer the last one.
        let before = queue.last.and_then(|last| last.lock().take());
        let reached = driver::acquire(session, queue, request, before, prepared)?;
        let Some(Reached {
            mut lease,
            mine,
            waited,
            beside_semaphore,
        }) = reached
        else {
            return Ok(None);
        };
        let at_least = request.hold_at_least;
        if let Some(last) = queue.last {
            // A node that outlives its guard would be ahead of the next one.
            let ends = at_least.is_none() && !beside_semaphore;
            *last.lock() = LastGrant::new(&mine, before).filter(|_| ends);
        }
        // The lock in front of a semaphore does not count as a grant.
        let counts = queue.dir == queue.path || queue.role == Role::Permit;
        lease.waits = !counts;
        let mut raw = Self::new(session, lease, FencingToken::new(mine.origin.czxid));
        if counts {
            raw.granted(request.limit.spent());
        }
        raw.at_least_until = at_least.map(from_now);
        raw.waited = waited;
        raw.seen = request.seen.clone();
        Ok(Some(raw))
    }

    /// Counts the lock as granted, this long after it was requested.
    pub(crate) fn granted(&mut self, after: Duration) {
        self.since = Some(clock::now());
        self.session.counters.acquired(self.lease.path(), after);
        contained(|| {
            log::debug!(
                "got {} after {after:?}: token {}, node {}",
                self.lease.path(),
                self.token.get(),
                self.nodes().join(", ")
            );
        });
    }

    /// Counts the lock as handed on by another thread of this client.
    pub(super) fn inherited(&mut self, after: Duration) {
        self.session.counters.handed_on();
        self.lease.belongs(true);
        self.granted(after);
    }

    /// Lets the threads in this line inherit the lock, as far as the client's settings allow.
    pub(super) fn share(&mut self, turnstile: &Turnstile) {
        self.heirs = Some(turnstile.clone());
    }

    /// Gives the lock back to the server, not to another thread.
    pub(crate) fn abandon(mut self) {
        self.heirs = None;
    }

    /// Notes that a transaction may still be carried out: no other thread may inherit the nodes.
    pub(super) fn mark_in_doubt(&self) {
        self.in_doubt.store(true, Ordering::Release);
    }

    /// Makes the release write this too.
    pub(crate) fn close_with(&mut self, closing: Closing) {
        self.closing = Some(Box::new(closing));
    }

    /// Makes the release leave a note over this version; returns `false` if it is to leave one already.
    pub(super) fn note_over(&self, replaces: Replaces) -> bool {
        self.noted.set(replaces).is_ok()
    }

    /// Returns whether the release is to leave a note, may do so, and does not know yet over which
    /// version.
    pub(super) fn is_to_note(&self) -> bool {
        let unknown = self.noted.get().is_some_and(|over| over.get().is_none());
        unknown && self.at_least_until.is_none() && self.check().is_ok()
    }

    /// Makes the background thread set the watches again, so that it also watches the claim's node.
    pub(crate) fn watch_anew(&self) {
        if let Some(watched) = self.watched {
            self.session.leases.unwatch(watched);
        }
    }

    /// Ends the renewal of the lease before this client deletes a node, so that no loss is reported.
    pub(super) fn stop_watching(&self) {
        if let Some(watched) = self.watched {
            self.session.leases.end(watched);
        }
    }

    /// Returns whether the release has more to do than to delete the nodes, or may come too late.
    pub(super) fn has_duties(&self) -> bool {
        let late = self.in_doubt.load(Ordering::Acquire) || self.has_left.load(Ordering::Acquire);
        let more = self.closing.is_some() || self.noted.get().is_some();
        late || more || self.at_least_until.is_some()
    }

    /// Notes that the node is deleted already.
    pub(super) fn mark_left(&self) {
        self.has_left.store(true, Ordering::Release);
    }

    /// Creates a guard of the same lock over other nodes.
    pub(super) fn renewed(&mut self, lease: Lease) -> Self {
        let mut renewed = Self::new(&self.session, lease, self.token);
        renewed.at_least_until = self.at_least_until.take();
        renewed.since = self.since.take();
        renewed
    }

    /// Returns which contenders the call has seen ahead, if it was asked to note them.
    pub(crate) fn seen(&self) -> Option<&SeenAhead> {
        self.seen.as_ref()
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.lease
    }

    pub(crate) fn token(&self) -> FencingToken {
        self.token
    }

    pub(crate) fn nodes(&self) -> &[String] {
        self.lease.nodes()
    }

    /// Returns the first of the nodes; a mutex has only one.
    pub(crate) fn node(&self) -> &str {
        self.nodes().first().map_or("", String::as_str)
    }

    /// Returns the first node as an attempt knows it.
    pub(crate) fn own_node(&self) -> OwnNode {
        OwnNode {
            name: path::name(self.node()).to_owned(),
            origin: Origin {
                owner: self.lease.session(),
                czxid: self.token.get(),
            },
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.lease.check()
    }

    /// Marks the guard Lost after this time, while it keeps the lock.
    pub(crate) fn limit(&self, time: Duration) {
        self.lease.limit(time);
        if let Some(watched) = self.watched {
            self.session.leases.look_again(watched);
        }
    }

    pub(crate) fn valid_for(&self) -> Duration {
        self.lease.valid_for()
    }

    /// Formats a guard for [`fmt::Debug`].
    pub(crate) fn describe(
        &self,
        name: &str,
        token: Option<FencingToken>,
        f: &mut fmt::Formatter<'_>,
    ) -> fmt::Result {
        let mut told = f.debug_struct(name);
        told.field("path", &self.lease.path());
        told.field("state", &self.lease.state());
        if let Some(why) = self.lease.lost_reason() {
            told.field("why", &why);
        }
        if let Some(token) = token {
            told.field("token", &token.get());
        }
        let session = self.lease.session();
        told.field("session", &format_args!("{session:#x}"));
        told.finish()
    }

    /// Asks, and asks again at a server that `catches_up` if the answer may show less than what the holder before has
    /// left: see [`may_read_less`].
    pub(crate) fn ask_for_what_was_left<T>(&self, ask: impl Fn(bool) -> T) -> T {
        if !self.may_read_less() {
            let answered = ask(false);
            // It may be another server's.
            if !self.may_read_less() {
                return answered;
            }
        }
        ask(true)
    }

    fn may_read_less(&self) -> bool {
        let now = self.session.status.snapshot();
        // A handle tells of a reconnect on another thread than that of its answers.
        let is_known = now.resumes && now.state == SessionState::Connected;
        may_read_less(self.waited, is_known.then_some(now.connects))
    }

    /// Leaves the nodes to another guard.
    pub(crate) fn hand_over(mut self) {
        if let Some(watched) = self.watched.take() {
            self.session.leases.end(watched);
        }
    }
}

impl Closing {
    /// Returns the data to write and the version to replace, given whether the thread `panics` and
    /// whether the lock is `lost`.
    pub(super) fn data(&self, panics: bool, lost: bool) -> Option<(&[u8], i32)> {
        match self {
            Self::Mark(mark) => mark.closing(panics, lost),
            Self::Data(data, version) => Some((data, *version)),
            Self::IfPanicking(data, version) => panics.then_some((&data[..], *version)),
        }
    }
}

impl Drop for RawGuard {
    fn drop(&mut self) {
        if self.session.is_inherited() {
            return;
        }
        if !self.hand_off() {
            self.give_up(None);
        }
    }
}
