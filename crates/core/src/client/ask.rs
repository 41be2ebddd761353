//! What users ask of a core, and what they are told.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use crate::attempt::Patience;
use crate::connection::Capabilities;
use crate::dialect::Dialect;
use crate::queue::Foreign;
use crate::validity::Validity;
use zklock_jute::{Access, ErrorCode, Op, Permissions, Reply, Stat};

/// A moment, counted from one fixed moment that is longer ago than any session lasts.
pub type Time = Duration;

/// A thread of the user's, which waits for itself if it locks twice.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Thread(pub u64);

/// One [`Ask`]; it is answered once.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Ticket(pub(super) u64);

/// One guard. The next thread that gets the same node from it has another one.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct GuardId(pub(super) u64);

/// What stays the same for a core.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How nodes are named.
    pub dialect: Dialect,
    /// Where the ids in their names begin: a random number, for this core alone.
    pub first_id: u128,
    /// The data of nodes, by which people find their owner.
    pub card: Vec<u8>,
    /// Who may do what to nodes.
    pub acl: Vec<Access>,
    /// How many times in a row a lock goes from thread to thread while other clients wait.
    pub local_handoffs: u32,
    /// Whether releases leave a note, and holders are told of those of the ones ahead. That costs a read
    /// for each grant.
    pub notes: bool,
}

impl Settings {
    /// The usual ones.
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

/// What a server answered to a connect request, and what the transport can do.
#[derive(Clone, Copy, Debug)]
pub struct Greeting {
    /// The session that is served from now on.
    pub session: i64,
    /// The timeout that was granted.
    pub timeout: Duration,
    /// When the connect request was sent.
    pub asked: Time,
    /// What the connection can do.
    pub knows: Capabilities,
}

/// A server's answer to the oldest open request.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The last change that the server had seen.
    pub zxid: i64,
    /// The reply, or why there is none.
    pub result: Result<Reply, ErrorCode>,
}

/// What a thread wants. At `until`, it is told that it does not have it.
#[derive(Clone, Debug)]
pub enum Ask {
    /// A mutex.
    Lock {
        /// Its path.
        path: Arc<str>,
        /// Whether to wait for the turn.
        patience: Patience,
        /// When to give up.
        until: Option<Time>,
    },
    /// That the quorum confirm the lock of this guard now.
    Verify {
        /// The guard.
        guard: GuardId,
        /// When to give up.
        until: Option<Time>,
    },
    /// To carry all of this out while the lock is held, or nothing of it.
    Commit {
        /// The guard. Its node must stand when the servers carry it out.
        guard: GuardId,
        /// What to do, in this order.
        ops: Vec<Op>,
    },
    /// To release the lock, and to be told how that ended.
    Unlock {
        /// The guard.
        guard: GuardId,
        /// What to do in the transaction that deletes its node, if anything.
        ops: Vec<Op>,
    },
}

/// What became of an ask.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// The lock is held.
    Held(Grant),
    /// The limit was reached, or the ask was cancelled. Says whether a server has shown the lock
    /// taken, or another thread of this client holds it.
    GaveUp {
        /// See above.
        taken: bool,
    },
    /// The thread that asks has the lock, or asks for it already.
    WouldDeadlock,
    /// Somebody deleted the node that waited.
    Evicted(String),
    /// A contender in the queue would not wait for us.
    Foreign(Foreign),
    /// The server refused a request.
    Refused(ErrorCode),
    /// The servers refused this step of a transaction, and did nothing of it. A lock that is released
    /// was held until then, and is given up.
    StepRefused(usize, ErrorCode),
    /// The quorum has confirmed the lock.
    Verified,
    /// What was to be done under the lock is done.
    Committed,
    /// The node was there until its deletion, which is confirmed. What was to be done with it is done.
    Released,
    /// The lock was lost before, for this reason. Nothing was done under it.
    Lost(Loss),
    /// An answer was lost, or did not come in time: what was to be done under the lock is done, or not, or
    /// may still be done as long as its node stands.
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

/// What a guard is told after its grant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Notice {
    /// It may be trusted so long from now on.
    Trust(Validity),
    /// It is lost, for this reason.
    Lost(Loss),
    /// Another client asks its holder to release the lock.
    Revoked,
    /// Whether all that were ahead have said that they released it in order. Told once, with
    /// [`Settings::notes`], and only if somebody was ahead.
    Follows {
        /// See above.
        released: bool,
    },
}

/// Why a lock was lost, or a call ended without its lock.
///
/// The first reason stays that the core knew of: a holder whose machine slept finds
/// [`NotConfirmed`](Self::NotConfirmed) when it wakes, whatever is heard of its session later. Only
/// [`NodeGone`](Self::NodeGone) is made more exact.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Loss {
    /// Another client deleted the node while the session went on.
    Evicted,
    /// The session expired.
    SessionExpired,
    /// No quorum confirmed the lock in time.
    NotConfirmed,
    /// The connection broke, and its transport cannot tell whether the session survived.
    Disconnected,
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
    /// Whether it says more than an earlier reason.
    pub(super) fn explains(self, earlier: Self) -> bool {
        let explained = matches!(self, Self::Evicted | Self::SessionExpired);
        earlier == Self::NodeGone && explained
    }
}

/// Whom an ask waits for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ahead {
    /// How many are known to be ahead: nodes of the queue, or for a thread in line behind others of its client,
    /// those threads, of which only the first stands in the queue.
    pub count: usize,
    /// The nearest of them has the lock.
    pub holds: bool,
    /// The nearest node; `None` if the nearest is another thread of this client.
    pub nearest: Option<Nearest>,
}

/// The nearest node ahead.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Nearest {
    /// Its full name.
    pub node: String,
    /// Its data, as its watch has found it; none if this client may not read it.
    pub data: Vec<u8>,
    /// The same of its stat, which is zero then.
    pub stat: Stat,
}

/// What a core has done so far, in plain numbers. Requests and times are for the shell to count, which sees
/// all of them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Locks that were granted.
    pub grants: u64,
    /// Those among them that waited behind other clients.
    pub waits: u64,
    /// Those among them that came from another thread, without a server.
    pub handed_on: u64,
    /// Locks that were lost while they were held.
    pub losses: u64,
    /// How many times a lock that was held became suspect.
    pub suspicions: u64,
    /// Connections after the first one.
    pub reconnects: u64,
    /// Sessions that expired.
    pub expiries: u64,
    /// Nodes that were deleted which no guard has had.
    pub leftovers: u64,
}

/// The trust in a lock that is lost.
pub const LOST: Validity = Validity {
    suspect_from: Time::ZERO,
    until: Time::ZERO,
};
