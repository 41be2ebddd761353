//! Asks the quorum whether a session and its nodes exist, and says whether a lock may be granted on the answer.
//!
//! A ping is no proof, because a follower that is cut off from its leader answers it. A `multi` that only
//! checks is a proof: it commits through the quorum, changes nothing and fires no watch. Without `multi`,
//! the proof is a write to a child that an ephemeral node cannot have: it fails through the quorum,
//! which proves the session. A read of the node shows the rest.
//!
//! ```text
//!  no proof on this connection ──► ask ──► pause until the leader must have heard ──► ask ──► grant
//!                                   └──────────────(nothing was due)────────────────────────────▲
//! ```
//!
//! The first proof on a connection shows at once whether the node is there. It also shows that the
//! connection's handshake was the leader's, so if the connection breaks, the next one need not wait again.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use super::answer::{Answered, Failure};
use super::connection::refused_write;
use super::lifetime::Lifetime;
use super::validity::Stamp;
use zklock_jute::{ErrorCode, Reply, Request};

/// This many proofs are needed only if answers take too long.
const MANY: u32 = 6;

/// The verdict on the answers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Proof {
    /// The session is alive and owns the nodes, by a committed check.
    Confirmed,
    /// The node at this index is gone.
    Gone(usize),
    /// This client may not read the node at this index. Asking again would not help.
    Hidden(usize),
    /// No answer decides.
    Unanswered,
}

/// Returns the requests that ask for these nodes.
pub fn requests(transacts: bool, nodes: &[String]) -> Vec<Request> {
    if transacts {
        let check = |path: &String| Request::check(path.clone());
        return vec![Request::Multi(nodes.iter().map(check).collect())];
    }
    let both = |node: &String| [refused_write(format!("{node}/_")), Request::exists(node)];
    nodes.iter().flat_map(both).collect()
}

/// Judges the answers to [`requests`].
///
/// What the server lacks may have been found out since it was asked. Without `multi` there are two answers
/// to each node.
pub fn judge(transacts: bool, answers: &[Answered]) -> Proof {
    if answers.is_empty() {
        return Proof::Unanswered;
    }
    if transacts && answers.len() == 1 {
        return match answers.first() {
            Some(Ok(Reply::Multi(results))) => {
                let first = |code| results.iter().position(|result| *result == Err(code));
                match (first(ErrorCode::NO_NODE), first(ErrorCode::NO_AUTH)) {
                    (Some(at), _) => Proof::Gone(at),
                    (_, Some(at)) => Proof::Hidden(at),
                    _ if results.iter().all(Result::is_ok) => Proof::Confirmed,
                    _ => Proof::Unanswered,
                }
            }
            Some(Err(Failure::Refused(ErrorCode::NO_NODE))) => Proof::Gone(0),
            _ => Proof::Unanswered,
        };
    }
    for (at, pair) in answers.chunks(2).enumerate() {
        match pair {
            [Err(Failure::Refused(ErrorCode::NO_NODE)), Ok(_)] => {}
            [_, Err(Failure::Refused(ErrorCode::NO_NODE))] => return Proof::Gone(at),
            _ => return Proof::Unanswered,
        }
    }
    Proof::Confirmed
}

