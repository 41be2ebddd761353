//! One of a semaphore's permits, or several.
//!
//! ```text
//!  Open ──► Line ──► Look ──────────────► Permit ──► Check ──► Finish(Held)
//!            ▲       │ ▲ ▲  agreed          ▲          │
//!            │       ▼ │ │                  │          │ the place in the line
//!            │    Read │ └── Write ─────────┤          │ was lost
//!            │       ▼ │     (none is out)  │          │
//!            │     Await                Make (kazoo)   │
//!            │   (others go by another number)         │
//!            └─────────────── Inspect ◄────────────────┘
//!                             └──► Finish(Evicted)
//!
//!  Others go by another number, and the caller does not wait: Finish(Disagrees).
//!  Cancel, from anywhere: Finish(Gone).
//! ```
//!
//! A client that asks for several permits goes through Permit once for each, and stays first in
//! the line: it gets all or none, and no later client gets one in between.
//!
//! The line is a mutex. The first in it compares the number of permits in the semaphore's node
//! with its own, and waits for a permit. It stays first until it has one, or two clients could
//! wait for each other. The driver tells by the clock whether it is still first, as for any
//! guard.
//!
//! The driver owns the nodes. At [`Action::Line`] it gives up all of them, at [`Outcome::Held`]
//! the place in the line, and at any other [`Action::Finish`] all of them.

use std::mem;

use super::attempt::{OwnNode, Patience};
use super::dialect::{Dialect, Role};
use super::name::NodeName;
use super::permits::{Agreement, compare};
use super::queue::{Contest, Foreign, beside_semaphore};
use crate::jute::Names;

/// The state machine.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Permit {
    contest: Contest,
    wish: Wish,
    state: State,
}

/// What the caller asks for.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Wish {
    /// Whether to wait for a permit.
    pub patience: Patience,
    /// There is a time limit. Without one, clients that go by another number are not waited
    /// for, because that may be a mistake.
    pub limited: bool,
    /// The numbers agreed the last time.
    pub agreed: bool,
    /// How many permits, all or none.
    pub count: usize,
}

/// What is known of a semaphore at one moment.
#[derive(Clone, Debug)]
pub struct Look {
    /// The data of the semaphore's node, if it is there and may be read, and its version.
    pub number: Option<(Vec<u8>, i32)>,
    /// The semaphore has no node.
    pub absent: bool,
    /// What is in the semaphore's own directory, where kazoo has its permits.
    pub own: Names,
    /// The permits that are out, and those that the first in the line has requested.
    pub out: Names,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum State {
    Open,
    Meet(Others),
    Line,
    Look(OwnNode),
    Make(OwnNode),
    Read(OwnNode, Others),
    Await(OwnNode, Others),
    Write(OwnNode, i32, Agreement),
    /// With the permits that we have already.
    Permit(OwnNode, Vec<OwnNode>),
    Check(OwnNode, Option<Vec<OwnNode>>),
    Inspect(OwnNode),
    Finish(Outcome),
}

/// The permits of clients that go by another number.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Others {
    /// The number.
    pub number: u32,
    /// The node of the oldest permit.
    pub oldest: String,
    /// The node of the newest one; once it has gone, all may have gone.
    pub last: String,
    /// How many there are.
    pub count: usize,
}

/// What the driver is to do next.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Action {
    /// Read the number, and list the permits that are out.
    Look,
    /// Give up what is held, and go through the line.
    Line,
    /// Create the semaphore's node, with our number.
    Make,
    /// Read the node of the oldest permit, to say whose it is.
    Read(Others),
    /// Wait until the last of these permits has gone.
    Await(Others),
    /// Write our number into the semaphore's node, if it has this version and this node of ours
    /// is in the line, in one transaction. The last field is the number it replaces, if any.
    Write(String, i32, Option<u32>),
    /// Get one permit, or one more. Stop when the place in the line is lost.
    Permit,
    /// Tell by the clock whether the place in the line is still held, and every permit but the
    /// last.
    Check,
    /// Ask for this node of ours in the line.
    Inspect(String),
    /// Stop: there is nothing more to do.
    Finish(Outcome),
}

