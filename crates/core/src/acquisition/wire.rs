//! What passes between an acquisition and its client: it needs to know what time it is and what is known of
//! the session, and a way to send; it tells what people may want to know, and how it ends.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::iter;
use core::time::Duration;

use crate::answer::Failure;
use crate::attempt::OwnNode;
use crate::connection::Capabilities;
use crate::grant_proof::{GrantProof, Next};
use crate::queue::Foreign;
use crate::validity::Stamp;
use zklock_jute::{Data, ErrorCode, Names, Request, Stat};

/// One request of a client.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct CallId(pub u64);

impl CallId {
    /// The id of the next request.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// This id and all later ones.
    pub fn on(self) -> impl Iterator<Item = Self> {
        iter::successors(Some(self), |call| Some(call.next()))
    }
}

/// See the module's documentation.
///
/// Requests leave in the order in which they are sent here, and watches are set by the requests that say
/// so. Whoever implements this passes the answers and the events on.
pub trait Wire {
    /// What time it is, since a moment that is longer ago than any session lasts.
    fn now(&self) -> Duration;

    /// The session, if the client knows it.
    fn session(&self) -> Option<i64>;

    /// Whether requests can be sent.
    fn is_connected(&self) -> bool;

    /// What the connection can do.
    fn capabilities(&self) -> Capabilities;

    /// The stamp of a request that is sent now.
    fn stamp(&self) -> Stamp;

    /// What to do before a lock is granted on this.
    fn next_for_a_grant(&self, proof: &GrantProof) -> Next;

    /// When to renew this, so that a lock can be granted on it at any time.
    fn renews_at(&self, proof: &GrantProof) -> Duration;

    /// An id that was never used.
    fn fresh_id(&mut self) -> String;

    /// Sends a request about this directory.
    fn send(&mut self, dir: &Arc<str>, request: Request) -> CallId;

    /// Sends the create of a contender's node; see [`creation`](Self::creation).
    fn create(&mut self, dir: &Arc<str>, prefix: &str) -> CallId;

    /// The request that creates a contender's node with this prefix.
    fn creation(&self, dir: &str, prefix: &str) -> Request;

    /// The requests that make the directory and what is above it, outermost first; `None` if this client is
    /// not to make it.
    fn parents(&self, dir: &str) -> Option<Vec<Request>>;

    /// Nobody reads the answer to this create. Returns whether the client sees to the node that it may show;
    /// otherwise that is left behind.
    fn abandon(&mut self, create: CallId) -> bool;

    /// Whether a request that was lost with its session may have been carried out in the next one.
    fn sends_late(&self) -> bool;

    /// The watch on this node, or this directory, is not needed any more.
    fn unwatch(&mut self, path: &str);

    /// The servers have shown this time, in milliseconds since the epoch.
    fn saw_clock(&mut self, millis: i64);

    /// The least that it can be at the servers, since the epoch; 0 if that is not known.
    fn servers_time(&self) -> Duration;

    /// What time it probably is at the servers, since the epoch.
    fn probable_time(&self) -> Duration;

    /// Something for people to know.
    fn tell(&mut self, _note: Note<'_>) {}
}

/// What people may want to know of an acquisition.
#[derive(Clone, Copy, Debug)]
pub enum Note<'a> {
    /// Our node stands in the queue under this name.
    Created(&'a str),
    /// The queue holds these names.
    Listed(&'a Names),
    /// This hold is the first one ahead; or none is any more.
    Holds(Option<(&'a Data, &'a Stat)>),
    /// This hold is over, and is being removed.
    RemovesHold(&'a str),
    /// This hold is over, and stays for this reason.
    HoldStays(&'a str, ErrorCode),
    /// The holder with this node has held for too long, and is asked to let go.
    Asks(&'a str),
    /// The same one has not done so, and is evicted.
    Evicts(&'a str),
    /// The lock is granted in this time: the leader must have heard of the session.
    HeldBack(Duration),
    /// That time is over.
    NotHeldBack,
    /// That many proofs have been too late; the last one took this long.
    AnswersLate(Duration),
}

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
