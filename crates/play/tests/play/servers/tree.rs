//! The nodes that one server has, and the watches on them.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;

use zklock_core::Names;
use zklock_jute::{CreateMode, ErrorCode, Event, EventKind, Reply, Request, Stat};

/// A connection of a client.
pub(crate) type ConnNo = usize;

#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    pub(crate) owner: i64,
    pub(crate) czxid: i64,
    pub(crate) ctime: i64,
    mtime: i64,
    pub(crate) data: Rc<[u8]>,
    version: i32,
    /// How many children the node has had.
    created: i32,
    children: i32,
}

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    pub(crate) nodes: BTreeMap<Rc<str>, Node>,
    /// The time of the present transaction.
    pub(crate) clock: i64,
    watches: Vec<(Rc<str>, ConnNo, Watch)>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Watch {
    Node,
    Children,
}

/// A change by a write.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Created(Rc<str>),
    Deleted(Rc<str>),
    Set(Rc<str>),
}

/// An event, and the connection that it is for.
pub(crate) type Fired = (ConnNo, Event);

type Written = Result<Reply, ErrorCode>;

impl Tree {
    /// Carries out a write of a session.
    pub(crate) fn write(
        &mut self,
        request: &Request,
        (session, zxid): (i64, i64),
    ) -> (Written, Vec<Change>) {
        if let Request::Multi(ops) = request {
            return self.multi(ops, session, zxid);
        }
        match self.op(request, session, zxid) {
            Ok((reply, change)) => (Ok(reply), change.into_iter().collect()),
            Err(code) => (Err(code), Vec::new()),
        }
    }

    fn multi(&mut self, ops: &[Request], session: i64, zxid: i64) -> (Written, Vec<Change>) {
        // Most transactions only check.
        let changes_nothing = ops.iter().all(|op| matches!(op, Request::Check { .. }));
        let before = (!changes_nothing).then(|| self.nodes.clone());
        let (mut replies, mut changes) = (Vec::new(), Vec::new());
        for (at, op) in ops.iter().enumerate() {
            match self.op(op, session, zxid) {
                Ok((reply, change)) => {
                    replies.push(Ok(reply));
                    changes.extend(change);
                }
                Err(code) => {
                    if let Some(before) = before {
                        self.nodes = before;
                    }
                    let failed = (0..ops.len()).map(|place| match place.cmp(&at) {
                        std::cmp::Ordering::Less => Err(ErrorCode::OK),
                        std::cmp::Ordering::Equal => Err(code),
                        std::cmp::Ordering::Greater => Err(ErrorCode::RUNTIME_INCONSISTENCY),
                    });
                    return (Ok(Reply::Multi(failed.collect())), Vec::new());
                }
            }
        }
        (Ok(Reply::Multi(replies)), changes)
    }

    fn op(
        &mut self,
        op: &Request,
        session: i64,
        zxid: i64,
    ) -> Result<(Reply, Option<Change>), ErrorCode> {
        match op {
            Request::Check { path, .. } => match self.nodes.contains_key(path.as_str()) {
                true => Ok((Reply::Checked, None)),
                false => Err(ErrorCode::NO_NODE),
            },
            Request::Create {
                path,
                mode,
                stat,
                data,
                ..
            } => {
                let node = self.create(path, *mode, data, session, zxid)?;
                let stat = stat.then(|| self.stat(&node));
                let path = node.to_string();
                Ok((Reply::Created { path, stat }, Some(Change::Created(node))))
            }
            Request::Delete { path, version } => {
                let node = self.nodes.get(path.as_str()).ok_or(ErrorCode::NO_NODE)?;
                if *version != -1 && *version != node.version {
                    return Err(ErrorCode::BAD_VERSION);
                }
                if 0 < node.children {
                    return Err(ErrorCode::NOT_EMPTY);
                }
                let gone = self.remove(path).ok_or(ErrorCode::NO_NODE)?;
                Ok((Reply::Nothing, Some(Change::Deleted(gone))))
            }
            Request::SetData {
                path,
                data,
                version,
            } => {
                let (key, _) = self
                    .nodes
                    .get_key_value(path.as_str())
                    .ok_or(ErrorCode::NO_NODE)?;
                let key = key.clone();
                let node = self.nodes.get_mut(&key).ok_or(ErrorCode::NO_NODE)?;
                if *version != -1 && *version != node.version {
                    return Err(ErrorCode::BAD_VERSION);
                }
                node.version += 1;
                node.mtime = self.clock;
                node.data = data.to_vec().into();
                Ok((Reply::Stat(self.stat(&key)), Some(Change::Set(key))))
            }
            _ => Err(ErrorCode::UNIMPLEMENTED),
        }
    }

