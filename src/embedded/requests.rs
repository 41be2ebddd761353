//! What each request is answered.

use super::acl::Identity;
use super::state::{Answer, State};
use super::tree::Author;
use super::watches::{Notice, Reach, Subject, Watcher};
use crate::proto::{
    Access, CreateMode, ErrorCode, EventKind, Op, OpCode, OpReply, Permissions, Reply, Request,
    Stat, WatchKind, WatchLists, xid,
};
use crate::protocol::names::Names;

type Result<T> = std::result::Result<T, ErrorCode>;

/// Who asks.
#[derive(Clone, Copy)]
struct Asker<'a> {
    connection: Watcher,
    session: i64,
    who: &'a [Identity],
}

impl State {
    /// Carries a request out, and returns what is to be sent.
    pub(super) fn answer(
        &mut self,
        connection: Watcher,
        session: i64,
        xid: i32,
        request: Result<Request>,
    ) -> Answer {
        let asked = request.map(|request| self.as_this_version_has_it(request));
        match asked {
            Ok(Request::Auth {
                scheme,
                credentials,
            }) => self.authenticate(connection, &scheme, &credentials.0),
            Ok(Request::Close) => {
                self.sessions.end(session);
                self.bury(session);
                Answer::new(xid, self.zxid, Ok(Reply::Nothing)).closing()
            }
            Ok(Request::Unknown(_)) => {
                Answer::new(xid, self.zxid, Err(ErrorCode::UNIMPLEMENTED)).closing()
            }
            Ok(Request::GetChildren { path, watch, stat }) => {
                self.list(connection, xid, &path, watch, stat)
            }
            Ok(request) => {
                let who = self.identities(connection);
                let asker = Asker {
                    connection,
                    session,
                    who: &who,
                };
                let result = self.carry_out(request, asker);
                Answer::new(xid, self.zxid, result)
            }
            Err(code) => Answer::new(xid, self.zxid, Err(code)),
        }
    }

    fn identities(&self, connection: Watcher) -> Vec<Identity> {
        let connection = self.connections.get(&connection);
        connection.map_or_else(Vec::new, |connection| connection.identities.clone())
    }

    /// Older servers do not know every request, and hang up on what they do not know.
    fn as_this_version_has_it(&self, request: Request) -> Request {
        let unknown = match request.op() {
            OpCode::CREATE2 => self.config.without_create2,
            OpCode::CREATE_CONTAINER => self.config.without_containers,
            _ => false,
        };
        if unknown {
            Request::Unknown(request.op())
        } else {
            request
        }
    }

    fn authenticate(&mut self, id: Watcher, scheme: &str, credentials: &[u8]) -> Answer {
        let Some(identity) = Identity::of_credentials(scheme, credentials) else {
            return Answer::new(xid::AUTH, 0, Err(ErrorCode::AUTH_FAILED)).closing();
        };
        if let Some(connection) = self.connections.get_mut(&id)
            && !connection.identities.contains(&identity)
        {
            connection.identities.push(identity);
        }
        Answer::new(xid::AUTH, 0, Ok(Reply::Nothing))
    }

    fn carry_out(&mut self, request: Request, asker: Asker<'_>) -> Result<Reply> {
        match request {
            Request::Create {
                path,
                data,
                acl,
                mode,
                stat,
            } => {
                let op = Op::Create {
                    path,
                    data,
                    acl,
                    mode,
                    stat,
                };
                self.write(op, asker)
            }
            Request::Delete { path, version } => self.write(Op::Delete { path, version }, asker),
            Request::SetData {
                path,
                data,
                version,
            } => self.write(
                Op::SetData {
                    path,
                    data,
                    version,
                },
                asker,
            ),
            Request::SetAcl { path, acl, version } => self.set_acl(&path, &acl, version, asker),
            Request::Multi(ops) => self.multi(ops, asker),
            Request::Sync { path } => {
                self.note_seen(asker.connection);
                Ok(Reply::Synced { path })
            }
            read => self.read(read, asker),
        }
    }
}

/// Changes.
impl State {
    fn write(&mut self, op: Op, asker: Asker<'_>) -> Result<Reply> {
        let at = self.advance();
        self.note_seen(asker.connection);
        let (reply, change) = self.tree.apply(op, asker.author(), at)?;
        self.announce(change.as_slice());
        Ok(match reply {
            OpReply::Created { path, stat } => Reply::Created { path, stat },
            OpReply::Set(stat) => Reply::Stat(stat),
            OpReply::Checked | OpReply::Deleted => Reply::Nothing,
        })
    }

