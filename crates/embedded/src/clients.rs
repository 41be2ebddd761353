//! The changes of the state when a client connects, opens a session or sends a request.
//!
//! The threads and the socket of a client are in `connection`.

use std::net::SocketAddr;
use std::sync::Arc;

use super::acl::Identity;
use super::entry::{Act, Entry};
use super::faults::Faults;
use super::four_letter_words::name;
use super::node::ChangeTime;
use super::outbox::Outbox;
use super::requester::RequestAnswer;
use super::sessions::Password;
use super::state::{ConnectionState, LastRequest, ServerState, Traffic, epoch_ms};
use super::watches::ConnectionId;
use zklock_jute::{ConnectReply, ConnectRequest, ErrorCode, Request};

impl ServerState {
    /// Adds a connection; returns `None` if there are too many.
    pub(super) fn admit(&mut self, peer: SocketAddr, outbox: Arc<Outbox>) -> Option<ConnectionId> {
        if self.connections.len() >= self.config.max_connections {
            return None;
        }
        self.latest_connection += 1;
        let connection = ConnectionState {
            peer,
            session: None,
            identities: vec![Identity::of_address(peer.ip())],
            traffic: Traffic::default(),
            since_ms: epoch_ms(),
            timeout_ms: 0,
            last: LastRequest {
                op: "SESS",
                xid: 0,
                zxid: 0,
                at_ms: self.now_ms(),
            },
            outbox,
        };
        self.connections.insert(self.latest_connection, connection);
        Some(self.latest_connection)
    }

    /// Answers a client's first frame, whose content has this length; returns `false` if the connection ends
    /// with it.
    pub(super) fn connect(
        &mut self,
        id: ConnectionId,
        request: &ConnectRequest,
        length: usize,
    ) -> bool {
        // The client has seen changes that this server does not have.
        if request.last_zxid > self.view.zxid {
            return false;
        }
        let reply = if request.session == 0 {
            Some(self.begin_session(id, request.timeout_ms))
        } else {
            self.resume_session(id, request)
        };
        let accepted = reply.is_some();
        let mut frame = Vec::new();
        let reply = reply.unwrap_or_else(ConnectReply::expired);
        match request.is_old(length) {
            true => reply.encode_for_old(&mut frame),
            false => reply.encode(&mut frame),
        }
        // A new session is a change, which a lagging follower does not have yet.
        if let Some(lag) = self.lag.as_mut().filter(|_| request.session != 0) {
            lag.connect(id, request.last_zxid);
        }
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.put(frame);
        }
        accepted
    }

    /// Answers a request.
    pub(super) fn receive(
        &mut self,
        id: ConnectionId,
        xid: i32,
        request: Result<Request, ErrorCode>,
    ) {
        let now_ms = self.now_ms();
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        connection.traffic.received += 1;
        self.traffic.received += 1;
        let session = connection.session;
        let Some(session) = session.filter(|session| self.sessions.touch(*session, now_ms)) else {
            return self.cut(id);
        };
        let kind = request.as_ref().ok().and_then(Faults::kind);
        let op = request.as_ref().map_or("NA", name);
        let answer = self.answer(id, session, xid, request);
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.last = LastRequest {
                op,
                xid,
                zxid: answer.header.zxid,
                at_ms: now_ms,
            };
        }
        if self.faults.loses_reply_to(kind) {
            return self.cut(id);
        }
        self.send(id, answer);
    }

    fn send(&mut self, id: ConnectionId, answer: RequestAnswer) {
        let mut frame = Vec::new();
        answer.header.encode(answer.body.as_ref(), &mut frame);
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        connection.put(frame);
        self.traffic.sent += 1;
        if answer.closes {
            connection.outbox.close();
            return self.disconnected(id);
        }
        if self.lag.as_ref().is_some_and(|lag| lag.listed) {
            self.catch_up();
        }
    }

    fn begin_session(&mut self, id: ConnectionId, asked_ms: i32) -> ConnectReply {
        self.advance();
        let password = new_password();
        let session = self.sessions.begin(asked_ms, password, self.now_ms());
        let reply = self.attach(id, session, password);
        self.keep_session(&reply, password);
        reply
    }

    fn resume_session(
        &mut self,
        id: ConnectionId,
        request: &ConnectRequest,
    ) -> Option<ConnectReply> {
        let now_ms = self.now_ms();
        let password = &request.password;
        let had_ms = self.sessions.get_mut(request.session)?.timeout_ms;
        let session =
            self.sessions
                .resume(request.session, password, request.timeout_ms, now_ms)?;
        let is_changed = session.timeout_ms != had_ms;
        let (password, former) = (session.password, session.connection.take());
        if let Some(former) = former {
            self.cut(former);
        }
        let reply = self.attach(id, request.session, password);
        if is_changed {
            self.keep_session(&reply, password);
        }
        Some(reply)
    }

    /// Records what was last granted to a session.
    fn keep_session(&mut self, granted: &ConnectReply, password: Password) {
        let at = ChangeTime {
            zxid: self.view.zxid,
            ms: epoch_ms(),
        };
        let timeout_ms = granted.timeout_ms;
        let act = Act::Begin {
            timeout_ms,
            password,
        };
        let session = granted.session;
        self.keep(Entry { at, session, act });
    }

    fn attach(&mut self, id: ConnectionId, session: i64, password: Password) -> ConnectReply {
        let mut timeout_ms = 0;
        if let Some(session) = self.sessions.get_mut(session) {
            session.connection = Some(id);
            timeout_ms = i32::try_from(session.timeout_ms).unwrap_or(i32::MAX);
        }
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.session = Some(session);
            connection.timeout_ms = timeout_ms;
        }
        ConnectReply {
            timeout_ms,
            session,
            password: password.to_vec(),
            read_only: false,
        }
    }
}

fn new_password() -> Password {
    uuid::Uuid::new_v4().into_bytes()
}
