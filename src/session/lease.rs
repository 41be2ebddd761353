//! What a client knows about a lock that it holds.
//!
//! A [`Lease`] is shared by the guard, which checks it, and the background thread, which renews it.
//! It consists of atomics: a check costs one read of the clock.

use std::panic::RefUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, ThreadId};
use std::time::Duration;

use crate::error::{Error, LossCell, LostReason, Result};
use crate::guard::{GuardEvent, GuardState};
use crate::metrics::Counters;
use crate::system::channel::{Receiver, Sender, bounded};
use crate::system::clock::since_boot;
use crate::system::contained;
use crate::system::sync::Mutex;
use crate::time::nanos;
use crate::transport::session_state::SessionValidity;
use zklock_core::validity::{Stamp, Validity};

/// How many unread events a guard keeps; a new event replaces the oldest.
const UNREAD_EVENTS: usize = 16;

/// The value of `sent` of a lost lock.
const LOST: u64 = 0;

/// The value of `until` without a limit.
const NEVER: u64 = u64::MAX;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Lease {
    life: Arc<Life>,
    /// Whether this lock is only the place from which its thread waits for another one.
    pub(crate) waits: bool,
    /// The thread that has the guard; `None` if the guard may change threads.
    thread: Mutex<Option<ThreadId>>,
    /// From this time on the guard must not be relied on, although the lock is held.
    until: AtomicU64,
    reported: Mutex<GuardState>,
    events: (Sender<GuardEvent>, Receiver<GuardEvent>),
}

impl RefUnwindSafe for Lease {}

/// The state that successive guards over the same nodes share.
#[derive(Debug)]
struct Life {
    path: String,
    nodes: Vec<String>,
    claim: OnceLock<Claim>,
    session: i64,
    bounds: Arc<SessionValidity>,
    /// When the last check that the quorum committed was sent, and when the last message was sent
    /// that the leader had received by then. Both only grow, and a reader may see either with an
    /// older value of the other.
    sent: AtomicU64,
    touched: AtomicU64,
    /// Why the lock is lost, once it is.
    why: LossCell,
    /// Whether another client asks the holder to release the lock.
    revoke_requested: AtomicBool,
}

/// What is lost and given up together with the lock: a permit's number.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) dir: String,
    /// The prefix of the names of the nodes that the holder may have in `dir`.
    pub(crate) prefix: String,
    /// The node, once it is known to exist.
    pub(crate) node: OnceLock<String>,
}

impl Lease {
    /// Creates a lease over `nodes` of a session, which the quorum confirmed when asked with this
    /// stamp.
    pub(crate) fn new(
        path: &str,
        nodes: Vec<String>,
        session: i64,
        bounds: Arc<SessionValidity>,
        stamp: Stamp,
    ) -> Self {
        Self::of(Arc::new(Life {
            path: path.to_owned(),
            nodes,
            claim: OnceLock::new(),
            session,
            bounds,
            sent: AtomicU64::new(nanos(stamp.sent)),
            touched: AtomicU64::new(nanos(stamp.touched)),
            why: LossCell::default(),
            revoke_requested: AtomicBool::new(false),
        }))
    }

    /// Creates a lease over the same nodes for the next guard; returns `None` unless the lock is
    /// held and no revoke is requested.
    pub(crate) fn succeed(&self) -> Option<Self> {
        let free = !self.life.revoke_requested.load(Ordering::Acquire);
        (free && self.state() == GuardState::Held).then(|| Self::of(self.life.clone()))
    }

    fn of(life: Arc<Life>) -> Self {
        Self {
            life,
            waits: false,
            thread: Mutex::default(),
            until: AtomicU64::new(NEVER),
            reported: Mutex::new(GuardState::Held),
            events: bounded(UNREAD_EVENTS),
        }
    }

    /// Notes whether the guard belongs to the calling thread; otherwise it may change threads.
    pub(crate) fn belongs(&self, to_this_thread: bool) {
        *self.thread.lock() = to_this_thread.then(|| thread::current().id());
    }

