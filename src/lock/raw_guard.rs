//! What every guard owns: a place at the head of a queue, and the duty to give it up.
//!
//! Only the [`RawGuard`] in a guard acts on drop: the guards are plain structs around it, so
//! that they can be taken apart. A place that has no guard yet is given up by its driver.

mod release;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::driver::{self, Reached};
use super::prepared_create::{Prepared, Wish};
use super::release_writes::Closing;
use super::request::{LockRequest, Queue};
use crate::error::{LostReason, Result};
use crate::guard::{GuardEvent, GuardState};
use crate::local::turnstile;
use crate::path;
use crate::session::Session;
use crate::session::lease::Lease;
use crate::system::channel::Receiver;
use crate::system::clock;
use crate::time::clock::Moment;
use crate::time::limit::from_now;
use crate::token::FencingToken;
use zklock_core::attempt::{Origin, OwnNode};
use zklock_core::dialect::Role;
use zklock_core::seen_ahead::SeenAhead;
use zklock_core::skip_listing::LastGrant;

/// The threads of one client in line for its locks.
pub(crate) type Turnstile = turnstile::Turnstile<RawGuard, Grant, Wish>;
pub(crate) type Turn = turnstile::Turn<RawGuard, Grant, Wish>;

/// The version of the directory's data that a note of the release may replace, once it is known;
/// `None` if that data stays.
pub(super) type Replaces = Arc<OnceLock<Option<i32>>>;

/// See the module's documentation.
pub(crate) struct RawGuard {
    session: Arc<Session>,
    lease: Arc<Lease>,
    token: FencingToken,
    /// The number of the lease; taken when the nodes are given up.
    watched: Option<u64>,
    closing: Option<Box<Closing>>,
    /// Set if the release is to leave a note.
    noted: OnceLock<Replaces>,
    /// The nodes are to stay until then.
    at_least_until: Option<Instant>,
    /// Where the next threads wait, and how many may inherit the lock in a row.
    heirs: Option<(Turnstile, u32)>,
    /// See [`has_waited`](Self::has_waited).
    has_waited: bool,
    /// See [`seen`](Self::seen).
    seen: Option<SeenAhead>,
    /// The node is deleted already.
    has_left: AtomicBool,
    /// A transaction that checks the nodes may still be carried out, as long as they exist.
    in_doubt: AtomicBool,
    /// When it was granted; absent if it does not count as a grant of its own.
    since: Option<Instant>,
}

/// A lock, and the turn of the thread that waited for it.
pub(crate) struct Grant {
    // Fields drop in this order: leave the queue first, then let the next thread in.
    pub(crate) raw: RawGuard,
    pub(crate) turn: Turn,
}

impl Grant {
    /// As [`RawGuard::release`]; the next thread comes in afterwards.
    pub(crate) fn release(self) -> Result<()> {
        self.raw.release_before(self.turn)
    }
}

impl RawGuard {
    /// Takes over nodes that are at the head of their queues.
    pub(super) fn new(session: &Arc<Session>, lease: Lease, token: FencingToken) -> Self {
        let lease = Arc::new(lease);
        let watched = session.leases.begin(lease.clone());
        Self::watched_as(watched, session, lease, token)
    }

