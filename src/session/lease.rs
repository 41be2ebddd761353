//! What a client knows about a lock that it holds.
//!
//! A [`Lease`] is shared by the guard, which asks it, and the background thread, which
//! renews it. It consists of atomics: a check costs one look at the clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::guard::{GuardEvent, GuardState};
use crate::metrics::Counters;
use crate::recipe::belief::{Belief, News};
use crate::recipe::validity::Stamp;
use crate::system::channel::{Receiver, Sender, bounded};
use crate::system::sync::Mutex;
use crate::time::clock::Moment;
use crate::time::clock::nanos;
use crate::transport::session_validity::SessionValidity;

/// How many unread events a guard keeps; a new event replaces the oldest.
const UNREAD_EVENTS: usize = 16;

/// The value of `sent` of a lost lock.
const LOST: u64 = 0;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Lease {
    life: Arc<Life>,
    reported: Mutex<GuardState>,
    events: (Sender<GuardEvent>, Receiver<GuardEvent>),
}

/// What successive guards over the same nodes share.
#[derive(Debug)]
struct Life {
    path: String,
    nodes: Vec<String>,
    session: i64,
    bounds: Arc<SessionValidity>,
    /// When the last check that the quorum committed was sent, and when the last message
    /// was sent that the leader had heard of by then. Both only grow, and either may be
    /// read with an older value of the other.
    sent: AtomicU64,
    touched: AtomicU64,
    /// Whether the connection broke since that check.
    disconnected: AtomicBool,
    /// Whether another client asks the holder to release the lock.
    revoke_requested: AtomicBool,
}

