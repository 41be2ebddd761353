//! Whether a lock may be granted on what the quorum has confirmed, or what to do first.
//!
//! ```text
//!  no proof on this connection ──► ask ──► pause until the leader must have heard ──► ask ──► grant
//!                                   └──────────────(nothing was due)────────────────────────────▲
//! ```
//!
//! The first proof on a connection shows at once whether the node is there. It also shows that the
//! connection's handshake was the leader's, so if the connection breaks, the next one need not wait again.

use core::time::Duration;

use super::lifetime::Lifetime;
use super::validity::Stamp;

/// This many proofs are needed only if answers take too long.
const MANY: u32 = 6;

/// The confirmations that a lock may be granted on.
#[derive(Clone, Copy, Debug, Default)]
pub struct GrantProof {
    /// The stamp of the last request that a quorum committed in this session.
    pub stamp: Option<Stamp>,
    /// How many of the proofs asked for could have been enough.
    proofs: u32,
    /// How long the answer to that request took.
    pub took: Duration,
}

/// The next step before a grant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Next {
    /// The lock may be granted.
    Grant,
    /// Ask the quorum.
    Ask {
        /// Whether the answer counts among those that can be enough.
        counts: bool,
    },
    /// Wait for this long: no proof that is sent sooner can be enough.
    Pause(Duration),
}

impl GrantProof {
    /// Creates a proof that rests on a committed request.
    pub fn on(stamp: Stamp) -> Self {
        Self {
            stamp: Some(stamp),
            ..Self::default()
        }
    }

    /// Creates a proof that rests on what was committed with this stamp, if anything was.
    pub fn of(stamp: Option<Stamp>) -> Self {
        stamp.map(Self::on).unwrap_or_default()
    }

    /// Like [`on`](Self::on), where the answer to that request arrives now.
    pub fn answered(stamp: Stamp, now: Duration) -> Self {
        Self {
            took: now.saturating_sub(stamp.sent),
            ..Self::on(stamp)
        }
    }

    /// Returns the next step before a grant.
    pub fn next(&self, lifetime: &Lifetime, now: Duration) -> Next {
        let stamp = self.stands(lifetime);
        if stamp.is_some_and(|stamp| lifetime.supports_a_grant(stamp, self.proofs, now)) {
            return Next::Grant;
        }
        let provable_at = lifetime.provable_at(now).filter(|time| now < *time);
        match provable_at {
            Some(time) if stamp.is_some() => Next::Pause(time - now),
            provable_at => Next::Ask {
                counts: provable_at.is_none(),
            },
        }
    }

    /// Returns when to ask again, so that a lock can be granted at any time: the answer must arrive before this proof
    /// is too old.
    pub fn renews_at(&self, lifetime: &Lifetime, now: Duration) -> Duration {
        let (stamp, timeout) = (self.stands(lifetime), lifetime.timeout());
        let before = (self.took * 5 / 4).clamp(timeout / 24, timeout / 12);
        stamp.map_or(now, |stamp| stamp.sent + timeout / 6 - before)
    }

    /// Returns the stamp, if it is of this connection.
    fn stands(&self, lifetime: &Lifetime) -> Option<Stamp> {
        let here = |stamp: &Stamp| lifetime.is_of_this_connection(*stamp);
        self.stamp.filter(here)
    }

    /// Notes that a quorum confirmed the nodes when it was asked with this stamp, in an answer that arrives now. Returns
    /// whether so many proofs have counted by now that the answers must take too long.
    pub fn confirmed(&mut self, stamp: Stamp, counts: bool, now: Duration) -> bool {
        self.stamp = Some(stamp);
        self.took = now.saturating_sub(stamp.sent);
        self.proofs += u32::from(counts);
        counts && self.proofs == MANY
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validity::ENOUGH_PROOFS;

    const T: Duration = Duration::from_secs(60);
    const START: Duration = Duration::from_secs(1_000);

    #[test]
    fn a_session_that_was_just_opened_needs_nothing_but_the_create() {
        let lifetime = Lifetime::new(T, START, START);
        let proof = GrantProof::on(lifetime.stamp(START));
        assert_eq!(proof.next(&lifetime, START), Next::Grant);
        let none = GrantProof::default();
        assert_eq!(none.next(&lifetime, START), Next::Ask { counts: true });
    }

    #[test]
    fn after_a_reconnect_the_node_is_asked_for_once_before_the_wait() {
        let mut lifetime = Lifetime::new(T, START, START);
        let mut proof = GrantProof::on(lifetime.stamp(START));
        let back = START + T;
        lifetime.greeted(T, back, back);
        assert_eq!(proof.next(&lifetime, back), Next::Ask { counts: false });
        assert!(!proof.confirmed(lifetime.stamp(back), false, back));
        assert_eq!(proof.next(&lifetime, back), Next::Pause(T / 4));
        let later = back + T / 4;
        assert_eq!(proof.next(&lifetime, later), Next::Ask { counts: true });
        assert!(!proof.confirmed(lifetime.stamp(later), true, later));
        assert_eq!(proof.next(&lifetime, later), Next::Grant);
    }

    /// Waits for a while where answers take this long. Returns whether a lock could have been granted at any time, and
    /// how many proofs that took.
    fn waits_for(took: Duration) -> (bool, u32) {
        let mut lifetime = Lifetime::new(T, START, START + took);
        let mut now = START + took;
        let create = lifetime.stamp(now);
        now += took;
        lifetime.answered(create.sent, now);
        let mut proof = GrantProof::answered(create, now);
        let (mut is_ready, mut count) = (true, 0);
        while now < START + T * 10 {
            now = now.max(proof.renews_at(&lifetime, now));
            let stamp = lifetime.stamp(now);
            now += took;
            is_ready &= proof.next(&lifetime, now - Duration::from_nanos(1)) == Next::Grant;
            lifetime.answered(stamp.sent, now);
            proof.confirmed(stamp, true, now);
            count += 1;
        }
        (is_ready, count)
    }

    #[test]
    fn the_next_in_line_asks_so_early_that_its_proof_is_never_too_old() {
        for part in 13..40 {
            let (is_ready, count) = waits_for(T / part);
            assert!(is_ready, "a round trip takes T/{part}");
            assert!(count <= 120, "{count}");
        }
        // Where answers take no time, they are not asked for more often than every T/8.
        assert_eq!(waits_for(T / 10_000), (true, 80));
    }

    #[test]
    fn where_answers_take_long_several_proofs_are_enough() {
        let mut lifetime = Lifetime::new(T, START, START);
        let mut proof = GrantProof::default();
        let mut now = START;
        for counted in 1..=MANY {
            let next = match counted <= ENOUGH_PROOFS {
                true => Next::Ask { counts: true },
                false => Next::Grant,
            };
            assert_eq!(proof.next(&lifetime, now), next);
            let stamp = lifetime.stamp(now);
            now += T / 5;
            lifetime.answered(stamp.sent, now);
            assert_eq!(proof.confirmed(stamp, true, now), counted == MANY);
        }
    }
}
