//! What the servers are asked about the locks that are held, and what can come of that.

use alloc::string::String;
use alloc::vec::Vec;

use crate::connection::Capabilities;
use crate::proof;
use crate::validity::Stamp;
use zklock_jute::Request;

/// How many nodes one check names, to stay far below the frame limit. Above that, checks are spread
/// over the time in which each lock is proven once.
pub const NODES_A_CHECK: usize = 500;
/// How many bytes their names may take: a fraction of the smallest frame limit that a client
/// can set.
pub(super) const BYTES_A_CHECK: usize = 64 * 1024;

/// What other clients write into a holder's node to ask it to release the lock.
pub const REVOKE: [&[u8]; 2] = [b"__REVOKE__", b"unlock"];

/// What an answer or an event says of a lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// The quorum confirmed it when asked with this stamp.
    Confirmed(Stamp),
    /// An answer says that its node is gone.
    Missing,
    /// An event says so, which comes before that of a session's end, too: an [`ask_why`] tells.
    Deleted,
    /// Another client asks the holder to release it.
    RevokeRequested,
}

/// One check, which names nodes of one lock or of several.
#[derive(Clone, Debug)]
pub struct Check {
    pub(super) stamp: Stamp,
    /// The number of the lease that each node belongs to.
    pub(super) whose: Vec<u64>,
}

impl Check {
    /// The check of one lock, sent with this stamp.
    pub fn of_one(lease: u64, stamp: Stamp) -> Self {
        let whose = [lease].into();
        Self { stamp, whose }
    }

    /// The checks of these nodes, each with its requests. A node stands with the number of its lease.
    pub fn of_all(
        nodes: impl IntoIterator<Item = (u64, String)>,
        stamp: Stamp,
        knows: Capabilities,
    ) -> Vec<(Self, Vec<Request>)> {
        let (ids, nodes): (Vec<_>, Vec<_>) = nodes.into_iter().unzip();
        let (mut ids, mut nodes) = (ids.as_slice(), nodes.as_slice());
        let mut checks = Vec::new();
        while !nodes.is_empty() {
            let (now, later) = nodes.split_at(in_one_check(nodes));
            let (whose, others) = ids.split_at(now.len());
            let whose = whose.to_vec();
            checks.push((Self { stamp, whose }, proof::requests(knows, now)));
            (ids, nodes) = (others, later);
        }
        checks
    }
}

/// The request that reads a node and leaves a watch there.
pub fn watch(node: &str) -> Request {
    Request::GetData {
        path: node.into(),
        watch: true,
    }
}

/// The request whose answer tells whether the session lasts, or a node went with it.
pub fn ask_why(node: &str) -> Request {
    Request::exists(node)
}

/// How many of these nodes go into one check, which must fit into one request.
fn in_one_check(nodes: &[String]) -> usize {
    let mut bytes = 0;
    let fit = nodes.iter().take(NODES_A_CHECK).take_while(|node| {
        bytes += node.len();
        bytes <= BYTES_A_CHECK
    });
    fit.count().max(1)
}
