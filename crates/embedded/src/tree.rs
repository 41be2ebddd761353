//! The tree of nodes; how a client's operations change it is in `operations`.
//!
//! Values in, values out: no socket, no thread, no clock. The time and the zxid of a change
//! come with it. A change can be undone, so that a multi is carried out as a whole or not at
//! all. The tree knows no watches, and of a session only the number that owns a node.

use std::collections::{BTreeSet, HashMap};

use super::acl::{Identity, NodeAcl};
use super::change::{Above, TreeChange};
use super::node::{ChangeTime, Node, NodeOwner};
use super::path;
use zklock_jute::{ErrorCode, Permissions};

mod operations;

type Result<T> = std::result::Result<T, ErrorCode>;

/// Nodes that cannot be removed.
const SYSTEM: [&str; 4] = ["/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"];

#[derive(Clone, Debug)]
pub struct Tree {
    nodes: HashMap<String, Node>,
    /// The nodes of each session.
    ephemerals: HashMap<i64, BTreeSet<String>>,
    /// Containers, and nodes with a time to live.
    passing: BTreeSet<String>,
}

/// The client that makes a change.
#[derive(Clone, Copy, Debug)]
pub struct Author<'a> {
    pub session: i64,
    pub who: &'a [Identity],
}

impl Tree {
    pub fn new() -> Self {
        let mut nodes = HashMap::new();
        let open = NodeAcl::world(Permissions::ALL);
        for path in SYSTEM {
            let node = Node::new(
                Vec::new().into(),
                open.clone(),
                NodeOwner::Nobody,
                ChangeTime::default(),
            );
            nodes.insert(path.to_owned(), node);
        }
        let mut tree = Self {
            nodes,
            ephemerals: HashMap::new(),
            passing: BTreeSet::new(),
        };
        for path in SYSTEM.iter().skip(1) {
            tree.link(path);
        }
        if let Some(config) = tree.nodes.get_mut("/zookeeper/config") {
            config.acl = NodeAcl::world(Permissions::READ);
            config.marks.acl_version = -1;
        }
        tree
    }

    /// Returns the number of nodes. Like ZooKeeper, it counts the root under both its names.
    pub fn len(&self) -> usize {
        self.nodes.len() + 1
    }

    /// Returns how many bytes the paths and the data take.
    pub fn data_size(&self) -> usize {
        let size = |(path, node): (&String, &Node)| path.len() + node.data.len();
        self.nodes.iter().map(size).sum()
    }

    /// Returns the sessions that own nodes, in order.
    pub fn owners(&self) -> Vec<i64> {
        let own = self.ephemerals.iter().filter(|(_, own)| !own.is_empty());
        let mut owners: Vec<_> = own.map(|(id, _)| *id).collect();
        owners.sort_unstable();
        owners
    }

    pub fn ephemerals_count(&self) -> usize {
        self.ephemerals.values().map(BTreeSet::len).sum()
    }

    pub fn paths(&self) -> impl Iterator<Item = &str> {
        let own = |path: &&String| !SYSTEM.contains(&path.as_str());
        self.nodes.keys().filter(own).map(String::as_str)
    }

    pub fn node(&self, path: &str) -> Result<&Node> {
        // The empty path is another name of the root.
        let path = if path.is_empty() { "/" } else { path };
        self.nodes.get(path).ok_or(ErrorCode::NO_NODE)
    }

    /// Returns the node, if `who` has one of the permissions `wanted`.
    pub fn node_for(&self, path: &str, wanted: i32, who: &[Identity]) -> Result<&Node> {
        let node = self.node(path)?;
        node.acl.check(wanted, who)?;
        Ok(node)
    }

    pub fn count_below(&self, path: &str) -> usize {
        let prefix = path::join(path, "");
        let below = |other: &&String| other.starts_with(&prefix) && other.len() > prefix.len();
        self.nodes.keys().filter(below).count()
    }