    fn multi(&mut self, ops: Vec<Op>, asker: Asker<'_>) -> Result<Reply> {
        let is_unknown = |op: &Op| match op {
            Op::Create {
                mode: CreateMode::Container,
                ..
            } => self.config.without_containers,
            Op::Create { stat, .. } => *stat && self.config.without_create2,
            _ => false,
        };
        let is_unreadable = ops.iter().any(is_unknown);
        let at = self.advance();
        self.note_seen(asker.connection);
        if is_unreadable {
            return Err(ErrorCode::MARSHALLING_ERROR);
        }
        let (results, changes) = self.tree.multi(ops, asker.author(), at);
        self.announce(&changes);
        Ok(Reply::Multi(results))
    }

    fn set_acl(
        &mut self,
        path: &str,
        acl: &[Access],
        version: i32,
        by: Asker<'_>,
    ) -> Result<Reply> {
        self.advance();
        self.note_seen(by.connection);
        let stat = self.tree.set_acl(path, acl, version, by.who)?;
        Ok(Reply::Stat(stat))
    }

    /// From here on the client is not to see anything older than this.
    fn note_seen(&mut self, connection: Watcher) {
        let zxid = self.zxid;
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.seen = zxid;
        }
    }
}

/// Reads.
impl State {
    fn read(&mut self, request: Request, asker: Asker<'_>) -> Result<Reply> {
        let id = asker.connection;
        match request {
            Request::Exists { path, watch } => self.exists(&path, watch, id),
            Request::GetData { path, watch } => self.data(&path, watch, asker),
            Request::GetAcl { path } => self.acl(&path, asker),
            Request::CountDescendants { path } => {
                self.tree.node_for(&path, Permissions::READ.0, asker.who)?;
                let count = self.tree.count_below(&path);
                Ok(Reply::Count(i32::try_from(count).unwrap_or(i32::MAX)))
            }
            Request::GetEphemerals { below } => {
                let below = match below.trim() {
                    "" | "/" => "",
                    _ => &below,
                };
                let own = self.tree.ephemerals(asker.session);
                let own = own.filter(|path| path.starts_with(below));
                Ok(Reply::Ephemerals(own.map(str::to_owned).collect()))
            }
            Request::WhoAmI => Ok(Reply::Identities(asker.who.iter().map(shown).collect())),
            Request::SetWatches(lists) => {
                self.set_watches(lists, id);
                Ok(Reply::Nothing)
            }
            Request::CheckWatches { path, kind } => self.check_watches(kind, &path, id),
            Request::RemoveWatches { path, kind } => {
                let reply = self.check_watches(kind, &path, id)?;
                self.watches.remove(kind, &path, id);
                Ok(reply)
            }
            Request::AddWatch { path, mode } => self.add_watch(mode, &path, id),
            Request::Ping => Ok(Reply::Nothing),
            _ => Err(ErrorCode::UNIMPLEMENTED),
        }
    }

    /// It needs no permission, and the watch is set even if there is no node.
    fn exists(&mut self, path: &str, watch: bool, id: Watcher) -> Result<Reply> {
        if path.contains('\0') {
            return Err(ErrorCode::BAD_ARGUMENTS);
        }
        if watch {
            self.watches.add(Subject::Node, path, id);
        }
        Ok(Reply::Stat(self.tree.node(path)?.stat()))
    }

    fn data(&mut self, path: &str, watch: bool, asker: Asker<'_>) -> Result<Reply> {
        let node = self.tree.node_for(path, Permissions::READ.0, asker.who)?;
        let (data, stat) = (node.data.clone(), node.stat());
        if watch {
            self.watches.add(Subject::Node, path, asker.connection);
        }
        Ok(Reply::Data { data, stat })
    }

    fn acl(&self, path: &str, asker: Asker<'_>) -> Result<Reply> {
        let either = Permissions::READ.0 | Permissions::ADMIN.0;
        let node = self.tree.node_for(path, either, asker.who)?;
        let acl = node.acl.shown_to(asker.who);
        Ok(Reply::Acl {
            acl,
            stat: node.stat(),
        })
    }