/// What the driver reports.
#[derive(Clone, Debug)]
pub enum Event {
    /// This is known of the semaphore.
    Looked(Look),
    /// It is our turn in the line, through this node.
    First(OwnNode),
    /// The semaphore's node is made, or existed.
    IsMade,
    /// The oldest permit is there.
    IsThere,
    /// The node that we asked about is not there, although our session lasts.
    NoNode,
    /// The number is written.
    Written,
    /// The semaphore's node has another version.
    BadVersion,
    /// We may not write into the semaphore's node.
    NoAuth,
    /// The permit that we waited for has gone, or something else happened.
    Woken,
    /// A permit is ours, through this node; or we have stopped waiting for one.
    Permit(Option<OwnNode>),
    /// The place in the line is still held.
    IsFirst,
    /// The place in the line was lost, or one of several permits.
    Lost,
    /// The caller's limit is reached.
    TimeOut,
    /// The caller gives up.
    Cancel,
}

/// How it ended.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Outcome {
    /// The permits are ours, through these nodes.
    Held(Vec<OwnNode>),
    /// We gave up, or found all of them taken.
    Gone,
    /// Somebody deleted this node of ours in the line.
    Evicted(String),
    /// A contender in the semaphore's own directory would not wait for us.
    Foreign(Foreign),
    /// These permits go by another number.
    Disagrees(Others),
    /// No permit goes by the number in the node, and we may not replace it.
    NoAuth,
}

impl Permit {
    /// An attempt at one or several of this many permits.
    pub fn new(dialect: Dialect, permits: usize, wish: Wish) -> Self {
        let looks = wish.patience == Patience::Tries || !wish.agreed;
        Self {
            contest: Contest {
                dialect,
                role: Role::Permit,
                permits,
            },
            wish,
            state: match looks {
                true => State::Open,
                false => State::Line,
            },
        }
    }

    /// What the driver is to do next.
    pub fn action(&self) -> Action {
        match &self.state {
            State::Open | State::Look(_) => Action::Look,
            State::Line => Action::Line,
            State::Make(_) => Action::Make,
            State::Meet(others) | State::Read(_, others) => Action::Read(others.clone()),
            State::Await(_, others) => Action::Await(others.clone()),
            State::Write(line, version, agreement) => {
                let before = match agreement {
                    Agreement::Replace(theirs) => Some(*theirs),
                    _ => None,
                };
                Action::Write(line.name.clone(), *version, before)
            }
            State::Permit(..) => Action::Permit,
            State::Check(..) => Action::Check,
            State::Inspect(line) => Action::Inspect(line.name.clone()),
            State::Finish(outcome) => Action::Finish(outcome.clone()),
        }
    }

    /// Our node in the line, while we rely on it.
    pub fn line(&self) -> Option<&OwnNode> {
        match &self.state {
            State::Look(line)
            | State::Make(line)
            | State::Read(line, _)
            | State::Await(line, _)
            | State::Write(line, ..)
            | State::Permit(line, _)
            | State::Check(line, _)
            | State::Inspect(line) => Some(line),
            State::Open | State::Meet(_) | State::Line | State::Finish(_) => None,
        }
    }

    /// Takes in the result of the last action, or what happened meanwhile.
    pub fn handle(&mut self, event: Event) {
        let state = mem::replace(&mut self.state, State::Line);
        self.state = self.next(state, event);
    }

    fn next(&self, state: State, event: Event) -> State {
        match (state, event) {
            (state @ State::Finish(_), _) => state,
            (State::Await(_, others), Event::TimeOut) => State::Finish(Outcome::Disagrees(others)),
            (_, Event::Cancel | Event::TimeOut) => State::Finish(Outcome::Gone),

            (State::Open, Event::Looked(look)) => self.opened(&look),
            (State::Meet(others), Event::IsThere) => State::Finish(Outcome::Disagrees(others)),
            // A permit that has gone meanwhile need not be waited for.
            (State::Meet(_), Event::NoNode) => State::Open,
            (State::Line, Event::First(line)) => State::Look(line),
            (state, event) => self.first(state, event),
        }
    }

