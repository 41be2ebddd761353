//! The state of an acquisition besides that of its attempt: the requests on their way, the watches, and the holds,
//! the semaphore and the overdue holder at its path.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use super::wire::About;
use crate::hold::ServersClock;
use crate::overdue_holder::{Action, Event, Overdue};
use crate::path::node_in;
use crate::validity::Stamp;
use zklock_jute::Names;

/// The purpose of a request, which says how to read its answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Step {
    Create(Stamp),
    Parent,
    /// A request that brings the listing after its answer up to date.
    Sync,
    List,
    /// A read of the caller's, behind a listing.
    Read,
    /// A listing that leaves a watch on the directory. The flag says whether our own node is there.
    Crowd(bool),
    /// A look at our own node, which leaves a watch.
    Own,
    /// A read of the nearest node ahead, which leaves a watch.
    Nearest,
    /// A read of the node beyond the nearest, which leaves a watch.
    Beyond,
    /// A listing that leaves a watch on the directory, because the nearest node may not be read.
    Around,
    Birth,
    /// A look at our node at this place among those in other queues, and whether it was found to be gone before.
    /// The first look leaves a watch.
    Elsewhere(usize, bool),
    /// A look at the node under which the contender may hold, behind the create of its own, and whether that node was
    /// found to be gone before.
    Under(bool),
    /// A proof, and whether it counts.
    Proof(Stamp, bool),
    /// A look at our own node, which is gone, to learn whether the session is gone too.
    Evicted,
    /// A look at our own node, to learn the servers' time.
    Clock,
    /// A read of a hold ahead.
    Hold,
    /// The removal of a hold that is over.
    Removal,
    /// A look at the semaphore that has directories here.
    Semaphore,
    /// A request about a holder that has held for too long.
    Head,
    /// A check whether the quorum has the nearest node, and the look that follows it.
    Doubt,
}

/// The nodes that are watched.
#[derive(Debug, Default)]
pub(super) struct Watches {
    pub(super) own: bool,
    pub(super) nearest: Option<String>,
    pub(super) beyond: Option<String>,
    /// Whether the node beyond was there when its watch was set.
    pub(super) is_seen: bool,
    /// Whether the directory is watched.
    pub(super) around: bool,
    /// When to look again although the watch on the directory has not fired.
    pub(super) look_at: Duration,
}

/// Our nodes in other queues, as far as a waiter knows them.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    /// The full paths of the nodes.
    pub(super) nodes: Vec<String>,
    /// The places in that list of the nodes whose watches are to be set.
    pub(super) unwatched: Vec<usize>,
    /// The node that somebody deleted, although our session lasts.
    pub(super) evicted: Option<String>,
}

/// The node in another queue that must stand when the contender's own node is created.
#[derive(Debug, Default)]
pub(super) struct Under {
    pub(super) node: Option<String>,
    /// Whether it stood then.
    pub(super) stood: bool,
}

impl Elsewhere {
    /// Notes that the watches may have gone with the connection.
    pub(super) fn broke(&mut self) {
        self.unwatched = (0..self.nodes.len()).collect();
    }

    /// Notes that a watch has fired. Returns whether it was the one on one of these nodes.
    pub(super) fn stirs(&mut self, path: &str) -> bool {
        let at = self.nodes.iter().position(|node| node == path);
        self.unwatched.extend(at);
        at.is_some()
    }
}

/// The holds ahead of a waiter, as far as it knows them.
#[derive(Debug, Default)]
pub(super) struct Holds {
    /// Whether a hold was ahead.
    pub(super) met: bool,
    /// A listing with holds that are being read, in the order of the answers.
    pub(super) look: Option<(Names, Vec<SeenHold>)>,
    /// The holds that are being removed, in the order of the answers.
    pub(super) removes: Vec<String>,
    /// When to look at the holds again.
    pub(super) again: Option<Duration>,
    /// The holds that end while this waiter waits and that no other waiter is to remove before.
    pub(super) ours: Vec<SeenHold>,
    /// The holds that this client may not remove.
    pub(super) kept: Vec<String>,
    /// The clock that says when a hold is over.
    pub(super) clock: ServersClock,
}

#[derive(Debug)]
pub(super) struct SeenHold {
    pub(super) name: String,
    /// How many waiters see the hold before this waiter does.
    pub(super) place: u32,
    pub(super) version: i32,
    /// When the hold is over at the servers, since the epoch.
    pub(super) end: Option<Duration>,
}

impl SeenHold {
    /// Returns whether the hold is over at this time at the servers.
    pub(super) fn is_over(&self, time: Duration) -> bool {
        self.end.is_some_and(|end| end <= time)
    }
}

/// The semaphore at the path of a contender, as far as the contender knows it.
#[derive(Debug, Default)]
pub(super) struct Beside {
    /// A listing that shows the semaphore's directories, while these are looked at.
    pub(super) look: Option<Names>,
    /// `None` if no semaphore has directories here; `Some(true)` if nobody used it while our node stood.
    pub(super) was_idle: Option<bool>,
}

/// The node ahead, and when the quorum is asked whether it is there.
#[derive(Debug, Default)]
pub(super) struct Doubt {
    /// When another node may be asked about.
    pub(super) next: Option<Duration>,
    pub(super) node: String,
    pub(super) at: Duration,
    pub(super) pause: Duration,
}

/// The holder that may have held for too long, as far as a waiting contender knows it.
#[derive(Debug, Default)]
pub(super) struct Hurry {
    pub(super) overdue: Option<Overdue>,
    /// The nodes in the same directory that the same call holds.
    pub(super) held: Vec<String>,
    /// When the next look is due.
    pub(super) at: Option<Duration>,
    /// The head's version at the last look. A head that has changed since is looked at again.
    pub(super) version: i32,
    /// How many answers come before the answer that tells.
    pub(super) before: usize,
}

impl Hurry {
    /// Notes that the queue has moved, so its head may be another.
    pub(super) fn stir(&mut self) {
        if let Some(overdue) = &mut self.overdue {
            overdue.stir();
            self.at = None;
        }
    }

    /// Notes that the connection broke. An eviction without an answer is not repeated: another node may
    /// have the name by then.
    pub(super) fn broke(&mut self) {
        self.before = 0;
        self.looks_anew(|action| !matches!(action, Action::Sleep(_) | Action::Ask(_)));
    }

    /// Begins with another look if the action that is due is one of these.
    pub(super) fn looks_anew(&mut self, instead_of: impl Fn(&Action) -> bool) {
        if let Some(overdue) = &mut self.overdue {
            if instead_of(&overdue.action()) {
                overdue.handle(Event::Failed);
            }
        }
    }

    /// Returns what the request under way is about.
    pub(super) fn about(&self, dir: &str) -> About {
        match self.overdue.as_ref().map(Overdue::action) {
            Some(Action::Look(name, _) | Action::Ask(name) | Action::Evict(name)) => {
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