    fn list(&mut self, id: Watcher, xid: i32, path: &str, watch: bool, with_stat: bool) -> Answer {
        let (mut names, mut stat) = match self.children(path, id) {
            Ok(listing) => listing,
            Err(code) => return Answer::new(xid, self.zxid, Err(code)),
        };
        let seen = self
            .connections
            .get(&id)
            .map_or(i64::MAX, |connection| connection.seen);
        let lag = self.faults.hide(path, seen, &mut names, &mut stat);
        let body = Reply::Children {
            names,
            stat: with_stat.then_some(stat),
        };
        let mut answer = Answer::new(xid, lag.unwrap_or(self.zxid), Ok(body));
        match (watch, lag) {
            (false, _) => {}
            (true, None) => self.watches.add(Subject::Children, path, id),
            // A server that lags tells as soon as it has caught up.
            (true, Some(_)) => answer.later.push(Notice {
                watcher: id,
                kind: EventKind::ChildrenChanged,
                path: path.to_owned(),
                acl: None,
            }),
        }
        answer
    }

    fn children(&self, path: &str, id: Watcher) -> Result<(Names, Stat)> {
        let who = self.identities(id);
        let node = self.tree.node_for(path, Permissions::READ.0, &who)?;
        Ok((node.children.iter().collect(), node.stat()))
    }
}

/// Watches.
impl State {
    fn check_watches(&self, kind: i32, path: &str, id: Watcher) -> Result<Reply> {
        if !matches!(kind, WatchKind::CHILDREN | WatchKind::DATA | WatchKind::ANY) {
            return Err(ErrorCode::MARSHALLING_ERROR);
        }
        if !self.watches.has(kind, path, id) {
            return Err(ErrorCode::NO_WATCHER);
        }
        Ok(Reply::Nothing)
    }

    fn add_watch(&mut self, mode: i32, path: &str, id: Watcher) -> Result<Reply> {
        let reach = match mode {
            0 => Reach::Path,
            1 => Reach::Subtree,
            _ => return Err(ErrorCode::MARSHALLING_ERROR),
        };
        self.watches.add_persistent(reach, path, id);
        // The body of this reply is a code.
        Ok(Reply::Count(ErrorCode::OK.0))
    }

    /// Sets a client's watches again, or tells at once what it has missed.
    fn set_watches(&mut self, lists: WatchLists, id: Watcher) {
        for path in lists.data {
            let missed = match self.tree.node(&path).map(|node| node.marks.modified.zxid) {
                Err(_) => Some(EventKind::Deleted),
                Ok(zxid) => (zxid > lists.since_zxid).then_some(EventKind::DataChanged),
            };
            self.watch_or_tell(Subject::Node, path, id, missed);
        }
        for path in lists.exists {
            let missed = self.tree.node(&path).is_ok().then_some(EventKind::Created);
            self.watch_or_tell(Subject::Node, path, id, missed);
        }
        for path in lists.children {
            let missed = match self.tree.node(&path).map(|node| node.marks.pzxid) {
                Err(_) => Some(EventKind::Deleted),
                Ok(zxid) => (zxid > lists.since_zxid).then_some(EventKind::ChildrenChanged),
            };
            self.watch_or_tell(Subject::Children, path, id, missed);
        }
        for path in lists.persistent {
            self.watches.add_persistent(Reach::Path, &path, id);
        }
        for path in lists.recursive {
            self.watches.add_persistent(Reach::Subtree, &path, id);
        }
    }

    fn watch_or_tell(
        &mut self,
        subject: Subject,
        path: String,
        watcher: Watcher,
        missed: Option<EventKind>,
    ) {
        match missed {
            Some(kind) => self.tell(Notice {
                watcher,
                kind,
                path,
                acl: None,
            }),
            None => self.watches.add(subject, &path, watcher),
        }
    }
}

impl<'a> Asker<'a> {
    fn author(self) -> Author<'a> {
        Author {
            session: self.session,
            who: self.who,
        }
    }
}

/// A digest is shown by its user alone.
fn shown(identity: &Identity) -> (String, String) {
    let user = match identity.scheme.as_str() {
        "digest" => identity.id.split(':').next().unwrap_or_default(),
        _ => &identity.id,
    };
    (identity.scheme.clone(), user.to_owned())
}
