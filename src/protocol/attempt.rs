//! One attempt to get into a queue and to its head.
//!
//! ```text
//!  Peek ──► (taken: Finish, or wait without a node and peek again)
//!   │                                no parents
//!   │ free                  Create ◄───────────► Parents
//!   └──────────────────────► │  │
//!                  created   │  │ reply lost
//!            ┌───────────────┘  ▼
//!            │       none     Sync ──► Find ──► (not there: Create)
//!            │                           │ there
//!            ▼   owner ours              ▼
//!          List ◄───────────────────── Inspect ──► (dead session's: Restart)
//!     ▲     │  │ nothing ahead
//!     │     │  └──────────────────► Prove ──► Finish(Held)
//!     │     │ someone ahead           ▲
//!     │     ▼                         │ the last one ahead was deleted
//!     ├── Watch ──► Wait ─────────────┤
//!     │ gone  ▲     │ ▲ one ahead     │
//!     ├───────┼─────┘ ▼               │ nothing ahead
//!     │ woken └──── Relist ───────────┘
//!     │  others ahead
//!
//!  Cancel, from anywhere: Finish(Gone).   New session, from anywhere: Finish(Restart).
//! ```
//!
//! The driver carries out [`Attempt::action`] and reports what came of it to
//! [`Attempt::handle`], until the action is `Finish`. Whatever the attempt leaves
//! behind in the directory is in [`Attempt::leftovers`] by then, and is somebody else's
//! to delete. There is no time in here: a deadline is a `Cancel` that the driver sends.
//!
//! `Relist` saves the hand-off a round trip: who is woken because the one beyond the nearest
//! has gone looks at the queue while the nearest holds, and not when its own turn has come.

use std::collections::HashMap;
use std::mem;

use super::dialect::Role;
use super::name::prefix;
use super::queue::{Behind, Contest, Foreign, Place, own};

/// The state machine.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Attempt {
    contest: Contest,
    /// The name we ask for; nobody else ever asks for the same.
    prefix: String,
    /// The session that our node must belong to, if the driver knows it.
    session: Option<i64>,
    patience: Patience,
    state: State,
    leftovers: Vec<Leftover>,
}

/// Whether to wait for one's turn.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Patience {
    /// Wait.
    Waits,
    /// Leave if somebody is ahead, without a write if that can be seen before.
    Tries,
}

/// What the driver is to do next.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Action {
    /// Create an ephemeral sequential node with this prefix.
    Create(String),
    /// Create the directory and what is above it.
    MakeParents,
    /// Make sure that the next listing is no older than this moment.
    Sync,
    /// List the directory.
    List,
    /// List the directory, leaving a watch on it. Our own node is there already, or not.
    ListAndWatch(bool),
    /// Ask for this node's owner and birth.
    Inspect(String),
    /// Ask for the births of these nodes.
    Births(Vec<String>),
    /// Read the nearest node, leaving a watch on it.
    Watch(Behind),
    /// As `Watch`, with watches on this node of ours and on the one beyond the nearest as
    /// well.
    ///
    /// The server tells events in the order in which they happened: if the nearest node
    /// goes and nothing was heard of ours, ours was there.
    WatchAround(Behind, String),
    /// Sleep until something is worth a report.
    Wait,
    /// Have the quorum confirm this node, unless it confirmed the session a moment ago.
    Prove(String),
    /// Stop: there is nothing more to do.
    Finish(Outcome),
}

/// What the driver reports.
#[derive(Clone, Debug)]
pub enum Event {
    /// The caller gives up. While a create is under way, `ReplyLost` goes before it.
    Cancel,
    /// The directory holds these names.
    Children(Vec<String>),
    /// Our node was created, under this name; its owner and birth if the server told.
    Created(String, Option<Born>),
    /// This is whose the node is.
    Inspected(Born),
    /// These are the births of those nodes that are still there.
    Births(HashMap<String, i64>),
    /// The node or the directory that we asked about is not there.
    NoNode,
    /// There was nothing to make any more, or it was made.
    ParentsMade,
    /// The quorum has confirmed our node.
    Proved,
    /// No reply: the request may or may not have been carried out.
    ReplyLost,
    /// The listing that follows is no older than this.
    Synced,
    /// The watch is in place.
    Watching,
    /// The nearest node, which we watched, was deleted.
    Deleted,
    /// The node beyond the nearest was deleted, and the watches on the others stand.
    BeyondDeleted,
    /// Our own node, which we asked for, is not there, in our own session.
    Evicted,
    /// Something else happened: look again.
    Woken,
    /// There is another session now.
    NewSession,
}

/// A node's origin.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Born {
    /// The session that the node belongs to.
    pub owner: i64,
    /// The transaction that created it: the fencing token.
    pub czxid: i64,
}

/// A node of ours, in the queue.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Mine {
    /// Its name.
    pub name: String,
    /// Its origin.
    pub born: Born,
}

