//! One attempt to get into a queue and to its head.
//!
//! ```text
//!  Peek ──► (taken: wait without a node and peek again, or
//!   │        CatchUp ──► PeekAgain ──► (taken: Finish))
//!   │                       │        no parents
//!   │ free             free │  Create ◄────────► Parents
//!   └───────────────────────┴─► │  │
//!                  created   │  │ reply lost
//!            ┌───────────────┘  ▼
//!            │       none     Sync ──► Find ──► (not there: Rename ──► Create)
//!            │                           │ there
//!            ▼   owner ours*             ▼
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
//!  * Both ways lead to Prove at once if nobody has joined since the last grant.
//! ```
//!
//! The driver carries out [`Attempt::action`] and reports the result to [`Attempt::handle`],
//! until the action is `Finish`. By then, [`Attempt::orphans`] lists what the attempt leaves
//! in the directory, for the cleaner to delete. The attempt knows no time: at a deadline, the
//! driver sends `Cancel`.
//!
//! `Relist` saves the hand-off a round trip: once the node beyond the nearest is gone, the waiter lists the queue
//! while the nearest still holds, if others may be left. [`LastGrant`] says when no listing is needed.

pub mod action_and_event;

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

use super::dialect::Role;
use super::name::prefix;
use super::queue::{Blocked, Contest, Place, own};
use super::skip_listing::LastGrant;
use zklock_jute::Names;

pub use self::action_and_event::{Action, Event, Origin, Orphan, Outcome, OwnNode, Patience};

/// The state machine of one attempt.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Attempt {
    contest: Contest,
    /// The prefix of the name we ask for. No other attempt ever asks for the same.
    prefix: String,
    /// The session that our node must belong to, if the driver knows it.
    session: Option<i64>,
    patience: Patience,
    pub(crate) last: Option<LastGrant>,
    state: State,
    orphans: Vec<Orphan>,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum State {
    Peek,
    CatchUp,
    PeekAgain,
    Full,
    Create,
    Parents,
    Sync,
    Find,
    Rename,
    Inspect(String),
    /// Our node stands in the queue.
    Stands(OwnNode, Standing),
    Finish(Outcome),
}

/// What a contender does whose node stands in the queue.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Standing {
    List,
    Relist(Blocked),
    Births(Vec<String>),
    Watch(Blocked),
    Wait(Blocked),
    Prove,
}

impl Attempt {
    /// Creates a contender without a node. The `id` must be fresh: a UUID that was never used.
    pub fn enter(contest: Contest, id: &str, session: Option<i64>, patience: Patience) -> Self {
        Self {
            contest,
            prefix: prefix(contest.dialect, contest.role, id),
            session,
            patience,
            last: None,
            state: match patience {
                Patience::Waits if !contest.looks_first() => State::Create,
                Patience::Waits | Patience::Tries => State::Peek,
            },
            orphans: Vec::new(),
        }
    }

    /// Sets the `last` grant, since which the contender has released the lock.
    ///
    /// Only exclusive contenders use this: one of another role may come back while it still holds.
    #[must_use]
    pub fn after(mut self, last: Option<LastGrant>) -> Self {
        self.last = last.filter(|_| self.contest.role == Role::Exclusive);
        self
    }

    /// Creates a contender whose node already stands in the queue.
    pub fn queued(contest: Contest, mine: OwnNode, patience: Patience) -> Self {
        Self {
            contest,
            prefix: String::new(),
            session: Some(mine.origin.owner),
            patience,
            last: None,
            state: State::Stands(mine, Standing::List),
            orphans: Vec::new(),
        }
    }

    /// Returns the next step for the driver.
    pub fn action(&self) -> Action {
        match &self.state {
            State::Peek if self.patience == Patience::Waits => Action::ListAndWatch(false),
            State::Peek | State::PeekAgain | State::Find => Action::List,
            State::Create => Action::Create(self.prefix.clone()),
            State::Parents => Action::MakeParents,
            State::CatchUp => Action::CatchUp,
            State::Sync => Action::Sync,
            State::Rename => Action::Rename,
            State::Inspect(name) => Action::Inspect(name.clone()),
            State::Full => Action::Wait,
            State::Stands(mine, standing) => match standing {
                Standing::List if self.contest.role == Role::Permit => Action::ListAndWatch(true),
                Standing::List | Standing::Relist(_) => Action::List,
                Standing::Births(names) => Action::Births(names.clone()),
                Standing::Watch(blocked) => Action::Watch(blocked.clone(), mine.name.clone()),
                Standing::Wait(_) => Action::Wait,
                Standing::Prove => Action::Prove(mine.name.clone()),
            },
            State::Finish(outcome) => Action::Finish(outcome.clone()),
        }
    }

