//! Who gets less time than the others while servers elect a leader.

use core::time::Duration;

use super::super::backoff::PART;
use super::{Candidate, Refusal, Rotation, Tried};

/// The least time for a server to greet while others elect a leader: as long as a server on another
/// continent takes. It grows, with the time without a server, to an equal share for each address of
/// the pause between rounds.
const ELECTING: Duration = Duration::from_millis(500);

impl<Address: Clone + Eq> Rotation<Address> {
    /// Gives a server less time, perhaps, while others elect a leader. No server has served for the time `away`.
    /// Returns whether that is less for the greeting.
    pub fn hurry(&mut self, candidate: &mut Candidate<Address>, away: Duration) -> bool {
        let (target, whole) = (&candidate.target, candidate.limit);
        candidate.limit = self.limit(target, whole, away);
        let accept_limit = self.accept_limit(target, candidate.limit, away);
        candidate.accept_limit = candidate.accept_limit.min(accept_limit);
        candidate.limit < whole
    }

    /// Returns how long to wait for the greeting of a server that has this `limit`.
    ///
    /// While others elect a leader, a server that does not answer at all may have been that leader, and
    /// would keep the client from the servers that find another. A server that hung up before, and now does
    /// not, is about to serve, and perhaps many clients at once. Where it is not most that hang up, the
    /// rest may have a leader and be slow: each of them is hurried once, after it had all of its time.
    pub(super) fn limit(&mut self, target: &Address, limit: Duration, away: Duration) -> Duration {
        let most_elect = self.most(Refusal::HungUp);
        let none_elects = self.refusals(Refusal::HungUp) == 0;
        let count = self.count;
        let one = self.tried(target);
        let is_spared = none_elects || one.refusal == Some(Refusal::HungUp);
        if is_spared || !most_elect && (!one.had_all || one.was_hurried) {
            one.had_all = true;
            return limit;
        }
        one.was_hurried = true;
        limit.min(while_electing(away, count))
    }

    /// Returns how long to wait for an address that has this `limit` to accept the connection.
    ///
    /// A server that is slow to greet accepts connections at once, or after a round trip if it is far away. So an
    /// address that accepted none when it was tried last would only keep the client from servers that elect a leader.
    pub(super) fn accept_limit(
        &self,
        target: &Address,
        limit: Duration,
        away: Duration,
    ) -> Duration {
        let unreached = Some(Refusal::Unreached);
        let is_it = |one: &Tried<Address>| one.address == *target && one.refusal == unreached;
        let was_unreached = self.unreached.contains(target) || self.tried.iter().any(is_it);
        let is_hurried = was_unreached && self.refusals(Refusal::HungUp) > 0;
        self.greeted.filter(|_| is_hurried).map_or(limit, |took| {
            let least = while_electing(away, self.count);
            limit.min(least.max(2 * took))
        })
    }
}

/// Returns how long to wait for a server that may be the one whose loss makes the others elect.
fn while_electing(away: Duration, addresses: usize) -> Duration {
    ELECTING.max(away / PART / addresses.max(1) as u32)
}
