//! How the requests of a client are answered, in their order.

use super::connection::{Arrival, ConnectionNo, read_request};
use super::history::SessionEnd;
use super::message::{Ask, Deed, Message, Origin, SyncAsk, Towards};
use super::state::Ensemble;
use super::waiting::{Pending, Shape, Work};
use zklock_embedded::RequestKind;
use zklock_embedded::parts::{Identity, RequestAnswer, Requester, Write};
use zklock_jute::{ErrorCode, OpCode, Reply, Request, xid};

impl Ensemble {
    pub(super) fn take_request(&mut self, number: ConnectionNo, frame: &[u8]) {
        let Some((xid, kind, request)) = read_request(frame) else {
            return self.close(number);
        };
        let request = match request.map(|request| self.understood(request)) {
            Ok(Request::Auth {
                scheme,
                credentials,
            }) => return self.authenticate(number, xid, &scheme, &credentials.0),
            other => other,
        };
        if !self.touch(number) {
            return;
        }
        if let (Some(kind), Some(connection)) = (kind, self.connections.get(&number)) {
            self.note_asked(connection.session, kind);
        }
        match request {
            Err(code) => self.queue(number, xid, kind, Work::Fail(code)),
            Ok(Request::Unknown(op)) if op != OpCode::RECONFIG => {
                let answer = self.answer(number, xid, Err(ErrorCode::UNIMPLEMENTED));
                return self.respond(number, kind, answer.closing());
            }
            // A session can be closed through a server that it has left.
            Ok(request) if request != Request::Close && self.is_moved(number) => return,
            Ok(request) => self.take_in_order(number, xid, kind, request),
        }
        if let Some(connection) = self.connections.get(&number) {
            self.answer_ready(connection.server, connection.session);
        }
    }

    fn take_in_order(
        &mut self,
        number: ConnectionNo,
        xid: i32,
        kind: Option<RequestKind>,
        request: Request,
    ) {
        match request {
            Request::Ping if self.config.keeper => {
                self.order_for(number, xid::PING, kind, Deed::Ping);
            }
            Request::Ping => self.queue(number, xid, kind, Work::Ping),
            Request::Close => {
                self.order_for(number, xid, kind, Deed::End(SessionEnd::Closed));
            }
            Request::Sync { path } => self.take_sync(number, xid, kind, path),
            request => match Write::of(request, &self.settings) {
                Ok(write) => self.order_for(number, xid, kind, Deed::Write(write)),
                Err(read) => self.queue(number, xid, kind, Work::Read(*read)),
            },
        }
    }

    /// A leader is up to date; a follower asks the leader, which answers in order with its commits.
    fn take_sync(
        &mut self,
        number: ConnectionNo,
        xid: i32,
        kind: Option<RequestKind>,
        path: String,
    ) {
        let Some(connection) = self.connections.get(&number) else {
            return;
        };
        let (server, session) = (connection.server, connection.session);
        let Some(following) = self.servers[server].following() else {
            let sync = Request::Sync { path };
            return self.queue(number, xid, kind, Work::Read(sync));
        };
        let link = following.link;
        self.queue(number, xid, kind, Work::Sync { path });
        let sync = SyncAsk {
            connection: number,
            session,
            xid,
        };
        self.send(link, Towards::Leader, Message::Sync(sync));
    }

    fn queue(&mut self, number: ConnectionNo, xid: i32, kind: Option<RequestKind>, work: Work) {
        if let Some(connection) = self.connections.get(&number) {
            let pending = Pending {
                connection: number,
                xid,
                kind,
                work,
            };
            let node = &mut self.servers[connection.server];
            node.waiting.push(connection.session, pending);
        }
    }

    /// Has the leader order a request, which waits for that.
    fn order_for(&mut self, number: ConnectionNo, xid: i32, kind: Option<RequestKind>, deed: Deed) {
        let work = match deed {
            Deed::End(_) => Work::Close,
            _ => Work::Ordered(Shape::of(&deed)),
        };
        self.queue(number, xid, kind, work);
        let Some(connection) = self.connections.get(&number) else {
            return;
        };
        let server = connection.server;
        let ask = Ask {
            origin: Some(Origin {
                server,
                connection: number,
                xid,
            }),
            session: connection.session,
            who: connection.who.clone(),
            deed,
        };
        self.order(server, ask);
    }

    /// Notes that the client has sent something. A leader ignores the requests of a session
    /// that has ended.
    fn touch(&mut self, number: ConnectionNo) -> bool {
        let Some(connection) = self.connections.get(&number) else {
            return false;
        };
        let (server, session) = (connection.server, connection.session);
        let timeout_ms = connection.timeout_ms;
        self.note_arrival(session, Arrival::Other);
        if self.config.keeper {
            return true;
        }
        let now_ms = self.leader_ms(server);
        let node = &mut self.servers[server];
        let Some(leading) = node.leading() else {
            node.touched.insert(session, timeout_ms);
            return true;
        };
        leading.tracker.touch(session, timeout_ms, now_ms)
    }

    /// Ends a connection to a leader whose session has moved to another server.
    fn is_moved(&mut self, number: ConnectionNo) -> bool {
        let Some(connection) = self.connections.get(&number) else {
            return true;
        };
        let (server, session) = (connection.server, connection.session);
        let leading = self.servers[server].leading();
        let checked = leading.map_or(Ok(()), |leading| leading.tracker.check(session, server));
        let is_moved = checked.is_err();
        if is_moved {
            self.close(number);
        }
        is_moved
    }

