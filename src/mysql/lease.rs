//! How long a holder may trust its row, by a clock of this machine that counts time in suspend.
//!
//! ```text
//! send ────── T/6 ────── T/3 ─────────────── 3T/4 ──────────── T
//!  the last    renewed    Suspect             Lost: nothing may  the earliest moment at which
//!  renewal                                    be done under it   the database gives it away
//! ```
//!
//! T is the lease. [`Validity`] decides both fractions, and the state of a guard before and
//! after them, as for the locks on ZooKeeper. This module keeps the proof: when the last
//! confirmed renewal was sent.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::Mutex;

use crate::error::LostReason;
use crate::guard::{GuardEvent, GuardState};
use zklock_core::validity::Validity;

/// The lease on the row of one lock that is held.
#[derive(Debug)]
pub(super) struct RowLease {
    pub(super) name: Arc<str>,
    pub(super) owner: String,
    pub(super) token: i64,
    /// The length T of the lease.
    length: Duration,
    known: Mutex<Known>,
    to: Sender<GuardEvent>,
    events: Receiver<GuardEvent>,
}

#[derive(Debug)]
struct Known {
    /// When the last confirmed renewal was sent.
    confirmed: Duration,
    /// When the last renewal was sent, confirmed or not.
    sent: Duration,
    /// Whether the last renewal waited for another program that had locked the row.
    blocked: bool,
    /// Why the lock is lost, if a reason was given; otherwise its time ran out.
    why: Option<LostReason>,
    told: GuardState,
    released: bool,
}

impl RowLease {
    /// Creates the lease on a row that was written by a statement sent at `sent`.
    pub(super) fn new(
        name: Arc<str>,
        owner: String,
        token: i64,
        length: Duration,
        sent: Duration,
    ) -> Self {
        let (to, events) = unbounded();
        let known = Known {
            confirmed: sent,
            sent,
            blocked: false,
            why: None,
            told: GuardState::Held,
            released: false,
        };
        Self {
            name,
            owner,
            token,
            length,
            known: Mutex::new(known),
            to,
            events,
        }
    }

    pub(super) fn events(&self) -> &Receiver<GuardEvent> {
        &self.events
    }

    /// Returns the state at `now`, and sends an event if it changed.
    pub(super) fn state(&self, now: Duration) -> GuardState {
        let mut known = self.known.lock();
        self.advance(&mut known, now)
    }

    /// Returns how long after `now` the lock can still be trusted.
    pub(super) fn valid_for(&self, now: Duration) -> Duration {
        let mut known = self.known.lock();
        match self.advance(&mut known, now) {
            GuardState::Lost => Duration::ZERO,
            _ => {
                let until = self.validity(&known).until;
                until.saturating_sub(now)
            }
        }
    }

    /// Returns how long after `now` the next event is due if nothing more is confirmed.
    pub(super) fn steady_for(&self, now: Duration) -> Option<Duration> {
        let known = self.known.lock();
        // This uses the state that was reported last: a change that was not reported is due at once.
        let next = self.validity(&known).next_change(known.told)?;
        Some(next.saturating_sub(now))
    }

    /// Returns when the last confirmed renewal was sent.
    pub(super) fn confirmed(&self) -> Duration {
        self.known.lock().confirmed
    }

    /// Returns when the next renewal is due: two are due before the guard becomes Suspect.
    pub(super) fn due(&self) -> Duration {
        self.confirmed() + self.length / 6
    }

    /// Returns when the lease has ended in the database, whatever was sent to it.
    pub(super) fn end(&self) -> Duration {
        self.known.lock().sent + self.length
    }

    /// Notes that a renewal is about to be sent.
    pub(super) fn sending(&self, sent: Duration) {
        self.known.lock().sent = sent;
    }

    /// Notes that a renewal that was sent at `sent` found the row and renewed it.
    pub(super) fn confirm(&self, sent: Duration, now: Duration) {
        let mut known = self.known.lock();
        // After the deadline the lock is lost, even if nobody has checked.
        if self.advance(&mut known, now) != GuardState::Lost {
            known.confirmed = known.confirmed.max(sent);
            known.blocked = false;
            self.advance(&mut known, now);
        }
    }

    /// Notes that the last renewal ended without an answer, or while it waited for the row.
    pub(super) fn block(&self) {
        self.known.lock().blocked = true;
    }

