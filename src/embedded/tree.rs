//! The tree of nodes: what is in it, and how an operation changes it.
//!
//! Values in, values out: no socket, no thread, no clock. The time and the zxid of a
//! change come with it. A change can be taken back, which is all that a multi needs
//! to be carried out as a whole or not at all. Who waits for a change is not known in
//! here (see `watches`), nor is what a session is, beyond the number that owns a node.
//!
//! The order of the checks is ZooKeeper's, since it decides which error a client sees.

use std::collections::{BTreeSet, HashMap};

use super::acl::{Acl, Identity};
use super::change::{Above, Change};
use super::node::{Moment, Node, Owner, next_version};
use super::path;
use crate::jute::{Access, CreateMode, Data, ErrorCode, Op, OpReply, Permissions, Stat};

type Result<T> = std::result::Result<T, ErrorCode>;

/// Nodes that are there from the start, and stay.
const SYSTEM: [&str; 4] = ["/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"];

#[derive(Clone, Debug)]
pub(super) struct Tree {
    nodes: HashMap<String, Node>,
    /// The nodes of each session.
    ephemerals: HashMap<i64, BTreeSet<String>>,
    containers: BTreeSet<String>,
}

/// Who makes a change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Author<'a> {
    pub(super) session: i64,
    pub(super) who: &'a [Identity],
}

impl Tree {
    pub(super) fn new() -> Self {
        let mut nodes = HashMap::new();
        let open = Acl::world(Permissions::ALL);
        for path in SYSTEM {
            let node = Node::new(
                Vec::new().into(),
                open.clone(),
                Owner::Nobody,
                Moment::default(),
            );
            nodes.insert(path.to_owned(), node);
        }
        let mut tree = Self {
            nodes,
            ephemerals: HashMap::new(),
            containers: BTreeSet::new(),
        };
        for path in SYSTEM.iter().skip(1) {
            tree.link(path);
        }
        if let Some(config) = tree.nodes.get_mut("/zookeeper/config") {
            config.acl = Acl::world(Permissions::READ);
            config.marks.acl_version = -1;
        }
        tree
    }

    /// How many nodes there are; ZooKeeper counts the root twice, under both its names.
    pub(super) fn len(&self) -> usize {
        self.nodes.len() + 1
    }

    /// How many bytes the paths and the data take.
    pub(super) fn data_size(&self) -> usize {
        let size = |(path, node): (&String, &Node)| path.len() + node.data.len();
        self.nodes.iter().map(size).sum()
    }

    /// The sessions that own nodes, in order.
    pub(super) fn owners(&self) -> Vec<i64> {
        let own = self.ephemerals.iter().filter(|(_, own)| !own.is_empty());
        let mut owners: Vec<_> = own.map(|(id, _)| *id).collect();
        owners.sort_unstable();
        owners
    }

    pub(super) fn ephemerals_count(&self) -> usize {
        self.ephemerals.values().map(BTreeSet::len).sum()
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        let own = |path: &&String| !SYSTEM.contains(&path.as_str());
        self.nodes.keys().filter(own).map(String::as_str)
    }

    pub(super) fn node(&self, path: &str) -> Result<&Node> {
        // The empty path is another name of the root.
        let path = if path.is_empty() { "/" } else { path };
        self.nodes.get(path).ok_or(ErrorCode::NO_NODE)
    }

    /// The node, if `who` may do one of the things in `wanted` with it.
    pub(super) fn node_for(&self, path: &str, wanted: i32, who: &[Identity]) -> Result<&Node> {
        let node = self.node(path)?;
        node.acl.check(wanted, who)?;
        Ok(node)
    }

    pub(super) fn count_below(&self, path: &str) -> usize {
        let prefix = path::join(path, "");
        let below = |other: &&String| other.starts_with(&prefix) && other.len() > prefix.len();
        self.nodes.keys().filter(below).count()
    }

    pub(super) fn ephemerals(&self, session: i64) -> impl Iterator<Item = &str> {
        self.ephemerals
            .get(&session)
            .into_iter()
            .flatten()
            .map(String::as_str)
    }

