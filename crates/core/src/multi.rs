//! Going through several queues at once: all or none.
//!
//! ```text
//!  Peek ─► Look ─► .. ─► Look                     no parents
//!    (if it only tries)   │ all are free    Place ◄────────► Parents
//!                         └────────────────► │ │ reply lost
//!                              created       │ └──► Find
//!  Births ◄──────────────────────────────────┴─── all there ◄─┴─► (not: Restart)
//!    │ all there, and ours        our turn in the last one
//!    └─► Queue ─► Lists ─► .. ─► Lists ─► Queue ─► Prove ──► Finish(Held)
//!         (only where a node is not the first; whoever held several may have released all of them)
//!
//!  A node is gone: Finish(Evicted).   Cancel: Finish(Gone).   New session: Finish(Restart).
//! ```
//!
//! One transaction creates all nodes. They stand in the same order in every queue, so waiting in one queue after the
//! other cannot end in a circle. While the client waits in one queue, its nodes in the others may go, so all are
//! proven after the last.
//!
//! Without transactions, whoever takes one lock after the other meets those circles, holds up everybody in them, and
//! may wait without end: there is no such way.
//!
//! The driver carries out [`Multi::action`] and reports the result to [`Multi::handle`], until
//! the action is `Finish`. In `Look` and `Queue` it drives an attempt at one lock; if the attempt ends in
//! another way than the events say, the driver sends `Cancel`. By the end, [`Multi::orphans`] lists what is left in
//! the directories, except the node with which such an attempt waits: that is among the attempt's own orphans.

mod queues;

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

use super::attempt::{Origin, Orphan, OwnNode, Patience};
use super::dialect::{Dialect, Role};
use super::name::prefix;
use super::queue::{Contest, own};
use zklock_jute::Names;

/// The state machine of one attempt.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Multi {
    /// The role that we ask for in each queue.
    roles: Vec<Role>,
    dialect: Dialect,
    /// The prefix of the name we ask for in each queue. No other attempt ever asks for the same.
    prefixes: Vec<String>,
    /// The session that our nodes must belong to, if the driver knows it.
    session: Option<i64>,
    state: State,
    /// For each queue, whether our node was the first one, and so stays the first.
    firsts: Vec<bool>,
    orphans: Vec<(usize, Orphan)>,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum State {
    Peek,
    /// With what the queues held a moment ago; see [`Multi::listing`].
    Look(usize, Vec<Option<Names>>),
    Place,
    Parents,
    Find,
    Births(Vec<String>),
    /// Lists the queues in which our nodes are not known to be the first.
    Lists(Vec<OwnNode>),
    /// With what this queue held a moment ago, when our nodes stood there; see [`Multi::listing`].
    Queue(usize, Vec<OwnNode>, Option<Names>),
    Prove(Vec<OwnNode>),
    Finish(Outcome),
}

/// The next step for the driver. Queues are numbered in the order of their paths.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Action {
    /// Begin an attempt that looks whether this queue is taken.
    Look(usize),
    /// Create an ephemeral sequential node in every queue, each with its prefix, in one transaction.
    Place(Vec<String>),
    /// Create all the directories and their ancestors.
    MakeParents,
    /// Ask for the owner and the birth of our nodes, which have these names, one in each queue, and list the
    /// queues.
    Births(Vec<String>),
    /// List these queues. The flag says whether at a server that has caught up.
    Lists(Vec<usize>, bool),
    /// Wait in this queue, while these nodes of ours stand, one in each queue.
    Queue(usize, Vec<OwnNode>),
    /// Have the quorum confirm these nodes, one in each queue.
    Prove(Vec<String>),
    /// Stop: there is nothing more to do.
    Finish(Outcome),
}

/// A report from the driver.
#[derive(Clone, Debug)]
pub enum Event {
    /// Nobody is in the queue that the attempt looked at.
    Free,
    /// Our nodes were created, under these names.
    Created(Vec<String>),
    /// The origins of those nodes that are still there, and what each queue holds, if that is known.
    Births(Vec<Option<Origin>>, Vec<Option<Names>>),
    /// The contents of each queue that was to be listed, where they are known.
    Queues(Vec<Option<Names>>),
    /// A directory in which to create a node is not there.
    NoNode,
    /// The directories and their ancestors exist.
    ParentsMade,
    /// The attempt has waited in the queue until our turn.
    First,
    /// The quorum has confirmed all nodes.
    Proved,
    /// The node in this queue is gone.
    Gone(usize),
    /// No reply: the nodes may or may not have been created.
    ReplyLost,
    /// There is another session now.
    NewSession,
    /// The caller gives up. While nodes are being created, `ReplyLost` goes before it.
    Cancel,
}

/// How an attempt ended.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Outcome {
    /// All locks are ours, through these nodes.
    Held(Vec<OwnNode>),
    /// We gave up, or found one of the locks taken.
    Gone,
    /// Somebody deleted this node of ours, in this queue.
    Evicted(usize, String),
    /// Our nodes are lost: start over, with another id.
    Restart,
}

impl Multi {
    /// Creates an attempt in these roles. The `id` must be fresh: a UUID that was never used.
    pub fn new(
        roles: &[Role],
        dialect: Dialect,
        id: &str,
        session: Option<i64>,
        patience: Patience,
    ) -> Self {
        let prefixes = roles.iter().map(|role| prefix(dialect, *role, id));
        Self {
            roles: roles.to_vec(),
            dialect,
            prefixes: prefixes.collect(),
            session,
            state: match patience {
                Patience::Tries => State::Peek,
                Patience::Waits => State::Place,
            },
            firsts: Vec::new(),
            orphans: Vec::new(),
        }
    }

