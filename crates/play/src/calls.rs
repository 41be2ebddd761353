//! What the requests of the present connection are for. Nothing outlives its connection: what was under way when it
//! broke fails, and the parts that still need it ask again.

use alloc::string::String;
use alloc::sync::Arc;

use super::ask::{GuardId, Ticket};
use super::commit::Commit;
use super::line::LineId;
use zklock_core::acquisition::CallId;
use zklock_core::renewals::Check;
use zklock_core::validity::Stamp;

/// The purpose of a request, and so of its answer.
#[derive(Debug)]
pub(super) enum Purpose {
    /// The attempt that has the turn in this line.
    Step(LineId),
    /// The create of that attempt.
    Create(Creation),
    /// The deletion with this number.
    Deletion(u64),
    /// A deletion and a create in one transaction.
    Both(u64, Creation),
    /// A check of the nodes of these guards.
    Check(Check),
    /// A transaction under a guard.
    Commit(Commit, Stamp),
    /// A read of the directory of this node.
    Note(Arc<str>),
    /// A read of the node of this guard, which leaves a watch.
    Watch(u64),
    /// The call with this ticket for a permit, and the number of what it has sent together.
    Permit(Ticket, u64),
    /// A check for a thread that wants to know.
    Verify(Ticket, GuardId, Stamp),
}

/// A node that is being created.
#[derive(Clone, Debug)]
pub(super) struct Creation {
    pub(super) line: LineId,
    pub(super) prefix: String,
    /// Whether an attempt waits for the node; otherwise it is deleted.
    pub(super) is_wanted: bool,
}

/// A request that has no answer yet.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) id: CallId,
    pub(super) purpose: Purpose,
}
