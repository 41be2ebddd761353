//! What the servers tell each other, and the connections between them.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::connection::ConnectionNo;
use super::history::SessionEnd;
use zklock_embedded::parts::{Identity, Write};
use zklock_jute::{ErrorCode, Reply};

/// The number of a connection between a follower and its leader.
pub(super) type LinkNo = u64;

/// A transaction, as it stands in the log.
#[derive(Debug)]
pub(super) struct Transaction {
    pub(super) zxid: i64,
    /// Since the epoch.
    pub(super) ms: i64,
    pub(super) ask: Ask,
    /// The result at the first server that applied it, which is the leader if all is well; a
    /// server whose data differ answers the same.
    pub(super) outcome: OnceLock<Result<Reply, ErrorCode>>,
}

impl Transaction {
    pub(super) fn has_failed(&self) -> bool {
        match self.outcome.get() {
            Some(Ok(Reply::Multi(results))) => results.iter().any(Result::is_err),
            Some(outcome) => outcome.is_err(),
            None => false,
        }
    }
}

/// What a server asks the leader to order.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    /// Whom to answer; `None` if nobody asked.
    pub(super) origin: Option<Origin>,
    pub(super) session: i64,
    pub(super) who: Vec<Identity>,
    pub(super) deed: Deed,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Origin {
    pub(super) server: usize,
    pub(super) connection: ConnectionNo,
    /// The number of the request, by which it is answered; 0 for a session that begins.
    pub(super) xid: i32,
}

#[derive(Clone, Debug)]
pub(super) enum Deed {
    Write(Write),
    Begin {
        timeout_ms: u64,
    },
    End(SessionEnd),
    /// A ping of a client, where pings are committed.
    Ping,
    /// Removes a container that has lost its last child.
    Reap {
        path: String,
    },
}

/// A sync, by which its follower finds it again.
#[derive(Clone, Copy, Debug)]
pub(super) struct SyncAsk {
    pub(super) connection: ConnectionNo,
    pub(super) session: i64,
    pub(super) xid: i32,
}

#[derive(Debug)]
pub(super) enum Message {
    // From the leader.
    Propose(Arc<Transaction>),
    /// The log is committed up to this length.
    Commit(usize),
    Ping,
    Revalidated {
        connection: ConnectionNo,
        valid: bool,
    },
    Synced(SyncAsk),
    /// The follower may serve clients.
    UpToDate,
    // From the follower.
    Ask(Ask),
    /// The log has this length.
    Ack(usize),
    /// The sessions whose clients have sent something since the last ping, with their timeouts.
    Pong(Vec<(i64, u64)>),
    Revalidate {
        session: i64,
        timeout_ms: u64,
        connection: ConnectionNo,
    },
    Sync(SyncAsk),
    // From either.
    Reset,
}

/// The direction of a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Towards {
    Leader,
    Follower,
}

/// A connection between a follower and its leader: first in, first out, in each direction.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) leader: usize,
    pub(super) follower: usize,
    /// What is on its way, with the times of its arrival.
    to_leader: Queue,
    to_follower: Queue,
}

type Queue = VecDeque<(Duration, Message)>;

impl Link {
    pub(super) fn new(leader: usize, follower: usize) -> Self {
        Self {
            leader,
            follower,
            to_leader: Queue::new(),
            to_follower: Queue::new(),
        }
    }

    pub(super) fn receiver(&self, towards: Towards) -> usize {
        match towards {
            Towards::Leader => self.leader,
            Towards::Follower => self.follower,
        }
    }

    pub(super) fn queue(&mut self, towards: Towards) -> &mut Queue {
        match towards {
            Towards::Leader => &mut self.to_leader,
            Towards::Follower => &mut self.to_follower,
        }
    }
}
