//! The deletion of a node and the create of the next one in one transaction, so that a lock passes from one
//! thread to the next with one write of the quorum.
//!
//! The transaction is carried out as a whole: if the deletion is refused, the create counts as not sent. If
//! the create is refused, both count as not sent, and the refusal comes again when the create goes alone.

use alloc::borrow::ToOwned;
use alloc::vec::Vec;

use super::answer::{Answered, Failure};
use super::attempt::Orphan;
use super::path;
use zklock_jute::{ErrorCode, Reply, Request, culprit};

/// Returns the transaction of these `ops`, the first of which deletes a node, and of this create.
pub fn request(mut ops: Vec<Request>, mut create: Request) -> Request {
    // In a transaction, servers tell no stat.
    if let Request::Create { stat, .. } = &mut create {
        *stat = false;
    }
    ops.insert(1, create);
    Request::Multi(ops)
}

/// Returns what a create has left, by its answer, if nobody waits for the create any more.
pub fn orphan(answered: Answered, prefix: &str) -> Option<Orphan> {
    match answered.map_err(Failure::sorted) {
        Ok(Reply::Created { path, .. }) => Some(Orphan::Node(path::name(&path).to_owned())),
        Ok(_) | Err(Failure::Lost) => Some(Orphan::Prefix(prefix.to_owned())),
        Err(_) => None,
    }
}

/// Splits an answer to the transaction into those to the deletion and to the create. If only one of the two
/// is refused, the other counts as not sent; if what is written besides is refused, both do.
pub fn parts(answered: Answered) -> (Answered, Answered) {
    let neither = || (Err(Failure::NotSent), Err(Failure::NotSent));
    let results = match answered.map_err(Failure::sorted) {
        Ok(Reply::Multi(results)) => results,
        // What is wrong with the whole need not be wrong with either part, so each goes alone.
        Err(Failure::TooLong(_) | Failure::Refused(ErrorCode::UNIMPLEMENTED)) => return neither(),
        // A refusal of the whole does not say how far the server came.
        Ok(_) | Err(Failure::Refused(_)) => return (Err(Failure::Lost), Err(Failure::Lost)),
        Err(failure) => return (Err(failure), Err(failure)),
    };
    match culprit(&results) {
        Some((0, code)) if is_verdict(code) => {
            return (Err(Failure::Refused(code)), Err(Failure::NotSent));
        }
        // The create may be refused because of the node that was to go: a quota still counts it.
        Some(_) => return neither(),
        None => {}
    }
    let mut results = results.into_iter();
    match (results.next(), results.next()) {
        (Some(Ok(_)), Some(Ok(Reply::Created { path, stat }))) => {
            (Ok(Reply::Nothing), Ok(Reply::Created { path, stat }))
        }
        _ => (Err(Failure::Lost), Err(Failure::Lost)),
    }
}

/// Returns whether this code is about the part itself, and not about another part that failed.
fn is_verdict(code: ErrorCode) -> bool {
    code != ErrorCode::OK && code != ErrorCode::RUNTIME_INCONSISTENCY
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::TooLong;

    #[test]
    fn what_is_wrong_with_one_part_is_told_to_whom_it_belongs() {
        let (ok, after) = (ErrorCode::OK, ErrorCode::RUNTIME_INCONSISTENCY);
        let (no_node, no_auth) = (ErrorCode::NO_NODE, ErrorCode::NO_AUTH);
        let refused = |code| Err(Failure::Refused(code));
        let (not_sent, lost) = (Err(Failure::NotSent), Err(Failure::Lost));
        let long = Err(Failure::TooLong(TooLong {
            reply: false,
            bytes: 2,
            limit: 1,
        }));
        let multi = |results| Ok(Reply::Multi(results));
        let (path, stat) = ("/m/n-0000000007".to_owned(), None);
        let created = Reply::Created {
            path: path.clone(),
            stat,
        };
        #[rustfmt::skip]
        let table = [
            (multi(vec![Ok(Reply::Nothing), Ok(created)]), (Ok(Reply::Nothing), Ok(Reply::Created { path, stat }))),
            (multi(vec![Err(no_node), Err(after)]), (refused(no_node), not_sent.clone())),
            (multi(vec![Err(no_auth), Err(after)]), (refused(no_auth), not_sent.clone())),
            // A quota still counts the node that was to go.
            (multi(vec![Err(ok), Err(no_auth)]), (not_sent.clone(), not_sent.clone())),
            (multi(vec![Err(after), Err(no_auth)]), (not_sent.clone(), not_sent.clone())),
            (multi(vec![Err(ok), Err(after)]), (not_sent.clone(), not_sent.clone())),
            // Neither part pays for what is wrong with both together.
            (long, (not_sent.clone(), not_sent.clone())),
            (refused(ErrorCode::UNIMPLEMENTED), (not_sent.clone(), not_sent.clone())),
            (refused(ErrorCode::MARSHALLING_ERROR), (lost.clone(), lost.clone())),
            (lost.clone(), (lost.clone(), lost.clone())),
            (not_sent.clone(), (not_sent.clone(), not_sent)),
            // An answer that no server gives.
            (multi(vec![]), (lost.clone(), lost.clone())),
            (multi(vec![Ok(Reply::Nothing)]), (lost.clone(), lost.clone())),
            (Ok(Reply::Nothing), (lost.clone(), lost)),
        ];
        for (answered, expected) in table {
            assert_eq!(parts(answered.clone()), expected, "{answered:?}");
        }
    }
}