    pub(crate) fn is_of_this_thread(&self) -> bool {
        *self.thread.lock() == Some(thread::current().id())
    }

    pub(crate) fn nodes(&self) -> &[String] {
        &self.life.nodes
    }

    /// Returns the nodes, including that of the claim.
    pub(crate) fn all_nodes(&self) -> impl Iterator<Item = &String> {
        let claim = self.claim().and_then(|claim| claim.node.get());
        self.life.nodes.iter().chain(claim)
    }

    pub(crate) fn claim(&self) -> Option<&Claim> {
        self.life.claim.get()
    }

    /// Returns the claim, which is this one unless there is one already.
    pub(crate) fn claim_or(&self, claim: impl FnOnce() -> Claim) -> &Claim {
        self.life.claim.get_or_init(claim)
    }

    pub(crate) fn path(&self) -> &str {
        &self.life.path
    }

    /// Returns the session that the nodes belong to.
    pub(crate) fn session(&self) -> i64 {
        self.life.session
    }

    pub(crate) fn events(&self) -> &Receiver<GuardEvent> {
        &self.events.1
    }

    /// Fails from the moment when another client can have the lock.
    pub(crate) fn check(&self) -> Result<()> {
        let now = since_boot();
        match self.last_proof(now) {
            Some(_) if !self.is_over_at(now) => Ok(()),
            _ => Err(self.lost()),
        }
    }

    /// Makes the guard Lost after this time. The nodes stay: no other client may have them while
    /// code runs under the guard.
    pub(crate) fn limit(&self, time: Duration) {
        let until = since_boot().saturating_add(time);
        self.until.store(nanos(until), Ordering::Release);
    }

