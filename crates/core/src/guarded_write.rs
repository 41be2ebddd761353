//! Writes that a guard protects: one transaction that first checks the guard's nodes.
//!
//! The node of a granted lock exists exactly as long as the lock is held, and no contender can come ahead of it. So what
//! is committed together with a check of the node is committed by the holder, whatever any clock says. A transaction is
//! sent once: if its answer is lost, nobody knows whether it was carried out, and a second one might do harm.

use alloc::vec::Vec;

use super::answer::{Answered, Failure, TooLong};
use zklock_jute::{ErrorCode, Reply, Request, culprit};

/// What became of a guarded write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Written {
    /// All of it was carried out. The nodes were there, which proves the lock.
    Committed,
    /// Nothing was carried out: a node of the guard is gone.
    Gone,
    /// Nothing was carried out: the check of the node with this number was refused.
    CheckRefused(usize, ErrorCode),
    /// Nothing was carried out: the operation with this number was refused.
    Refused(usize, ErrorCode),
    /// Nothing was carried out: the whole was refused.
    AllRefused(ErrorCode),
    /// It is too long to send.
    TooLong(TooLong),
    /// It was not sent, and may be sent through the next connection.
    NotSent,
    /// It was carried out, or was not, or may still be, as long as the nodes stand.
    InDoubt,
}

/// Returns the number of the first operation that deletes one of these nodes, which only the guard's release may.
pub fn deletes(nodes: &[impl AsRef<str>], ops: &[Request]) -> Option<usize> {
    let is_own = |path: &str| nodes.iter().any(|node| node.as_ref() == path);
    let deletes = |op: &Request| matches!(op, Request::Delete { path, .. } if is_own(path));
    ops.iter().position(deletes)
}

/// Returns the transaction that carries out these operations if all nodes exist.
pub fn request(nodes: &[impl AsRef<str>], ops: &[Request]) -> Request {
    let checks = nodes.iter().map(|node| Request::check(node.as_ref()));
    let parts: Vec<_> = checks.chain(ops.iter().cloned()).collect();
    Request::Multi(parts)
}

/// Returns what became of a guarded write whose first `checks` are of nodes.
pub fn judge(checks: usize, answered: &Answered) -> Written {
    let results = match answered {
        Ok(Reply::Multi(results)) => results,
        Err(Failure::Refused(code)) => return Written::AllRefused(*code),
        Err(Failure::TooLong(long)) => return Written::TooLong(*long),
        Err(Failure::NotSent) => return Written::NotSent,
        Ok(_) | Err(Failure::Lost | Failure::Closed) => return Written::InDoubt,
    };
    match culprit(results) {
        None => Written::Committed,
        Some((place, code)) => match place.checked_sub(checks) {
            Some(op) => Written::Refused(op, code),
            None if code == ErrorCode::NO_NODE => Written::Gone,
            None => Written::CheckRefused(place, code),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: [&str; 2] = ["/m/1", "/m/2"];

    fn set(path: &str) -> Request {
        Request::set(path, Vec::new(), -1)
    }

    #[test]
    fn the_nodes_are_checked_before_anything_is_written() {
        let Request::Multi(parts) = request(&NODES, &[set("/a")]) else {
            panic!("it is a transaction");
        };
        let checks = NODES.map(Request::check);
        assert_eq!(parts[..2], checks);
        assert_eq!(parts[2..], [set("/a")]);
        let delete = |path: &str| Request::delete(path.to_owned());
        assert_eq!(deletes(&NODES, &[set("/m/1"), delete("/m/2")]), Some(1));
        assert_eq!(deletes(&NODES, &[delete("/m")]), None);
    }

    #[test]
    fn a_refusal_says_whether_the_lock_is_gone_or_an_operation_failed() {
        use ErrorCode as Code;

        let failed = |at: usize, code| {
            let behind = |place| match place {
                place if place < at => Err(Code::OK),
                place if place == at => Err(code),
                _ => Err(Code::RUNTIME_INCONSISTENCY),
            };
            Ok(Reply::Multi((0..3).map(behind).collect()))
        };
        let done = Ok(Reply::Multi(vec![Ok(Reply::Checked); 3]));
        let refused = |code| Err(Failure::Refused(code));
        for (answered, written) in [
            (done, Written::Committed),
            (failed(1, Code::NO_NODE), Written::Gone),
            (
                failed(0, Code::NO_AUTH),
                Written::CheckRefused(0, Code::NO_AUTH),
            ),
            (failed(2, Code::NO_NODE), Written::Refused(0, Code::NO_NODE)),
            (
                refused(Code::QUOTA_EXCEEDED),
                Written::AllRefused(Code::QUOTA_EXCEEDED),
            ),
            (Err(Failure::NotSent), Written::NotSent),
            (Err(Failure::Lost), Written::InDoubt),
            (Err(Failure::Closed), Written::InDoubt),
            (Ok(Reply::Nothing), Written::InDoubt),
        ] {
            assert_eq!(judge(2, &answered), written, "{answered:?}");
        }
    }
}
