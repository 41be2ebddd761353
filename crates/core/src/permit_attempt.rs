//! An attempt at one of a semaphore's permits, or at several.
//!
//! ```text
//!  Open* ─► Line ──► Look ──────────────► Permit ──► Check ──► Finish(Held)
//!            ▲       │ ▲ ▲  agreed          ▲          │
//!            │       ▼ │ │                  │          │ the place in the line
//!            │    Read │ ├── Write ─────────┤          │ was lost
//!            │       ▼ │ │   (none is out)  │          │
//!            │     Await └── Make           │          │
//!            │   (others go by another number)         │
//!            └─────────────── Inspect ◄────────────────┘
//!                             └──► Finish(Evicted)
//!
//!  Others go by another number, and the caller does not wait: Finish(Disagrees).
//!  The node is not a semaphore's: Finish(Unmarked).   Cancel, from anywhere: Finish(Gone).
//!  * A call that does not wait looks again, behind a sync, before it is turned away.
//! ```
//!
//! The directory of the permits is a container, so it may go between Look and Permit. Permit then leads
//! back to Look.
//!
//! A client that asks for several permits goes through Permit once for each, and stays first in the line:
//! it gets all or none, and no later client gets one in between.
//!
//! The line is a mutex. The first client in it compares the number of permits in the semaphore's node with
//! its own number, and waits for a permit. It stays first until it has one, or two clients could wait for
//! each other. The driver tells by the clock whether it is still first, as for any guard.
//!
//! The driver owns the nodes. At [`Action::Line`] it gives up all of them, at [`Outcome::Held`]
//! the place in the line, and at any other [`Action::Finish`] all of them.

pub mod action_and_event;
mod requests;

use alloc::borrow::ToOwned;
use core::mem;
use core::time::Duration;

use super::attempt::{OwnNode, Patience};
use super::dialect::{Dialect, Role};
use super::name::NodeName;
use super::permits::{Agreement, compare};
use super::queue::{Contest, beside_semaphore};
use zklock_jute::Names;

pub use self::action_and_event::{Action, Event, Look, Others, Outcome, Wish};
pub use self::requests::{Layout, Refusal, inspected, written};

/// The least time that a call which does not wait lets those pass that are acquiring permits.
pub const PASSING: Duration = Duration::from_secs(1);

/// Returns how long a call that does not wait lets clients pass that are acquiring permits, where a write takes this
/// long: each of them needs two, the first one four more if there are no directories yet, and all of them read, too.
/// One of them may have fallen silent, or wait for permits of another number, which its node does not tell.
pub fn passing(ahead: usize, write: Duration) -> Duration {
    let writes = ahead.saturating_add(2).saturating_mul(4);
    let writes = u32::try_from(writes).unwrap_or(u32::MAX);
    write.saturating_mul(writes).max(PASSING)
}

/// Returns how long such a call waits until it looks again whether a permit is left for it: half as long as those ahead
/// need at least, as all who wait look.
pub fn next_look(ahead: usize, write: Duration) -> Duration {
    let writes = u32::try_from(ahead).unwrap_or(u32::MAX);
    write.saturating_mul(writes).max(PASSING)
}

/// The state machine of one attempt.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Permit {
    contest: Contest,
    wish: Wish,
    /// How many permits were free at the last look by the first in the line.
    room: usize,
    state: State,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum State {
    Open,
    OpenAgain,
    Meet(Others),
    Line,
    /// We are first in the line, through this node.
    First(OwnNode, First),
    Finish(Outcome),
}

/// What the first in the line does.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum First {
    Look,
    Make,
    Read(Others),
    Await(Others),
    Write(i32, Agreement),
    /// With the number of permits that we already have.
    Permit(usize),
    /// Whether we have as many as we want.
    Check(bool),
    Inspect,
}

impl Permit {
    /// Creates an attempt at one or several of this many permits.
    pub fn new(dialect: Dialect, permits: usize, wish: Wish) -> Self {
        let looks = wish.patience == Patience::Tries || !wish.agreed;
        Self {
            contest: Contest {
                dialect,
                role: Role::Permit,
                permits,
            },
            wish,
            room: 0,
            state: match looks {
                true => State::Open,
                false => State::Line,
            },
        }
    }

    /// Returns the next step for the driver.
    pub fn action(&self) -> Action {
        match &self.state {
            State::Open => Action::Look,
            State::OpenAgain => Action::LookAgain,
            State::Line => Action::Line,
            State::Meet(others) => Action::Read(others.clone()),
            State::First(line, first) => match first {
                First::Look => Action::Look,
                First::Make => Action::Make,
                First::Read(others) => Action::Read(others.clone()),
                First::Await(others) => Action::Await(others.clone()),
                First::Write(version, agreement) => {
                    let before = match agreement {
                        Agreement::Replace(theirs) => Some(*theirs),
                        _ => None,
                    };
                    Action::Write(line.name.clone(), *version, before)
                }
                First::Permit(had) => Action::Permit(*had < self.room),
                First::Check(_) => Action::Check,
                First::Inspect => Action::Inspect(line.name.clone()),
            },
            State::Finish(outcome) => Action::Finish(outcome.clone()),
        }
    }

    /// Returns our node in the line, while we rely on it.
    pub fn line(&self) -> Option<&OwnNode> {
        match &self.state {
            State::First(line, _) => Some(line),
            _ => None,
        }
    }

    /// Takes in the result of the last action, or what happened meanwhile.
    pub fn handle(&mut self, event: Event) {
        let state = mem::replace(&mut self.state, State::Line);
        self.state = self.next(state, event);
    }

