//! The input of a look at the locks that are held, the requests that follow from it, and the possible
//! verdicts of their answers.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use crate::proof;
use crate::validity::Stamp;
use zklock_jute::Request;

/// How many nodes one check names, to stay far below the frame limit. With more nodes, the checks are
/// spread over the time in which each lock is proven once.
pub const NODES_A_CHECK: usize = 500;
/// How many bytes the names in one check may take: a fraction of the smallest frame limit that a client can set.
pub(super) const BYTES_A_CHECK: usize = 64 * 1024;

/// The texts that other clients write into a holder's node to ask it to release the lock.
pub const REVOKE: [&[u8]; 2] = [b"__REVOKE__", b"unlock"];

/// The state of the session at a look.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// The present moment.
    pub now: Duration,
    /// The session timeout.
    pub timeout: Duration,
    /// Whether there is a connection.
    pub connected: bool,
    /// How many connections there were so far.
    pub connects: u64,
}

/// The state of a guard at a look, if its lock is not lost.
#[derive(Clone, Copy, Debug)]
pub struct Trust {
    /// The number of the guard's lease.
    pub id: u64,
    /// The guard's last proof.
    pub stamp: Option<Stamp>,
    /// When a check can have a better stamp, if that is known.
    pub better_at: Option<Duration>,
    /// When the guard's state changes if nothing more arrives.
    pub changes_at: Option<Duration>,
}

/// The requests that are due after a look.
#[derive(Debug)]
pub struct Due<L> {
    /// The leases to ask the quorum about.
    pub checks: Vec<(u64, L)>,
    /// The leases whose nodes to read and to watch.
    pub watches: Vec<(u64, L)>,
}

/// The meaning of an answer or an event for a lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// The quorum confirmed the lock when asked with this stamp.
    Confirmed(Stamp),
    /// An answer says that the lock's node is gone.
    Missing,
    /// An event says that the lock's node is gone. Such an event also precedes the end of a session: an
    /// [`ask_why`] tells.
    Deleted,
    /// Another client asks the holder to release the lock.
    RevokeRequested,
}

/// One check, which names nodes of one or several locks.
#[derive(Clone, Debug)]
pub struct Check {
    pub(super) stamp: Stamp,
    /// The number of the lease that each node belongs to.
    pub(super) whose: Vec<u64>,
}

impl Check {
    /// Creates the check of one lock, sent with this stamp.
    pub fn of_one(lease: u64, stamp: Stamp) -> Self {
        let whose = [lease].into();
        Self { stamp, whose }
    }

    /// Creates the checks of these nodes, each with its requests. Each node comes with the number of its lease.
    pub fn of_all(
        nodes: impl IntoIterator<Item = (u64, String)>,
        stamp: Stamp,
        transacts: bool,
    ) -> Vec<(Self, Vec<Request>)> {
        let (ids, nodes): (Vec<_>, Vec<_>) = nodes.into_iter().unzip();
        let (mut ids, mut nodes) = (ids.as_slice(), nodes.as_slice());
        let mut checks = Vec::new();
        while !nodes.is_empty() {
            let (now, later) = nodes.split_at(in_one_check(nodes));
            let (whose, others) = ids.split_at(now.len());
            let whose = whose.to_vec();
            checks.push((Self { stamp, whose }, proof::requests(transacts, now)));
            (ids, nodes) = (others, later);
        }
        checks
    }
}

/// Returns the request that reads a node and leaves a watch there.
pub fn watch(node: &str) -> Request {
    Request::get(node).and_watch()
}

/// Returns the request whose answer tells whether the session lasts, or a node went with it.
pub fn ask_why(node: &str) -> Request {
    Request::exists(node)
}

/// Returns how many of these nodes go into one check, which must fit into one request.
fn in_one_check(nodes: &[String]) -> usize {
    let mut bytes = 0;
    let fit = nodes.iter().take(NODES_A_CHECK).take_while(|node| {
        bytes += node.len();
        bytes <= BYTES_A_CHECK
    });
    fit.count().max(1)
}