    /// The transitions of the first in the line.
    fn first(&self, state: State, event: Event) -> State {
        match (state, event) {
            (State::Look(line), Event::Looked(look)) => self.looked(line, &look),
            (State::Make(line), Event::IsMade) => State::Look(line),
            (State::Read(line, others), Event::IsThere) => match self.is_patient() {
                true => State::Await(line, others),
                false => State::Finish(Outcome::Disagrees(others)),
            },
            (State::Read(line, _), Event::NoNode) => State::Look(line),
            (State::Await(line, _), Event::Woken) => State::Look(line),

            (State::Write(line, version, agreement), event) => {
                writes(line, version, agreement, event)
            }
            (State::Permit(line, permits), Event::Permit(permit)) => {
                self.permitted(line, permits, permit)
            }
            // If the place was lost meanwhile, another client may have counted the permits
            // too: start over, or both could wait for each other.
            (State::Check(_, permits), Event::IsFirst) => {
                State::Finish(permits.map_or(Outcome::Gone, Outcome::Held))
            }
            (
                State::Look(line)
                | State::Make(line)
                | State::Read(line, _)
                | State::Await(line, _)
                | State::Permit(line, _)
                | State::Check(line, _),
                Event::Lost,
            ) => State::Inspect(line),
            // The session lasts, so somebody deleted the node.
            (State::Inspect(line), Event::NoNode) => State::Finish(Outcome::Evicted(line.name)),
            (State::Inspect(_), Event::IsThere | Event::Lost) => State::Line,

            // A request whose answer was lost is repeated, and a stale event changes nothing.
            (state, _) => state,
        }
    }

    /// Looks before we have a node anywhere.
    fn opened(&self, look: &Look) -> State {
        if let Some(foreign) = beside_semaphore(self.contest.dialect, &look.own) {
            return State::Finish(Outcome::Foreign(foreign));
        }
        if let Agreement::Differs(number) = self.compare(look) {
            return match others(number, &look.out).filter(|_| !self.is_patient()) {
                Some(others) => State::Meet(others),
                None => State::Line,
            };
        }
        if self.wish.patience == Patience::Waits {
            return State::Line;
        }
        let crowded = self.contest.permits < look.out.len() + self.wish.count;
        match self.contest.is_taken(&look.out) {
            Ok(false) if !crowded => State::Line,
            Ok(_) => State::Finish(Outcome::Gone),
            Err(foreign) => State::Finish(Outcome::Foreign(foreign)),
        }
    }

    /// Looks as the first in the line.
    fn looked(&self, line: OwnNode, look: &Look) -> State {
        if let Some(foreign) = beside_semaphore(self.contest.dialect, &look.own) {
            return State::Finish(Outcome::Foreign(foreign));
        }
        if look.absent && self.contest.dialect == Dialect::Kazoo {
            // The client that makes the node says how many permits there are, and no other.
            return State::Make(line);
        }
        let version = look.number.as_ref().map_or(-1, |(_, version)| *version);
        match self.compare(look) {
            Agreement::Agreed | Agreement::Unknown => State::Permit(line, Vec::new()),
            Agreement::Differs(number) => match others(number, &look.out) {
                Some(others) => State::Read(line, others),
                None => State::Look(line),
            },
            agreement => State::Write(line, version, agreement),
        }
    }

    /// Takes in one more permit, or that there is none.
    fn permitted(
        &self,
        line: OwnNode,
        mut permits: Vec<OwnNode>,
        permit: Option<OwnNode>,
    ) -> State {
        let Some(permit) = permit else {
            return State::Check(line, None);
        };
        permits.push(permit);
        match permits.len() < self.wish.count {
            true => State::Permit(line, permits),
            false => State::Check(line, Some(permits)),
        }
    }

    fn compare(&self, look: &Look) -> Agreement {
        let data = look.number.as_ref().map(|(data, _)| &data[..]);
        let permits = u32::try_from(self.contest.permits).unwrap_or(u32::MAX);
        compare(self.contest.dialect, data, permits, look.out.len())
    }

    /// Without a limit, a number that may be a mistake would be waited for without end.
    fn is_patient(&self) -> bool {
        self.wish.patience == Patience::Waits && self.wish.limited
    }
}

fn others(number: u32, out: &Names) -> Option<Others> {
    let order = |name: &&str| NodeName::parse(name).map_or(0, |name| name.sequence);
    Some(Others {
        number,
        oldest: out.iter().min_by_key(order)?.to_owned(),
        last: out.iter().max_by_key(order)?.to_owned(),
        count: out.len(),
    })
}

/// The transitions of the first in the line while it writes the number.
fn writes(line: OwnNode, version: i32, agreement: Agreement, event: Event) -> State {
    match event {
        Event::Written => State::Permit(line, Vec::new()),
        // Another client has written: see what.
        Event::BadVersion => State::Look(line),
        Event::NoNode | Event::Lost => State::Inspect(line),
        // No number is written, so ours counts.
        Event::NoAuth if agreement == Agreement::Write => State::Permit(line, Vec::new()),
        Event::NoAuth => State::Finish(Outcome::NoAuth),
        _ => State::Write(line, version, agreement),
    }
}