    fn next(&mut self, state: State, event: Event) -> State {
        match (state, event) {
            (state @ State::Finish(_), _) => state,
            (State::First(_, First::Await(others)), Event::TimeOut) => {
                State::Finish(Outcome::Disagrees(others))
            }
            (_, Event::Cancel | Event::TimeOut) => State::Finish(Outcome::Gone),

            (State::Open, Event::Looked(look)) => match self.opened(&look) {
                // A server that lags still shows a permit whose return was answered.
                State::Meet(_) | State::Finish(Outcome::Gone | Outcome::Foreign(_)) => {
                    State::OpenAgain
                }
                state => state,
            },
            (State::OpenAgain, Event::Looked(look)) => self.opened(&look),
            (State::Meet(others), Event::IsThere) => State::Finish(Outcome::Disagrees(others)),
            // A permit that has gone meanwhile need not be waited for.
            (State::Meet(_), Event::NoNode) => State::Open,
            (State::Line, Event::First(line)) => State::First(line, First::Look),
            (State::First(line, first), event) => self.first(line, first, event),
            // A stale event changes nothing.
            (state, _) => state,
        }
    }

    /// Handles the events of the first in the line.
    fn first(&mut self, line: OwnNode, first: First, event: Event) -> State {
        let first = match (first, event) {
            (First::Look, Event::Looked(look)) => return self.looked(line, &look),
            (First::Make, Event::IsMade)
            | (First::Read(_), Event::NoNode)
            | (First::Await(_), Event::Woken)
            // Another client has written: look again.
            | (First::Write(..), Event::BadVersion)
            | (First::Permit(0), Event::NoNode) => First::Look,
            (First::Read(others), Event::IsThere) => match self.is_patient() {
                true => First::Await(others),
                false => return State::Finish(Outcome::Disagrees(others)),
            },
            (First::Write(..), Event::Written)
            // No number is written, so ours counts.
            | (First::Write(_, Agreement::Write), Event::NoAuth) => First::Permit(0),
            (First::Write(..), Event::NoAuth) => return State::Finish(Outcome::NoAuth),
            (First::Permit(had), Event::Permit(true)) if had + 1 < self.wish.count => {
                First::Permit(had + 1)
            }
            (First::Permit(_), Event::Permit(all)) => First::Check(all),
            // If the place was lost meanwhile, another client may have counted the permits
            // too: start over, or both could wait for each other.
            (First::Check(true), Event::IsFirst) => return State::Finish(Outcome::Held),
            (First::Check(false), Event::IsFirst) => return State::Finish(Outcome::Gone),
            // The session lasts, so somebody deleted the node.
            (First::Inspect, Event::NoNode) => return State::Finish(Outcome::Evicted(line.name)),
            (First::Inspect, Event::IsThere | Event::Lost) => return State::Line,
            // The permits that we had went with their directory.
            (First::Permit(_) | First::Write(..), Event::NoNode) | (_, Event::Lost) => First::Inspect,
            // A request whose answer was lost is repeated, and a stale event changes nothing.
            (first, _) => first,
        };
        State::First(line, first)
    }

    /// Takes in a look from before we have a node anywhere.
    fn opened(&self, look: &Look) -> State {
        if let Some(foreign) = beside_semaphore(self.contest.dialect, &look.own) {
            return State::Finish(Outcome::Foreign(foreign));
        }
        let agreement = self.compare(look);
        if agreement == Agreement::Foreign {
            return State::Finish(Outcome::Unmarked);
        }
        if let Agreement::Differs(number) = agreement {
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

    /// Returns whether a call that does not wait may still get its permits after this look, once those ahead of it in
    /// the line have theirs.
    pub fn may_have_room(&self, look: &Look) -> bool {
        self.opened(look) != State::Finish(Outcome::Gone)
    }

    /// Takes in a look by the first in the line.
    fn looked(&mut self, line: OwnNode, look: &Look) -> State {
        self.room = self.contest.permits.saturating_sub(look.out.len());
        if let Some(foreign) = beside_semaphore(self.contest.dialect, &look.own) {
            return State::Finish(Outcome::Foreign(foreign));
        }
        if self.compare(look) == Agreement::Foreign {
            return State::Finish(Outcome::Unmarked);
        }
        if look.unready || look.absent && self.contest.dialect == Dialect::Kazoo {
            // Only the client that creates kazoo's node says how many permits there are. Another kind of
            // lock notices the semaphore by Curator's directory of permits, so that has to exist before
            // this client finds out that there is no other lock.
            return State::First(line, First::Make);
        }
        let version = look.number.as_ref().map_or(-1, |(_, version)| *version);
        let first = match self.compare(look) {
            Agreement::Agreed | Agreement::Unknown => First::Permit(0),
            Agreement::Differs(number) => match others(number, &look.out) {
                Some(others) => First::Read(others),
                None => First::Look,
            },
            agreement => First::Write(version, agreement),
        };
        State::First(line, first)
    }

    fn compare(&self, look: &Look) -> Agreement {
        let data = look.number.as_ref().map(|(data, _)| &data[..]);
        let permits = u32::try_from(self.contest.permits).unwrap_or(u32::MAX);
        compare(self.contest.dialect, data, permits, look.out.len())
    }

    /// Returns whether to wait for clients with another number. Without a limit, a number that may be a
    /// mistake would be waited for without end.
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

#[cfg(test)]
mod tests;
