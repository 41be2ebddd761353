//! The asks of users, and the answers to them.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use zklock_core::attempt::Patience;
use zklock_core::dialect::{Dialect, Role};
use zklock_core::queue::Foreign;
use zklock_core::validity::Validity;
use zklock_jute::{Access, ErrorCode, Permissions, Reply, Request, Stat};

/// A moment, counted from one fixed moment that is longer ago than any session lasts.
pub type Time = Duration;

/// A thread of the user's. If it locks twice, it waits for itself.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Thread(pub u64);

/// The number of one [`Ask`], which is answered once.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Ticket(pub(super) u64);

/// The number of one guard. The next thread to which a guard passes its node has a guard of its own.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct GuardId(pub(super) u64);

/// The settings of a core.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How nodes are named.
    pub dialect: Dialect,
    /// The first id in the names of nodes: a random number, for this core alone.
    pub first_id: u128,
    /// The data of nodes, by which people find their owner.
    pub card: Vec<u8>,
    /// The access control list of nodes.
    pub acl: Vec<Access>,
    /// How many times in a row a lock goes from thread to thread while other clients wait.
    pub local_handoffs: u32,
    /// Whether releases leave a note, and holders are told about the notes of those ahead. That costs one
    /// read for each grant.
    pub notes: bool,
}

impl Settings {
    /// Creates the usual settings.
    pub fn new(dialect: Dialect, first_id: u128) -> Self {
        Self {
            dialect,
            first_id,
            card: Vec::new(),
            acl: vec![Access {
                permissions: Permissions::ALL,
                scheme: "world".into(),
                id: "anyone".into(),
            }],
            local_handoffs: 0,
            notes: false,
        }
    }
}

/// A server's answer to a connect request.
#[derive(Clone, Copy, Debug)]
pub struct Greeting {
    /// The session that is served from now on.
    pub session: i64,
    /// The timeout that was granted.
    pub timeout: Duration,
    /// When the connect request was sent.
    pub asked: Time,
}

/// A server's answer to the oldest open request.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The last change that the server had seen.
    pub zxid: i64,
    /// The reply, or why there is none.
    pub result: Result<Reply, ErrorCode>,
}

/// A request of a thread. At `until`, the thread is told that it does not have it.
#[derive(Clone, Debug)]
pub enum Ask {
    /// A mutex, or a read-write lock.
    Lock {
        /// The lock's path.
        path: Arc<str>,
        /// Whether to be alone, to read, or to write.
        role: Role,
        /// Whether to wait for the turn.
        patience: Patience,
        /// When to give up.
        until: Option<Time>,
    },
    /// One of a semaphore's permits.
    Permit {
        /// The semaphore's path.
        path: Arc<str>,
        /// How many permits there are.
        permits: u32,
        /// Whether to wait for a permit.
        patience: Patience,
        /// When to give up.
        until: Option<Time>,
    },
    /// The quorum's confirmation, now, of the lock of this guard.
    Verify {
        /// The guard.
        guard: GuardId,
        /// When to give up.
        until: Option<Time>,
    },
    /// All of these operations while the lock is held, or none of them.
    Commit {
        /// The guard. Its node must exist when the servers carry out the operations.
        guard: GuardId,
        /// The operations, in this order.
        ops: Vec<Request>,
    },
    /// The release of the lock, and a report of how that ended.
    Unlock {
        /// The guard.
        guard: GuardId,
        /// The operations in the transaction that deletes the guard's node, if any.
        ops: Vec<Request>,
    },
}