/// How it ended.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Outcome {
    /// It is our turn, on the strength of this node.
    Held(Mine),
    /// We gave up, or found the lock taken.
    Gone,
    /// Somebody deleted our node.
    Evicted(String),
    /// There is no exclusion with somebody in the queue.
    Foreign(Foreign),
    /// The session changed: begin anew, with another id.
    Restart,
}

/// What an attempt leaves in the directory.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Leftover {
    /// This node.
    Node(String),
    /// Perhaps a node with this prefix.
    Prefix(String),
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum State {
    Peek,
    Full,
    Create,
    Parents,
    Sync,
    Find,
    Inspect(String),
    List(Mine),
    Relist(Mine, Behind),
    Births(Mine, Vec<String>),
    Watch(Mine, Behind),
    Wait(Mine, Behind),
    Prove(Mine),
    Finish(Outcome),
}

impl Attempt {
    /// Someone who wants in. The `id` must be fresh: a UUID that was never used.
    pub fn enter(contest: Contest, id: &str, session: Option<i64>, patience: Patience) -> Self {
        Self {
            contest,
            prefix: prefix(contest.dialect, contest.role, id),
            session,
            patience,
            state: match patience {
                Patience::Waits if !contest.looks_first() => State::Create,
                Patience::Waits | Patience::Tries => State::Peek,
            },
            leftovers: Vec::new(),
        }
    }

    /// Someone whose node stands in the queue already.
    pub fn queued(contest: Contest, mine: Mine, patience: Patience) -> Self {
        Self {
            contest,
            prefix: String::new(),
            session: Some(mine.born.owner),
            patience,
            state: State::List(mine),
            leftovers: Vec::new(),
        }
    }

    /// What the driver is to do next.
    pub fn action(&self) -> Action {
        match &self.state {
            State::List(_) if self.contest.role == Role::Permit => Action::ListAndWatch(true),
            State::Peek if self.patience == Patience::Waits => Action::ListAndWatch(false),
            State::Peek | State::Find | State::List(_) | State::Relist(..) => Action::List,
            State::Create => Action::Create(self.prefix.clone()),
            State::Parents => Action::MakeParents,
            State::Sync => Action::Sync,
            State::Inspect(name) => Action::Inspect(name.clone()),
            State::Births(_, names) => Action::Births(names.clone()),
            State::Watch(mine, behind) if behind.last || behind.beyond.is_some() => {
                Action::WatchAround(behind.clone(), mine.name.clone())
            }
            State::Watch(_, behind) => Action::Watch(behind.clone()),
            State::Full | State::Wait(..) => Action::Wait,
            State::Prove(mine) => Action::Prove(mine.name.clone()),
            State::Finish(outcome) => Action::Finish(outcome.clone()),
        }
    }

    /// Our node, while it stands in the queue.
    pub fn node(&self) -> Option<&str> {
        match &self.state {
            State::List(mine)
            | State::Relist(mine, _)
            | State::Births(mine, _)
            | State::Watch(mine, _)
            | State::Wait(mine, _)
            | State::Prove(mine) => Some(&mine.name),
            _ => None,
        }
    }

    /// What is ahead of our node, while it waits for that.
    pub fn behind(&self) -> Option<&Behind> {
        match &self.state {
            State::Wait(_, behind) => Some(behind),
            _ => None,
        }
    }

    /// What is left in the directory after `Finish`; complete only then.
    pub fn leftovers(&mut self) -> Vec<Leftover> {
        mem::take(&mut self.leftovers)
    }

    /// Takes in what came of the last action, or what happened meanwhile.
    pub fn handle(&mut self, event: Event) {
        let state = mem::replace(&mut self.state, State::Peek);
        self.state = self.next(state, event);
    }