    pub fn ephemerals(&self, session: i64) -> impl Iterator<Item = &str> {
        self.ephemerals
            .get(&session)
            .into_iter()
            .flatten()
            .map(String::as_str)
    }

    /// Returns the containers that have lost their last child, and the nodes whose time is over.
    pub fn over(&self, now_ms: i64) -> Vec<String> {
        let is_over = |path: &&String| self.node(path).is_ok_and(|node| node.is_over(now_ms));
        self.passing.iter().filter(is_over).cloned().collect()
    }

    pub fn set_counter(&mut self, path: &str, counter: i32) {
        if let Some(node) = self.nodes.get_mut(path) {
            node.marks.counter = counter;
        }
    }

    /// Removes the nodes of a session.
    pub fn end_session(&mut self, session: i64, at: ChangeTime) -> Vec<TreeChange> {
        let paths = self.ephemerals.remove(&session).unwrap_or_default();
        paths
            .iter()
            .filter_map(|path| self.remove(path, at).ok())
            .collect()
    }

    /// Removes a node that is [`over`](Self::over), unless it has a child again or was set.
    pub fn remove_over(&mut self, path: &str, at: ChangeTime) -> Result<TreeChange> {
        if !self.node(path)?.is_over(at.ms) {
            return Err(ErrorCode::NOT_EMPTY);
        }
        self.remove(path, at)
    }

    fn remove(&mut self, path: &str, at: ChangeTime) -> Result<TreeChange> {
        let node = self.unlink(path).ok_or(ErrorCode::NO_NODE)?;
        let directory = self
            .nodes
            .get_mut(path::parent(path)?)
            .ok_or(ErrorCode::NO_NODE)?;
        let above = Above::of(directory);
        directory.marks.pzxid = directory.marks.pzxid.max(at.zxid);
        let path = path.to_owned();
        Ok(TreeChange::Deleted { path, node, above })
    }

    /// Undoes the latest change.
    pub fn undo(&mut self, change: TreeChange) {
        match change {
            TreeChange::Created { path, above, .. } => {
                self.unlink(&path);
                self.restore(&path, above);
            }
            TreeChange::Deleted { path, node, above } => {
                self.insert(&path, node);
                self.restore(&path, above);
            }
            TreeChange::Set {
                path, data, marks, ..
            } => {
                if let Some(node) = self.nodes.get_mut(&path) {
                    node.data = data;
                    node.marks = marks;
                }
            }
        }
    }

    fn restore(&mut self, path: &str, above: Above) {
        let parent = path::parent(path).ok();
        if let Some(directory) = parent.and_then(|parent| self.nodes.get_mut(parent)) {
            directory.marks = above.marks;
        }
    }

    /// Puts a node into the tree; the marks of its directory stay.
    pub fn insert(&mut self, path: &str, node: Node) {
        match node.owner {
            NodeOwner::Nobody => {}
            NodeOwner::Children | NodeOwner::Time(_) => {
                self.passing.insert(path.to_owned());
            }
            NodeOwner::Session(id) => {
                self.ephemerals
                    .entry(id)
                    .or_default()
                    .insert(path.to_owned());
            }
        }
        self.nodes.insert(path.to_owned(), node);
        self.link(path);
    }

    fn link(&mut self, path: &str) {
        let parent = path::parent(path).ok();
        if let Some(directory) = parent.and_then(|parent| self.nodes.get_mut(parent)) {
            directory.children.insert(path::name(path).to_owned());
        }
    }

    fn unlink(&mut self, path: &str) -> Option<Node> {
        let node = self.nodes.remove(path)?;
        self.passing.remove(path);
        if let NodeOwner::Session(id) = node.owner {
            if let Some(own) = self.ephemerals.get_mut(&id) {
                own.remove(path);
            }
        }
        if let Some(directory) = self.nodes.get_mut(path::parent(path).ok()?) {
            directory.children.remove(path::name(path));
        }
        Some(node)
    }
}
