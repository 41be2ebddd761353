//! What the answers to a deletion's requests lead to.

use crate::answer::Failure;
use zklock_jute::ErrorCode;

/// How a deletion ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ended {
    /// This client deleted the node, and wrote what was to be written with the deletion.
    Deleted,
    /// The node is gone after a request whose answer was lost, or what was to be written was not.
    Presumed,
    /// This client deleted the node, and the servers refused what was to be written.
    Unwritten(ErrorCode),
    /// The node was gone already.
    GoneBefore,
}

/// The consequence of an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Progress {
    /// The next request is due, now or later. A failure here is one that the user should know of.
    GoesOn(Option<Failure>),
    /// Nothing is left.
    Ended(Ended),
}