    /// As [`new`](Self::new), over nodes whose lease has this number already.
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
            has_waited: false,
            seen: None,
            has_left: AtomicBool::new(false),
            in_doubt: AtomicBool::new(false),
            since: None,
        }
    }

    /// Goes through a queue; `None` if it is taken or the limit was reached. The first requests may
    /// be `prepared`, and another thread may have sent them.
    pub(crate) fn acquire(
        session: &Arc<Session>,
        queue: &Queue<'_>,
        request: &mut LockRequest<'_>,
        prepared: Option<Prepared>,
    ) -> Result<Option<Self>> {
        // Whatever the outcome, this is no longer the last grant.
        let before = queue.last.and_then(|last| last.lock().take());
        let reached = driver::acquire(session, queue, request, before, prepared)?;
        let Some(Reached {
            lease,
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
        let mut raw = Self::new(session, lease, FencingToken::new(mine.origin.czxid));
        // The lock in front of a semaphore does not count as a grant.
        if queue.dir == queue.path || queue.role == Role::Permit {
            raw.granted(request.limit.spent());
        }
        raw.at_least_until = at_least.map(from_now);
        raw.has_waited = waited;
        raw.seen = request.seen.clone();
        Ok(Some(raw))
    }

    /// Counts it as a grant, this long after it was asked for.
    pub(crate) fn granted(&mut self, after: Duration) {
        self.since = Some(clock::now());
        self.session.counters.acquired(self.lease.path(), after);
    }

    /// When it was granted.
    pub(super) fn since(&self) -> Option<Instant> {
        self.since
    }

    /// Knows whom its call has seen ahead.
    pub(super) fn saw(&mut self, ahead: Option<SeenAhead>) {
        self.seen = ahead;
    }

    /// Sets when it was granted, which has been counted.
    pub(super) fn count_from(&mut self, since: Option<Instant>) {
        self.since = since;
    }

    /// Counts it as handed on by another thread of this client.
    pub(super) fn inherited(&mut self, after: Duration) {
        self.session.counters.handed_on();
        self.belongs(true);
        self.granted(after);
    }

    /// Says whether it belongs to the calling thread; if not, it may change threads.
    pub(crate) fn belongs(&self, to_this_thread: bool) {
        if let Some(watched) = self.watched {
            self.session.leases.belongs(watched, to_this_thread);
        }
    }

    /// Lets the threads that wait there inherit it, at most this many in a row.
    pub(super) fn share(&mut self, turnstile: &Turnstile, most: u32) {
        self.heirs = Some((turnstile.clone(), most));
    }

    /// Gives it back to the server, not to another thread.
    pub(crate) fn abandon(mut self) {
        self.heirs = None;
    }

    /// Notes that a transaction may still be carried out: no other thread may have the nodes.
    pub(super) fn in_doubt(&self) {
        self.in_doubt.store(true, Ordering::Release);
    }

    /// Has the release write this too.
    pub(crate) fn close_with(&mut self, closing: Closing) {
        self.closing = Some(Box::new(closing));
    }

    /// Has the release leave a note over this version; `false` if it is to do so already.
    pub(super) fn note_over(&self, replaces: Replaces) -> bool {
        self.noted.set(replaces).is_ok()
    }

    /// Whether the release is to leave a note, nothing stands against it, and it is not known over
    /// which version.
    pub(super) fn is_to_note(&self) -> bool {
        let unknown = self.noted.get().is_some_and(|over| over.get().is_none());
        unknown && self.at_least_until.is_none() && self.check().is_ok()
    }

    /// Has the claim's node watched too.
    pub(crate) fn watch_anew(&self) {
        if let Some(watched) = self.watched {
            self.session.leases.unwatch(watched);
        }
    }

    /// Has nobody told any more that the node goes, which this client is about to delete.
    pub(super) fn stop_watching(&self) {
        if let Some(watched) = self.watched {
            self.session.leases.end(watched);
        }
    }

    /// Whether giving it up takes more than the deletion of its nodes, or may be too late.
    pub(super) fn has_duties(&self) -> bool {
        let late = self.in_doubt.load(Ordering::Acquire) || self.has_left.load(Ordering::Acquire);
        let more = self.closing.is_some() || self.noted.get().is_some();
        late || more || self.at_least_until.is_some()
    }

    /// Notes that the node is deleted already.
    pub(super) fn has_left(&self) {
        self.has_left.store(true, Ordering::Release);
    }

    /// The same lock over other nodes.
    pub(super) fn renewed(&mut self, lease: Lease) -> Self {
        let mut renewed = Self::new(&self.session, lease, self.token);
        renewed.at_least_until = self.at_least_until.take();
        renewed
    }

    /// Other clients were ahead in the queue.
    ///
    /// The grant may have come with the event of a deletion. Another server need not have heard
    /// of the deletion, nor of what was written with it, so a thread asks for a
    /// [`sync`](crate::transport::Capabilities::sync) before it reads what the predecessor left.
    /// A grant by a listing rests on a reply, and no server that is behind a reply takes over the
    /// session.
    pub(crate) fn has_waited(&self) -> bool {
        self.has_waited
    }

    /// Whom its call has seen ahead, if that was asked for.
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

    /// The first of the nodes; a mutex has one only.
    pub(crate) fn node(&self) -> &str {
        self.nodes().first().map_or("", String::as_str)
    }

    /// That node, as an attempt knows it.
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

    pub(crate) fn lost_reason(&self) -> Option<LostReason> {
        self.lease.lost_reason()
    }

    /// After this time the guard is Lost, and keeps the lock.
    pub(crate) fn limit(&self, time: Duration) {
        self.lease.limit(time);
        if let Some(watched) = self.watched {
            self.session.leases.look_again(watched);
        }
    }

    /// Whether that time has passed.
    pub(crate) fn is_over(&self) -> bool {
        self.lease.is_over(Moment::now().since_boot())
    }

    pub(crate) fn state(&self) -> GuardState {
        self.lease.state()
    }

    pub(crate) fn valid_for(&self) -> Duration {
        self.lease.valid_for()
    }

    pub(crate) fn events(&self) -> &Receiver<GuardEvent> {
        self.lease.events()
    }

    /// Writes what a guard is, for [`fmt::Debug`].
    pub(crate) fn describe(
        &self,
        name: &str,
        token: Option<FencingToken>,
        f: &mut fmt::Formatter<'_>,
    ) -> fmt::Result {
        let mut told = f.debug_struct(name);
        told.field("path", &self.lease.path());
        told.field("state", &self.state());
        if let Some(why) = self.lost_reason() {
            told.field("why", &why);
        }
        if let Some(token) = token {
            told.field("token", &token.get());
        }
        let session = self.lease.session();
        told.field("session", &format_args!("{session:#x}"));
        told.finish()
    }

    /// Leaves the nodes to another hold.
    pub(crate) fn hand_over(mut self) {
        if let Some(watched) = self.watched.take() {
            self.session.leases.end(watched);
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
