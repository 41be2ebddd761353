//! What is known of each lock that this client holds.
//!
//! A [`Vigil`] is shared by a guard, which asks it, and the keeper, which feeds it. All
//! of it is atomics: asking costs a look at the clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;

use super::hub::Link;
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::guard::{GuardEvent, GuardState};
use crate::metrics::Counters;

/// How many events a guard keeps; the oldest give way to the newest.
const UNREAD_EVENTS: usize = 16;

/// Stands for the moment of proof of a lock that is lost.
const LOST: u64 = 0;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Vigil {
    life: Arc<Life>,
    told: Mutex<GuardState>,
    events: (Sender<GuardEvent>, Receiver<GuardEvent>),
}

/// What guards share that have the same nodes one after the other.
#[derive(Debug)]
struct Life {
    path: String,
    nodes: Vec<String>,
    session: i64,
    /// The client's session at any time.
    current: Arc<AtomicI64>,
    timeout: Duration,
    /// When the last check that a quorum committed was sent.
    proven: AtomicU64,
    /// Disconnected since that check.
    shaken: AtomicBool,
    /// Somebody wants the lock to be let go.
    wanted: AtomicBool,
}

impl Vigil {
    /// Begins to watch over `nodes` in the session of `link`, which a quorum confirmed when
    /// asked at `proven`. The vigil is over when that is no longer the `current` session.
    pub(crate) fn new(
        path: &str,
        nodes: Vec<String>,
        link: &Link,
        current: Arc<AtomicI64>,
        proven: Moment,
    ) -> Self {
        Self::of(Arc::new(Life {
            path: path.to_owned(),
            nodes,
            session: link.session,
            current,
            timeout: link.timeout,
            proven: AtomicU64::new(proven.as_nanos()),
            shaken: AtomicBool::new(false),
            wanted: AtomicBool::new(false),
        }))
    }

    /// A vigil over the same nodes for another guard, which hears of what is to come; `None`
    /// unless they are known to be ours and nobody wants them.
    pub(crate) fn succeed(&self) -> Option<Self> {
        let free = !self.life.wanted.load(Ordering::Acquire);
        (free && self.state() == GuardState::Held).then(|| Self::of(self.life.clone()))
    }

