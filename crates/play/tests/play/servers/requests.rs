//! How a server handles its clients' messages, and how it applies the log.

use std::rc::Rc;

use zklock_jute::{ErrorCode, Reply, Request};
use zklock_play::Answer;

use super::tree::{Change, ConnNo};
use super::{Ask, Conn, Deed, Message, Role, Said, Step, Told, Work, pop_if};
use crate::world::{Happening, World};

impl World {
    /// Handles a client's message.
    pub(crate) fn at_server(&mut self, conn: ConnNo, said: Said) {
        let server = self.conns[conn].server;
        if !self.conns[conn].open {
            return;
        }
        if !self.servers[server].serves() {
            return self.close(conn);
        }
        match said {
            Said::Connect { session, seen } => self.shake_hands(conn, session, seen),
            _ if !self.conns[conn].greeted => self.close(conn),
            Said::Ping => {
                self.touch(server, self.conns[conn].session);
                self.conns[conn].waiting.push_back(Work::Ping);
                self.answer_ready(conn);
            }
            Said::Request(request) => self.take(conn, request),
        }
    }

    fn shake_hands(&mut self, conn: ConnNo, session: i64, seen: i64) {
        let server = self.conns[conn].server;
        // The client has seen changes that this server has not.
        if self.servers[server].zxid < seen {
            return self.close(conn);
        }
        if session == 0 {
            self.last_session += 1;
            self.conns[conn].session = self.last_session;
            self.touch(server, self.last_session);
            let timeout = self.plan.grants[server];
            let deed = Deed::Begin { timeout };
            let (origin, session) = (Some(conn), self.last_session);
            return self.order(
                server,
                Ask {
                    origin,
                    session,
                    deed,
                },
            );
        }
        self.conns[conn].session = session;
        // A session has one connection to a server.
        self.close_all(|other, one| {
            other != conn && (one.server, one.session) == (server, session)
        });
        if self.servers[server].leads() {
            let timeout = self.plan.grants[server];
            let valid = self.take_over(server, server, session, timeout);
            self.finish_handshake(conn, valid);
        } else if let Role::Following { leader, .. } = self.servers[server].role {
            self.send(
                server,
                leader,
                Message::Revalidate {
                    session,
                    timeout: self.plan.grants[server],
                    conn,
                },
            );
        }
    }

    pub(crate) fn finish_handshake(&mut self, conn: ConnNo, valid: bool) {
        let session = self.conns[conn].session;
        if !self.conns[conn].open {
            return;
        }
        self.conns[conn].greeted = valid;
        self.tell(conn, Told::Greeting(valid.then_some(session)));
        if !valid {
            self.close(conn);
        }
    }

    /// Notes that a client has sent something. A follower reports that to the leader later; a leader notes it at
    /// once for its own clients.
    fn touch(&mut self, server: usize, session: i64) {
        let timeout = self.plan.grants[server];
        match self.servers[server].leads() {
            true => self.touched(server, session, timeout),
            false if !self.servers[server].touched.contains(&(session, timeout)) => {
                self.servers[server].touched.push((session, timeout));
            }
            false => {}
        }
    }

    fn take(&mut self, conn: ConnNo, request: Rc<Request>) {
        let (server, session) = (self.conns[conn].server, self.conns[conn].session);
        self.touch(server, session);
        self.note_asked(conn, &request);
        let client = self.conns[conn].client;
        if self.now < self.clients[client].throttled_until && self.chance.bool() {
            self.conns[conn].waiting.push_back(Work::Throttled);
            return self.answer_ready(conn);
        }
        match &*request {
            Request::Create { .. }
            | Request::Delete { .. }
            | Request::SetData { .. }
            | Request::Multi(_) => {
                self.conns[conn].waiting.push_back(Work::Ordered);
                let deed = Deed::Write(request);
                let origin = Some(conn);
                self.order(
                    server,
                    Ask {
                        origin,
                        session,
                        deed,
                    },
                );
            }
            Request::Sync { .. } if !self.servers[server].leads() => {
                self.conns[conn].waiting.push_back(Work::Sync(request));
                if let Role::Following { leader, .. } = self.servers[server].role {
                    self.send(server, leader, Message::Sync(conn));
                }
            }
            _ => {
                self.conns[conn].waiting.push_back(Work::Read(request));
                self.answer_ready(conn);
            }
        }
    }

    /// Lets the leader put something into the log.
    fn order(&mut self, server: usize, ask: Ask) {
        match self.servers[server].role {
            Role::Leading(_) => self.propose(server, server, ask),
            Role::Following { leader, .. } => self.send(server, leader, Message::Ask(ask)),
            Role::Looking => {}
        }
    }

    /// Answers the requests that wait for nothing.
    fn answer_ready(&mut self, conn: ConnNo) {
        let server = self.conns[conn].server;
        while let Some(work) = pop_if(&mut self.conns[conn].waiting, |work| {
            matches!(work, Work::Read(_) | Work::Ping | Work::Throttled)
        }) {
            match work {
                Work::Read(request) => {
                    let result = self.servers[server].tree.read(&request, conn);
                    self.answer(conn, result);
                }
                Work::Throttled => self.answer(conn, Err(ErrorCode::THROTTLED)),
                _ => self.tell(conn, Told::Pong),
            }
        }
    }

