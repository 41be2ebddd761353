//! What each request is answered; those that only read are in `reads`.

use super::acl::Identity;
use super::state::State;
use super::tree::Author;
use super::watches::Watcher;
use crate::jute::{
    Access, CreateMode, ErrorCode, Op, OpCode, OpReply, Reply, ReplyHeader, Request, xid,
};

pub(super) type Result<T> = std::result::Result<T, ErrorCode>;

/// What is to be sent for a request.
pub(super) struct Answer {
    pub(super) header: ReplyHeader,
    pub(super) body: Option<Reply>,
    pub(super) closes: bool,
}

/// Who asks.
#[derive(Clone, Copy)]
pub(super) struct Asker<'a> {
    pub(super) connection: Watcher,
    pub(super) session: i64,
    pub(super) who: &'a [Identity],
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
            }) => self.authenticate(connection, xid, &scheme, &credentials.0),
            // Whatever number it was asked under.
            Ok(Request::Ping) => {
                Answer::new(xid::PING, self.zxid_of(connection), Ok(Reply::Nothing))
            }
            Ok(Request::Close) => {
                self.catch_up_with(connection);
                self.sessions.end(session);
                self.bury(session);
                Answer::new(xid, self.zxid, Ok(Reply::Nothing)).closing()
            }
            Ok(Request::Unknown(op)) if op != OpCode::RECONFIG => {
                Answer::new(xid, self.zxid, Err(ErrorCode::UNIMPLEMENTED)).closing()
            }
            Ok(request) => {
                let who = self.identities(connection);
                let asker = Asker {
                    connection,
                    session,
                    who: &who,
                };
                let result = self.carry_out(request, asker);
                Answer::new(xid, self.zxid_of(connection), result)
            }
            Err(code) => Answer::new(xid, self.zxid_of(connection), Err(code)),
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

    fn authenticate(&mut self, id: Watcher, xid: i32, scheme: &str, secret: &[u8]) -> Answer {
        let Some(connection) = self.connections.get_mut(&id) else {
            return Answer::new(xid, 0, Err(ErrorCode::AUTH_FAILED)).closing();
        };
        let identity = match scheme {
            // Known already, and no secret.
            "ip" => Some(Identity::of_address(connection.peer.ip())),
            _ => Identity::of_credentials(scheme, secret),
        };
        let Some(identity) = identity else {
            self.refused_identities += 1;
            return Answer::new(xid, 0, Err(ErrorCode::AUTH_FAILED)).closing();
        };
        if !connection.identities.contains(&identity) {
            connection.identities.push(identity);
        }
        Answer::new(xid, 0, Ok(Reply::Nothing))
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
                self.catch_up_with(asker.connection);
                Ok(Reply::Synced { path })
            }
            // One server has nobody to join it, as ZooKeeper says when it stands alone.
            Request::Unknown(OpCode::RECONFIG) => {
                self.catch_up_with(asker.connection);
                self.advance();
                Err(ErrorCode::UNIMPLEMENTED)
            }
            read => self.read(read, asker),
        }
    }
}

/// Changes.
impl State {
    fn write(&mut self, op: Op, asker: Asker<'_>) -> Result<Reply> {
        self.catch_up_with(asker.connection);
        let at = self.advance();
        let before = self.before_lag(std::slice::from_ref(&op));
        let (reply, change) = self.tree.apply(op, asker.author(), at)?;
        self.begin_lag(before, change.as_slice(), asker.connection);
        self.announce(change.as_slice());
        Ok(match reply {
            OpReply::Created { path, stat } => Reply::Created { path, stat },
            OpReply::Set(stat) => Reply::Stat(stat),
            _ => Reply::Nothing,
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
        self.catch_up_with(asker.connection);
        let at = self.advance();
        if is_unreadable {
            return Err(ErrorCode::MARSHALLING_ERROR);
        }
        let before = self.before_lag(&ops);
        let (results, changes) = self.tree.multi(ops, asker.author(), at);
        self.begin_lag(before, &changes, asker.connection);
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
        self.catch_up_with(by.connection);
        self.advance();
        let stat = self.tree.set_acl(path, acl, version, by.who)?;
        Ok(Reply::Stat(stat))
    }
}

impl Answer {
    pub(super) fn new(xid: i32, zxid: i64, result: Result<Reply>) -> Self {
        let (code, body) = match result {
            Ok(body) => (ErrorCode::OK, Some(body)),
            Err(code) => (code, None),
        };
        Self {
            header: ReplyHeader { xid, zxid, code },
            body,
            closes: false,
        }
    }

    /// The last that the client gets to read.
    pub(super) fn closing(self) -> Self {
        Self {
            closes: true,
            ..self
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