    /// Asks for another name from now on, with this fresh id: see [`Action::Rename`].
    pub fn rename(&mut self, id: &str) {
        if self.state == State::Rename {
            let contest = self.contest;
            let asked = mem::replace(&mut self.prefix, prefix(contest.dialect, contest.role, id));
            self.orphans.push(Orphan::Prefix(asked));
            self.state = State::Create;
        }
    }

    /// Returns whether nobody is expected ahead of our node, so that the queue need not be listed.
    pub fn expects_nobody(&self) -> bool {
        self.last.is_some_and(|last| last.is_habit())
    }

    /// Returns our node, while it stands in the queue.
    pub fn node(&self) -> Option<&str> {
        match &self.state {
            State::Inspect(name) => Some(name),
            State::Stands(mine, _) => Some(&mine.name),
            _ => None,
        }
    }

    /// Returns whether there is nothing to do until something happens.
    pub fn is_waiting(&self) -> bool {
        matches!(
            self.state,
            State::Full | State::Stands(_, Standing::Wait(_))
        )
    }

    /// Returns what is ahead of our node, while the attempt waits for that to go.
    pub fn blocked(&self) -> Option<&Blocked> {
        match &self.state {
            State::Stands(_, Standing::Wait(blocked)) => Some(blocked),
            _ => None,
        }
    }

    /// Takes the record of what is left in the directory after `Finish`; complete only then.
    pub fn orphans(&mut self) -> Vec<Orphan> {
        mem::take(&mut self.orphans)
    }

    /// Takes in the result of the last action, or what happened meanwhile.
    pub fn handle(&mut self, event: Event) {
        let state = mem::replace(&mut self.state, State::Peek);
        self.state = self.next(state, event);
    }

    fn next(&mut self, state: State, event: Event) -> State {
        match (state, event) {
            (state @ State::Finish(_), _) => state,
            (state, Event::Cancel) => self.leave(state, Outcome::Gone),
            (state, Event::NewSession) => self.leave(state, Outcome::Restart),

            (state @ (State::Peek | State::PeekAgain), Event::Children(names)) => {
                match self.contest.is_taken(&names) {
                    Ok(false) => State::Create,
                    Ok(true) if self.patience == Patience::Waits => State::Full,
                    // A server that lags still shows a node whose deletion was answered.
                    Ok(true) | Err(_) if self.looks_again(&state) => State::CatchUp,
                    Ok(true) => State::Finish(Outcome::Gone),
                    Err(foreign) => State::Finish(Outcome::Foreign(foreign)),
                }
            }
            (State::Peek | State::PeekAgain, Event::NoNode) => State::Create,
            (State::CatchUp, Event::Synced) => State::PeekAgain,
            (State::Full, Event::Deleted | Event::Woken) => State::Peek,

            (State::Create, Event::Created(name, Some(origin))) => self.created(name, origin),
            (State::Create, Event::Created(name, None)) => State::Inspect(name),
            (State::Create, Event::NoNode) => State::Parents,
            (State::Parents, Event::ParentsMade) => State::Create,
            // The node may exist, and a server that lags would not show it: without the sync,
            // the attempt would queue behind its own node.
            (State::Create, Event::ReplyLost) => State::Sync,
            (State::Sync, Event::Synced) => State::Find,
            (State::Find, Event::Children(names)) => self.found(&names),
            (State::Find, Event::NoNode) => State::Rename,
            (State::Inspect(name), Event::Inspected(origin)) => self.created(name, origin),
            (State::Inspect(name), Event::NoNode) => State::Finish(Outcome::Evicted(name)),

            (State::Stands(mine, standing), event) => self.stands(mine, standing, event),
            // A request whose answer was lost is repeated, and a stale event changes nothing.
            (state, _) => state,
        }
    }

    /// Returns whether a try looks again, at a server that has caught up.
    fn looks_again(&self, state: &State) -> bool {
        self.patience == Patience::Tries && *state == State::Peek
    }