/// Returns why answers are no proof, although they do not say that a node is [`Gone`](Proof::Gone).
///
/// Without `multi`, a proof begins with a refused write.
pub fn failure(answers: Vec<Answered>) -> Failure {
    let refusal = Failure::Refused(ErrorCode::NO_NODE);
    let failures = answers.into_iter().filter_map(Result::err);
    let mut others = failures.filter(|failure| *failure != refusal);
    others.next().unwrap_or(Failure::Lost)
}

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

    /// Returns what this proof will be if the quorum confirms the nodes with this stamp.
    #[must_use]
    pub fn with(self, stamp: Stamp) -> Self {
        let stamp = Some(stamp);
        Self { stamp, ..self }
    }

    /// Returns the next step before a grant.
    pub fn next(&self, lifetime: &Lifetime, now: Duration) -> Next {
        let stamp = self.stands(lifetime);
        let asked = (self.proofs, self.took);
        if stamp.is_some_and(|stamp| lifetime.supports_a_grant(stamp, asked, now)) {
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
    use zklock_jute::Stat;

    /// Whether our own client has transactions, and a handle.
    const OURS: bool = true;
    const HANDLE: bool = false;

    #[test]
    fn a_multi_is_judged_by_its_parts() {
        let inconsistent = Err(ErrorCode::RUNTIME_INCONSISTENCY);
        let multi = |results| judge(OURS, &[Ok(Reply::Multi(results))]);
        assert_eq!(multi(vec![Ok(Reply::Checked); 2]), Proof::Confirmed);
        let failed = vec![
            Err(ErrorCode::OK),
            Err(ErrorCode::NO_NODE),
            inconsistent.clone(),
        ];
        assert_eq!(multi(failed), Proof::Gone(1));
        assert_eq!(multi(vec![inconsistent]), Proof::Unanswered);
        assert_eq!(judge(OURS, &[Err(Failure::Lost)]), Proof::Unanswered);
        assert_eq!(judge(OURS, &[]), Proof::Unanswered);
    }

    #[test]
    fn without_a_multi_each_node_takes_a_write_and_a_look() {
        let nodes = ["/m/a".to_owned(), "/m/b".to_owned()];
        assert_eq!(requests(HANDLE, &nodes).len(), 4);
        assert_eq!(requests(OURS, &nodes).len(), 1);
        let no_node = Err(Failure::Refused(ErrorCode::NO_NODE));
        let there = Ok(Reply::Stat(Stat::default()));
        let alive = [
            no_node.clone(),
            there.clone(),
            no_node.clone(),
            there.clone(),
        ];
        assert_eq!(judge(HANDLE, &alive), Proof::Confirmed);
        let gone = [no_node.clone(), there.clone(), no_node.clone(), no_node];
        assert_eq!(judge(HANDLE, &gone), Proof::Gone(1));
        // A follower may refuse a write for lack of rights by itself.
        for no_proof in [Failure::Lost, Failure::Refused(ErrorCode::NO_AUTH)] {
            let answers = [Err(no_proof), there.clone()];
            assert_eq!(judge(HANDLE, &answers), Proof::Unanswered);
        }
    }

    #[test]
    fn no_answer_is_no_proof_and_what_is_found_out_meanwhile_changes_none() {
        for transacts in [OURS, HANDLE] {
            assert_eq!(judge(transacts, &[]), Proof::Unanswered);
        }
        let alive = [
            Err(Failure::Refused(ErrorCode::NO_NODE)),
            Ok(Reply::Stat(Stat::default())),
        ];
        assert_eq!(judge(OURS, &alive), Proof::Confirmed);
        let multi = [Ok(Reply::Multi(vec![Ok(Reply::Checked)]))];
        assert_eq!(judge(HANDLE, &multi), Proof::Unanswered);
    }

    #[test]
    fn the_refusal_that_a_proof_begins_with_is_not_why_the_rest_has_no_answer() {
        let no_node = || Err(Failure::Refused(ErrorCode::NO_NODE));
        for lost in [Failure::Lost, Failure::NotSent, Failure::Closed] {
            let answers = vec![no_node(), Err(lost)];
            assert_eq!(judge(HANDLE, &answers), Proof::Unanswered);
            assert_eq!(failure(answers), lost);
        }
        assert_eq!(failure(vec![no_node()]), Failure::Lost);
    }

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

    #[test]
    fn after_a_reconnect_to_a_later_leader_two_proofs_are_enough() {
        let mut lifetime = Lifetime::new(T, START, START);
        let last = START + T / 2;
        lifetime.committed(last, 1 << 32);
        let mut proof = GrantProof::on(lifetime.stamp(last));
        let back = last + T * 9 / 10;
        lifetime.greeted(T, back, back);
        for counts in [false, true] {
            assert_eq!(proof.next(&lifetime, back), Next::Ask { counts });
            let stamp = lifetime.stamp(back);
            lifetime.answered(back, back);
            lifetime.committed(back, 2 << 32);
            assert!(!proof.confirmed(stamp, counts, back));
        }
        assert_eq!(proof.next(&lifetime, back), Next::Grant);
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

    /// As where the disks of the servers are slow.
    #[test]
    fn where_answers_take_up_to_a_quarter_of_the_session_timeout_one_proof_is_enough() {
        for (took, is_enough) in [(T / 5, true), (T * 6 / 25, true), (T * 13 / 50, false)] {
            let mut lifetime = Lifetime::new(T, START, START);
            let mut proof = GrantProof::default();
            let (sent, now) = (START + T, START + T + took);
            for pinged in (1..6).map(|part| START + T * part / 6) {
                lifetime.answered(pinged, pinged);
            }
            let stamp = lifetime.stamp(sent);
            lifetime.answered(sent, now);
            proof.confirmed(stamp, true, now);
            let granted = proof.next(&lifetime, now) == Next::Grant;
            assert_eq!(granted, is_enough, "{took:?}");
        }
    }

    #[test]
    fn the_session_lasts_for_another_proof_that_takes_as_long_as_the_last() {
        let (lifetime, now) = (Lifetime::new(T, START, START), START + T * 17 / 20);
        for (took, is_granted) in [(T / 100, true), (T / 8, true), (T * 2 / 13, false)] {
            let stamp = lifetime.stamp(now - took);
            let mut proven = GrantProof::default();
            proven.confirmed(stamp, true, now);
            for proof in [GrantProof::answered(stamp, now), proven] {
                let granted = proof.next(&lifetime, now) == Next::Grant;
                assert_eq!(granted, is_granted, "{proof:?}");
            }
        }
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
            lifetime.answered(now, now + T / 10);
            now += T * 13 / 50;
            lifetime.answered(stamp.sent, now);
            assert_eq!(proof.confirmed(stamp, true, now), counted == MANY);
        }
    }
}