    fn answer(&mut self, conn: ConnNo, result: Result<Reply, ErrorCode>) {
        let zxid = self.servers[self.conns[conn].server].zxid;
        self.tell(conn, Told::Answer(Box::new(Answer { zxid, result })));
    }

    /// Lets a server take a step after its lag.
    pub(crate) fn plan_step(&mut self, server: usize, step: Step) {
        let node = &mut self.servers[server];
        let last = node.due.back().map_or(self.now, |(at, _)| *at);
        let at = last.max(self.now + node.lag);
        node.due.push_back((at, step));
        match at <= self.now {
            true => self.apply_due(server),
            false => {
                let life = self.servers[server].life;
                self.plan(at, Happening::Apply { server, life });
            }
        }
    }

    pub(crate) fn apply_due(&mut self, server: usize) {
        let now = self.now;
        while let Some((_, step)) = pop_if(&mut self.servers[server].due, |(at, _)| *at <= now) {
            match step {
                Step::Apply => self.apply_next(server),
                Step::Synced(conn) => self.complete_sync(server, conn),
            }
        }
    }

    pub(crate) fn apply_next(&mut self, server: usize) {
        let node = &mut self.servers[server];
        let Some(done) = node.log.get(node.applied).cloned() else {
            return;
        };
        node.applied += 1;
        node.zxid = done.zxid;
        let (session, zxid) = (done.ask.session, done.zxid);
        match &done.ask.deed {
            Deed::Begin { timeout } => {
                node.sessions.insert(session, *timeout);
            }
            Deed::End => {
                node.sessions.remove(&session);
            }
            Deed::Write(_) | Deed::Moved => {}
        }
        let Some((result, changes)) = node.tree.apply(&done) else {
            return self.fail("the servers' nodes differ");
        };
        self.record(server, zxid, session, changes);
        self.fire(server, changes);
        match (&done.ask.deed, done.ask.origin) {
            (Deed::End, _) => self.session_ended(server, session),
            (Deed::Begin { .. }, Some(conn)) if self.conns[conn].server == server => {
                self.finish_handshake(conn, true);
            }
            (_, Some(conn)) if self.conns[conn].server == server => {
                self.complete(conn, result.take().unwrap_or(Ok(Reply::Nothing)));
            }
            _ => {}
        }
    }

    fn fire(&mut self, server: usize, changes: &[Change]) {
        for change in changes {
            for (conn, event) in self.servers[server].tree.fire(change) {
                self.tell(conn, Told::Event(Box::new(event)));
            }
        }
    }

    fn session_ended(&mut self, server: usize, session: i64) {
        if let Some(leading) = self.servers[server].leading() {
            leading.sessions.remove(&session);
        }
        self.close_all(|_, one| (one.server, one.session) == (server, session));
    }

    fn complete(&mut self, conn: ConnNo, result: Result<Reply, ErrorCode>) {
        if !self.conns[conn].open {
            return;
        }
        let first = &mut self.conns[conn].waiting;
        if pop_if(first, |work| matches!(work, Work::Ordered)).is_none() {
            return;
        }
        let client = self.conns[conn].client;
        let lost = std::mem::take(&mut self.clients[client].loses_a_reply);
        if result == Err(ErrorCode::SESSION_MOVED) || lost {
            return self.close(conn);
        }
        self.answer(conn, result);
        self.answer_ready(conn);
    }

    fn complete_sync(&mut self, server: usize, conn: ConnNo) {
        if !self.conns[conn].open || self.conns[conn].server != server {
            return;
        }
        let first = &mut self.conns[conn].waiting;
        if let Some(Work::Sync(request)) = pop_if(first, |work| matches!(work, Work::Sync(_))) {
            let result = self.servers[server].tree.read(&request, conn);
            self.answer(conn, result);
            self.answer_ready(conn);
        }
    }

    /// Ends these open connections from the servers' side.
    pub(crate) fn close_all(&mut self, is_it: impl Fn(ConnNo, &Conn) -> bool) {
        let open = self.open.iter().copied();
        let these: Vec<_> = open
            .filter(|conn| is_it(*conn, &self.conns[*conn]))
            .collect();
        for conn in these {
            self.close(conn);
        }
    }

    /// Ends a connection from the server's side.
    pub(crate) fn close(&mut self, conn: ConnNo) {
        if self.conns[conn].open {
            self.tell(conn, Told::Closed);
            self.forget(conn);
        }
    }

    /// Removes a connection; its session goes on.
    pub(crate) fn forget(&mut self, conn: ConnNo) {
        let one = &mut self.conns[conn];
        if std::mem::take(&mut one.open) {
            self.open.retain(|other| *other != conn);
        }
        one.waiting.clear();
        let server = one.server;
        self.servers[server].tree.forget(Some(conn));
    }
}
