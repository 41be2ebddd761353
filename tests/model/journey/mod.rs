//! Locks that take more than one attempt: permits, downgrades, several at once, marks.
//!
//! The server and the sessions are those of the other model, made simpler: what is lost
//! is a request or a reply, nobody lags, and nobody is evicted from a semaphore. What is new is what a client
//! does before, between and after its attempts, and that there are two directories.

mod mutant;
mod property;
mod stages;
mod steps;
mod travel;

use std::mem;

use zklock::recipe::attempt::{Attempt, Orphan, OwnNode, Patience};
use zklock::recipe::cleanup::Cleanup;
use zklock::recipe::dialect::{Dialect, Role};
use zklock::recipe::queue::Contest;

pub(crate) use self::mutant::Detour;
pub(crate) use self::steps::Step;
use super::directory::{Directory, Maker, Overflow};
use super::property::{Violation, id};
use super::setting::budget;
use super::world::Budget;

/// What a client wants.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Goal {
    /// One lock.
    Lock(Role),
    /// One of so many permits: the first directory is the line, the second has the leases.
    Permit(Dialect, usize),
    /// A writer's lock that becomes a reader's.
    Downgrade,
    /// The mutexes of both directories.
    All,
    /// A mutex, and to hear how the last holder went.
    Tracked,
}

/// How far it is.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Stage {
    /// It is about to create its nodes in all queues; so many are there.
    Place(usize),
    /// It goes through the queue of this directory.
    Queue(usize),
    /// It has been through all queues, and is about to have its nodes confirmed.
    Prove,
    /// It is about to create the reader's node.
    Downgrade,
    /// It is about to read the mark.
    Look,
    /// It is about to set the mark.
    Mark,
    /// The caller has its guard.
    Inside,
    Done,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Journey {
    pub(crate) dirs: [Directory; 2],
    /// The data of the first directory: whose mark it is.
    pub(crate) mark: Option<i64>,
    pub(crate) travellers: Vec<Traveller>,
    pub(crate) budget: Budget,
    pub(crate) detour: Detour,
    /// How the last holder went. For the properties.
    pub(crate) last: Last,
    pub(crate) violations: Vec<Violation>,
}