    /// Returns whether the time of [`limit`](Self::limit) has passed.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over_at(since_boot())
    }

    fn is_over_at(&self, now: Duration) -> bool {
        self.until.load(Ordering::Acquire) <= nanos(now)
    }

    /// Returns the stamp of the last check that a quorum committed, unless the lock is lost.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        self.last_proof(since_boot())
    }

    pub(crate) fn state(&self) -> GuardState {
        self.state_at(since_boot())
    }

    fn state_at(&self, now: Duration) -> GuardState {
        let validity = self.validity(now).filter(|_| !self.is_over_at(now));
        validity.map_or(GuardState::Lost, |validity| validity.state(now))
    }

    /// Returns how long the lock can be trusted if nothing more arrives.
    pub(crate) fn valid_for(&self) -> Duration {
        let now = since_boot();
        let until = self.validity(now).map(|validity| validity.until);
        let limit = Duration::from_nanos(self.until.load(Ordering::Acquire));
        until.unwrap_or_default().min(limit).saturating_sub(now)
    }

    /// Returns how long the state lasts if nothing more arrives.
    pub(crate) fn steady_for(&self) -> Option<Duration> {
        let now = since_boot();
        let state = self.state_at(now);
        // A change that was not reported to the guard is due now, even a loss.
        if state != *self.reported.lock() {
            return Some(Duration::ZERO);
        }
        let limit = Duration::from_nanos(self.until.load(Ordering::Acquire));
        let next = self.validity(now)?.next_change(state)?;
        Some(next.min(limit).saturating_sub(now))
    }

    /// Notes that a quorum confirmed the nodes when it was asked with this stamp.
    pub(crate) fn confirm(&self, stamp: Stamp) {
        let Some(old) = self.stamp() else {
            return;
        };
        let (life, new) = (&self.life, old.or_newer(stamp));
        life.touched.fetch_max(nanos(new.touched), Ordering::AcqRel);
        // A failure means that another thread has just found the deadline passed.
        let newer = |sent| (sent != LOST).then(|| nanos(new.sent).max(sent));
        let _ = life
            .sent
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, newer);
    }

    /// Marks the lock as lost, for this reason unless it was lost before.
    pub(crate) fn lose(&self, why: LostReason) {
        let life = &self.life;
        if self.last_proof(since_boot()).is_some() {
            life.why.settle(why);
        } else if why != LostReason::NodeGone {
            self.why_lost();
            if life.why.explain(why) {
                contained(|| log::warn!("the lock {} is Lost: {why}", life.path));
            }
        }
        life.sent.store(LOST, Ordering::Release);
    }

    /// Returns why the lock is lost; `None` if it is not.
    pub(crate) fn lost_reason(&self) -> Option<LostReason> {
        let now = since_boot();
        match self.last_proof(now) {
            Some(_) => self.is_over_at(now).then_some(LostReason::OverTime),
            None => Some(self.why_lost()),
        }
    }

    /// Returns why the lost lock was lost: the first reason that was given, or that its time had passed.
    fn why_lost(&self) -> LostReason {
        let (ended, why) = (self.life.bounds.ended(), &self.life.why);
        if ended == Some(LostReason::SessionExpired) {
            let _ = why.explain(LostReason::SessionExpired);
        }
        why.settle(ended.unwrap_or(LostReason::NotConfirmed))
    }

    /// Sends the guard an event if the state changed since the last one.
    pub(crate) fn tell(&self, counters: &Counters) {
        let state = self.state();
        let mut reported = self.reported.lock();
        if *reported == state {
            return;
        }
        *reported = state;
        drop(reported);
        let why = self.lost_reason();
        let planned = state == GuardState::Held || why == Some(LostReason::HandedOver);
        // First: the recorder and the logger may be slow.
        self.send(match state {
            GuardState::Held => GuardEvent::Held,
            GuardState::Suspect => GuardEvent::Suspect,
            GuardState::Lost => GuardEvent::Lost,
        });
        match state {
            _ if planned => {}
            GuardState::Held => {}
            GuardState::Suspect => counters.suspected(&self.life.path),
            GuardState::Lost => counters.lost(&self.life.path),
        }
        // Of a client that was closed, one line warns for all its locks.
        let level = match planned || why == Some(LostReason::Closed) {
            true => log::Level::Info,
            false => log::Level::Warn,
        };
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        let path = &self.life.path;
        contained(|| log::log!(level, "the lock {path} is {state:?}{why}"));
    }

    /// Notes that another client asks the holder to release the lock.
    pub(crate) fn note_revoke_request(&self) {
        self.life.revoke_requested.store(true, Ordering::Release);
        self.send(GuardEvent::RevokeRequested);
        let path = &self.life.path;
        contained(|| log::info!("another client asks for the lock {path}"));
    }

    /// Returns whether another client has asked the holder to release the lock.
    pub(crate) fn is_revoked(&self) -> bool {
        self.life.revoke_requested.load(Ordering::Acquire)
    }

    pub(crate) fn lost(&self) -> Error {
        Error::Lost {
            path: self.life.path.clone(),
            why: self.lost_reason().unwrap_or_else(|| self.why_lost()),
        }
    }

    /// Returns how long the lock may be trusted; `None` once it is lost.
    fn validity(&self, now: Duration) -> Option<Validity> {
        let stamp = self.last_proof(now)?;
        Some(self.life.bounds.terms().validity(stamp))
    }

    /// Returns the last proof of the lock; `None` once it is lost, which is final.
    fn last_proof(&self, now: Duration) -> Option<Stamp> {
        loop {
            let sent = self.life.sent.load(Ordering::Acquire);
            if sent == LOST {
                return None;
            }
            let touched = self.life.touched.load(Ordering::Acquire);
            let stamp = Stamp {
                sent: Duration::from_nanos(sent),
                touched: Duration::from_nanos(touched),
            };
            if now < self.life.bounds.terms().until(stamp) {
                return Some(stamp);
            }
            let life = &self.life.sent;
            let lost = life.compare_exchange(sent, LOST, Ordering::AcqRel, Ordering::Acquire);
            if lost.is_ok() {
                return None;
            }
        }
    }

    fn send(&self, event: GuardEvent) {
        let (to, from) = &self.events;
        while to.try_send(event).is_err_and(|error| error.is_full()) {
            let _ = from.try_recv();
        }
    }
}

#[cfg(test)]
mod tests;