/// The outcome of an ask.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// The lock is held.
    Held(Grant),
    /// The limit was reached, or the ask was cancelled.
    GaveUp {
        /// Whether a server has shown the lock taken, or another thread of this client holds it.
        taken: bool,
    },
    /// The thread that asks already has the lock, or already asks for it.
    WouldDeadlock,
    /// Somebody deleted the node that waited.
    Evicted(String),
    /// A contender in the queue would not wait for us.
    Foreign(Foreign),
    /// The permits that are out are of clients that use this number.
    PermitsDisagree(u32),
    /// The semaphore's node contains the data of something else.
    Unmarked,
    /// The server refused a request.
    Refused(ErrorCode),
    /// The servers refused this step of a transaction, and carried out nothing of it. If the ask was to
    /// release a lock, that was held until then, and is given up.
    StepRefused(usize, ErrorCode),
    /// The quorum has confirmed the lock.
    Verified,
    /// The operations under the lock were carried out.
    Committed,
    /// The node was there until its deletion, which is confirmed. The operations with it were carried out.
    Released,
    /// The lock was lost before, for this reason. No operation was carried out under it.
    Lost(Loss),
    /// An answer was lost, or did not arrive in time: the operations under the lock were carried out, or
    /// were not, or may still be, as long as its node stands.
    InDoubt,
    /// The core has ended, for this reason: it grants nothing any more.
    Over(Loss),
}

/// A lock that is granted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Grant {
    /// The new guard.
    pub guard: GuardId,
    /// The node that stands for the lock.
    pub node: Arc<str>,
    /// The fencing token.
    pub token: i64,
    /// How long the guard may be trusted if nothing more is told.
    pub trust: Validity,
}

/// A notice to a guard after its grant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Notice {
    /// The lock may be trusted for this long from now on.
    Trust(Validity),
    /// The lock is lost, for this reason.
    Lost(Loss),
    /// Another client asks the holder to release the lock.
    Revoked,
    /// Tells whether all that were ahead have recorded that they released the lock in order. Sent once,
    /// with [`Settings::notes`], and only if somebody was ahead.
    Follows {
        /// Whether all have.
        released: bool,
    },
}

/// Why a lock was lost, or a call ended without its lock.
///
/// The first reason that the core knew of stays: a holder whose machine slept finds
/// [`NotConfirmed`](Self::NotConfirmed) when it wakes, whatever is learned about its session later. Only
/// [`NodeGone`](Self::NodeGone) is made more exact.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Loss {
    /// Another client deleted the node while the session went on: a client that gets an answer still has its session.
    Evicted,
    /// The session expired.
    SessionExpired,
    /// No quorum confirmed the lock in time.
    NotConfirmed,
    /// The node is gone, and it is not known yet whether it was deleted or went with the session. The next
    /// notice says which.
    NodeGone,
    /// The client was closed.
    Closed,
    /// The servers refused the client's credentials.
    AuthFailed,
    /// The guard was given up before.
    GivenUp,
}

impl Loss {
    /// Returns whether this reason says more than an earlier one.
    pub(super) fn explains(self, earlier: Self) -> bool {
        let explained = matches!(self, Self::Evicted | Self::SessionExpired);
        earlier == Self::NodeGone && explained
    }
}

/// The contenders that an ask waits for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ahead {
    /// How many are known to be ahead: nodes of the queue; or, for a thread in line behind others of its
    /// client, those threads, of which only the first stands in the queue.
    pub count: usize,
    /// Whether the nearest of them has the lock.
    pub holds: bool,
    /// The nearest node; `None` if the nearest is another thread of this client.
    pub nearest: Option<Nearest>,
}

/// The nearest node ahead.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Nearest {
    /// The node's full name.
    pub node: String,
    /// The node's data, as the watch has found it; empty if this client may not read it.
    pub data: Vec<u8>,
    /// The node's stat, as the watch has found it; zero if this client may not read it.
    pub stat: Stat,
}

/// Counts of what a core has done so far. The shell counts requests and times, because it sees all of them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Locks that were granted.
    pub grants: u64,
    /// Granted locks that waited behind other clients.
    pub waits: u64,
    /// Granted locks that came from another thread, without a server.
    pub handed_on: u64,
    /// Locks that were lost while they were held.
    pub losses: u64,
    /// How many times a lock that was held became suspect.
    pub suspicions: u64,
    /// Connections after the first one.
    pub reconnects: u64,
    /// Sessions that expired.
    pub expiries: u64,
    /// Deleted nodes that no guard has had.
    pub leftovers: u64,
}

/// The validity of a lock that is lost.
pub const LOST: Validity = Validity {
    suspect_from: Time::ZERO,
    until: Time::ZERO,
};
