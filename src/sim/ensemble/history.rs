//! What the ensemble has committed, for the judges of a run.

use std::time::Duration;

use zklock_embedded::RequestKind;

/// A change that a quorum has logged.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Change {
    /// When the first server applied it, which is the leader if all is well.
    pub at: Duration,
    /// The number of the transaction; several changes can have the same.
    pub zxid: i64,
    /// What was changed.
    pub what: What,
}

/// What a change did.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum What {
    /// A node was created.
    Created {
        /// The path of the node.
        path: String,
        /// The session that owns it, 0 for a node that stays.
        owner: i64,
        /// What a node that stays has from the beginning; of others, nothing.
        data: Vec<u8>,
    },
    /// A node was deleted.
    Deleted {
        /// The path of the node.
        path: String,
        /// The session that owned it, 0 for a node that stays.
        owner: i64,
        /// The session that deleted it, or whose end did; 0 for the servers and for an
        /// administrator.
        by: i64,
    },
    /// The data of a node was set.
    Set {
        /// The path of the node.
        path: String,
        /// What it has now.
        data: Vec<u8>,
    },
    /// A session began.
    SessionBegan {
        /// The number of the session.
        session: i64,
        /// The timeout that was negotiated.
        timeout: Duration,
    },
    /// A session ended.
    SessionEnded {
        /// The number of the session.
        session: i64,
        /// Why it ended.
        why: SessionEnd,
    },
    /// A leader was elected; the zxid is that at which its changes begin.
    LeaderElected {
        /// The number of the server, from 0.
        server: usize,
    },
}

/// A request that has come to a server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Asked {
    /// When it came.
    pub at: Duration,
    /// What it asks for.
    pub kind: RequestKind,
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SessionEnd {
    /// The client closed it.
    Closed,
    /// The leader heard nothing from it for its timeout.
    Expired,
    /// By [`Fault::Expire`](super::Fault::Expire).
    ByHand,
}
