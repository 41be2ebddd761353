//! Deletes what an attempt or a guard left in a directory.
//!
//! ```text
//!  Sync ──► Find ──► Delete ──► .. ──► Delete ──► Done
//!  (perhaps a node)  (a node)
//! ```
//!
//! The cleanup ends only when the servers have answered that each node is gone, or when the session that
//! owns the nodes ends, which the driver has to notice. If no node was found, one may still come:
//! [`Cleanup::missed`] says so.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

use super::attempt::Orphan;
use zklock_jute::Names;

/// The state machine of one cleanup.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Cleanup {
    state: State,
    /// The orphan that was looked for and not found.
    missed: Option<Orphan>,
}

/// The next step for the driver.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Action {
    /// Make sure that the next look is no older than this moment.
    Sync,
    /// List the directory.
    List,
    /// Read this node.
    Read(String),
    /// Delete this node.
    Delete(String),
    /// Stop: nothing is left.
    Done,
}

/// A report from the driver. A lost reply needs no report: the action is repeated.
#[derive(Clone, Debug)]
pub enum Event {
    /// The look that follows is no older than this moment.
    Synced,
    /// The directory holds these names.
    Children(Names),
    /// The node has this data.
    Data(Vec<u8>),
    /// The node was deleted, or the node or the directory was not there.
    Gone,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum State {
    Sync(Orphan),
    Find(Orphan),
    /// These nodes, the last one first.
    Delete(Vec<String>),
    /// A node that has this mark.
    Pull(String, String),
}

impl Cleanup {
    /// Creates the cleanup of what was left.
    pub fn new(orphan: Orphan) -> Self {
        let state = match orphan {
            Orphan::Node(name) => State::Delete(vec![name]),
            perhaps => State::Sync(perhaps),
        };
        Self {
            state,
            missed: None,
        }
    }

    /// Returns what was looked for, if no node was there.
    pub fn missed(&self) -> Option<&Orphan> {
        self.missed.as_ref()
    }

    /// Returns what this cleanup looks for.
    pub fn sought(&self) -> Option<&Orphan> {
        match &self.state {
            State::Sync(orphan) | State::Find(orphan) => Some(orphan),
            State::Delete(_) | State::Pull(..) => None,
        }
    }

    /// Returns what is left to find or to delete.
    pub fn left(&self) -> Vec<Orphan> {
        match &self.state {
            State::Sync(orphan) | State::Find(orphan) => vec![orphan.clone()],
            State::Delete(names) => names.iter().cloned().map(Orphan::Node).collect(),
            State::Pull(name, mark) => vec![Orphan::Marked(name.clone(), mark.clone())],
        }
    }

    /// Returns the name that this cleanup looks for or deletes next, or the beginning of that name.
    pub fn name(&self) -> Option<&str> {
        match &self.state {
            State::Sync(orphan) | State::Find(orphan) => match orphan {
                Orphan::Node(name) | Orphan::Prefix(name) | Orphan::Marked(name, _) => Some(name),
            },
            State::Delete(names) => names.last().map(String::as_str),
            State::Pull(name, _) => Some(name),
        }
    }

    /// Starts over if this cleanup looks for nodes, or has found one whose name may be another's by now.
    /// Returns whether it looks.
    pub fn looks_anew(&mut self) -> bool {
        self.state = match mem::replace(&mut self.state, State::Delete(Vec::new())) {
            State::Find(orphan) => State::Sync(orphan),
            State::Pull(name, mark) => State::Sync(Orphan::Marked(name, mark)),
            state => state,
        };
        matches!(self.state, State::Sync(_))
    }

    /// Returns the next step for the driver.
    pub fn action(&self) -> Action {
        match &self.state {
            State::Sync(_) => Action::Sync,
            State::Find(Orphan::Marked(name, _)) => Action::Read(name.clone()),
            State::Find(_) => Action::List,
            State::Pull(name, _) => Action::Delete(name.clone()),
            State::Delete(names) => match names.last() {
                Some(name) => Action::Delete(name.clone()),
                None => Action::Done,
            },
        }
    }

    /// Takes in the result of the last action.
    pub fn handle(&mut self, event: Event) {
        let state = mem::replace(&mut self.state, State::Delete(Vec::new()));
        self.state = match (state, event) {
            (State::Sync(orphan), Event::Synced) => State::Find(orphan),
            (State::Find(Orphan::Prefix(prefix)), Event::Children(names)) => {
                self.listed(prefix, &names)
            }
            (State::Find(Orphan::Marked(name, mark)), Event::Data(data)) => {
                match data == mark.as_bytes() {
                    true => State::Pull(name, mark),
                    false => self.misses(Orphan::Marked(name, mark)),
                }
            }
            (State::Find(orphan), Event::Gone) => self.misses(orphan),
            (State::Pull(..), Event::Gone) => State::Delete(Vec::new()),
            (State::Delete(mut names), Event::Gone) => {
                names.pop();
                State::Delete(names)
            }
            (state, _) => state,
        };
    }

    fn listed(&mut self, prefix: String, names: &Names) -> State {
        let found = names.iter().filter(|name| name.starts_with(&*prefix));
        let mut found: Vec<_> = found.map(str::to_owned).collect();
        found.sort_unstable();
        match found.is_empty() {
            true => self.misses(Orphan::Prefix(prefix)),
            false => State::Delete(found),
        }
    }

    fn misses(&mut self, orphan: Orphan) -> State {
        self.missed = Some(orphan);
        State::Delete(Vec::new())
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

    #[test]
    fn a_node_whose_name_others_use_is_deleted_if_it_is_ours() {
        for (data, deleted) in [("ours", true), ("another's", false)] {
            let mut cleanup = Cleanup::new(Orphan::Marked("stake".into(), "ours".into()));
            assert_eq!(cleanup.action(), Action::Sync);
            cleanup.handle(Event::Synced);
            assert_eq!(cleanup.action(), Action::Read("stake".into()));
            cleanup.handle(Event::Data(data.into()));
            let is_deleted = cleanup.action() == Action::Delete("stake".into());
            assert_eq!((is_deleted, cleanup.missed().is_none()), (deleted, deleted));
        }
    }

    #[test]
    fn a_deletion_whose_answer_was_lost_is_repeated_only_if_the_node_is_still_ours() {
        let mut cleanup = Cleanup::new(Orphan::Marked("stake".into(), "ours".into()));
        cleanup.handle(Event::Synced);
        cleanup.handle(Event::Data("ours".into()));
        assert!(cleanup.looks_anew());
        cleanup.handle(Event::Synced);
        cleanup.handle(Event::Data("another's".into()));
        assert_eq!(cleanup.action(), Action::Done);
    }
}
