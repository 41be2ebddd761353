//! What a guard knows about its lease, by a clock of this machine that counts suspend.
//!
//! ```text
//! send ────── T/6 ────── T/3 ─────────────── 3T/4 ──────────── T
//!  the last    renewed    Suspect             Lost: nothing may  the earliest moment at which
//!  renewal                                    be done under it   the database gives it away
//! ```
//!
//! T is the lease. The database counts it from when it carried the renewal out, we from
//! before it was sent. The last quarter is for a database's clock that is set forward,
//! and for the holder to come to a stop.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::Mutex;

use crate::guard::{GuardEvent, GuardState};
use crate::recipe::validity::{Belief, Fades, Row, Stamp};
use crate::time::clock::Moment;

/// The lease of one lock that was taken.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) name: Arc<str>,
    pub(super) owner: String,
    pub(super) token: i64,
    /// T.
    length: Duration,
    known: Mutex<Known>,
    to: Sender<GuardEvent>,
    events: Receiver<GuardEvent>,
}

#[derive(Debug)]
struct Known {
    belief: Belief,
    /// When the last renewal that was confirmed was sent.
    confirmed: Moment,
    /// When the last renewal was sent, confirmed or not.
    sent: Moment,
    told: GuardState,
    released: bool,
}

impl Lease {
    /// A lock that was taken by a statement sent at `sent`.
    pub(super) fn new(
        name: Arc<str>,
        owner: String,
        token: i64,
        length: Duration,
        sent: Moment,
    ) -> Self {
        let (to, events) = unbounded();
        let known = Known {
            belief: Belief::new(stamp(sent)),
            confirmed: sent,
            sent,
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

    /// Returns what is known at `now`, and tells of it if it changed.
    pub(super) fn state(&self, now: Moment) -> GuardState {
        let mut known = self.known.lock();
        self.advance(&mut known, now)
    }

    /// Returns how long after `now` the lock can still be trusted.
    pub(super) fn valid_for(&self, now: Moment) -> Duration {
        let mut known = self.known.lock();
        self.advance(&mut known, now);
        let until = known.belief.stamp.map(|stamp| self.row().until(stamp));
        until.unwrap_or_default().saturating_sub(now.since_boot())
    }

    /// Returns when the state changes if nothing more is heard.
    pub(super) fn next_change(&self, now: Moment) -> Option<Moment> {
        let (told, mut belief) = {
            let known = self.known.lock();
            (known.told, known.belief)
        };
        let (row, time) = (self.row(), now.since_boot());
        if belief.state(row, time) != told {
            // It has changed since it was looked at.
            return Some(now);
        }
        Some(now + belief.changes_at(row, time)?.saturating_sub(time))
    }

    /// Returns when the last renewal that was confirmed was sent.
    pub(super) fn confirmed(&self) -> Moment {
        self.known.lock().confirmed
    }

    /// Returns when the row is worth nothing any more, whatever we sent to the database.
    pub(super) fn over(&self) -> Moment {
        self.known.lock().sent + self.length
    }

    /// A renewal is about to be sent.
    pub(super) fn sending(&self, sent: Moment) {
        self.known.lock().sent = sent;
    }

    /// A renewal that was sent at `sent` found the row and has renewed it.
    pub(super) fn confirm(&self, sent: Moment, now: Moment) {
        let mut known = self.known.lock();
        // If the deadline has passed it is lost, even if nobody has looked.
        if self.advance(&mut known, now) != GuardState::Lost {
            known.confirmed = known.confirmed.max(sent);
            known
                .belief
                .confirm(stamp(sent), self.row(), now.since_boot());
            self.advance(&mut known, now);
        }
    }

    /// The row is not ours any more.
    pub(super) fn lose(&self) {
        let mut known = self.known.lock();
        known.belief.stamp = None;
        self.tell(&mut known, GuardState::Lost);
    }

    /// The lock is given up: nothing is told or renewed from now on.
    pub(super) fn release(&self) {
        self.known.lock().released = true;
    }

    /// Returns `true` if there is nothing left to be renewed.
    pub(super) fn is_over(&self) -> bool {
        let known = self.known.lock();
        known.released || known.told == GuardState::Lost
    }

    fn row(&self) -> Row {
        Row(self.length)
    }

    fn advance(&self, known: &mut Known, now: Moment) -> GuardState {
        let state = known.belief.state(self.row(), now.since_boot());
        self.tell(known, state);
        state
    }

    fn tell(&self, known: &mut Known, state: GuardState) {
        if known.told == state || known.told == GuardState::Lost {
            return;
        }
        known.told = state;
        if !known.released {
            // We own a receiver, so that it cannot fail.
            let _ = self.to.send(match state {
                GuardState::Held => GuardEvent::Held,
                GuardState::Suspect => GuardEvent::Suspect,
                GuardState::Lost => GuardEvent::Lost,
            });
        }
    }
}

/// How long after one renewal the next is due: twice before the guard becomes Suspect.
pub(super) fn renewal(lease: Duration) -> Duration {
    lease / 6
}

/// A renewal proves the row from when it was sent.
fn stamp(sent: Moment) -> Stamp {
    let sent = sent.since_boot();
    Stamp {
        sent,
        touched: sent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Duration = Duration::from_secs(12);

    fn lease() -> (Lease, impl Fn(u64) -> Moment) {
        let start = Moment::now();
        let lease = Lease::new("a".into(), String::new(), 1, T, start);
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
    fn lost_is_final_even_when_a_late_renewal_is_confirmed() {
        let (lease, at) = lease();
        lease.confirm(at(8), at(9));
        assert_eq!(lease.state(at(9)), GuardState::Lost);
        assert_eq!(lease.state(at(0)), GuardState::Lost);
    }
}
