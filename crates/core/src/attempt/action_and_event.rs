//! The actions and events between an attempt and its driver.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::queue::{Blocked, Foreign};
use zklock_jute::Names;

/// Whether to wait for one's turn.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Patience {
    /// Wait.
    Waits,
    /// Leave if somebody is ahead; write nothing if a listing shows that beforehand.
    Tries,
}

/// The next step for the driver.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Action {
    /// Create an ephemeral sequential node with this prefix.
    Create(String),
    /// Create the directory and its ancestors.
    MakeParents,
    /// Make sure that the next listing is no older than this moment.
    Sync,
    /// As `Sync`, for a lock that a listing has shown as taken.
    CatchUp,
    /// [`Rename`](super::Attempt::rename) the attempt: the create was not carried out but still may be, and
    /// two nodes with one name could not be told apart.
    Rename,
    /// List the directory.
    List,
    /// List the directory and leave a watch on it. The flag says whether our own node is there already.
    ListAndWatch(bool),
    /// Ask for this node's owner and birth.
    Inspect(String),
    /// Ask for the births of these nodes.
    Births(Vec<String>),
    /// Read the nearest node, and leave a watch on it, on this node of ours, and on the node beyond the nearest, if
    /// that one counts.
    ///
    /// The server sends events in the order in which they happened: if the nearest node goes and no event
    /// of our node came before, our node was still there.
    Watch(Blocked, String),
    /// Sleep until there is something to report.
    Wait,
    /// Have the quorum confirm this node, unless it confirmed the session a moment ago.
    Prove(String),
    /// Stop: there is nothing more to do.
    Finish(Outcome),
}

/// A report from the driver.
#[derive(Clone, Debug)]
pub enum Event {
    /// The caller gives up. While a create is under way, `ReplyLost` goes before it.
    Cancel,
    /// The directory holds these names.
    Children(Names),
    /// Our node was created under this name, with this origin if the server told.
    Created(String, Option<Origin>),
    /// The node has this origin.
    Inspected(Origin),
    /// The births of those nodes that are still there.
    Births(BTreeMap<String, i64>),
    /// The node or the directory that we asked about is not there.
    NoNode,
    /// The directory and its ancestors exist.
    ParentsMade,
    /// The quorum has confirmed our node.
    Proved,
    /// No reply: the request may or may not have been carried out.
    ReplyLost,
    /// The listing that follows is no older than this moment.
    Synced,
    /// The watch is in place.
    Watching,
    /// The nearest node, which we watched, was deleted.
    Deleted,
    /// The node beyond the nearest, which we watched, was deleted, and the watches on the others stand.
    BeyondDeleted,
    /// The node beyond the nearest is gone, perhaps since before it was watched, and the watches on the
    /// others stand. A hold may have taken its place.
    BeyondMissing,
    /// Our own node is not there, although our session lasts.
    Evicted,
    /// Something else happened: look again.
    Woken,
    /// There is another session now.
    NewSession,
}

/// A node's origin.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Origin {
    /// The session that the node belongs to.
    pub owner: i64,
    /// The transaction that created the node: the fencing token.
    pub czxid: i64,
}

/// A node of ours, in the queue.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct OwnNode {
    /// The node's name.
    pub name: String,
    /// The node's origin.
    pub origin: Origin,
}

/// How an attempt ended.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Outcome {
    /// The lock is ours, through this node.
    Held(OwnNode),
    /// We gave up, or found the lock taken.
    Gone,
    /// Somebody deleted our node.
    Evicted(String),
    /// A contender in the queue would not wait for us.
    Foreign(Foreign),
    /// The session changed: start over, with another id.
    Restart,
}

/// A node that an attempt leaves in the directory, or may leave.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Orphan {
    /// This node.
    Node(String),
    /// A node with this prefix, if there is one.
    Prefix(String),
    /// A node of this name with this data, if there is one. Others use the name too, but nobody else the data.
    Marked(String, String),
}
