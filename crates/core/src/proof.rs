//! Asks the quorum whether a session and its nodes exist.
//!
//! A ping is no proof, because a follower that is cut off from its leader answers it. A `multi` that only
//! checks is a proof: it commits through the quorum, changes nothing and fires no watch. Without `multi`,
//! the proof is a write to a child that an ephemeral node cannot have: it fails through the quorum,
//! which proves the session. A read of the node shows the rest.

use alloc::string::String;
use alloc::vec::Vec;

use super::answer::{Answered, Failure};
use super::connection::{Capabilities, refused_write};
use zklock_jute::{ErrorCode, Reply, Request};

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
pub fn requests(capabilities: Capabilities, nodes: &[String]) -> Vec<Request> {
    if capabilities.multi {
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
pub fn judge(capabilities: Capabilities, answers: &[Answered]) -> Proof {
    if answers.is_empty() {
        return Proof::Unanswered;
    }
    if capabilities.multi && answers.len() == 1 {
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

#[cfg(test)]
mod tests {
    use super::*;
    use zklock_jute::{Reply, Stat};

    const OURS: Capabilities = Capabilities {
        multi: true,
        sync: true,
        resumes: true,
    };
    const HANDLE: Capabilities = Capabilities {
        multi: false,
        sync: false,
        resumes: false,
    };

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
        for knows in [OURS, HANDLE] {
            assert_eq!(judge(knows, &[]), Proof::Unanswered);
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
}