    /// Returns when the last renewal was sent, if it ended as in [`block`](Self::block).
    pub(super) fn blocked(&self) -> Option<Duration> {
        let known = self.known.lock();
        known.blocked.then_some(known.sent)
    }

    /// Notes that the row belongs to another acquisition, or is gone.
    pub(super) fn lose(&self, why: LostReason) {
        let mut known = self.known.lock();
        if known.told != GuardState::Lost {
            known.why = Some(why);
        }
        self.tell(&mut known, GuardState::Lost);
    }

    /// Returns why a lost lock was lost.
    pub(super) fn why_lost(&self) -> LostReason {
        self.known.lock().why.unwrap_or(LostReason::NotConfirmed)
    }

    /// Notes that the guard is gone: it gets no more events and renewals.
    pub(super) fn release(&self) {
        self.known.lock().released = true;
    }

    /// Returns `true` if there is nothing left to renew.
    pub(super) fn is_over(&self) -> bool {
        let known = self.known.lock();
        known.released || known.told == GuardState::Lost
    }

    fn validity(&self, known: &Known) -> Validity {
        Validity::of_lease(known.confirmed, self.length)
    }

    fn advance(&self, known: &mut Known, now: Duration) -> GuardState {
        let state = match known.told {
            GuardState::Lost => GuardState::Lost,
            _ => self.validity(known).state(now),
        };
        self.tell(known, state);
        state
    }

    fn tell(&self, known: &mut Known, state: GuardState) {
        if known.told == state || known.told == GuardState::Lost {
            return;
        }
        known.told = state;
        if !known.released {
            // The lease owns a receiver, so sending cannot fail.
            let _ = self.to.send(match state {
                GuardState::Held => GuardEvent::Held,
                GuardState::Suspect => GuardEvent::Suspect,
                GuardState::Lost => GuardEvent::Lost,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::clock::since_boot;

    const T: Duration = Duration::from_secs(12);

    fn lease() -> (RowLease, impl Fn(u64) -> Duration) {
        let start = since_boot();
        let lease = RowLease::new("a".into(), String::new(), 1, T, start);
        (lease, move |seconds| start + Duration::from_secs(seconds))
    }

    #[test]
    fn a_lease_that_is_not_renewed_becomes_suspect_and_then_lost_before_its_end() {
        let (lease, at) = lease();
        assert_eq!(lease.state(at(3)), GuardState::Held);
        assert_eq!(lease.valid_for(at(3)), Duration::from_secs(6));
        assert_eq!(lease.state(at(4)), GuardState::Suspect);
        assert_eq!(lease.state(at(8)), GuardState::Suspect);
        assert_eq!(lease.state(at(9)), GuardState::Lost);
        assert_eq!(lease.valid_for(at(9)), Duration::ZERO);
        let told: Vec<_> = lease.events().try_iter().collect();
        assert_eq!(told, [GuardEvent::Suspect, GuardEvent::Lost]);
    }

    #[test]
    fn a_renewal_counts_from_its_sending_and_an_older_one_takes_nothing_back() {
        let (lease, at) = lease();
        assert_eq!(lease.state(at(5)), GuardState::Suspect);
        lease.confirm(at(5), at(7));
        lease.confirm(at(2), at(7));
        assert_eq!(lease.state(at(8)), GuardState::Held);
        assert_eq!(lease.valid_for(at(8)), Duration::from_secs(6));
        let told: Vec<_> = lease.events().try_iter().collect();
        assert_eq!(told, [GuardEvent::Suspect, GuardEvent::Held]);
    }

    #[test]
    fn an_event_that_is_late_is_due_at_once() {
        let (lease, at) = lease();
        assert_eq!(lease.steady_for(at(1)), Some(Duration::from_secs(3)));
        assert_eq!(lease.steady_for(at(5)), Some(Duration::ZERO));
        assert_eq!(lease.state(at(5)), GuardState::Suspect);
        assert_eq!(lease.steady_for(at(5)), Some(Duration::from_secs(4)));
        assert_eq!(lease.state(at(9)), GuardState::Lost);
        assert_eq!(lease.steady_for(at(9)), None);
    }

    #[test]
    fn lost_is_final_even_when_a_late_renewal_is_confirmed() {
        let (lease, at) = lease();
        lease.confirm(at(8), at(9));
        assert_eq!(lease.state(at(9)), GuardState::Lost);
        assert_eq!(lease.state(at(0)), GuardState::Lost);
    }
}
