//! Deletes what an attempt or a guard left in a directory.
//!
//! ```text
//!  Sync ──► Find ──► Delete ──► .. ──► Delete ──► Done
//!  (perhaps a node)  (a node)
//! ```
//!
//! This ends only when the servers have answered that each node is gone, or when the session
//! that owns the nodes ends, which the driver has to notice. If no node was found, one may still
//! come: [`Cleanup::missed`] says so.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

use super::attempt::Orphan;
use zklock_jute::Names;

/// The state machine.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Cleanup {
    state: State,
    /// What no node was found with.
    missed: Option<String>,
}

/// What the driver is to do next.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Action {
    /// Make sure that the next listing is no older than this moment.
    Sync,
    /// List the directory.
    List,
    /// Delete this node.
    Delete(String),
    /// Stop: nothing is left.
    Done,
}

/// What the driver reports. A lost reply needs no report: the action is repeated.
#[derive(Clone, Debug)]
pub enum Event {
    /// The listing that follows is no older than this moment.
    Synced,
    /// The directory holds these names.
    Children(Names),
    /// The node was deleted, or it or the directory was not there.
    Gone,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum State {
    Sync(String),
    Find(String),
    /// The last one first.
    Delete(Vec<String>),
}

impl Cleanup {
    /// Begins to delete what was left.
    pub fn new(orphan: Orphan) -> Self {
        let state = match orphan {
            Orphan::Node(name) => State::Delete(vec![name]),
            Orphan::Prefix(prefix) => State::Sync(prefix),
        };
        Self {
            state,
            missed: None,
        }
    }

    /// The prefix of a node that was looked for and was not there.
    pub fn missed(&self) -> Option<&str> {
        self.missed.as_deref()
    }

    /// Looks from the beginning, if it looks for nodes; returns whether it does.
    pub fn looks_anew(&mut self) -> bool {
        if let State::Find(prefix) = &mut self.state {
            self.state = State::Sync(mem::take(prefix));
        }
        matches!(self.state, State::Sync(_))
    }

    /// What the driver is to do next.
    pub fn action(&self) -> Action {
        match &self.state {
            State::Sync(_) => Action::Sync,
            State::Find(_) => Action::List,
            State::Delete(names) => match names.last() {
                Some(name) => Action::Delete(name.clone()),
                None => Action::Done,
            },
        }
    }

    /// Takes in the result of the last action.
    pub fn handle(&mut self, event: Event) {
        match (&mut self.state, event) {
            (State::Sync(prefix), Event::Synced) => self.state = State::Find(prefix.clone()),
            (State::Find(prefix), Event::Children(names)) => {
                let found = names.iter().filter(|name| name.starts_with(&*prefix));
                let mut found: Vec<_> = found.map(str::to_owned).collect();
                found.sort_unstable();
                self.missed = found.is_empty().then(|| mem::take(prefix));
                self.state = State::Delete(found);
            }
            (State::Find(prefix), Event::Gone) => {
                self.missed = Some(mem::take(prefix));
                self.state = State::Delete(Vec::new());
            }
            (State::Delete(names), Event::Gone) => {
                names.pop();
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_deleted() {
        let mut cleanup = Cleanup::new(Orphan::Node("a".into()));
        assert_eq!(cleanup.action(), Action::Delete("a".into()));
        cleanup.handle(Event::Gone);
        assert_eq!(cleanup.action(), Action::Done);
    }

    #[test]
    fn every_node_with_our_prefix_is_looked_for_and_deleted() {
        let mut cleanup = Cleanup::new(Orphan::Prefix("_c_me-lock-".into()));
        assert_eq!(cleanup.action(), Action::Sync);
        cleanup.handle(Event::Synced);
        assert_eq!(cleanup.action(), Action::List);
        let names = [
            "_c_me-lock-0000000002",
            "_c_you-lock-0000000003",
            "_c_me-lock-0000000004",
        ];
        cleanup.handle(Event::Children(names.iter().collect()));
        for name in [names[2], names[0]] {
            assert_eq!(cleanup.action(), Action::Delete(name.into()));
            cleanup.handle(Event::Gone);
        }
        assert_eq!(cleanup.action(), Action::Done);
    }
}
