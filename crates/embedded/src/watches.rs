//! The watches of all clients.
//!
//! Values in, values out: a change goes in, and the events that it causes come out. There
//! are two tables, as in ZooKeeper: watches on a node (its data and existence) and watches
//! on its list of children. A persistent watch is in both.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::acl::{Identity, NodeAcl};
use super::change::TreeChange;
use super::path;
use zklock_jute::{Event, EventKind, Permissions, WatchKind};

/// The number of a connection, which has watches.
pub(crate) type ConnectionId = u64;

/// An event for one client, if it may read the node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Notice {
    pub watcher: ConnectionId,
    pub kind: EventKind,
    pub path: String,
    /// `None` if the client has been shown the node already.
    pub acl: Option<NodeAcl>,
}

impl Notice {
    /// Returns the frame of the event for a client with these identities; `None` if it may not
    /// read the node.
    pub fn frame_for(self, who: &[Identity]) -> Option<Vec<u8>> {
        let may_not = |acl: &NodeAcl| acl.check(Permissions::READ.0, who).is_err();
        if self.acl.as_ref().is_some_and(may_not) {
            return None;
        }
        let event = Event {
            kind: self.kind,
            state: Event::SYNC_CONNECTED,
            path: self.path,
        };
        let mut frame = Vec::new();
        event.encode(&mut frame);
        Some(frame)
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Subject {
    Node,
    Children,
}

/// The reach of a persistent watch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reach {
    Path,
    /// The path and everything below, but no lists of children.
    Subtree,
}

#[derive(Debug, Default)]
pub struct ServerWatches {
    nodes: Table,
    children: Table,
}

/// The watches of one subject.
#[derive(Debug, Default)]
struct Table {
    by_path: HashMap<String, BTreeMap<ConnectionId, Modes>>,
    /// The paths that each client watches, so that a client that hangs up costs only what it watches itself.
    paths: HashMap<ConnectionId, HashSet<String>>,
}

/// The watches of one client on one path and subject.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Modes {
    once: bool,
    path: bool,
    subtree: bool,
}

impl ServerWatches {
    /// Sets a watch that fires once.
    pub fn add(&mut self, subject: Subject, path: &str, watcher: ConnectionId) {
        self.table(subject).at(path, watcher).once = true;
    }

    pub fn add_persistent(&mut self, reach: Reach, path: &str, watcher: ConnectionId) {
        for table in [&mut self.nodes, &mut self.children] {
            let modes = table.at(path, watcher);
            match reach {
                Reach::Path => modes.path = true,
                Reach::Subtree => modes.subtree = true,
            }
        }
    }

    /// Returns whether there is such a watch; `kind` is one of the numbers of [`WatchKind`].
    pub fn has(&self, kind: i32, path: &str, watcher: ConnectionId) -> bool {
        let is_in = |table: &Table| {
            let watchers = table.by_path.get(path);
            watchers.is_some_and(|watchers| watchers.contains_key(&watcher))
        };
        (is_of_node(kind) && is_in(&self.nodes)) || (is_of_children(kind) && is_in(&self.children))
    }

    pub fn remove(&mut self, kind: i32, path: &str, watcher: ConnectionId) {
        if is_of_node(kind) {
            self.nodes.remove(path, watcher);
        }
        if is_of_children(kind) {
            self.children.remove(path, watcher);
        }
    }

    /// Removes all watches of one client.
    pub fn forget(&mut self, watcher: ConnectionId) {
        for table in [&mut self.nodes, &mut self.children] {
            table.take(watcher).for_each(drop);
        }
    }

    /// Takes out the watches of some clients.
    pub fn split(&mut self, who: &BTreeSet<ConnectionId>) -> Self {
        Self {
            nodes: self.nodes.split(who),
            children: self.children.split(who),
        }
    }

    /// Puts back what [`split`](Self::split) took out.
    pub fn merge(&mut self, other: Self) {
        self.nodes.merge(other.nodes);
        self.children.merge(other.children);
    }

    /// Fires the watches on a change. Returns the events in their order.
    pub fn fire(&mut self, change: &TreeChange) -> Vec<Notice> {
        let mut notices = Vec::new();
        match change {
            TreeChange::Created { path, acl, above } => {
                self.tell(Subject::Node, path, EventKind::Created, acl, &mut notices);
                self.tell_above(path, &above.acl, &mut notices);
            }
            TreeChange::Deleted { path, node, above } => {
                for subject in [Subject::Node, Subject::Children] {
                    self.tell(subject, path, EventKind::Deleted, &node.acl, &mut notices);
                }
                self.tell_above(path, &above.acl, &mut notices);
            }
            TreeChange::Set { path, acl, .. } => {
                self.tell(
                    Subject::Node,
                    path,
                    EventKind::DataChanged,
                    acl,
                    &mut notices,
                );
            }
        }
        notices
    }

