//! The interface between an acquisition and its client. The acquisition asks for the time and for what is
//! known of the session, sends requests, passes on notes for people, and reports how it ends.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::iter;
use core::time::Duration;

use crate::answer::Failure;
use crate::attempt::OwnNode;
use crate::proof::{GrantProof, Next};
use crate::queue::Foreign;
use crate::validity::Stamp;
use zklock_jute::{Data, ErrorCode, Names, Request, Stat};

/// The id of one request of a client.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct CallId(pub u64);

impl CallId {
    /// Returns the id of the next request.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// Returns this id and all later ones.
    pub fn on(self) -> impl Iterator<Item = Self> {
        iter::successors(Some(self), |call| Some(call.next()))
    }
}

/// The services that an acquisition needs from its client.
///
/// Requests leave in the order in which they are sent here, and set the watches that they ask for. The
/// implementer passes the answers and the events on.
pub trait Wire {
    /// Returns the time since a moment that is longer ago than any session lasts.
    fn now(&self) -> Duration;

    /// Returns the session, if the client knows it.
    fn session(&self) -> Option<i64>;

    /// Returns whether answers come through the session that the acquisition was told of last.
    fn is_same_session(&self) -> bool {
        true
    }

    /// Returns whether requests can be sent.
    fn is_connected(&self) -> bool;

    /// Returns whether the server carries out transactions.
    fn transacts(&self) -> bool;

    /// Returns the stamp of a request that is sent now.
    fn stamp(&self) -> Stamp;

    /// Returns what to do before a lock is granted on this proof.
    fn next_for_a_grant(&self, proof: &GrantProof) -> Next;

    /// Returns when to renew this proof, so that a lock can be granted on it at any time.
    fn renews_at(&self, proof: &GrantProof) -> Duration;

    /// Returns an id that was never used.
    fn fresh_id(&mut self) -> String;

    /// Sends a request about this directory.
    fn send(&mut self, dir: &Arc<str>, request: Request) -> CallId;

    /// Sends the create of a contender's node with this prefix.
    fn create(&mut self, dir: &Arc<str>, prefix: &str) -> CallId;

    /// Returns the requests that create the directory and its ancestors, outermost first; `None` if this
    /// client must not create it.
    fn parents(&self, dir: &str) -> Option<Vec<Request>>;

    /// Notes that the acquisition will not read the answer to this create. Returns whether the client takes
    /// care of the node that the answer may show; otherwise the node is left behind.
    fn abandon(&mut self, create: CallId) -> bool;

    /// Returns whether the client is still deleting a node of its own in this directory.
    fn is_deleting_in(&self, _dir: &str) -> bool {
        false
    }

    /// Notes that the watch on this node, or this directory, is not needed any more.
    fn unwatch(&mut self, path: &str);

    /// Returns the probable time at the servers, since the epoch.
    fn probable_time(&self) -> Duration;

    /// Passes on a note for people.
    fn tell(&mut self, _note: Note<'_>) {}
}

/// A note about an acquisition, for people.
#[derive(Clone, Copy, Debug)]
pub enum Note<'a> {
    /// Our node stands in the queue under this name.
    Created(&'a str),
    /// The queue holds these names.
    Listed(&'a Names),
    /// The first hold ahead; `None` if no hold is ahead any more.
    Holds(Option<(&'a Data, &'a Stat)>),
    /// A hold that is over and is being removed.
    RemovesHold(&'a str),
    /// A hold that is over and stays, for this reason.
    HoldStays(&'a str, ErrorCode),
    /// The node of a holder that has held for too long and is asked to release.
    Asks(&'a str),
    /// The node of a holder that was asked in vain and is evicted.
    Evicts(&'a str),
    /// The grant waits for this long, because the leader must have heard of the session; `None` if it does not wait
    /// for that any more. This may be told again.
    HeldBack(Option<Duration>),
    /// The server shows this node, and the quorum has deleted it: the server's data have diverged.
    Diverged(&'a str),
    /// Many proofs have arrived too late; the last one took this long.
    AnswersLate(Duration),
}

/// How an acquisition ends.
#[derive(Debug)]
pub enum Reached {
    /// The lock is held: this proof has confirmed this node.
    Held(OwnNode, Stamp),
    /// The acquisition was cancelled, or does not wait.
    GaveUp,
    /// The contender's node is gone with its session; the directory is missing, and the caller has to look before it
    /// is created; or a look finds nobody ahead.
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
    /// Why the request was refused.
    pub failure: Failure,
    /// The subject of the request.
    pub about: About,
}

/// The subject of a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum About {
    /// The queue.
    Queue,
    /// The creation of the queue's directory.
    Parents,
    /// This node.
    Node(String),
}

/// Returns whether a server may show less than what the holder before has left, given the number of the connection
/// through which the wait for others ended, if there was one, and of the present one, if there is one.
///
/// The grant may have come with the event of a deletion. The server that reported it has applied all earlier writes
/// too. Another one, to which the client has moved meanwhile, may not have heard of them. A grant by a listing rests on
/// a reply, and no server that is behind a reply takes over the session.
pub fn may_read_less(waited: Option<u64>, now: Option<u64>) -> bool {
    waited.is_some_and(|waited| now != Some(waited))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_by_an_event_is_known_to_the_server_that_sent_it() {
        for (waited, now, less) in [
            (None, Some(2), false),
            (None, None, false),
            (Some(2), Some(2), false),
            (Some(2), Some(3), true),
            (Some(2), None, true),
        ] {
            assert_eq!(may_read_less(waited, now), less, "{waited:?} {now:?}");
        }
    }
}
