//! What the requests that change something are answered; the others are in `reads`.

use super::acl::Identity;
use super::request::{RequestAnswer, Requester, Result};
use super::state::ServerState;
use super::watches::ConnectionId;
use crate::jute::{Access, CreateMode, ErrorCode, Op, OpCode, OpReply, Reply, Request, xid};

impl ServerState {
    /// Carries out a request, and returns what is sent for it.
    pub(super) fn answer(
        &mut self,
        connection: ConnectionId,
        session: i64,
        xid: i32,
        request: Result<Request>,
    ) -> RequestAnswer {
        let asked = request.map(|request| self.as_understood(request));
        match asked {
            Ok(Request::Auth {
                scheme,
                credentials,
            }) => self.authenticate(connection, xid, &scheme, &credentials.0),
            // Its reply has a number of its own, whatever the request had.
            Ok(Request::Ping) => {
                RequestAnswer::new(xid::PING, self.zxid_of(connection), Ok(Reply::Nothing))
            }
            Ok(Request::Close) => {
                self.catch_up_with(connection);
                self.sessions.end(session);
                self.remove_nodes_of(session);
                RequestAnswer::new(xid, self.zxid, Ok(Reply::Nothing)).closing()
            }
            Ok(Request::Unknown(op)) if op != OpCode::RECONFIG => {
                RequestAnswer::new(xid, self.zxid, Err(ErrorCode::UNIMPLEMENTED)).closing()
            }
            Ok(request) => {
                let who = self.identities(connection);
                let by = Requester {
                    connection,
                    session,
                    who: &who,
                };
                let result = self.carry_out(request, by);
                RequestAnswer::new(xid, self.zxid_of(connection), result)
            }
            Err(code) => RequestAnswer::new(xid, self.zxid_of(connection), Err(code)),
        }
    }

    fn identities(&self, connection: ConnectionId) -> Vec<Identity> {
        let connection = self.connections.get(&connection);
        connection.map_or_else(Vec::new, |connection| connection.identities.clone())
    }

    /// Makes unknown what an older server does not know.
    fn as_understood(&self, request: Request) -> Request {
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

    fn authenticate(
        &mut self,
        id: ConnectionId,
        xid: i32,
        scheme: &str,
        secret: &[u8],
    ) -> RequestAnswer {
        let Some(connection) = self.connections.get_mut(&id) else {
            return RequestAnswer::new(xid, 0, Err(ErrorCode::AUTH_FAILED)).closing();
        };
        let identity = match scheme {
            // The address is known already, and no secret.
            "ip" => Some(Identity::of_address(connection.peer.ip())),
            _ => Identity::of_credentials(scheme, secret),
        };
        let Some(identity) = identity else {
            self.refused_identities += 1;
            return RequestAnswer::new(xid, 0, Err(ErrorCode::AUTH_FAILED)).closing();
        };
        if !connection.identities.contains(&identity) {
            connection.identities.push(identity);
        }
        RequestAnswer::new(xid, 0, Ok(Reply::Nothing))
    }

    fn carry_out(&mut self, request: Request, by: Requester<'_>) -> Result<Reply> {
        let request = match into_op(request) {
            Ok(op) => return self.write(op, by),
            Err(request) => *request,
        };
        match request {
            Request::SetAcl { path, acl, version } => self.set_acl(&path, &acl, version, by),
            Request::Multi(ops) => self.multi(ops, by),
            Request::Sync { path } => {
                self.catch_up_with(by.connection);
                Ok(Reply::Synced { path })
            }
            // A standalone ZooKeeper answers the same.
            Request::Unknown(OpCode::RECONFIG) => {
                self.catch_up_with(by.connection);
                self.advance();
                Err(ErrorCode::UNIMPLEMENTED)
            }
            read => self.read(read, by),
        }
    }
}

impl ServerState {
    fn write(&mut self, op: Op, by: Requester<'_>) -> Result<Reply> {
        self.catch_up_with(by.connection);
        let at = self.advance();
        let before = self.before_lag(std::slice::from_ref(&op));
        let (reply, change) = self.tree.apply(op, by.author(), at)?;
        self.begin_lag(before, change.as_slice(), by.connection);
        self.announce(change.as_slice());
        Ok(match reply {
            OpReply::Created { path, stat } => Reply::Created { path, stat },
            OpReply::Set(stat) => Reply::Stat(stat),
            _ => Reply::Nothing,
        })
    }

    fn multi(&mut self, ops: Vec<Op>, by: Requester<'_>) -> Result<Reply> {
        let is_unknown = |op: &Op| match op {
            Op::Create {
                mode: CreateMode::Container,
                ..
            } => self.config.without_containers,
            Op::Create { stat, .. } => *stat && self.config.without_create2,
            _ => false,
        };
        let is_unreadable = ops.iter().any(is_unknown);
        self.catch_up_with(by.connection);
        let at = self.advance();
        if is_unreadable {
            return Err(ErrorCode::MARSHALLING_ERROR);
        }
        let before = self.before_lag(&ops);
        let (results, changes) = self.tree.multi(ops, by.author(), at);
        self.begin_lag(before, &changes, by.connection);
        self.announce(&changes);
        Ok(Reply::Multi(results))
    }

    fn set_acl(
        &mut self,
        path: &str,
        acl: &[Access],
        version: i32,
        by: Requester<'_>,
    ) -> Result<Reply> {
        self.catch_up_with(by.connection);
        self.advance();
        let stat = self.tree.set_acl(path, acl, version, by.who)?;
        Ok(Reply::Stat(stat))
    }
}

/// Returns the operation that a request consists of, or the request if it is not one.
fn into_op(request: Request) -> std::result::Result<Op, Box<Request>> {
    Ok(match request {
        Request::Create {
            path,
            data,
            acl,
            mode,
            stat,
        } => Op::Create {
            path,
            data,
            acl,
            mode,
            stat,
        },
        Request::Delete { path, version } => Op::Delete { path, version },
        Request::SetData {
            path,
            data,
            version,
        } => Op::SetData {
            path,
            data,
            version,
        },
        other => return Err(Box::new(other)),
    })
}
