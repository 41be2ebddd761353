//! One client: its session, its attempt, and the nodes that it has yet to clean up.

use core::time::Duration;

use zklock_core::answer::{Answered, Failure};
use zklock_core::attempt::{Action, Attempt, Orphan, OwnNode, Patience};
use zklock_core::deletions::{Deletion, Progress};
use zklock_core::dialect::{Dialect, Role};
use zklock_core::queue::Contest;
use zklock_core::skip_listing::LastGrant;
use zklock_jute::{ErrorCode, Names, Reply, Request};

/// The wish of one client.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Wish {
    pub(crate) role: Role,
    pub(crate) patience: Patience,
    /// How many times the client wants that, one after the other.
    pub(crate) rounds: u8,
    /// Whether its first node is in the queue from the beginning.
    pub(crate) queued: bool,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Client {
    pub(crate) wish: Wish,
    /// The attempt in progress; `None` while the client holds, and once it has all it wanted.
    pub(crate) attempt: Option<Attempt>,
    /// The number of attempts so far.
    pub(crate) attempts: u8,
    /// The node that the attempt knows to be its own.
    pub(crate) queued: Option<String>,
    pub(crate) raw: Option<RawGuard>,
    /// The last grant, if the client wants another one.
    pub(crate) last: Option<LastGrant>,
    pub(crate) farewells: Vec<Deletion>,

    pub(crate) session: i64,
    /// Whether the server has closed the session, and the client has not heard of it.
    pub(crate) expired: bool,
    /// Whether the client has a new session, and the attempt has not heard of it.
    pub(crate) untold: bool,
    pub(crate) crashed: bool,
    /// The node that the client watches.
    pub(crate) watch: Option<String>,
    /// The node beyond that one, while the client watches it, too.
    pub(crate) beyond: Option<String>,
    /// The client's own node, while the client watches it, too.
    pub(crate) guard: Option<String>,
    /// Whether the attempt asked for that watch. For the properties.
    pub(crate) guards: bool,
    /// Whether the answer to its first look at its own node was lost, so that it looks no more.
    pub(crate) deaf: bool,
    /// The events of the watches, in the order in which they happened.
    pub(crate) events: Vec<Fired>,
    /// Whether the connection was made anew since the subscriber fell asleep.
    pub(crate) reconnected: bool,
    /// A create that was sent, and whose answer nobody waits for any more.
    pub(crate) under_way: Option<String>,
    /// The client's first transaction that was applied without its knowledge: a server that it
    /// asks may not have applied it.
    pub(crate) unseen: Option<i64>,

    /// Whether the caller gave up. For the properties.
    pub(crate) cancelled: bool,
    /// Whether the operator has deleted a node of the client's. For the properties.
    pub(crate) evicted: bool,
    /// Whether the client takes a deletion after that of its own node for its turn. For the
    /// properties.
    pub(crate) deluded: bool,
}

/// An event of a watch.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Fired {
    pub(crate) what: Change,
    pub(crate) of: Place,
    /// Whether the client's own node was there at that time. For the properties.
    pub(crate) queued: bool,
}

/// The node that a watch was on.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Place {
    Own,
    Nearest,
    Beyond,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Change {
    Deleted,
    Changed,
}

/// A guard.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct RawGuard {
    pub(crate) node: OwnNode,
    /// Whether the guard's deadline has not passed: code may act on the lock. The deadline passes
    /// before the server can end the session.
    pub(crate) trusted: bool,
}

impl Client {
    pub(crate) fn new(seat: usize, wish: Wish) -> Self {
        Self {
            wish,
            attempt: None,
            attempts: 0,
            queued: None,
            raw: None,
            last: None,
            farewells: Vec::new(),
            session: 100 * (seat as i64 + 1),
            expired: false,
            untold: false,
            crashed: false,
            watch: None,
            beyond: None,
            guard: None,
            guards: false,
            deaf: false,
            events: Vec::new(),
            reconnected: false,
            under_way: None,
            unseen: None,
            cancelled: false,
            evicted: false,
            deluded: false,
        }
    }

    /// Begins an attempt, with an `id` that must be fresh.
    pub(crate) fn enter(&mut self, id: &str, knows_session: bool, last: Option<LastGrant>) {
        let contest = self.contest();
        let session = knows_session.then_some(self.session);
        self.attempts += 1;
        let attempt = Attempt::enter(contest, id, session, self.wish.patience);
        self.attempt = Some(attempt.after(last));
        self.forget_attempt();
    }

    /// Begins an attempt with a node that is in the queue already.
    pub(crate) fn enter_queued(&mut self, mine: OwnNode) {
        self.attempts += 1;
        self.queued = Some(mine.name.clone());
        self.attempt = Some(Attempt::queued(self.contest(), mine, self.wish.patience));
    }

    pub(crate) fn contest(&self) -> Contest {
        Contest {
            dialect: Dialect::Curator,
            role: self.wish.role,
            permits: 0,
        }
    }

    /// Forgets what the last attempt was told.
    pub(crate) fn forget_attempt(&mut self) {
        self.queued = None;
        self.cancelled = false;
        self.untold = false;
        self.deluded = false;
        self.deaf = false;
        self.stop_watching();
    }

    pub(crate) fn stop_watching(&mut self) {
        self.lose_watches();
        self.guards = false;
        self.reconnected = false;
    }

    pub(crate) fn lose_watches(&mut self) {
        self.watch = None;
        self.beyond = None;
        self.guard = None;
        self.events.clear();
    }

    pub(crate) fn action(&self) -> Option<Action> {
        self.attempt.as_ref().map(Attempt::action)
    }

    pub(crate) fn is_asleep(&self) -> bool {
        self.action() == Some(Action::Wait)
    }

    /// Returns whether nothing is left to do, not even in the background.
    pub(crate) fn is_done(&self) -> bool {
        let idle = self.attempt.is_none() && self.raw.is_none() && self.farewells.is_empty();
        self.crashed || idle && self.under_way.is_none()
    }

    /// Returns whether a request would be carried out: the client has a session, and nothing is in
    /// the way.
    pub(crate) fn is_served(&self) -> bool {
        !self.crashed && !self.expired && self.under_way.is_none()
    }

    pub(crate) fn bid_farewell(&mut self, node: OwnNode) {
        self.farewells.push(deletion_of(Orphan::Node(node.name)));
    }
}

/// Returns the deletion of what was left. There is one directory, or the deletion stands beside its number.
pub(crate) fn deletion_of(orphan: Orphan) -> Deletion {
    Deletion::new("", 0, orphan)
}

/// Returns the request that a deletion sends next.
pub(crate) fn request_of(deletion: &Deletion) -> Request {
    deletion.clone().ask().expect("it has not ended")
}

/// Sends the request of a deletion, and answers it. Returns whether nothing is left to delete.
pub(crate) fn ends_by(deletion: &mut Deletion, answered: Answered) -> bool {
    deletion.ask().expect("it has not ended");
    matches!(
        deletion.answered(Duration::ZERO, answered),
        Progress::Ended(_)
    )
}

/// Returns the answer to a listing.
pub(crate) fn listed(names: Option<Names>) -> Answered {
    let refused = Failure::Refused(ErrorCode::NO_NODE);
    let names = names.ok_or(refused)?;
    Ok(Reply::Children { names, stat: None })
}