impl Lease {
    /// A lease over `nodes` of a session, which the quorum confirmed when asked with this
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
            session,
            bounds,
            sent: AtomicU64::new(nanos(stamp.sent)),
            touched: AtomicU64::new(nanos(stamp.touched)),
            disconnected: AtomicBool::new(false),
            revoke_requested: AtomicBool::new(false),
        }))
    }

    /// A lease over the same nodes for the next guard; `None` unless the lock is held and no
    /// revoke is requested.
    pub(crate) fn succeed(&self) -> Option<Self> {
        let free = !self.life.revoke_requested.load(Ordering::Acquire);
        (free && self.state() == GuardState::Held).then(|| Self::of(self.life.clone()))
    }

    fn of(life: Arc<Life>) -> Self {
        Self {
            life,
            reported: Mutex::new(GuardState::Held),
            events: bounded(UNREAD_EVENTS),
        }
    }

    pub(crate) fn nodes(&self) -> &[String] {
        &self.life.nodes
    }

    pub(crate) fn path(&self) -> &str {
        &self.life.path
    }

    /// The session that the nodes belong to.
    pub(crate) fn session(&self) -> i64 {
        self.life.session
    }

    pub(crate) fn events(&self) -> &Receiver<GuardEvent> {
        &self.events.1
    }

    /// Fails from the moment on when another client can have the lock.
    pub(crate) fn check(&self) -> Result<()> {
        match self.last_proof(now()) {
            Some(_) => Ok(()),
            None => Err(self.lost()),
        }
    }

    /// The last check that a quorum committed, unless the lock is lost.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        self.last_proof(now())
    }

    pub(crate) fn state(&self) -> GuardState {
        let now = now();
        self.belief(now).state(self.life.bounds.terms(), now)
    }

    /// How long the lock can be trusted if nothing more arrives.
    pub(crate) fn valid_for(&self) -> Duration {
        let now = now();
        let until = self
            .last_proof(now)
            .map(|stamp| self.life.bounds.terms().until(stamp));
        until.unwrap_or_default().saturating_sub(now)
    }

    /// How long the state lasts if nothing more arrives.
    pub(crate) fn steady_for(&self) -> Option<Duration> {
        let (now, terms) = (now(), self.life.bounds.terms());
        let mut belief = self.belief(now);
        // What has changed since it was told is to be told now, the end too.
        if belief.state(terms, now) != *self.reported.lock() {
            return Some(Duration::ZERO);
        }
        Some(belief.changes_at(terms, now)?.saturating_sub(now))
    }

    /// A quorum confirmed the nodes when it was asked with this stamp.
    pub(crate) fn confirm(&self, stamp: Stamp) {
        let now = now();
        let mut belief = self.belief(now);
        let old = belief.stamp;
        belief.confirm(stamp, self.life.bounds.terms(), now);
        let (Some(old), Some(new)) = (old, belief.stamp) else {
            return;
        };
        self.life
            .touched
            .fetch_max(nanos(new.touched), Ordering::AcqRel);
        // A failure means that somebody has just found the deadline passed.
        let (old, new) = (nanos(old.sent), nanos(new.sent));
        let sent = &self.life.sent;
        let confirmed = sent.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire);
        if confirmed.is_ok() {
            self.life
                .disconnected
                .store(belief.shaken, Ordering::Release);
        }
    }

    /// Something happened to the connection.
    pub(crate) fn hear(&self, news: News) {
        // Only this news is stored: a proof may come meanwhile that settles an earlier break.
        let mut belief = Belief {
            shaken: false,
            ..self.belief(now())
        };
        belief.hear(self.life.session, news);
        if belief.stamp.is_none() {
            self.lose();
        } else if belief.shaken {
            self.life.disconnected.store(true, Ordering::Release);
        }
    }

    /// The lock is lost.
    pub(crate) fn lose(&self) {
        self.life.sent.store(LOST, Ordering::Release);
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
        match state {
            GuardState::Held => {}
            GuardState::Suspect => counters.suspected(),
            GuardState::Lost => counters.lost(),
        }
        let event = match state {
            GuardState::Held => GuardEvent::Held,
            GuardState::Suspect => GuardEvent::Suspect,
            GuardState::Lost => GuardEvent::Lost,
        };
        log::log!(
            if state == GuardState::Held {
                log::Level::Info
            } else {
                log::Level::Warn
            },
            "the lock {} is {state:?}",
            self.life.path,
        );
        self.send(event);
    }

    /// Another client asks the holder to release the lock.
    pub(crate) fn revoke_requested(&self) {
        self.life.revoke_requested.store(true, Ordering::Release);
        log::info!("another client asks for the lock {}", self.life.path);
        self.send(GuardEvent::RevokeRequested);
    }

    pub(crate) fn lost(&self) -> Error {
        Error::Lost {
            path: self.life.path.clone(),
        }
    }

    /// What is believed of the lock. Once it is lost, that is final.
    fn belief(&self, now: Duration) -> Belief {
        Belief {
            stamp: self.last_proof(now),
            shaken: self.life.disconnected.load(Ordering::Acquire),
        }
    }

    /// Returns the last proof of the lock; `None` once it is lost, which is final.
    fn last_proof(&self, now: Duration) -> Option<Stamp> {
        loop {
            let sent = self.life.sent.load(Ordering::Acquire);
            if sent == LOST {
                return None;
            }
            let touched = self.life.touched.load(Ordering::Acquire);
            let mut belief = Belief::new(Stamp {
                sent: Duration::from_nanos(sent),
                touched: Duration::from_nanos(touched),
            });
            let stamp = belief.look(self.life.bounds.terms(), now);
            let lost = || {
                let life = &self.life.sent;
                life.compare_exchange(sent, LOST, Ordering::AcqRel, Ordering::Acquire)
            };
            if stamp.is_some() || lost().is_ok() {
                return stamp;
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

fn now() -> Duration {
    Moment::now().since_boot()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::recipe::validity::Lifetime;

    const T: Duration = Duration::from_secs(60);
    const BROKEN: News = News {
        connected: None,
        broke: true,
        session: Some(1),
        over: false,
        resumes: true,
    };

    fn stamp(age: Duration) -> Stamp {
        let sent = now() - age;
        Stamp {
            sent,
            touched: sent - T / 4,
        }
    }

    fn lease(age: Duration) -> Lease {
        let nodes = vec!["/m/n".into()];
        let bounds = SessionValidity::new(&Lifetime::new(T, Duration::ZERO));
        Lease::new("/m", nodes, 1, bounds, stamp(age))
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn trust_fades_with_the_age_of_the_proof() {
        for (age, state) in [
            (0, GuardState::Held),
            (18, GuardState::Held),
            (21, GuardState::Suspect),
            (27, GuardState::Suspect),
            (30, GuardState::Lost),
        ] {
            let lease = lease(seconds(age));
            assert_eq!(lease.state(), state, "{age} s");
            assert_eq!(lease.check().is_err(), state == GuardState::Lost);
            assert!(lease.valid_for() <= seconds(30 - age));
        }
    }

    #[test]
    fn a_deadline_that_passes_between_two_looks_is_told() {
        let lease = lease(seconds(30));
        assert_eq!(lease.steady_for(), Some(Duration::ZERO));
        lease.tell(&Counters::default());
        assert_eq!(lease.events().try_recv(), Ok(GuardEvent::Lost));
        assert_eq!(lease.steady_for(), None);
    }

    #[test]
    fn a_look_at_a_steady_connection_does_not_undo_a_proof() {
        let lease = lease(Duration::ZERO);
        let quiet = News {
            connected: Some(Duration::ZERO),
            broke: false,
            ..BROKEN
        };
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    lease.hear(quiet);
                }
            });
            let undone = (0..200_000).any(|_| {
                lease.hear(BROKEN);
                lease.confirm(stamp(Duration::ZERO));
                // The other thread may be between reading and writing.
                (0..8).for_each(|_| std::hint::spin_loop());
                lease.state() != GuardState::Held
            });
            done.store(true, Ordering::Relaxed);
            assert!(!undone, "the guard is suspect after a proof");
        });
    }

    #[test]
    fn lost_is_final() {
        let lease = lease(Duration::ZERO);
        lease.lose();
        lease.confirm(stamp(Duration::ZERO));
        assert_eq!(lease.state(), GuardState::Lost);
        assert!(lease.check().unwrap_err().is_lost());
        assert_eq!(lease.valid_for(), Duration::ZERO);
    }

    #[test]
    fn another_session_is_the_end_at_once() {
        let lease = lease(Duration::ZERO);
        lease.life.bounds.end();
        assert!(lease.check().is_err());
    }

    #[test]
    fn a_shorter_timeout_counts_at_once_and_a_longer_one_never() {
        let lease = lease(seconds(3));
        let mut lifetime = Lifetime::new(T, Duration::ZERO);
        for (granted, least, most) in [(120, 20, 27), (8, 0, 1), (60, 0, 1), (4, 0, 0)] {
            lifetime.greeted(seconds(granted), now());
            lease.life.bounds.follow(&lifetime);
            let valid = lease.valid_for();
            assert!(
                seconds(least) <= valid && valid <= seconds(most),
                "{granted} s"
            );
        }
        assert!(lease.check().is_err());
    }

    #[test]
    fn a_connect_request_without_an_answer_may_have_shortened_the_session() {
        let lease = lease(seconds(3));
        let mut lifetime = Lifetime::new(T, Duration::ZERO);
        lifetime.greets(now());
        lease.life.bounds.follow(&lifetime);
        assert!(lease.valid_for() <= seconds(4));
        lifetime.greeted(T, now());
        lease.life.bounds.follow(&lifetime);
        assert!(lease.valid_for() > seconds(20));
    }

    #[test]
    fn an_answer_that_shortens_the_session_gives_no_moment_of_trust() {
        for _ in 0..10_000 {
            let lease = lease(seconds(3));
            let stamp = lease.stamp().unwrap();
            let mut lifetime = Lifetime::new(T, Duration::ZERO);
            lifetime.greets(stamp.sent);
            lease.life.bounds.follow(&lifetime);
            lifetime.greeted(seconds(4), now());
            let longest = thread::scope(|scope| {
                let looks = scope.spawn(|| {
                    let mut longest = Duration::ZERO;
                    while lease.life.bounds.terms().timeout == T {
                        longest = longest.max(lease.life.bounds.terms().until(stamp));
                    }
                    longest
                });
                lease.life.bounds.follow(&lifetime);
                looks.join().unwrap()
            });
            // Before the answer, what any server grants; after it, half of what it granted.
            let most = stamp.sent + seconds(4);
            assert!(longest <= most, "{:?} too long", longest - most);
        }
    }

    #[test]
    fn a_disconnect_is_forgiven_by_a_proof_only() {
        let lease = lease(Duration::ZERO);
        lease.hear(BROKEN);
        assert_eq!(lease.state(), GuardState::Suspect);
        assert_eq!(lease.check(), Ok(()));
        lease.confirm(stamp(Duration::ZERO));
        assert_eq!(lease.state(), GuardState::Held);
    }

    #[test]
    fn every_change_is_told_once_and_a_full_channel_keeps_the_newest() {
        let lease = lease(Duration::ZERO);
        lease.tell(&Counters::default());
        lease.hear(BROKEN);
        lease.tell(&Counters::default());
        lease.tell(&Counters::default());
        lease.confirm(stamp(Duration::ZERO));
        lease.tell(&Counters::default());
        let events: Vec<_> = lease.events().try_iter().collect();
        assert_eq!(events, [GuardEvent::Suspect, GuardEvent::Held]);
        for _ in 0..2 * UNREAD_EVENTS {
            lease.revoke_requested();
        }
        lease.lose();
        lease.tell(&Counters::default());
        assert_eq!(lease.events().try_iter().last(), Some(GuardEvent::Lost));
    }
}
