//! Locks that take more than one attempt: permits, downgrades, several at once, marks.
//!
//! The machines of the protocol decide what a client does before, between and after its attempts;
//! [`plan`] drives them, as the locks do. The server and the sessions are those of the other model,
//! simplified: only a request or a reply is lost, and no server lags. There are two directories,
//! and the data of one node: a semaphore's number, or a mutex's mark.

mod mutant;
mod plan;
mod property;
mod requests;
mod steps;
mod travel;

use std::mem;

use zklock_core::attempt::{Attempt, Orphan, OwnNode, Patience};
use zklock_core::deletions::Deletion;
use zklock_core::dialect::{Dialect, Role};
use zklock_core::downgrade::Downgrade;
use zklock_core::multi::Multi;
use zklock_core::permit_attempt::Permit;
use zklock_core::predecessor_mark::{CLEAN, Mark};
use zklock_core::queue::Contest;

pub(crate) use self::mutant::Detour;
pub(crate) use self::steps::Step;
use super::client::deletion_of;
use super::directory::{Directory, Maker, Overflow};
use super::property::{Violation, id};
use super::setting::budget;
use super::world::Budget;

/// The goal of a client.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Goal {
    /// One lock.
    Lock(Role),
    /// The mutex of the second directory.
    Second,
    /// Permits of a semaphore: the first directory is the line, the second has the leases.
    Permit {
        dialect: Dialect,
        permits: usize,
        /// Whether the client waits for clients that use another number.
        limited: bool,
        patience: Patience,
        /// The number of permits that it wants, all or none.
        count: usize,
    },
    /// A writer's lock that becomes a reader's, in a transaction or without.
    Downgrade { transacts: bool },
    /// The locks of both directories: two mutexes, or a mutex and then one that is shared with readers.
    All { second: Role, patience: Patience },
    /// A mutex, and the news of how the last holder ended.
    Tracked,
}

/// The machine that decides.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Plan {
    /// The attempt alone.
    Attempt,
    Permit(Permit),
    Downgrade(Downgrade),
    Multi(Multi),
    Mark(Mark),
}

/// The stage that a client has reached.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Stage {
    /// The client goes through the queue of this directory.
    Queue(usize),
    /// The client is about to make the request of its plan.
    Ask,
    /// The client waits until a permit of another number is given back.
    Await,
    /// The caller has its guard.
    Inside,
    Done,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Journey {
    pub(crate) dirs: [Directory; 2],
    /// The data of the lock's node, and its version.
    pub(crate) data: Vec<u8>,
    pub(crate) version: i32,
    pub(crate) travellers: Vec<Traveller>,
    pub(crate) budget: Budget,
    pub(crate) detour: Detour,
    /// How the last holder ended. For the properties.
    pub(crate) last: Last,
    pub(crate) violations: Vec<Violation>,
}

/// How the last holder ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Last {
    Released,
    Died,
    /// The holder has not ended, or its end is unknown.
    Open,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Traveller {
    pub(crate) goal: Goal,
    pub(crate) plan: Plan,
    pub(crate) stage: Stage,
    pub(crate) attempt: Option<Attempt>,
    /// The number of fresh ids so far.
    pub(crate) ids: u8,
    pub(crate) holds: Vec<RawGuard>,
    pub(crate) partings: Vec<Parting>,
    pub(crate) session: i64,
    /// Whether the server has closed the session, and the client has not heard of it.
    pub(crate) expired: bool,
    pub(crate) crashed: bool,
    /// Whether the guard of the line is lost.
    pub(crate) line_lost: bool,
    pub(crate) watch: Option<Watch>,
    pub(crate) guard: Option<String>,
    pub(crate) events: Vec<Seen>,
    pub(crate) reconnected: bool,
    /// The mark that the client found.
    pub(crate) told: Option<i64>,
    /// How the last holder had ended when this client set its mark; until it enters.
    pub(crate) found: Option<Last>,
    /// The node that a detour has created so far.
    pub(crate) half: Option<String>,
    /// Whether an operator has deleted one of its nodes. For the properties.
    pub(crate) evicted: bool,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct RawGuard {
    pub(crate) dir: usize,
    pub(crate) mine: OwnNode,
    pub(crate) trusted: bool,
}

/// A deletion, in its directory.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Parting {
    pub(crate) dir: usize,
    pub(crate) deletion: Deletion,
    /// The data that the transaction writes which deletes the node.
    pub(crate) closing: Option<(Vec<u8>, i32)>,
    /// How the last holder had ended, if this client set its mark and did not enter.
    pub(crate) found: Option<Last>,
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
    /// Something else happened.
    Other,
}

