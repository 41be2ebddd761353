//! The answers to requests that read a node, or set or remove watches.

use super::acl::Identity;
use super::requester::{Requester, Result};
use super::view::ServerView;
use super::watches::{ConnectionId, Notice, Reach, Subject};
use zklock_jute::Names;
use zklock_jute::{
    Data, ErrorCode, EventKind, Permissions, Reply, Request, Stat, WatchKind, WatchLists,
};

impl ServerView {
    /// Answers a request that reads, or sets watches other than [`set_watches`](Self::set_watches).
    pub fn read(&mut self, request: Request, by: Requester<'_>) -> Result<Reply> {
        let id = by.connection;
        match request {
            Request::Exists { path, watch } => self.exists(&path, watch, id),
            Request::GetData { path, watch } => {
                let (data, stat) = self.data(&path, watch, by)?;
                Ok(Reply::Data { data, stat })
            }
            Request::GetChildren { path, watch, stat } => {
                let (names, found) = self.children(&path, watch, by)?;
                let stat = stat.then_some(found);
                Ok(Reply::Children { names, stat })
            }
            Request::MultiRead(ops) => {
                let parts = ops.into_iter().map(|op| self.read(unwatched(op), by));
                Ok(Reply::Multi(parts.collect()))
            }
            Request::GetAcl { path } => self.acl(&path, by),
            Request::CountDescendants { path } => {
                let tree = &self.tree;
                tree.node_for(&path, Permissions::READ.0, by.who)?;
                let count = tree.count_below(&path);
                Ok(Reply::Count(i32::try_from(count).unwrap_or(i32::MAX)))
            }
            Request::GetEphemerals { below } => {
                let below = match below.trim() {
                    "" | "/" => "",
                    _ => &below,
                };
                let own = self.tree.ephemerals(by.session);
                let own = own.filter(|path| path.starts_with(below));
                Ok(Reply::Ephemerals(own.map(str::to_owned).collect()))
            }
            Request::WhoAmI => Ok(Reply::Identities(by.who.iter().map(shown).collect())),
            watch => self.watch(watch, id),
        }
    }

    fn watch(&mut self, request: Request, id: ConnectionId) -> Result<Reply> {
        match request {
            Request::CheckWatches { path, kind } => self.check_watches(kind, &path, id),
            Request::RemoveWatches { path, kind } => {
                let reply = self.check_watches(kind, &path, id)?;
                self.watches.remove(kind, &path, id);
                Ok(reply)
            }
            Request::AddWatch { path, mode } => self.add_watch(mode, &path, id),
            _ => Err(ErrorCode::UNIMPLEMENTED),
        }
    }

    /// Answers whether a node exists. This needs no permission, and sets the watch even if the node does not exist.
    fn exists(&mut self, path: &str, watch: bool, id: ConnectionId) -> Result<Reply> {
        if path.contains('\0') {
            return Err(ErrorCode::BAD_ARGUMENTS);
        }
        if watch {
            self.watches.add(Subject::Node, path, id);
        }
        Ok(Reply::Stat(self.tree.node(path)?.stat()))
    }

    fn data(&mut self, path: &str, watch: bool, by: Requester<'_>) -> Result<(Data, Stat)> {
        let id = by.connection;
        let tree = &self.tree;
        let node = tree.node_for(path, Permissions::READ.0, by.who)?;
        let found = (node.data.clone(), node.stat());
        if watch {
            self.watches.add(Subject::Node, path, id);
        }
        Ok(found)
    }

    fn acl(&self, path: &str, by: Requester<'_>) -> Result<Reply> {
        let either = Permissions::READ.0 | Permissions::ADMIN.0;
        let tree = &self.tree;
        let node = tree.node_for(path, either, by.who)?;
        let acl = node.acl.shown_to(by.who);
        Ok(Reply::Acl {
            acl,
            stat: node.stat(),
        })
    }

    fn children(&mut self, path: &str, watch: bool, by: Requester<'_>) -> Result<(Names, Stat)> {
        let node = self.tree.node_for(path, Permissions::READ.0, by.who)?;
        let listing = (node.children.iter().collect(), node.stat());
        if watch {
            self.watches.add(Subject::Children, path, by.connection);
        }
        Ok(listing)
    }
}

impl ServerView {
    fn check_watches(&mut self, kind: i32, path: &str, id: ConnectionId) -> Result<Reply> {
        if !matches!(kind, WatchKind::CHILDREN | WatchKind::DATA | WatchKind::ANY) {
            return Err(ErrorCode::MARSHALLING_ERROR);
        }
        if !self.watches.has(kind, path, id) {
            return Err(ErrorCode::NO_WATCHER);
        }
        Ok(Reply::Nothing)
    }

    fn add_watch(&mut self, mode: i32, path: &str, id: ConnectionId) -> Result<Reply> {
        let reach = match mode {
            0 => Reach::Path,
            1 => Reach::Subtree,
            _ => return Err(ErrorCode::MARSHALLING_ERROR),
        };
        self.watches.add_persistent(reach, path, id);
        // The body of this reply is a code.
        Ok(Reply::Count(ErrorCode::OK.0))
    }

    /// Sets a client's watches again. Returns the events it has missed, which are due at once.
    pub fn set_watches(&mut self, lists: WatchLists, id: ConnectionId) -> Vec<Notice> {
        let mut missed = Vec::new();
        for path in lists.data {
            let event = match self.tree.node(&path).map(|node| node.marks.modified.zxid) {
                Err(_) => Some(EventKind::Deleted),
                Ok(zxid) => (zxid > lists.since_zxid).then_some(EventKind::DataChanged),
            };
            missed.extend(self.watch_unless(event, Subject::Node, path, id));
        }
        for path in lists.exists {
            let event = self.tree.node(&path).is_ok().then_some(EventKind::Created);
            missed.extend(self.watch_unless(event, Subject::Node, path, id));
        }
        for path in lists.children {
            let event = match self.tree.node(&path).map(|node| node.marks.pzxid) {
                Err(_) => Some(EventKind::Deleted),
                Ok(zxid) => (zxid > lists.since_zxid).then_some(EventKind::ChildrenChanged),
            };
            missed.extend(self.watch_unless(event, Subject::Children, path, id));
        }
        for path in lists.persistent {
            self.watches.add_persistent(Reach::Path, &path, id);
        }
        for path in lists.recursive {
            self.watches.add_persistent(Reach::Subtree, &path, id);
        }
        missed
    }

    /// Sets a watch, or returns its event if that has happened already.
    fn watch_unless(
        &mut self,
        event: Option<EventKind>,
        subject: Subject,
        path: String,
        watcher: ConnectionId,
    ) -> Option<Notice> {
        let Some(kind) = event else {
            self.watches.add(subject, &path, watcher);
            return None;
        };
        Some(Notice {
            watcher,
            kind,
            path,
            acl: None,
        })
    }
}

/// Returns an identity as its owner may see it, without the hash of a digest.
fn shown(identity: &Identity) -> (String, String) {
    let user = match identity.scheme.as_str() {
        "digest" => identity.id.split(':').next().unwrap_or_default(),
        _ => &identity.id,
    };
    (identity.scheme.clone(), user.to_owned())
}

/// Returns a part of a multiRead, which sets no watch even if asked to, as in ZooKeeper.
fn unwatched(mut part: Request) -> Request {
    if let Request::GetData { watch, .. } | Request::GetChildren { watch, .. } = &mut part {
        *watch = false;
    }
    part
}