    /// Returns how many connections watch nodes, how many nodes they watch, and how many such
    /// watches there are.
    pub fn summary(&self) -> (usize, usize, usize) {
        let watchers: BTreeSet<_> = self
            .nodes
            .by_path
            .values()
            .flat_map(BTreeMap::keys)
            .collect();
        let total = self.nodes.by_path.values().map(BTreeMap::len).sum();
        (watchers.len(), self.nodes.by_path.len(), total)
    }

    pub fn len(&self) -> usize {
        let count = |table: &Table| table.by_path.values().map(BTreeMap::len).sum::<usize>();
        count(&self.nodes) + count(&self.children)
    }

    fn tell_above(&mut self, path: &str, acl: &NodeAcl, notices: &mut Vec<Notice>) {
        if let Ok(above) = path::parent(path) {
            self.tell(
                Subject::Children,
                above,
                EventKind::ChildrenChanged,
                acl,
                notices,
            );
        }
    }

    fn tell(
        &mut self,
        subject: Subject,
        path: &str,
        kind: EventKind,
        acl: &NodeAcl,
        notices: &mut Vec<Notice>,
    ) {
        for watcher in self.table(subject).fire(path, kind) {
            let notice = Notice {
                watcher,
                kind,
                path: path.to_owned(),
                acl: Some(acl.clone()),
            };
            // A client that watches a node and its children gets one event when it is deleted.
            if !notices.contains(&notice) {
                notices.push(notice);
            }
        }
    }

    fn table(&mut self, subject: Subject) -> &mut Table {
        match subject {
            Subject::Node => &mut self.nodes,
            Subject::Children => &mut self.children,
        }
    }
}

impl Table {
    fn at(&mut self, path: &str, watcher: ConnectionId) -> &mut Modes {
        let paths = self.paths.entry(watcher).or_default();
        if !paths.contains(path) {
            paths.insert(path.to_owned());
        }
        let watchers = self.by_path.entry(path.to_owned()).or_default();
        watchers.entry(watcher).or_default()
    }

    fn remove(&mut self, path: &str, watcher: ConnectionId) -> Option<Modes> {
        let watchers = self.by_path.get_mut(path)?;
        let modes = watchers.remove(&watcher);
        if watchers.is_empty() {
            self.by_path.remove(path);
        }
        if let Some(paths) = self.paths.get_mut(&watcher) {
            paths.remove(path);
            if paths.is_empty() {
                self.paths.remove(&watcher);
            }
        }
        modes
    }

    /// Takes out what a client watches, each path when the iterator comes to it.
    fn take(&mut self, watcher: ConnectionId) -> impl Iterator<Item = (String, Modes)> {
        let paths = self.paths.remove(&watcher).unwrap_or_default();
        paths.into_iter().filter_map(move |path| {
            let modes = self.remove(&path, watcher)?;
            Some((path, modes))
        })
    }

    fn split(&mut self, who: &BTreeSet<ConnectionId>) -> Self {
        let mut taken = Self::default();
        for watcher in who {
            for (path, modes) in self.take(*watcher) {
                *taken.at(&path, *watcher) = modes;
            }
        }
        taken
    }

    fn merge(&mut self, other: Self) {
        for (path, watchers) in other.by_path {
            for (watcher, modes) in watchers {
                *self.at(&path, watcher) = modes;
            }
        }
    }

    fn fire(&mut self, path: &str, kind: EventKind) -> BTreeSet<ConnectionId> {
        let mut told = self.watching_subtrees(path, kind);
        let mut over = Vec::new();
        for (watcher, modes) in self.by_path.get_mut(path).into_iter().flatten() {
            if modes.once || modes.path {
                told.insert(*watcher);
            }
            modes.once = false;
            if *modes == Modes::default() {
                over.push(*watcher);
            }
        }
        for watcher in over {
            self.remove(path, watcher);
        }
        told
    }

    fn watching_subtrees(&self, path: &str, kind: EventKind) -> BTreeSet<ConnectionId> {
        if kind == EventKind::ChildrenChanged {
            return BTreeSet::new();
        }
        path::upwards(path)
            .filter_map(|above| self.by_path.get(above))
            .flatten()
            .filter(|(_, modes)| modes.subtree)
            .map(|(watcher, _)| *watcher)
            .collect()
    }
}

fn is_of_node(kind: i32) -> bool {
    matches!(kind, WatchKind::DATA | WatchKind::ANY)
}

fn is_of_children(kind: i32) -> bool {
    matches!(kind, WatchKind::CHILDREN | WatchKind::ANY)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    #[allow(
        clippy::disallowed_methods,
        reason = "two times of one run are compared"
    )]
    fn a_client_that_hangs_up_costs_what_it_watches_and_not_what_others_do() {
        let mut watches = ServerWatches::default();
        let began = Instant::now();
        for watcher in 0..1000 {
            for node in 0..200 {
                watches.add(Subject::Node, &format!("/{watcher}/{node}"), watcher);
            }
        }
        let added = began.elapsed();
        for watcher in 0..1000 {
            watches.forget(watcher);
        }
        let forgotten = began.elapsed() - added;
        assert_eq!(watches.len(), 0);
        assert!(forgotten < 4 * added, "{added:?}, {forgotten:?}");
    }
}