    fn create(
        &mut self,
        path: &str,
        mode: CreateMode,
        data: &[u8],
        session: i64,
        zxid: i64,
    ) -> Result<Rc<str>, ErrorCode> {
        let (dir, _) = path.rsplit_once('/').unwrap_or(("", path));
        let mut number = 0;
        if !dir.is_empty() {
            let parent = self.nodes.get_mut(dir).ok_or(ErrorCode::NO_NODE)?;
            number = parent.created;
        }
        let node: Rc<str> = match mode {
            CreateMode::EphemeralSequential | CreateMode::PersistentSequential => {
                format!("{path}{number:010}").into()
            }
            _ => path.into(),
        };
        if self.nodes.contains_key(&node) {
            return Err(ErrorCode::NODE_EXISTS);
        }
        if let Some(parent) = self.nodes.get_mut(dir) {
            parent.created += 1;
            parent.children += 1;
        }
        let owner = match mode {
            CreateMode::Ephemeral | CreateMode::EphemeralSequential => session,
            _ => 0,
        };
        let made = Node {
            owner,
            czxid: zxid,
            ctime: self.clock,
            mtime: self.clock,
            data: data.into(),
            ..Node::default()
        };
        self.nodes.insert(node.clone(), made);
        Ok(node)
    }

    fn remove(&mut self, path: &str) -> Option<Rc<str>> {
        let (key, _) = self.nodes.remove_entry(path)?;
        if let Some(parent) = path
            .rsplit_once('/')
            .and_then(|(dir, _)| self.nodes.get_mut(dir))
        {
            parent.children -= 1;
        }
        Some(key)
    }

    /// Deletes the nodes of a session.
    pub(crate) fn end_session(&mut self, session: i64) -> Vec<Change> {
        let of_it = self.nodes.iter().filter(|(_, node)| node.owner == session);
        let of_it: Vec<_> = of_it.map(|(path, _)| path.clone()).collect();
        let gone = of_it.iter().filter_map(|path| self.remove(path));
        gone.map(Change::Deleted).collect()
    }

    fn stat(&self, path: &str) -> Stat {
        let node = self.nodes.get(path).cloned().unwrap_or_default();
        Stat {
            czxid: node.czxid,
            ctime: node.ctime,
            mtime: node.mtime,
            version: node.version,
            ephemeral_owner: node.owner,
            num_children: node.children,
            ..Stat::default()
        }
    }

    /// Answers a read of a client, which may leave a watch.
    pub(crate) fn read(&mut self, request: &Request, by: ConnNo) -> Result<Reply, ErrorCode> {
        match request {
            Request::Exists { path, watch } => {
                let there = self.nodes.contains_key(path.as_str());
                self.watch(path, by, *watch, Watch::Node);
                match there {
                    true => Ok(Reply::Stat(self.stat(path))),
                    false => Err(ErrorCode::NO_NODE),
                }
            }
            Request::GetData { path, watch } => {
                let data = self.nodes.get(path.as_str()).ok_or(ErrorCode::NO_NODE)?;
                let data = data.data.to_vec().into();
                self.watch(path, by, *watch, Watch::Node);
                let stat = self.stat(path);
                Ok(Reply::Data { data, stat })
            }
            Request::GetChildren { path, watch, .. } => {
                if !self.nodes.contains_key(path.as_str()) {
                    return Err(ErrorCode::NO_NODE);
                }
                self.watch(path, by, *watch, Watch::Children);
                let from = format!("{path}/");
                let below = self
                    .nodes
                    .range::<str, _>((Bound::Included(from.as_str()), Bound::Unbounded));
                let names = below.map_while(|(node, _)| node.strip_prefix(from.as_str()));
                let names: Names = names.collect();
                Ok(Reply::Children { names, stat: None })
            }
            Request::Sync { path } => Ok(Reply::Synced { path: path.clone() }),
            _ => Err(ErrorCode::UNIMPLEMENTED),
        }
    }

    fn watch(&mut self, path: &str, by: ConnNo, sets: bool, watch: Watch) {
        let is_it = |(of, who, kind): &(Rc<str>, ConnNo, Watch)| {
            **of == *path && *who == by && *kind == watch
        };
        if sets && !self.watches.iter().any(is_it) {
            self.watches.push((path.into(), by, watch));
        }
    }

    /// Takes the watches that a change fires; returns their events.
    pub(crate) fn fire(&mut self, change: &Change) -> Vec<Fired> {
        let (path, kind) = match change {
            Change::Created(path) => (path, EventKind::Created),
            Change::Deleted(path) => (path, EventKind::Deleted),
            Change::Set(path) => (path, EventKind::DataChanged),
        };
        let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
        let mut fired = Vec::new();
        self.watches.retain(|(of, by, watch)| {
            let event = match watch {
                Watch::Node if of == path => Some(kind),
                Watch::Children if **of == *dir && kind != EventKind::DataChanged => {
                    Some(EventKind::ChildrenChanged)
                }
                _ => None,
            };
            if let Some(kind) = event {
                let event = Event {
                    kind,
                    state: Event::SYNC_CONNECTED,
                    path: of.to_string(),
                };
                fired.push((*by, event));
            }
            event.is_none()
        });
        fired
    }

    /// Forgets the watches of a connection, or of all.
    pub(crate) fn forget(&mut self, conn: Option<ConnNo>) {
        self.watches
            .retain(|(_, by, _)| conn.is_some_and(|conn| conn != *by));
    }
}
