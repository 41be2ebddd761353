//! An ensemble of ZooKeeper servers, by typed requests and in virtual time.
//!
//! The ensemble behaves as that in `src/sim/ensemble`, which reads bytes and knows more faults:
//!
//! - A leader orders the changes, a quorum logs each before it is committed, and every server
//!   applies its log at its own pace. Its clients see the changes that it has applied.
//! - The leader alone expires sessions, at its own ticks, and takes its time for that. A follower
//!   notes which sessions its clients' messages touch, and reports them to the leader in its answer
//!   to the leader's ping, every half tick.
//! - The handshake touches a session that moves, and the session's old connection cannot change
//!   anything.
//! - A server that has lost its leader, or a leader without a quorum, goes on serving for a while.

pub(crate) mod election;
pub(crate) mod leader;
pub(crate) mod requests;
pub(crate) mod tree;

use std::cell::OnceCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use zklock_jute::{Event, Request};
use zklock_play::Answer;

use self::tree::{ConnNo, Done, Tree};

pub(crate) const SERVERS: usize = 3;
pub(crate) const QUORUM: usize = 2;

/// A moment of the run.
pub(crate) type Time = Duration;

/// A message of a client.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    Connect { session: i64, seen: i64 },
    Request(Rc<Request>),
    Ping,
}

/// A message of a server to a client.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    /// The session, or that it has expired.
    Greeting(Option<i64>),
    Answer(Box<Answer>),
    Pong,
    Event(Box<Event>),
    Closed,
}

/// A message between two servers.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    Ask(Ask),
    Propose(Rc<Transaction>),
    Ack(usize),
    Commit(usize),
    Ping,
    Pong(Vec<(i64, Time)>),
    Revalidate {
        session: i64,
        timeout: Time,
        conn: ConnNo,
    },
    Revalidated {
        conn: ConnNo,
        valid: bool,
    },
    Sync(ConnNo),
    Synced(ConnNo),
    UpToDate,
    Reset,
}

/// A server's request to put something into the leader's log.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) origin: Option<ConnNo>,
    pub(crate) session: i64,
    pub(crate) deed: Deed,
}

#[derive(Clone, Debug)]
pub(crate) enum Deed {
    Begin {
        timeout: Time,
    },
    Write(Rc<Request>),
    /// A write through a connection that the session has left.
    Moved,
    End,
}

#[derive(Debug)]
pub(crate) struct Transaction {
    pub(crate) zxid: i64,
    /// When the leader received it.
    pub(crate) time: Time,
    pub(crate) ask: Ask,
    /// What it does, once a server has applied it.
    pub(crate) done: OnceCell<Done>,
}

#[derive(Debug, Default)]
pub(crate) enum Role {
    #[default]
    Looking,
    Following {
        leader: usize,
        heard: Time,
        serves: bool,
    },
    Leading(Leading),
}

#[derive(Debug, Default)]
pub(crate) struct Leading {
    pub(crate) zxid: i64,
    pub(crate) members: [Option<Member>; SERVERS],
    pub(crate) sessions: BTreeMap<i64, Tracked>,
    pub(crate) syncs: VecDeque<(usize, usize, ConnNo)>,
    pub(crate) phase: Time,
    pub(crate) rounds: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    pub(crate) acked: usize,
    pub(crate) heard: Time,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Tracked {
    pub(crate) ends: Time,
    pub(crate) owner: Option<usize>,
    /// Whether it was taken out, and will end whatever touches it.
    pub(crate) is_due: bool,
    pub(crate) is_closing: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Server {
    pub(crate) role: Role,
    /// The number of the server's life, which grows with each change of the role; plans and
    /// messages of an earlier life are void.
    pub(crate) life: u32,
    pub(crate) epoch: i64,
    pub(crate) is_down: bool,
    pub(crate) is_cut: bool,
    pub(crate) frozen_until: Time,
    /// Since when the other servers hear nothing from it, and in which life that began.
    pub(crate) silent_since: (Time, u32),
    /// When it last went on after a silence of more than a tenth of a session timeout.
    pub(crate) was_late: Time,
    pub(crate) lag: Time,
    pub(crate) log: Vec<Rc<Transaction>>,
    pub(crate) committed: usize,
    pub(crate) applied: usize,
    /// When committed changes are applied.
    pub(crate) due: VecDeque<(Time, Step)>,
    pub(crate) zxid: i64,
    pub(crate) tree: Tree,
    /// The sessions, with the timeouts they began with.
    pub(crate) sessions: BTreeMap<i64, Time>,
    pub(crate) touched: Vec<(i64, Time)>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Apply,
    Synced(ConnNo),
}

/// A client's connection, as its server sees it.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) client: usize,
    pub(crate) server: usize,
    pub(crate) session: i64,
    pub(crate) greeted: bool,
    pub(crate) open: bool,
    /// The requests without an answer.
    pub(crate) waiting: VecDeque<Work>,
}

/// A request that waits for the requests before it, or for the leader.
#[derive(Debug)]
pub(crate) enum Work {
    Read(Rc<Request>),
    Ping,
    Ordered,
    Sync(Rc<Request>),
    Throttled,
}

impl Leading {
    /// Returns the servers that follow now.
    pub(crate) fn followers(&self) -> impl Iterator<Item = usize> + use<> {
        let members = self.members;
        (0..SERVERS).filter(move |server| members[*server].is_some())
    }
}

impl Server {
    pub(crate) fn leading(&mut self) -> Option<&mut Leading> {
        match &mut self.role {
            Role::Leading(leading) => Some(leading),
            _ => None,
        }
    }

    pub(crate) fn leads(&self) -> bool {
        matches!(self.role, Role::Leading(_))
    }

    pub(crate) fn serves(&self) -> bool {
        match self.role {
            Role::Looking => false,
            Role::Following { serves, .. } => serves && !self.is_down,
            Role::Leading(_) => !self.is_down,
        }
    }

    pub(crate) fn change_role(&mut self, role: Role) {
        self.role = role;
        self.life += 1;
        self.due.clear();
        self.touched.clear();
    }
}

/// Takes the first item of a queue if the predicate holds for it.
pub(crate) fn pop_if<T>(queue: &mut VecDeque<T>, is_it: impl FnOnce(&T) -> bool) -> Option<T> {
    match queue.front().is_some_and(is_it) {
        true => queue.pop_front(),
        false => None,
    }
}