    /// Containers that have lost their last child.
    pub(super) fn spent_containers(&self) -> Vec<String> {
        let is_spent = |path: &&String| self.node(path).is_ok_and(Node::is_spent_container);
        self.containers.iter().filter(is_spent).cloned().collect()
    }

    pub(super) fn set_counter(&mut self, path: &str, counter: i32) {
        if let Some(node) = self.nodes.get_mut(path) {
            node.marks.counter = counter;
        }
    }

    /// Carries out one operation, or fails and changes nothing.
    pub(super) fn apply(
        &mut self,
        op: Op,
        by: Author<'_>,
        at: Moment,
    ) -> Result<(OpReply, Option<Change>)> {
        match op {
            Op::Check { path, version } => self.check(&path, version, by),
            Op::Create {
                path,
                data,
                acl,
                mode,
                stat,
            } => self
                .create(path, data, &acl, mode, by, at)
                .map(|(path, change)| {
                    let stat = stat.then(|| self.node(&path).map(Node::stat).unwrap_or_default());
                    (OpReply::Created { path, stat }, Some(change))
                }),
            Op::Delete { path, version } => {
                let change = self.delete(&path, version, by, at)?;
                Ok((OpReply::Deleted, Some(change)))
            }
            Op::SetData {
                path,
                data,
                version,
            } => {
                let (stat, change) = self.set_data(path, data, version, by, at)?;
                Ok((OpReply::Set(stat), Some(change)))
            }
        }
    }

    /// Carries out all the operations or none; says what came of each, and what changed.
    pub(super) fn multi(
        &mut self,
        ops: Vec<Op>,
        by: Author<'_>,
        at: Moment,
    ) -> (Vec<Result<OpReply>>, Vec<Change>) {
        let count = ops.len();
        let mut replies = Vec::with_capacity(count);
        let mut changes = Vec::new();
        for op in ops {
            match self.apply(without_stat(op), by, at) {
                Ok((reply, change)) => {
                    replies.push(Ok(reply));
                    changes.extend(change);
                }
                Err(code) => {
                    changes.drain(..).rev().for_each(|change| self.undo(change));
                    return (refusals(count, replies.len(), code), changes);
                }
            }
        }
        (replies, changes)
    }

    pub(super) fn set_acl(
        &mut self,
        path: &str,
        acl: &[Access],
        version: i32,
        who: &[Identity],
    ) -> Result<Stat> {
        path::validate(path)?;
        let acl = Acl::settle(acl, who)?;
        let node = self.nodes.get_mut(path).ok_or(ErrorCode::NO_NODE)?;
        node.acl.check(Permissions::ADMIN.0, who)?;
        node.marks.acl_version = next_version(node.marks.acl_version, version)?;
        node.acl = acl;
        Ok(node.stat())
    }

    /// Removes the nodes of a session.
    pub(super) fn end_session(&mut self, session: i64, at: Moment) -> Vec<Change> {
        let paths = self.ephemerals.remove(&session).unwrap_or_default();
        paths
            .iter()
            .filter_map(|path| self.remove(path, at).ok())
            .collect()
    }

    /// Removes a container, unless it has got a child again.
    pub(super) fn reap(&mut self, path: &str, at: Moment) -> Result<Change> {
        if !self.node(path)?.is_spent_container() {
            return Err(ErrorCode::NOT_EMPTY);
        }
        self.remove(path, at)
    }

    fn check(
        &mut self,
        path: &str,
        version: i32,
        by: Author<'_>,
    ) -> Result<(OpReply, Option<Change>)> {
        path::validate(path)?;
        let node = self.node_for(path, Permissions::READ.0, by.who)?;
        next_version(node.marks.version, version)?;
        Ok((OpReply::Checked, None))
    }

    fn create(
        &mut self,
        asked: String,
        data: Data,
        acl: &[Access],
        mode: CreateMode,
        by: Author<'_>,
        at: Moment,
    ) -> Result<(String, Change)> {
        let owner = Owner::of(mode, by.session)?;
        let parent = path::parent(&asked)?;
        let acl = Acl::settle(acl, by.who)?;
        let directory = self.node_for(parent, Permissions::CREATE.0, by.who)?;
        let path = if is_sequential(mode) {
            format!("{asked}{:010}", directory.marks.counter)
        } else {
            asked.clone()
        };
        path::validate(&path)?;
        if self.nodes.contains_key(&path) {
            return Err(ErrorCode::NODE_EXISTS);
        }
        if directory.is_ephemeral() {
            return Err(ErrorCode::NO_CHILDREN_FOR_EPHEMERALS);
        }
        let above = Above::of(directory);
        if let Some(directory) = self.nodes.get_mut(parent) {
            directory.count_creation(at.zxid);
        }
        self.insert(&path, Node::new(data, acl.clone(), owner, at));
        Ok((path.clone(), Change::Created { path, acl, above }))
    }