/// How the last holder went.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Last {
    Released,
    Died,
    /// It has not gone, or one cannot say.
    Open,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Traveller {
    pub(crate) goal: Goal,
    pub(crate) stage: Stage,
    pub(crate) attempt: Option<Attempt>,
    /// Counts what needs a fresh id.
    pub(crate) ids: u8,
    /// The nodes that were created in all queues, and are not held yet.
    pub(crate) standing: Vec<OwnNode>,
    pub(crate) holds: Vec<RawGuard>,
    pub(crate) partings: Vec<Parting>,
    pub(crate) session: i64,
    /// The server has closed the session, and the client has not heard of it.
    pub(crate) expired: bool,
    pub(crate) crashed: bool,
    pub(crate) watch: Option<Watch>,
    pub(crate) guard: Option<String>,
    pub(crate) events: Vec<Seen>,
    pub(crate) reconnected: bool,
    /// The mark that it found.
    pub(crate) told: Option<i64>,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct RawGuard {
    pub(crate) dir: usize,
    pub(crate) mine: OwnNode,
    pub(crate) trusted: bool,
}

/// A cleanup, in its directory.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Parting {
    pub(crate) dir: usize,
    pub(crate) cleanup: Cleanup,
    pub(crate) clears: bool,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Watch {
    Node(usize, String),
    Children(usize),
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Seen {
    /// The nearest node was deleted.
    Deleted,
    /// Something else.
    Other,
}

impl Journey {
    /// `p2` wants one of two permits and `k2` one of kazoo's, `d` downgrades, `m` wants both
    /// mutexes and `t` to hear how the last one went; `x`, `r` and `w` want the first
    /// directory's lock.
    pub(crate) fn new(goals: &str, mishaps: &str, detour: Detour) -> Self {
        let dir = || Directory::new(true, 10, Overflow::Sticks);
        let goals = goals.split_whitespace().map(goal).enumerate();
        let mut journey = Self {
            dirs: [dir(), dir()],
            mark: None,
            travellers: goals
                .map(|(seat, goal)| Traveller::new(seat, goal))
                .collect(),
            budget: budget(mishaps),
            detour,
            last: Last::Released,
            violations: Vec::new(),
        };
        for i in 0..journey.travellers.len() {
            journey.begin(i);
        }
        journey
    }

    /// Begins, or begins anew.
    pub(crate) fn begin(&mut self, i: usize) {
        match self.travellers[i].goal {
            Goal::All => {
                let traveller = &mut self.travellers[i];
                traveller.ids += 1;
                traveller.stage = Stage::Place(0);
            }
            _ => self.enter(i, 0),
        }
    }

    /// Queues in a directory.
    pub(crate) fn enter(&mut self, i: usize, dir: usize) {
        let traveller = &mut self.travellers[i];
        traveller.ids += 1;
        let (id, session) = (traveller.id(i), Some(traveller.session));
        let attempt = Attempt::enter(traveller.contest(dir), &id, session, Patience::Waits);
        traveller.attempt = Some(attempt);
        traveller.stage = Stage::Queue(dir);
        traveller.stop_watching();
    }

    pub(crate) fn maker(&self, i: usize, dir: usize) -> Maker {
        Maker {
            client: i,
            attempt: self.travellers[i].ids,
            role: self.travellers[i].contest(dir).role,
        }
    }
}

impl Traveller {
    fn new(seat: usize, goal: Goal) -> Self {
        Self {
            goal,
            stage: Stage::Done,
            attempt: None,
            ids: 0,
            standing: Vec::new(),
            holds: Vec::new(),
            partings: Vec::new(),
            session: 100 * (seat as i64 + 1),
            expired: false,
            crashed: false,
            watch: None,
            guard: None,
            events: Vec::new(),
            reconnected: false,
            told: None,
        }
    }

    pub(crate) fn id(&self, seat: usize) -> String {
        id(seat, self.ids)
    }

    pub(crate) fn contest(&self, dir: usize) -> Contest {
        let (role, permits) = match self.goal {
            Goal::Lock(role) => (role, 0),
            Goal::Downgrade => (Role::Write, 0),
            Goal::Permit(_, permits) if dir == 1 => (Role::Permit, permits),
            Goal::Permit(..) | Goal::All | Goal::Tracked => (Role::Exclusive, 0),
        };
        let dialect = match self.goal {
            Goal::Permit(dialect, _) => dialect,
            _ => Dialect::Curator,
        };
        Contest {
            dialect,
            role,
            permits,
        }
    }

    pub(crate) fn stop_watching(&mut self) {
        self.lose_watches();
        self.reconnected = false;
    }

    pub(crate) fn lose_watches(&mut self) {
        self.watch = None;
        self.guard = None;
        self.events.clear();
    }

    pub(crate) fn part_from(&mut self, dir: usize, orphan: Orphan, clears: bool) {
        let cleanup = Cleanup::new(orphan);
        self.partings.push(Parting {
            dir,
            cleanup,
            clears,
        });
    }

    /// Gives up what it holds, and the places where it waits for the rest.
    pub(crate) fn leave(&mut self) {
        for raw in mem::take(&mut self.holds) {
            let clears = self.stage == Stage::Inside && self.goal == Goal::Tracked && raw.trusted;
            self.part_from(raw.dir, Orphan::Node(raw.mine.name), clears);
        }
        for (dir, mine) in mem::take(&mut self.standing).into_iter().enumerate() {
            self.part_from(dir, Orphan::Node(mine.name), false);
        }
        self.attempt = None;
    }

    /// Lets the next one in line go on.
    pub(crate) fn release_line(&mut self) {
        for raw in mem::take(&mut self.holds) {
            self.part_from(raw.dir, Orphan::Node(raw.mine.name), false);
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.crashed || self.stage == Stage::Done && self.partings.is_empty()
    }
}

fn goal(text: &str) -> Goal {
    match text {
        "x" => Goal::Lock(Role::Exclusive),
        "r" => Goal::Lock(Role::Read),
        "w" => Goal::Lock(Role::Write),
        "d" => Goal::Downgrade,
        "m" => Goal::All,
        "t" => Goal::Tracked,
        "p1" => Goal::Permit(Dialect::Curator, 1),
        "p2" => Goal::Permit(Dialect::Curator, 2),
        "k1" => Goal::Permit(Dialect::Kazoo, 1),
        "k2" => Goal::Permit(Dialect::Kazoo, 2),
        _ => panic!("no goal is called {text}"),
    }
}
