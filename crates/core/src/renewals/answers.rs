//! The answers and events about the locks that are held.

use alloc::vec::Vec;
use core::time::Duration;

use super::Renewals;
use super::verdict::{Check, REVOKE, Verdict};
use crate::answer::{Answered, Failure};
use crate::proof::{self, Proof};
use zklock_jute::{ErrorCode, EventKind, Reply};

impl<L: Clone> Renewals<L> {
    /// Takes in the answers to a check.
    pub fn checked(
        &mut self,
        check: &Check,
        answers: &[Answered],
        transacts: bool,
    ) -> Vec<(u64, Verdict)> {
        match proof::judge(transacts, answers) {
            Proof::Confirmed => {
                self.look_at_these(&check.whose);
                let confirmed = Verdict::Confirmed(check.stamp);
                check.whose.iter().map(|id| (*id, confirmed)).collect()
            }
            Proof::Gone(at) => {
                // A failed check confirms none of the others.
                self.urgent = true;
                let whose = check.whose.get(at);
                whose
                    .map(|id| (*id, Verdict::Missing))
                    .into_iter()
                    .collect()
            }
            Proof::Unanswered if answers.iter().any(is_thrown_away) => {
                self.asks_again_soon(&check.whose);
                Vec::new()
            }
            Proof::Hidden(_) | Proof::Unanswered => Vec::new(),
        }
    }

    /// Makes these leases be asked about again before the next check would be due.
    fn asks_again_soon(&mut self, ids: &[u64]) {
        for id in ids {
            if let Some(entry) = self.leases.get_mut(id) {
                entry.is_thrown_away = true;
            }
        }
        self.look_at_these(ids);
    }

    /// Takes in the answer to a [`watch`](super::watch), or to an [`ask_why`](super::ask_why).
    pub fn was_read(&mut self, id: u64, answered: &Answered) -> Option<(u64, Verdict)> {
        match answered.as_ref().map_err(|failure| failure.sorted()) {
            Ok(Reply::Data { data, .. }) if REVOKE.contains(&&data[..]) => {
                Some((id, Verdict::RevokeRequested))
            }
            Err(Failure::Refused(ErrorCode::NO_NODE)) => Some((id, Verdict::Missing)),
            Err(Failure::Lost | Failure::NotSent) => {
                self.unwatch(id);
                None
            }
            _ => None,
        }
    }

    /// Takes in that the watch on a node of this lease has fired.
    pub fn happened(&mut self, id: u64, kind: EventKind) -> Option<(u64, Verdict)> {
        match kind {
            EventKind::Deleted => Some((id, Verdict::Deleted)),
            // The next look reads and watches the node again.
            _ => {
                self.unwatch(id);
                if let Some(entry) = self.leases.get_mut(&id) {
                    entry.since = Duration::ZERO;
                }
                None
            }
        }
    }
}

/// Returns whether a server that has too many requests has not looked at this one.
fn is_thrown_away(answered: &Answered) -> bool {
    matches!(answered, Err(failure) if failure.sorted() == Failure::NotSent)
}

#[cfg(test)]
mod tests {
    use super::super::verdict::{BYTES_A_CHECK, NODES_A_CHECK};
    use super::*;
    use crate::validity::Stamp;
    use zklock_jute::{Reply, Stat};

    const TRANSACTS: bool = true;
    const STAMP: Stamp = Stamp {
        sent: Duration::from_secs(9),
        touched: Duration::from_secs(8),
    };

    /// Creates locks that were looked at and asked about, none of which is due.
    fn held(count: u64) -> Renewals<()> {
        let mut renewals = Renewals::default();
        for _ in 0..count {
            renewals.begin((), STAMP.sent, STAMP.sent);
        }
        renewals.take_due(STAMP.sent);
        renewals
    }

    fn due(renewals: &mut Renewals<()>) -> Vec<u64> {
        let due = renewals.take_due(STAMP.sent).into_iter();
        due.map(|(id, ())| id).collect()
    }

    fn multi(results: Vec<Result<Reply, ErrorCode>>) -> [Answered; 1] {
        [Ok(Reply::Multi(results))]
    }