    fn next(&mut self, state: State, event: Event) -> State {
        match (state, event) {
            (state @ State::Finish(_), _) => state,
            (state, Event::Cancel) => self.leave(state, Outcome::Gone),
            (state, Event::NewSession) => self.leave(state, Outcome::Restart),

            (State::Peek, Event::Children(names)) => match self.contest.is_taken(&names) {
                Ok(false) => State::Create,
                Ok(true) if self.patience == Patience::Waits => State::Full,
                Ok(true) => State::Finish(Outcome::Gone),
                Err(foreign) => State::Finish(Outcome::Foreign(foreign)),
            },
            (State::Peek, Event::NoNode) => State::Create,
            (State::Full, Event::Deleted | Event::Woken) => State::Peek,

            (State::Create, Event::Created(name, Some(born))) => self.created(name, born),
            (State::Create, Event::Created(name, None)) => State::Inspect(name),
            (State::Create, Event::NoNode) => State::Parents,
            (State::Parents, Event::ParentsMade) => State::Create,
            // The node may be there all the same, and a server that lags would not show
            // it: without the sync we would queue behind ourselves.
            (State::Create, Event::ReplyLost) => State::Sync,
            (State::Sync, Event::Synced) => State::Find,
            (State::Find, Event::Children(names)) => self.found(&names),
            (State::Find, Event::NoNode) => State::Create,
            (State::Inspect(name), Event::Inspected(born)) => self.created(name, born),
            (State::Inspect(name), Event::NoNode) => State::Finish(Outcome::Evicted(name)),

            (State::List(mine), Event::Children(names)) => {
                let place = self.contest.place(&names, &mine.name);
                self.placed(mine, place)
            }
            (State::Relist(mine, before), Event::Children(names)) => {
                match self.contest.place(&names, &mine.name) {
                    Place::Behind(now) if now.last && now.nearest == before.nearest => {
                        State::Wait(mine, now)
                    }
                    place => self.placed(mine, place),
                }
            }
            (State::Births(mine, _), Event::Births(births)) => {
                let place = self.contest.place_by_birth(&births, &mine.name);
                self.placed(mine, place)
            }
            (State::Watch(mine, behind), Event::Watching) => State::Wait(mine, behind),
            (State::Watch(mine, _), Event::NoNode) => State::List(mine),
            (State::Watch(mine, _) | State::Wait(mine, _), Event::Evicted) => {
                State::Finish(Outcome::Evicted(mine.name))
            }
            (State::Watch(mine, behind) | State::Wait(mine, behind), Event::BeyondDeleted) => {
                State::Relist(mine, behind)
            }
            (State::Wait(mine, Behind { last: true, .. }), Event::Deleted) => State::Prove(mine),
            (State::Wait(mine, _), Event::Deleted | Event::Woken) => State::List(mine),
            (State::Prove(mine), Event::Proved) => State::Finish(Outcome::Held(mine)),
            // The watches may have gone with the connection.
            (State::Relist(mine, _), Event::ReplyLost | Event::Woken) => State::List(mine),
            (State::List(mine) | State::Relist(mine, _) | State::Prove(mine), Event::NoNode) => {
                State::Finish(Outcome::Evicted(mine.name))
            }

            // A question whose answer was lost is asked again, and a stale event changes
            // nothing.
            (state, _) => state,
        }
    }

    /// Our node is there, if it belongs to our session.
    fn created(&mut self, name: String, born: Born) -> State {
        if self.session.is_some_and(|session| session != born.owner) {
            self.leftovers.push(Leftover::Node(name));
            return State::Finish(Outcome::Restart);
        }
        State::List(Mine { name, born })
    }

    /// The reply to our create was lost; `names` shows whether it was carried out.
    fn found(&mut self, names: &[String]) -> State {
        let mut own = own(names, &self.prefix).into_iter();
        let Some(first) = own.next() else {
            return State::Create;
        };
        let first = first.text.to_owned();
        let extra = own.map(|name| Leftover::Node(name.text.to_owned()));
        self.leftovers.extend(extra);
        if self.session.is_none() {
            // Without a session to compare with, the node may be a dead one's.
            self.leftovers.push(Leftover::Node(first));
            return State::Finish(Outcome::Restart);
        }
        State::Inspect(first)
    }

    fn placed(&mut self, mine: Mine, place: Place) -> State {
        match (place, self.patience) {
            (Place::First, _) => State::Prove(mine),
            (Place::Behind(behind), Patience::Waits) => State::Watch(mine, behind),
            (Place::Crowded(ahead), Patience::Waits) => {
                let nearest = String::new();
                State::Wait(
                    mine,
                    Behind {
                        nearest,
                        ahead,
                        ..Behind::default()
                    },
                )
            }
            (Place::Behind(_) | Place::Crowded(_), Patience::Tries) => {
                self.leave(State::List(mine), Outcome::Gone)
            }
            (Place::Exhausted(names), _) => State::Births(mine, names),
            (Place::Foreign(foreign), _) => {
                self.leave(State::List(mine), Outcome::Foreign(foreign))
            }
            (Place::Missing, _) => State::Finish(Outcome::Evicted(mine.name)),
        }
    }

    /// Ends the attempt and writes down what it leaves behind.
    fn leave(&mut self, state: State, outcome: Outcome) -> State {
        match state {
            // Cancelled in `Create` means that no request is under way.
            State::Peek | State::Full | State::Create | State::Parents | State::Finish(_) => {}
            State::Sync | State::Find => {
                self.leftovers.push(Leftover::Prefix(self.prefix.clone()));
            }
            State::Inspect(name) => self.leftovers.push(Leftover::Node(name)),
            State::List(mine)
            | State::Relist(mine, _)
            | State::Births(mine, _)
            | State::Watch(mine, _)
            | State::Wait(mine, _)
            | State::Prove(mine) => self.leftovers.push(Leftover::Node(mine.name)),
        }
        State::Finish(outcome)
    }
}
