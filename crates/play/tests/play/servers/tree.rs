//! The nodes that one server has, and the watches on them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Bound;
use std::rc::Rc;

use super::{Deed, Transaction};
use crate::holds::servers_millis;
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

/// The nodes that a server has at some time, by their paths.
pub(crate) type Nodes = BTreeMap<Rc<str>, Node>;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) nodes: Rc<Nodes>,
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

/// What a transaction does.
#[derive(Debug)]
pub(crate) struct Done {
    /// The nodes before and after it.
    nodes: [Rc<Nodes>; 2],
    changes: Vec<Change>,
    /// For the server that has to answer.
    result: RefCell<Option<Written>>,
}

impl Tree {
    /// Applies a transaction. All servers apply the same ones, so the first one finds out for all what each does.
    /// Returns `None` if this server has other nodes than that one had.
    pub(crate) fn apply<'a>(
        &mut self,
        transaction: &'a Transaction,
    ) -> Option<(&'a RefCell<Option<Written>>, &'a [Change])> {
        let done = transaction.done.get_or_init(|| self.carry_out(transaction));
        let [before, after] = &done.nodes;
        Rc::ptr_eq(&self.nodes, before).then(|| {
            self.nodes = after.clone();
            (&done.result, &*done.changes)
        })
    }

    fn carry_out(&self, transaction: &Transaction) -> Done {
        let session = transaction.ask.session;
        let mut writes = Writes {
            nodes: self.nodes.clone(),
            session,
            zxid: transaction.zxid,
            clock: servers_millis(transaction.time),
        };
        let (result, changes) = match &transaction.ask.deed {
            Deed::Begin { .. } => (Ok(Reply::Nothing), Vec::new()),
            Deed::Write(request) => writes.write(request),
            Deed::Moved => (Err(ErrorCode::SESSION_MOVED), Vec::new()),
            Deed::End => (Ok(Reply::Nothing), writes.end_session()),
        };
        Done {
            nodes: [self.nodes.clone(), writes.nodes],
            changes,
            result: RefCell::new(Some(result)),
        }
    }
}

/// The writes of a transaction.
struct Writes {
    nodes: Rc<Nodes>,
    session: i64,
    zxid: i64,
    /// The time of the transaction.
    clock: i64,
}

impl Writes {
    fn write(&mut self, request: &Request) -> (Written, Vec<Change>) {
        if let Request::Multi(ops) = request {
            return self.multi(ops);
        }
        match self.op(request) {
            Ok((reply, change)) => (Ok(reply), change.into_iter().collect()),
            Err(code) => (Err(code), Vec::new()),
        }
    }

