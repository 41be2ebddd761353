//! What an acquisition knows besides what its attempt does: what is on its way and what is watched, answers
//! that say something only together, and what stands around the queue.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use super::wire::About;
use crate::answer::Answered;
use crate::overdue_holder::{Action, Event, Overdue};
use crate::path::node_in;
use crate::validity::Stamp;
use zklock_jute::{Data, ErrorCode, Names, Reply, Stat};

/// What an answer is the answer to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Step {
    Create(Stamp),
    Parent,
    /// Of the requests after whose answers a listing is up to date.
    Sync,
    List,
    /// A listing that leaves a watch on the directory. Says whether our own node is there.
    Crowd(bool),
    /// Our own node; leaves a watch.
    Own,
    /// The nearest node ahead; leaves a watch.
    Nearest,
    /// The one beyond it; leaves a watch.
    Beyond,
    /// A watch on the directory, as the nearest node may not be read.
    Around,
    Birth,
    /// A proof that counts, or does not.
    Proof(Stamp, bool),
    /// Our own node, which is gone: whether the session is.
    Evicted,
    /// Our own node, which shows the servers' time.
    Clock,
    /// A hold ahead.
    Hold,
    /// Of a hold that is over.
    Removal,
    /// A look at the semaphore that has directories here.
    Semaphore,
    /// About the one that has held for too long.
    Head,
}

/// The nodes that are watched.
#[derive(Debug, Default)]
pub(super) struct Watches {
    pub(super) own: bool,
    pub(super) nearest: Option<String>,
    pub(super) beyond: Option<String>,
    /// The one beyond was there when its watch was set.
    pub(super) is_seen: bool,
    /// The directory.
    pub(super) around: bool,
}

/// The births of nodes, as far as the answers have told.
#[derive(Debug, Default)]
pub(super) struct Births {
    /// Whose answers are still to come, in this order.
    asked: VecDeque<String>,
    known: BTreeMap<String, i64>,
}

impl Births {
    pub(super) fn of(names: &[String]) -> Self {
        Self {
            asked: names.iter().cloned().collect(),
            known: BTreeMap::new(),
        }
    }

    /// The next one was born then, or is gone. Returns all when the last one is known.
    pub(super) fn next(&mut self, czxid: Option<i64>) -> Option<BTreeMap<String, i64>> {
        if let Some((name, czxid)) = self.asked.pop_front().zip(czxid) {
            self.known.insert(name, czxid);
        }
        self.asked.is_empty().then(|| mem::take(&mut self.known))
    }
}

/// The answers to a proof, as far as they have come.
#[derive(Debug, Default)]
pub(super) struct Proofs(Vec<Answered>);

impl Proofs {
    /// The next answer. Returns all if it `is_last`.
    pub(super) fn next(&mut self, answered: Answered, is_last: bool) -> Option<Vec<Answered>> {
        self.0.push(answered);
        is_last.then(|| mem::take(&mut self.0))
    }
}

/// What a waiter knows of the holds ahead of it.
#[derive(Debug, Default)]
pub(super) struct Holds {
    /// One was ahead.
    pub(super) met: bool,
    pub(super) look: Option<HoldsLook>,
    /// Those that are being removed, in the order of the answers.
    pub(super) removes: VecDeque<String>,
    /// When they are to be looked at again.
    pub(super) again: Option<Duration>,
    /// Those that end while it waits, if no other waiter is to remove them before.
    pub(super) ours: Vec<SeenHold>,
    /// This client may not remove these.
    pub(super) kept: Vec<String>,
}

/// A listing with holds, whose data is being read.
#[derive(Debug)]
pub(super) struct HoldsLook {
    pub(super) names: Names,
    /// Those that are not read yet, in the order of the answers.
    pub(super) asked: Vec<SeenHold>,
    pub(super) seen: Vec<SeenHold>,
    /// The data and stat of the first one.
    pub(super) first: Option<(Data, Stat)>,
}

#[derive(Debug)]
pub(super) struct SeenHold {
    pub(super) name: String,
    /// How many waiters see it before this one.
    pub(super) place: u32,
    pub(super) version: i32,
    /// When it is over at the servers, since the epoch.
    pub(super) end: Option<Duration>,
}

/// What a contender knows of a semaphore at its path.
#[derive(Debug, Default)]
pub(super) struct Beside {
    pub(super) look: Option<SemaphoreLook>,
    /// It has directories here, and `Some(true)` if nobody used it while our node stood.
    pub(super) was_idle: Option<bool>,
}

/// A listing that shows its directories, and the answers that have come: the data of its node, and who is
/// in its queue and has its permits.
#[derive(Debug)]
pub(super) struct SemaphoreLook {
    pub(super) names: Names,
    pub(super) answers: Vec<Result<Reply, ErrorCode>>,
}

impl Beside {
    /// The connection broke.
    pub(super) fn broke(&mut self) {
        self.look = None;
    }
}

/// What a waiting contender knows of a holder that may have held for too long.
#[derive(Debug, Default)]
pub(super) struct Hurry {
    pub(super) overdue: Option<Overdue>,
    /// Nodes in the same directory that the same call holds.
    pub(super) held: Vec<String>,
    /// When the next look is due.
    pub(super) at: Option<Duration>,
    /// The head's version as it was looked at: what changes later is looked at again.
    pub(super) version: i32,
    /// Of the requests under way, how many come before the one that tells.
    pub(super) before: usize,
}

impl Hurry {
    /// The queue has moved, and its head may be another.
    pub(super) fn stir(&mut self) {
        if let Some(overdue) = &mut self.overdue {
            overdue.stir();
            self.at = None;
        }
    }

    /// The connection broke. Without an answer, an eviction is not repeated: another node may have the name
    /// by then.
    pub(super) fn broke(&mut self) {
        self.before = 0;
        self.looks_anew(|action| !matches!(action, Action::Sleep(_) | Action::Ask(_)));
    }

    /// Does not do what is due if it is one of these, but begins with another look.
    pub(super) fn looks_anew(&mut self, instead_of: impl Fn(&Action) -> bool) {
        if let Some(overdue) = &mut self.overdue {
            if instead_of(&overdue.action()) {
                overdue.handle(Event::Failed);
            }
        }
    }

    /// What the request under way is about.
    pub(super) fn about(&self, dir: &str) -> About {
        match self.overdue.as_ref().map(Overdue::action) {
            Some(Action::Look(name) | Action::Ask(name) | Action::Evict(name)) => {
                About::Node(node_in(dir, &name))
            }
            _ => About::Queue,
        }
    }

    pub(super) fn handle(&mut self, event: Event<'_>) {
        if let Some(overdue) = &mut self.overdue {
            overdue.handle(event);
        }
    }
}
