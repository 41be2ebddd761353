//! How an acquisition ends.

use alloc::string::String;

use crate::answer::Failure;
use crate::attempt::OwnNode;
use crate::queue::Foreign;
use crate::validity::Stamp;

/// How an acquisition ends.
#[derive(Debug)]
pub enum Reached {
    /// The lock is held, on the strength of this proof of this node.
    Held(OwnNode, Stamp),
    /// It was cancelled, or does not wait.
    GaveUp {
        /// Whether a server has shown the lock taken.
        taken: bool,
    },
    /// The node where it stood has gone with its session; or there is no directory, and whoever asked for it
    /// has to look before that is made.
    Restart,
    /// Somebody deleted this node.
    Evicted(String),
    /// A contender in the queue would not wait for us.
    Foreign(Foreign),
    /// The server refused a request.
    Refused(Refused),
}

/// A request that was refused.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Refused {
    /// Why.
    pub failure: Failure,
    /// What it was about.
    pub about: About,
}

/// What a request was about.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum About {
    /// The queue.
    Queue,
    /// The making of its directory.
    Parents,
    /// This node.
    Node(String),
}