    fn multi(&mut self, ops: &[Request]) -> (Written, Vec<Change>) {
        let before = self.nodes.clone();
        let (mut replies, mut changes) = (Vec::with_capacity(ops.len()), Vec::new());
        for (at, op) in ops.iter().enumerate() {
            match self.op(op) {
                Ok((reply, change)) => {
                    replies.push(Ok(reply));
                    changes.extend(change);
                }
                Err(code) => {
                    self.nodes = before;
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

    fn op(&mut self, op: &Request) -> Result<(Reply, Option<Change>), ErrorCode> {
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
                let node = self.create(path, *mode, data)?;
                let stat = stat.then(|| stat_of(self.nodes.get(&node)));
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
                let known = self.nodes.get_key_value(path.as_str());
                let (key, node) = known.ok_or(ErrorCode::NO_NODE)?;
                if *version != -1 && *version != node.version {
                    return Err(ErrorCode::BAD_VERSION);
                }
                let (key, clock) = (key.clone(), self.clock);
                let nodes = Rc::make_mut(&mut self.nodes);
                let node = nodes.get_mut(&key).ok_or(ErrorCode::NO_NODE)?;
                node.version += 1;
                node.mtime = clock;
                node.data = data.to_vec().into();
                Ok((Reply::Stat(stat_of(Some(node))), Some(Change::Set(key))))
            }
            _ => Err(ErrorCode::UNIMPLEMENTED),
        }
    }

    fn create(&mut self, path: &str, mode: CreateMode, data: &[u8]) -> Result<Rc<str>, ErrorCode> {
        let (dir, _) = path.rsplit_once('/').unwrap_or(("", path));
        let mut number = 0;
        if !dir.is_empty() {
            number = self.nodes.get(dir).ok_or(ErrorCode::NO_NODE)?.created;
        }
        let node: Rc<str> = match mode {
            CreateMode::EphemeralSequential | CreateMode::PersistentSequential => {
                let mut name = String::with_capacity(path.len() + 10);
                let _ = write!(name, "{path}{number:010}");
                name.into()
            }
            _ => path.into(),
        };
        if self.nodes.contains_key(&node) {
            return Err(ErrorCode::NODE_EXISTS);
        }
        let nodes = Rc::make_mut(&mut self.nodes);
        if let Some(parent) = nodes.get_mut(dir) {
            parent.created += 1;
            parent.children += 1;
        }
        let owner = match mode {
            CreateMode::Ephemeral | CreateMode::EphemeralSequential => self.session,
            _ => 0,
        };
        let made = Node {
            owner,
            czxid: self.zxid,
            ctime: self.clock,
            mtime: self.clock,
            data: data.into(),
            ..Node::default()
        };
        nodes.insert(node.clone(), made);
        Ok(node)
    }

    fn remove(&mut self, path: &str) -> Option<Rc<str>> {
        let nodes = Rc::make_mut(&mut self.nodes);
        let (key, _) = nodes.remove_entry(path)?;
        if let Some(parent) = path
            .rsplit_once('/')
            .and_then(|(dir, _)| nodes.get_mut(dir))
        {
            parent.children -= 1;
        }
        Some(key)
    }

    /// Deletes the nodes of the session.
    fn end_session(&mut self) -> Vec<Change> {
        let owner = self.session;
        let of_it = self.nodes.iter().filter(|(_, node)| node.owner == owner);
        let of_it: Vec<_> = of_it.map(|(path, _)| path.clone()).collect();
        let gone = of_it.iter().filter_map(|path| self.remove(path));
        gone.map(Change::Deleted).collect()
    }
}

fn stat_of(node: Option<&Node>) -> Stat {
    let Some(node) = node else {
        return Stat::default();
    };
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

// Reads and watches.
impl Tree {
    /// Answers a read of a client, which may leave a watch.
    pub(crate) fn read(&mut self, request: &Request, by: ConnNo) -> Result<Reply, ErrorCode> {
        match request {
            Request::Exists { path, watch } => {
                self.watch(path, by, *watch, Watch::Node);
                let node = self.nodes.get(path.as_str());
                let node = node.ok_or(ErrorCode::NO_NODE)?;
                Ok(Reply::Stat(stat_of(Some(node))))
            }
            Request::GetData { path, watch } => {
                let node = self.nodes.get(path.as_str());
                let node = node.ok_or(ErrorCode::NO_NODE)?;
                let (data, stat) = (node.data.to_vec().into(), stat_of(Some(node)));
                self.watch(path, by, *watch, Watch::Node);
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
                let mut names = Names::with_capacity(8, 8 * 64);
                below
                    .map_while(|(node, _)| node.strip_prefix(from.as_str()))
                    .filter(|name| !name.contains('/'))
                    .for_each(|name| names.push(name));
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
        let is_parent = |of: &str| path.rsplit_once('/').map_or("", |(dir, _)| dir) == of;
        let mut fired = Vec::new();
        self.watches.retain(|(of, by, watch)| {
            let event = match watch {
                Watch::Node if of == path => Some(kind),
                Watch::Children if kind != EventKind::DataChanged && is_parent(of) => {
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