    /// Returns the next step for the driver.
    pub fn action(&self) -> Action {
        match &self.state {
            State::Peek => Action::Lists(self.all(), false),
            State::Look(at, _) => Action::Look(*at),
            State::Place => Action::Place(self.prefixes.clone()),
            State::Parents => Action::MakeParents,
            State::Find => Action::Lists(self.all(), true),
            State::Births(names) => Action::Births(names.clone()),
            State::Lists(_) => Action::Lists(self.waits().collect(), false),
            State::Queue(at, mine, _) => Action::Queue(*at, mine.clone()),
            State::Prove(mine) => {
                Action::Prove(mine.iter().map(|mine| mine.name.clone()).collect())
            }
            State::Finish(outcome) => Action::Finish(outcome.clone()),
        }
    }

    /// Takes what the queue to look at held a moment ago, or the queue to wait in when our nodes stood and no other
    /// queue was left to wait in before it.
    pub fn listing(&mut self) -> Option<Names> {
        match &mut self.state {
            State::Look(at, queues) => queues.get_mut(*at)?.take(),
            State::Queue(_, _, listing) => listing.take(),
            _ => None,
        }
    }

    /// Takes what is left in each queue after `Finish`; complete only then.
    pub fn orphans(&mut self) -> Vec<(usize, Orphan)> {
        mem::take(&mut self.orphans)
    }

    /// Takes in the result of the last action, or what happened meanwhile.
    pub fn handle(&mut self, event: Event) {
        let state = mem::replace(&mut self.state, State::Place);
        self.state = self.next(state, event);
    }

    fn next(&mut self, state: State, event: Event) -> State {
        match (state, event) {
            (state @ State::Finish(_), _) => state,
            (state, Event::Cancel) => self.leave(state, Outcome::Gone),
            (state, Event::NewSession) => self.leave(state, Outcome::Restart),
            (state, event) => self.stands(state, event),
        }
    }

    /// Handles the events of an attempt that goes on.
    fn stands(&mut self, state: State, event: Event) -> State {
        match (state, event) {
            (State::Peek, Event::Queues(queues)) => State::Look(0, queues),
            (State::Look(at, queues), Event::Free) => match at + 1 == self.roles.len() {
                true => State::Place,
                false => State::Look(at + 1, queues),
            },

            (State::Place, Event::Created(names)) => State::Births(names),
            (State::Place, Event::NoNode) => State::Parents,
            (State::Parents, Event::ParentsMade) => State::Place,
            // The nodes may exist: a try with another id would find them in its way.
            (State::Place, Event::ReplyLost) => State::Find,
            (State::Find, Event::Queues(queues)) => self.found(queues),
            (State::Births(names), Event::Births(births, queues)) => {
                self.born(names, &births, queues)
            }

            (State::Queue(at, mine, _), Event::First) => self.first(at, mine),
            (State::Lists(mine), Event::Queues(queues)) => self.listed(mine, queues),

            (State::Prove(mine), Event::Proved) => State::Finish(Outcome::Held(mine)),
            (State::Prove(mut mine), Event::Gone(at)) => {
                let name = mem::take(&mut mine[at].name);
                self.leave_nodes(&mine, Some(at));
                State::Finish(Outcome::Evicted(at, name))
            }

            // A request whose answer was lost is repeated, and a stale event changes nothing.
            (state, _) => state,
        }
    }

    /// Takes in the listings after a lost reply to our transaction, which show whether it was carried out.
    fn found(&mut self, queues: Vec<Option<Names>>) -> State {
        let mine = |(prefix, names): (&String, Option<Names>)| {
            let first = own(&names?, prefix).first()?.text.to_owned();
            Some(first)
        };
        match self.prefixes.iter().zip(queues).map(mine).collect() {
            Some(all) if self.session.is_some() => State::Births(all),
            // Somebody has deleted one of the nodes, or they may belong to a dead session. Or the
            // transaction was not carried out, but still may be, so the next attempt asks for other names.
            _ => self.leave(State::Find, Outcome::Restart),
        }
    }

    fn all(&self) -> Vec<usize> {
        (0..self.roles.len()).collect()
    }

    fn contest(&self, at: usize) -> Contest {
        Contest {
            dialect: self.dialect,
            role: self.roles[at],
            permits: 0,
        }
    }

    /// Ends the attempt, and records what is left behind.
    fn leave(&mut self, state: State, outcome: Outcome) -> State {
        match state {
            State::Queue(at, mine, _) => self.leave_nodes(&mine, Some(at)),
            State::Lists(mine) | State::Prove(mine) => self.leave_nodes(&mine, None),
            State::Births(names) => {
                let names = names.into_iter().map(Orphan::Node);
                self.orphans.extend(names.enumerate());
            }
            State::Find => {
                let left = self.prefixes.iter().cloned().map(Orphan::Prefix);
                self.orphans = left.enumerate().collect();
            }
            // A cancel in `Place` means that no request is under way.
            State::Place | State::Peek | State::Look(..) | State::Parents => {}
            State::Finish(_) => {}
        }
        State::Finish(outcome)
    }

    fn leave_nodes(&mut self, mine: &[OwnNode], except: Option<usize>) {
        let left = mine
            .iter()
            .enumerate()
            .filter(|(at, _)| Some(*at) != except);
        let left = left.map(|(at, mine)| (at, Orphan::Node(mine.name.clone())));
        self.orphans.extend(left);
    }
}