    /// Handles the events of an attempt whose node stands in the queue.
    fn stands(&mut self, mine: OwnNode, standing: Standing, event: Event) -> State {
        let standing = match (standing, event) {
            (Standing::List, Event::Children(names)) => {
                let place = self.contest.place(&names, &mine.name);
                return self.placed(mine, place);
            }
            (Standing::Relist(before), Event::Children(names)) => {
                match self.contest.place(&names, &mine.name) {
                    Place::Blocked(now) if now.last && now.nearest == before.nearest => {
                        Standing::Wait(now)
                    }
                    place => return self.placed(mine, place),
                }
            }
            (Standing::Births(_), Event::Births(births)) => {
                let place = self.contest.place_by_birth(&births, &mine.name);
                return self.placed(mine, place);
            }
            (Standing::Watch(blocked), Event::Watching) => Standing::Wait(blocked),
            (Standing::Watch(_), Event::NoNode) => Standing::List,
            (Standing::Wait(blocked), Event::BeyondDeleted) if blocked.last_but_one => {
                Standing::Wait(blocked.without_beyond())
            }
            (Standing::Wait(blocked), Event::BeyondDeleted | Event::BeyondMissing)
            | (Standing::Watch(blocked), Event::BeyondMissing) => Standing::Relist(blocked),
            (Standing::Wait(Blocked { last: true, .. }), Event::Deleted) => Standing::Prove,
            (Standing::Wait(_), Event::Deleted | Event::Woken)
            // The watches may have gone with the connection.
            | (Standing::Relist(_), Event::ReplyLost | Event::Woken) => Standing::List,
            (Standing::Prove, Event::Proved) => return State::Finish(Outcome::Held(mine)),
            (Standing::Watch(_) | Standing::Wait(_), Event::Evicted)
            | (Standing::List | Standing::Relist(_) | Standing::Prove, Event::NoNode) => {
                return State::Finish(Outcome::Evicted(mine.name));
            }
            (standing, _) => standing,
        };
        State::Stands(mine, standing)
    }

    /// Takes in that a node with our name was created. The node is ours if it belongs to our session.
    fn created(&mut self, name: String, origin: Origin) -> State {
        if self.session.is_some_and(|session| session != origin.owner) {
            self.orphans.push(Orphan::Node(name));
            return State::Finish(Outcome::Restart);
        }
        let mine = OwnNode { name, origin };
        let is_alone = self.last.is_some_and(|last| last.is_followed_by(&mine));
        State::Stands(
            mine,
            match is_alone {
                true => Standing::Prove,
                false => Standing::List,
            },
        )
    }

    /// Takes in the listing after a lost reply to our create: `names` shows whether it was carried out.
    fn found(&mut self, names: &Names) -> State {
        let mut own = own(names, &self.prefix).into_iter();
        let Some(first) = own.next() else {
            return State::Rename;
        };
        let first = first.text.to_owned();
        let extra = own.map(|name| Orphan::Node(name.text.to_owned()));
        self.orphans.extend(extra);
        if self.session.is_none() {
            // Without a session to compare with, the node may belong to a dead session.
            self.orphans.push(Orphan::Node(first));
            return State::Finish(Outcome::Restart);
        }
        State::Inspect(first)
    }

    fn placed(&mut self, mine: OwnNode, place: Place) -> State {
        let standing = match (place, self.patience) {
            (Place::First, _) => Standing::Prove,
            (Place::Blocked(blocked), Patience::Waits) => Standing::Watch(blocked),
            (Place::Crowded(ahead), Patience::Waits) => Standing::Wait(Blocked {
                ahead,
                ..Blocked::default()
            }),
            (Place::Blocked(_) | Place::Crowded(_), Patience::Tries) => {
                return self.leave(State::Stands(mine, Standing::List), Outcome::Gone);
            }
            (Place::Exhausted(names), _) => Standing::Births(names),
            (Place::Foreign(foreign), _) => {
                let outcome = Outcome::Foreign(foreign);
                return self.leave(State::Stands(mine, Standing::List), outcome);
            }
            (Place::Missing, _) => return State::Finish(Outcome::Evicted(mine.name)),
        };
        State::Stands(mine, standing)
    }

    /// Ends the attempt and records what it leaves behind.
    fn leave(&mut self, state: State, outcome: Outcome) -> State {
        match state {
            // A cancel in `Create` means that no request is under way.
            State::Peek
            | State::CatchUp
            | State::PeekAgain
            | State::Full
            | State::Create
            | State::Parents
            | State::Finish(_) => {}
            State::Sync | State::Find | State::Rename => {
                self.orphans.push(Orphan::Prefix(self.prefix.clone()));
            }
            State::Inspect(name) => self.orphans.push(Orphan::Node(name)),
            State::Stands(mine, _) => self.orphans.push(Orphan::Node(mine.name)),
        }
        State::Finish(outcome)
    }
}
