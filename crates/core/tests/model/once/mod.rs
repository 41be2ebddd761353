//! A job that several clients want to run once.
//!
//! The machine is [`Once`]. The lock is as simple as possible, since other models check it: a line
//! of nodes, of which the first one holds. Old versions of the journal are kept, so that a server
//! that lags can show them. The runs that were done are kept too, to judge what callers are told.

mod known_slots;
mod property;
mod requests;
mod shortcut;
mod steps;

use zklock_core::job::{Due, Once, Outcome, Terms, Wish};

pub(crate) use self::shortcut::Shortcut;
use super::property::Violation;
use super::setting::budget;
use super::world::Budget;

/// How long after a run the next one is due, for clients whose runs are due by the time.
const EVERY: i64 = 2;

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Job {
    /// All data that the directory has had, and when each was written; empty if there is no
    /// directory.
    journal: Vec<(Vec<u8>, i64)>,
    /// The nodes of the line, by their numbers, which are the fencing tokens.
    line: Vec<Place>,
    last: i64,
    now: i64,
    runners: Vec<Runner>,
    /// Transactions whose client has stopped waiting for an answer.
    adrift: Vec<Adrift>,
    past: Past,
    budget: Budget,
    shortcut: Shortcut,
    /// Whether a property is violated: later steps do not matter.
    over: bool,
    violations: Vec<Violation>,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Place {
    token: i64,
    runner: usize,
}

/// A client.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Runner {
    due: Due,
    attempts: u32,
    waits: bool,
    by_itself: bool,
    again: bool,
    /// The machine; `None` before the client comes, and after it has gone.
    once: Option<Once>,
    stage: Stage,
    /// Its node in the line.
    token: Option<i64>,
    /// Whether its node was created in an earlier session.
    renewed: bool,
    /// How much of the journal the servers must show to it.
    seen: usize,
    /// When the client came.
    since: i64,
    expired: bool,
    evicted: bool,
    cancelled: bool,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Stage {
    Away,
    Here,
    Gone(Told),
    Crashed,
}

/// The result that a caller is told.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Told {
    Outcome(Outcome),
    Evicted,
    Panicked,
}

/// A request that may still be carried out.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Adrift {
    runner: usize,
    token: i64,
    ends: bool,
    /// The data that the request writes, and the version that it wants to find.
    writes: Option<(Vec<u8>, Option<i32>)>,
    /// Whether the client repeats the request until it is answered.
    lasts: bool,
}

/// The past of a world, for the properties.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
struct Past {
    begun: Vec<Begun>,
    /// The runs whose work was done, and those that failed.
    worked: Vec<(i64, bool)>,
    /// The runs whose end was written into the journal.
    ended: Vec<i64>,
    /// The runs whose callers were told that they are lost.
    lost: Vec<i64>,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Begun {
    slot: String,
    token: i64,
    at: i64,
    done: bool,
    by_itself: bool,
}

impl Job {
    /// Returns a job with these wishes. `a` wants the slot of this name, `a2` begins it if that
    /// makes two attempts at most, `a?` does not wait, `a*` looks at the slot alone, `a!` wants it
    /// once more, and `E` is due by the time.
    pub(crate) fn new(wishes: &str, mishaps: &str, shortcut: Shortcut) -> Self {
        let mut job = Self {
            journal: Vec::new(),
            line: Vec::new(),
            last: 0,
            now: 0,
            runners: wishes.split_whitespace().map(Runner::new).collect(),
            adrift: Vec::new(),
            past: Past::default(),
            budget: budget(mishaps),
            shortcut,
            over: false,
            violations: Vec::new(),
        };
        // The time when a client comes matters only if it is due by the time: the others come at
        // once.
        let here = |i: &usize| matches!(job.runners[*i].due, Due::Slot(_));
        let here: Vec<_> = (0..job.runners.len()).filter(here).collect();
        here.into_iter().for_each(|i| job.come(i));
        job
    }
}

impl Runner {
    fn new(text: &str) -> Self {
        let letters = text.trim_end_matches(['?', '*', '!']);
        let (slot, attempts) = letters.split_at(1);
        Self {
            due: match slot {
                "E" => Due::Every(EVERY),
                slot => Due::Slot(slot.to_owned()),
            },
            attempts: attempts.parse().unwrap_or(u32::MAX),
            waits: !text.contains('?'),
            by_itself: text.contains('*'),
            again: text.contains('!'),
            once: None,
            stage: Stage::Away,
            token: None,
            renewed: false,
            seen: 0,
            since: 0,
            expired: false,
            evicted: false,
            cancelled: false,
        }
    }

    fn wish(&self) -> Wish {
        Wish {
            due: self.due.clone(),
            terms: Terms {
                attempts: self.attempts,
                any_order: self.by_itself,
                again: self.again,
                keep: None,
            },
            owner: String::new(),
        }
    }
}