    #[test]
    fn a_check_of_long_names_fits_into_one_request() {
        let lengths = |nodes: Vec<String>| {
            let nodes = nodes.into_iter().map(|node| (0, node));
            let checks = Check::of_all(nodes, STAMP, TRANSACTS);
            let lengths = checks.iter().map(|(check, _)| check.whose.len());
            lengths.collect::<Vec<_>>()
        };
        let rest = 1_200 - 2 * NODES_A_CHECK;
        let short = vec!["/m/n".to_owned(); 1_200];
        assert_eq!(lengths(short), [NODES_A_CHECK, NODES_A_CHECK, rest]);
        let long = vec![format!("/{}", "m".repeat(2_000)); 1_200];
        assert_eq!(lengths(long)[0], BYTES_A_CHECK / 2_001);
        let longer = vec![format!("/{}", "m".repeat(100_000)); 2];
        assert_eq!(lengths(longer), [1, 1]);
    }

    #[test]
    fn a_check_that_is_carried_out_confirms_all_that_it_names_as_of_its_sending() {
        let mut renewals = held(3);
        let nodes = [0, 2, 2].map(|id| (id, format!("/m/{id}")));
        let check = Check::of_all(nodes, STAMP, TRANSACTS).remove(0).0;
        let all = multi(vec![Ok(Reply::Checked); 3]);
        let said = renewals.checked(&check, &all, TRANSACTS);
        assert_eq!(said, [0, 2, 2].map(|id| (id, Verdict::Confirmed(STAMP))));
        assert_eq!(due(&mut renewals), [0, 2]);
    }

    #[test]
    fn a_check_that_fails_says_whose_node_is_gone_and_asks_about_the_others_at_once() {
        let mut renewals = held(3);
        let nodes = [0, 2].map(|id| (id, format!("/m/{id}")));
        let check = Check::of_all(nodes, STAMP, TRANSACTS).remove(0).0;
        let one = multi(vec![Err(ErrorCode::OK), Err(ErrorCode::NO_NODE)]);
        let said = renewals.checked(&check, &one, TRANSACTS);
        assert_eq!(said, [(2, Verdict::Missing)]);
        assert!(renewals.urgent);
        // A request that went together with a check was refused for a node that is nobody's.
        let check = Check::of_one(1, STAMP);
        assert_eq!(renewals.checked(&check, &one, TRANSACTS), []);
    }

    #[test]
    fn without_an_answer_a_check_says_nothing() {
        let mut renewals = held(1);
        let check = Check::of_one(0, STAMP);
        assert_eq!(
            renewals.checked(&check, &[Err(Failure::Lost)], TRANSACTS),
            []
        );
        assert!(due(&mut renewals).is_empty());
        assert!(!renewals.urgent);
    }

    #[test]
    fn a_read_tells_of_a_request_to_release_and_of_a_node_that_is_gone() {
        let read = |answered: Answered| {
            let mut renewals = held(1);
            renewals.unwatched.clear();
            let said = renewals.was_read(0, &answered);
            (said.map(|said| said.1), renewals.unwatched.is_empty())
        };
        let data = |data: &[u8]| {
            let (data, stat) = (data.to_vec().into(), Stat::default());
            Ok(Reply::Data { data, stat })
        };
        for revoke in REVOKE {
            let asked = Some(Verdict::RevokeRequested);
            assert_eq!(read(data(revoke)), (asked, true));
        }
        assert_eq!(read(data(b"{}")), (None, true));
        assert_eq!(read(Ok(Reply::Stat(Stat::default()))), (None, true));
        let gone = Err(Failure::Refused(ErrorCode::NO_NODE));
        assert_eq!(read(gone), (Some(Verdict::Missing), true));
        let throttled = Failure::Refused(ErrorCode::THROTTLED);
        for lost in [Failure::Lost, Failure::NotSent, throttled] {
            assert_eq!(read(Err(lost)), (None, false));
        }
    }

    #[test]
    fn an_event_tells_of_a_deletion_and_otherwise_takes_the_watch() {
        for (kind, said, is_watched) in [
            (EventKind::Deleted, Some((0, Verdict::Deleted)), true),
            (EventKind::DataChanged, None, false),
        ] {
            let mut renewals = held(1);
            renewals.unwatched.clear();
            assert_eq!(renewals.happened(0, kind), said);
            assert_eq!(renewals.unwatched.is_empty(), is_watched);
        }
    }
}