impl Journey {
    /// Returns a world with these goals. `p2` wants one of two permits, `k2` one of kazoo's, `P2`
    /// has no time to wait for clients that use another number, and `p2?` only tries; `d`
    /// downgrades, `m` wants both mutexes, and `D` and `M` do so without transactions; `t` wants to
    /// know how the last holder ended; `x`, `r` and `w` want the first directory's lock, and `y`
    /// the second's.
    pub(crate) fn new(goals: &str, mishaps: &str, detour: Detour) -> Self {
        let dir = || Directory::new(true, 10, Overflow::Sticks);
        let goals: Vec<_> = goals.split_whitespace().map(goal).collect();
        let mut journey = Self {
            dirs: [dir(), dir()],
            data: match goals[0] {
                Goal::Permit { permits, .. } => permits.to_string().into_bytes(),
                _ => CLEAN.to_vec(),
            },
            version: 0,
            travellers: goals
                .into_iter()
                .enumerate()
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
            plan: Plan::Attempt,
            stage: Stage::Done,
            attempt: None,
            ids: 0,
            holds: Vec::new(),
            partings: Vec::new(),
            session: 100 * (seat as i64 + 1),
            expired: false,
            crashed: false,
            line_lost: false,
            watch: None,
            guard: None,
            events: Vec::new(),
            reconnected: false,
            told: None,
            found: None,
            half: None,
            evicted: false,
        }
    }

    pub(crate) fn id(&self, seat: usize) -> String {
        id(seat, self.ids)
    }

    pub(crate) fn contest(&self, dir: usize) -> Contest {
        let (dialect, role, permits) = match self.goal {
            Goal::Lock(role) => (Dialect::Curator, role, 0),
            Goal::Downgrade { .. } => (Dialect::Curator, Role::Write, 0),
            Goal::Permit {
                dialect, permits, ..
            } if dir == 1 => (dialect, Role::Permit, permits),
            Goal::Permit { dialect, .. } => (dialect, Role::Exclusive, 0),
            Goal::All { second, .. } if dir == 1 => (Dialect::Curator, second, 0),
            Goal::Second | Goal::All { .. } | Goal::Tracked => {
                (Dialect::Curator, Role::Exclusive, 0)
            }
        };
        Contest {
            dialect,
            role,
            permits,
        }
    }

    pub(crate) fn patience(&self, dir: usize) -> Patience {
        match self.goal {
            Goal::Permit { patience, .. } if dir == 1 => patience,
            Goal::All { patience, .. } => patience,
            _ => Patience::Waits,
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

    pub(crate) fn hold(&mut self, dir: usize, mine: OwnNode) {
        self.holds.push(RawGuard {
            dir,
            mine,
            trusted: true,
        });
    }

    pub(crate) fn part_from(&mut self, dir: usize, orphan: Orphan) {
        self.partings.push(Parting {
            dir,
            deletion: deletion_of(orphan),
            closing: None,
            found: None,
        });
    }

    /// Releases what the client holds in one directory, or in both.
    pub(crate) fn release(&mut self, dir: Option<usize>) {
        let goes = |raw: &RawGuard| dir.is_none_or(|dir| raw.dir == dir);
        let (gone, kept): (Vec<_>, _) = mem::take(&mut self.holds).into_iter().partition(goes);
        self.holds = kept;
        for raw in gone {
            let closing = match &self.plan {
                Plan::Mark(mark) => mark.closing(false, !raw.trusted).map(owned),
                _ => None,
            };
            self.part_from(raw.dir, Orphan::Node(raw.mine.name));
            let parting = self.partings.last_mut().expect("it was added");
            parting.closing = closing;
            parting.found = self.found;
        }
    }

    /// Releases what the client holds, and ends its waits.
    pub(crate) fn leave(&mut self) {
        self.release(None);
        self.attempt = None;
        self.found = None;
        self.half = None;
    }

    pub(crate) fn is_done(&self) -> bool {
        self.crashed || self.stage == Stage::Done && self.partings.is_empty()
    }
}

fn goal(text: &str) -> Goal {
    let letters = text.trim_end_matches('?');
    let patience = match letters == text {
        true => Patience::Waits,
        false => Patience::Tries,
    };
    let permit = |dialect, limited| Goal::Permit {
        dialect,
        permits: letters[1..].parse().expect("a number of permits"),
        limited,
        patience,
        count: 1,
    };
    let all = |second| Goal::All { second, patience };
    match letters.split_at(1).0 {
        "x" => Goal::Lock(Role::Exclusive),
        "r" => Goal::Lock(Role::Read),
        "w" => Goal::Lock(Role::Write),
        "y" => Goal::Second,
        "d" => Goal::Downgrade { transacts: true },
        "D" => Goal::Downgrade { transacts: false },
        "m" => all(Role::Exclusive),
        "n" => all(Role::Read),
        "t" => Goal::Tracked,
        "p" => permit(Dialect::Curator, true),
        "P" => permit(Dialect::Curator, false),
        "k" => permit(Dialect::Kazoo, true),
        "q" => two(permit(Dialect::Curator, true)),
        "K" => two(permit(Dialect::Kazoo, true)),
        _ => panic!("no goal is called {text}"),
    }
}

/// Returns the same goal, for two permits at once.
fn two(goal: Goal) -> Goal {
    match goal {
        Goal::Permit {
            dialect,
            permits,
            limited,
            patience,
            ..
        } => Goal::Permit {
            dialect,
            permits,
            limited,
            patience,
            count: 2,
        },
        goal => goal,
    }
}

fn owned((data, version): (&[u8], i32)) -> (Vec<u8>, i32) {
    (data.to_vec(), version)
}
