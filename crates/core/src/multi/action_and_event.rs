//! The actions and events of a [`Multi`](super::Multi).

use alloc::string::String;
use alloc::vec::Vec;

use zklock_jute::Names;

use crate::attempt::{Origin, Outcome as Ended, OwnNode};
use crate::queue::Foreign;

/// The next step for the driver. Queues are numbered in the order of their paths.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Action {
    /// List this queue.
    List(usize),
    /// List this queue, which a listing has shown as taken, at a server that has caught up.
    CatchUpAndList(usize),
    /// As `List`, to see whether our nodes were created.
    Find(usize),
    /// Create an ephemeral sequential node in every queue, each with its prefix, in one transaction.
    Place(Vec<String>),
    /// Create all the directories and their ancestors.
    MakeParents,
    /// Ask for the owner and the birth of our nodes, which have these names, one in each queue, and list the
    /// queues.
    Births(Vec<String>),
    /// List these queues.
    Lists(Vec<usize>),
    /// Wait in this queue, while these nodes of ours stand, one in each queue.
    Queue(usize, Vec<OwnNode>),
    /// Have the quorum confirm these nodes, one in each queue.
    Prove(Vec<String>),
    /// Stop: there is nothing more to do.
    Finish(Outcome),
}

/// A report from the driver.
#[derive(Clone, Debug)]
pub enum Event {
    /// The queue holds these names.
    Children(Names),
    /// Our nodes were created, under these names.
    Created(Vec<String>),
    /// The origins of those nodes that are still there, and what each queue holds, if that is known.
    Births(Vec<Option<Origin>>, Vec<Option<Names>>),
    /// The contents of each queue that was to be listed, where they are known.
    Queues(Vec<Option<Names>>),
    /// A directory is not there.
    NoNode,
    /// The directories and their ancestors exist.
    ParentsMade,
    /// Waiting in the queue has ended like this.
    Queued(Ended),
    /// The quorum has confirmed all nodes.
    Proved,
    /// The node in this queue is gone.
    Gone(usize),
    /// No reply: the nodes may or may not have been created.
    ReplyLost,
    /// There is another session now.
    NewSession,
    /// The caller gives up. While nodes are being created, `ReplyLost` goes before it.
    Cancel,
}

/// How an attempt ended.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Outcome {
    /// All locks are ours, through these nodes.
    Held(Vec<OwnNode>),
    /// We gave up, or found one of the locks taken.
    Gone,
    /// Somebody deleted this node of ours, in this queue.
    Evicted(usize, String),
    /// A contender in this queue would not wait for us.
    Foreign(usize, Foreign),
    /// Our nodes are lost: start over, with another id.
    Restart,
}
