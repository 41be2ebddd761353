//! What a waiting contender knows of a holder that may have held for too long.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use super::outcome::About;
use crate::overdue_holder::{Action, Event, Overdue};
use crate::path::node_in;

/// See the module's documentation.
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
