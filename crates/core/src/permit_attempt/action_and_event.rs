//! The actions and events between an attempt at a permit and its driver.

use alloc::string::String;
use alloc::vec::Vec;

use crate::attempt::{OwnNode, Patience};
use crate::queue::Foreign;
use zklock_jute::Names;

/// The caller's wish.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Wish {
    /// Whether to wait for a permit.
    pub patience: Patience,
    /// Whether there is a time limit. Without one, clients with another number are not waited for, because
    /// that number may be a mistake.
    pub limited: bool,
    /// Whether the numbers agreed the last time.
    pub agreed: bool,
    /// How many permits to get, all or none.
    pub count: usize,
}

/// The state of a semaphore at one moment.
#[derive(Clone, Debug)]
pub struct Look {
    /// The data of the semaphore's node, if it is there and may be read, and its version.
    pub number: Option<(Vec<u8>, i32)>,
    /// Whether the semaphore has no node.
    pub absent: bool,
    /// Whether the permits' directory does not exist.
    pub unready: bool,
    /// The contents of the semaphore's own directory, where kazoo has its permits.
    pub own: Names,
    /// The permits that are out, and those that the first in the line has requested.
    pub out: Names,
}

/// The permits of clients that use another number.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Others {
    /// The number.
    pub number: u32,
    /// The node of the oldest permit.
    pub oldest: String,
    /// The node of the newest permit; once it is gone, all may be gone.
    pub last: String,
    /// How many permits there are.
    pub count: usize,
}

/// The next step for the driver.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Action {
    /// Read the number, and list the permits that are out.
    Look,
    /// As `Look`, at a server that has caught up with its leader.
    LookAgain,
    /// Give up what is held, and go through the line.
    Line,
    /// Create the semaphore's node with our number, and the directory of the permits.
    Make,
    /// Read the node of the oldest permit, to say whose it is.
    Read(Others),
    /// Wait until the last of these permits has gone.
    Await(Others),
    /// Write our number into the semaphore's node, if it has this version and this node of ours
    /// is in the line, in one transaction. The last field is the number it replaces, if any.
    Write(String, i32, Option<u32>),
    /// Get one permit, or one more. The flag says whether there is room for it, which nobody takes before this client:
    /// each passes the head of the line. Stop when the place in the line is lost.
    Permit(bool),
    /// Tell by the clock whether the place in the line is still held, and every permit but the
    /// last.
    Check,
    /// Look for this node of ours in the line.
    Inspect(String),
    /// Stop: there is nothing more to do.
    Finish(Outcome),
}

/// A report from the driver.
#[derive(Clone, Debug)]
pub enum Event {
    /// The state of the semaphore.
    Looked(Look),
    /// It is our turn in the line, through this node.
    First(OwnNode),
    /// The semaphore's node is created, or existed already.
    IsMade,
    /// The oldest permit is there.
    IsThere,
    /// The node that we asked about is not there, although our session lasts; or the directory of the permits
    /// is not there.
    NoNode,
    /// The number is written.
    Written,
    /// The semaphore's node has another version.
    BadVersion,
    /// We may not write into the semaphore's node.
    NoAuth,
    /// The permit that we waited for has gone, or something else happened.
    Woken,
    /// Whether another permit is ours; if not, we have stopped waiting for one.
    Permit(bool),
    /// The place in the line is still held.
    IsFirst,
    /// The place in the line was lost, or one of several permits.
    Lost,
    /// The caller's limit is reached.
    TimeOut,
    /// The caller gives up.
    Cancel,
}

impl Outcome {
    /// Returns whether this says nothing against the number on which the clients agreed the last time. If it does, the
    /// next call looks at the path before it writes there.
    pub fn leaves_agreed(&self) -> bool {
        matches!(self, Self::Held | Self::Gone)
    }
}

/// How an attempt ended.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Outcome {
    /// The permits are ours.
    Held,
    /// We gave up, or found all permits taken.
    Gone,
    /// Somebody deleted this node of ours in the line.
    Evicted(String),
    /// A contender in the semaphore's own directory would not wait for us.
    Foreign(Foreign),
    /// The permits that are out are of clients that use another number.
    Disagrees(Others),
    /// No permit is held under the number in the node, and we may not replace that number.
    NoAuth,
    /// The node contains the data of something else.
    Unmarked,
}