    fn delete(&mut self, path: &str, version: i32, by: Author<'_>, at: Moment) -> Result<Change> {
        let parent = path::parent(path)?;
        if SYSTEM.contains(&path) {
            return Err(ErrorCode::BAD_ARGUMENTS);
        }
        self.node_for(parent, Permissions::DELETE.0, by.who)?;
        let node = self.node(path)?;
        next_version(node.marks.version, version)?;
        if !node.children.is_empty() {
            return Err(ErrorCode::NOT_EMPTY);
        }
        self.remove(path, at)
    }

    fn set_data(
        &mut self,
        path: String,
        data: Data,
        version: i32,
        by: Author<'_>,
        at: Moment,
    ) -> Result<(Stat, Change)> {
        path::validate(&path)?;
        let node = self.nodes.get_mut(&path).ok_or(ErrorCode::NO_NODE)?;
        node.acl.check(Permissions::WRITE.0, by.who)?;
        let version = next_version(node.marks.version, version)?;
        let marks = node.marks;
        let data = std::mem::replace(&mut node.data, data);
        node.marks.version = version;
        node.marks.modified = at;
        let acl = node.acl.clone();
        let change = Change::Set {
            path,
            acl,
            data,
            marks,
        };
        Ok((node.stat(), change))
    }

    fn remove(&mut self, path: &str, at: Moment) -> Result<Change> {
        let node = self.unlink(path).ok_or(ErrorCode::NO_NODE)?;
        let directory = self
            .nodes
            .get_mut(path::parent(path)?)
            .ok_or(ErrorCode::NO_NODE)?;
        let above = Above::of(directory);
        directory.marks.pzxid = directory.marks.pzxid.max(at.zxid);
        let path = path.to_owned();
        Ok(Change::Deleted { path, node, above })
    }

    /// Takes back the latest change.
    fn undo(&mut self, change: Change) {
        match change {
            Change::Created { path, above, .. } => {
                self.unlink(&path);
                self.restore(&path, above);
            }
            Change::Deleted { path, node, above } => {
                self.insert(&path, node);
                self.restore(&path, above);
            }
            Change::Set {
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

    fn insert(&mut self, path: &str, node: Node) {
        match node.owner {
            Owner::Nobody => {}
            Owner::Children => {
                self.containers.insert(path.to_owned());
            }
            Owner::Session(id) => {
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
        self.containers.remove(path);
        if let Owner::Session(id) = node.owner
            && let Some(own) = self.ephemerals.get_mut(&id)
        {
            own.remove(path);
        }
        if let Some(directory) = self.nodes.get_mut(path::parent(path).ok()?) {
            directory.children.remove(path::name(path));
        }
        Some(node)
    }
}

fn is_sequential(mode: CreateMode) -> bool {
    matches!(
        mode,
        CreateMode::PersistentSequential | CreateMode::EphemeralSequential
    )
}

/// In a multi, ZooKeeper takes create2 for create: the reply bears no stat.
fn without_stat(mut op: Op) -> Op {
    if let Op::Create { mode, stat, .. } = &mut op {
        *stat = *mode == CreateMode::Container;
    }
    op
}

/// What a client is told of a multi of which one part failed.
fn refusals(count: usize, failed: usize, code: ErrorCode) -> Vec<Result<OpReply>> {
    let told = |place: usize| match place.cmp(&failed) {
        std::cmp::Ordering::Less => ErrorCode::OK,
        std::cmp::Ordering::Equal => code,
        std::cmp::Ordering::Greater => ErrorCode::RUNTIME_INCONSISTENCY,
    };
    (0..count).map(|place| Err(told(place))).collect()
}