    /// Makes requests unknown that the servers are too old for.
    fn understood(&self, request: Request) -> Request {
        let op = request.op();
        let is_young = OpCode::MULTI.0 < op.0 && ![OpCode::AUTH, OpCode::SET_WATCHES].contains(&op);
        if self.config.old && is_young {
            return Request::Unknown(op);
        }
        self.settings.understood(request)
    }

    fn authenticate(&mut self, number: ConnectionNo, xid: i32, scheme: &str, secret: &[u8]) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        let identity = match scheme {
            // The address is known already, and no secret.
            "ip" => connection.who.first().cloned(),
            _ => Identity::of_credentials(scheme, secret),
        };
        let Some(identity) = identity else {
            let refused = RequestAnswer::new(xid, 0, Err(ErrorCode::AUTH_FAILED));
            return self.respond(number, None, refused.closing());
        };
        if !connection.who.contains(&identity) {
            connection.who.push(identity);
        }
        self.respond(number, None, RequestAnswer::new(xid, 0, Ok(Reply::Nothing)));
    }
}

// Answers.
impl Ensemble {
    /// Answers the requests of a session that wait for nothing.
    fn answer_ready(&mut self, server: usize, session: i64) {
        while let Some(pending) = self.servers[server].waiting.take_ready(session) {
            let Pending {
                connection,
                xid,
                kind,
                work,
            } = pending;
            if !self.is_at(connection, server) {
                continue;
            }
            let answer = match work {
                Work::Read(request) => {
                    let result = self.read(connection, request);
                    self.answer(connection, xid, result)
                }
                Work::Fail(code) => self.answer(connection, xid, Err(code)),
                // Its reply has a fixed number, whatever the request's was.
                _ => self.answer(connection, xid::PING, Ok(Reply::Nothing)),
            };
            self.respond(connection, kind, answer);
        }
    }

    /// Answers the request that a transaction, which has been applied, is taken for the one of.
    pub(super) fn complete(
        &mut self,
        server: usize,
        ask: &Ask,
        xid: i32,
        result: Result<Reply, ErrorCode>,
    ) {
        let Some(pending) = self.servers[server].waiting.take(ask.session, xid) else {
            return;
        };
        let (number, kind) = (pending.connection, pending.kind);
        let closes = matches!(pending.work, Work::Close);
        if self.is_at(number, server) {
            // Closes without a reply, as ZooKeeper does: the client must not take it for an answer.
            if result == Err(ErrorCode::SESSION_MOVED) {
                self.close(number);
            } else if let Some(result) = pending.work.answer(&ask.deed, result) {
                let mut answer = self.answer(number, xid, result);
                answer.closes = closes;
                self.respond(number, kind, answer);
            }
        }
        self.answer_ready(server, ask.session);
    }

    /// Answers a sync.
    pub(super) fn complete_sync(&mut self, server: usize, sync: SyncAsk) {
        let SyncAsk {
            connection,
            session,
            xid,
        } = sync;
        let Some(pending) = self.servers[server].waiting.take(session, xid) else {
            // It was answered with another's transaction. The client does not expect a second
            // answer, and ends the connection.
            return self.close(connection);
        };
        if let (Work::Sync { path }, true) = (pending.work, self.is_at(connection, server)) {
            let answer = self.answer(connection, xid, Ok(Reply::Synced { path }));
            self.respond(connection, pending.kind, answer);
        }
        self.answer_ready(server, session);
    }

    fn is_at(&self, number: ConnectionNo, server: usize) -> bool {
        self.server_of(number) == Some(server)
    }

    fn answer(
        &self,
        number: ConnectionNo,
        xid: i32,
        result: Result<Reply, ErrorCode>,
    ) -> RequestAnswer {
        let server = self.server_of(number);
        let zxid = server.map_or(0, |server| self.servers[server].view.zxid);
        RequestAnswer::new(xid, zxid, result)
    }

    fn read(&mut self, number: ConnectionNo, request: Request) -> Result<Reply, ErrorCode> {
        let Some(connection) = self.connections.get(&number) else {
            return Err(ErrorCode::CONNECTION_LOSS);
        };
        let view = &mut self.servers[connection.server].view;
        match request {
            Request::Sync { path } => Ok(Reply::Synced { path }),
            Request::SetWatches(lists) => {
                let missed = view.set_watches(lists, number);
                missed.into_iter().for_each(|notice| self.tell(notice));
                Ok(Reply::Nothing)
            }
            request => {
                let by = Requester {
                    connection: number,
                    session: connection.session,
                    who: &connection.who,
                };
                view.read(request, by)
            }
        }
    }

    /// Sends an answer, unless it is to be lost.
    fn respond(&mut self, number: ConnectionNo, kind: Option<RequestKind>, answer: RequestAnswer) {
        if self.faults.loses_reply_to(kind) {
            return self.close(number);
        }
        let mut frame = Vec::new();
        answer.header.encode(answer.body.as_ref(), &mut frame);
        self.put(number, frame);
        if answer.closes {
            self.close(number);
        }
    }
}