    fn of(life: Arc<Life>) -> Self {
        Self {
            life,
            told: Mutex::new(GuardState::Held),
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

    /// Fails from the moment on when somebody else can have the lock.
    pub(crate) fn check(&self) -> Result<()> {
        match self.look(Moment::now()) {
            Some(_) => Ok(()),
            None => Err(self.lost()),
        }
    }

    /// When the last check that a quorum committed was sent.
    pub(crate) fn proven(&self) -> Option<Moment> {
        self.look(Moment::now())
    }

    pub(crate) fn state(&self) -> GuardState {
        let now = Moment::now();
        match self.look(now) {
            None => GuardState::Lost,
            Some(_) if self.life.shaken.load(Ordering::Acquire) => GuardState::Suspect,
            Some(proven) if proven + self.life.timeout / 3 < now => GuardState::Suspect,
            Some(_) => GuardState::Held,
        }
    }

    /// Whether the quorum was asked at that time or later, and confirmed the lock.
    pub(crate) fn is_proven_since(&self, moment: Moment) -> bool {
        moment.as_nanos() <= self.life.proven.load(Ordering::Acquire)
    }

    /// How long the lock can be trusted if nothing more is heard.
    pub(crate) fn valid_for(&self) -> Duration {
        let now = Moment::now();
        let proven = self.look(now);
        proven.map_or(Duration::ZERO, |proven| {
            self.deadline(proven).saturating_since(now)
        })
    }

    /// How long it takes until the state changes if nothing more is heard.
    pub(crate) fn steady_for(&self) -> Option<Duration> {
        let now = Moment::now();
        let proven = self.look(now)?;
        let next = match self.state() {
            GuardState::Held => proven + self.life.timeout / 3,
            _ => self.deadline(proven),
        };
        Some(next.saturating_since(now))
    }

    /// A quorum confirmed the nodes when it was asked at `sent`.
    ///
    /// Changes nothing if the lock is lost: what the guard was told once stays true.
    pub(crate) fn confirm(&self, sent: Moment) {
        let Some(proven) = self.look(Moment::now()) else {
            return;
        };
        let (old, new) = (proven.as_nanos(), sent.max(proven).as_nanos());
        // A failure means that somebody has just found the deadline passed.
        if self
            .life
            .proven
            .compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
        {
            self.life.shaken.store(false, Ordering::Release);
        }
    }

    /// The connection broke: the lock is not known to be lost, nor to be held.
    pub(crate) fn shake(&self) {
        self.life.shaken.store(true, Ordering::Release);
    }

    /// The lock is lost.
    pub(crate) fn lose(&self) {
        self.life.proven.store(LOST, Ordering::Release);
    }

    /// Tells the guard's events what changed since it was told last.
    pub(crate) fn tell(&self, counters: &Counters) {
        let state = self.state();
        let mut told = self.told.lock();
        if *told == state {
            return;
        }
        *told = state;
        drop(told);
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

    /// Tells the guard that somebody wants it to let go.
    pub(crate) fn ask_to_let_go(&self) {
        self.life.wanted.store(true, Ordering::Release);
        log::info!("somebody asks for the lock {}", self.life.path);
        self.send(GuardEvent::RevokeRequested);
    }

    pub(crate) fn lost(&self) -> Error {
        Error::Lost {
            path: self.life.path.clone(),
        }
    }

    fn deadline(&self, proven: Moment) -> Moment {
        proven + self.life.timeout / 2
    }

    /// Returns when the lock was last proven, or `None` once it is lost, which is final.
    fn look(&self, now: Moment) -> Option<Moment> {
        loop {
            let nanos = self.life.proven.load(Ordering::Acquire);
            if nanos == LOST {
                return None;
            }
            let proven = Moment::from_nanos(nanos);
            let alive = self.life.current.load(Ordering::Acquire) == self.life.session;
            if alive && now < self.deadline(proven) {
                return Some(proven);
            }
            let lost =
                self.life
                    .proven
                    .compare_exchange(nanos, LOST, Ordering::AcqRel, Ordering::Acquire);
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
mod tests {
    use super::*;
    use crate::session::hub::SessionState;

    const T: Duration = Duration::from_secs(60);

    fn vigil(age: Duration) -> Vigil {
        let proven = Moment::from_nanos(Moment::now().as_nanos() - age.as_nanos() as u64);
        let link = Link {
            state: SessionState::Connected,
            session: 1,
            timeout: T,
            connects: 1,
            since: proven,
        };
        Vigil::new(
            "/m",
            vec!["/m/n".into()],
            &link,
            Arc::new(AtomicI64::new(1)),
            proven,
        )
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
            let vigil = vigil(seconds(age));
            assert_eq!(vigil.state(), state, "{age} s");
            assert_eq!(vigil.check().is_err(), state == GuardState::Lost);
            assert!(vigil.valid_for() <= seconds(30 - age));
        }
    }

    #[test]
    fn lost_is_final() {
        let vigil = vigil(Duration::ZERO);
        vigil.lose();
        vigil.confirm(Moment::now());
        assert_eq!(vigil.state(), GuardState::Lost);
        assert!(vigil.check().unwrap_err().is_lost());
        assert_eq!(vigil.valid_for(), Duration::ZERO);
    }

    #[test]
    fn another_session_is_the_end_at_once() {
        let vigil = vigil(Duration::ZERO);
        vigil.life.current.store(2, Ordering::Release);
        assert!(vigil.check().is_err());
        vigil.life.current.store(1, Ordering::Release);
        assert!(vigil.check().is_err());
    }

    #[test]
    fn a_disconnect_is_forgiven_by_a_proof_only() {
        let vigil = vigil(Duration::ZERO);
        vigil.shake();
        assert_eq!(vigil.state(), GuardState::Suspect);
        assert_eq!(vigil.check(), Ok(()));
        vigil.confirm(Moment::now());
        assert_eq!(vigil.state(), GuardState::Held);
    }

    #[test]
    fn every_change_is_told_once_and_a_full_channel_keeps_the_newest() {
        let vigil = vigil(Duration::ZERO);
        vigil.tell(&Counters::default());
        vigil.shake();
        vigil.tell(&Counters::default());
        vigil.tell(&Counters::default());
        vigil.confirm(Moment::now());
        vigil.tell(&Counters::default());
        let events: Vec<_> = vigil.events().try_iter().collect();
        assert_eq!(events, [GuardEvent::Suspect, GuardEvent::Held]);
        for _ in 0..2 * UNREAD_EVENTS {
            vigil.ask_to_let_go();
        }
        vigil.lose();
        vigil.tell(&Counters::default());
        assert_eq!(vigil.events().try_iter().last(), Some(GuardEvent::Lost));
    }
}
