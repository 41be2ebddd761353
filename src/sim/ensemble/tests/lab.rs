//! An ensemble, its time, and what its clients have heard.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::sim::ensemble::{
    ConnectionNo, Ensemble, EnsembleConfig, Fault, Output, SessionEnd, What,
};
use zklock_jute::{
    Access, ConnectReply, ConnectRequest, CreateMode, ErrorCode, Event, EventKind, OpCode,
    Permissions, Reply, ReplyHeader, Request, xid,
};

/// Something that a client has heard.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Heard {
    Hello(ConnectReply),
    Reply(ReplyHeader, Option<Reply>),
    Event(EventKind, String),
    Closed,
}

#[derive(Default)]
struct Ear {
    bytes: Vec<u8>,
    greeted: bool,
    asked: BTreeMap<i32, OpCode>,
    heard: Vec<(Duration, Heard)>,
}

pub(super) struct Lab {
    pub(super) ensemble: Ensemble,
    pub(super) now: Duration,
    ears: BTreeMap<ConnectionNo, Ear>,
    latest_xid: i32,
    /// Everything that was sent to clients, for comparison.
    pub(super) sent: Vec<(Duration, ConnectionNo, Output)>,
}

pub(super) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Three servers with a tick of 100 ms.
pub(super) fn config() -> EnsembleConfig {
    EnsembleConfig {
        tick: ms(100),
        container_check: ms(500),
        ..EnsembleConfig::default()
    }
}

impl Lab {
    pub(super) fn new(config: EnsembleConfig, seed: u64) -> Self {
        Self {
            ensemble: Ensemble::new(config, seed),
            now: Duration::ZERO,
            ears: BTreeMap::new(),
            latest_xid: 0,
            sent: Vec::new(),
        }
    }

    /// Returns the leader, and the other servers.
    pub(super) fn roles(&self) -> (usize, Vec<usize>) {
        let leader = self.ensemble.leader().expect("there is a leader");
        let others = (0..3).filter(|server| *server != leader);
        (leader, others.collect())
    }

    pub(super) fn run_to(&mut self, until: Duration) {
        self.listen();
        while let Some(at) = self.ensemble.next_at().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.ensemble.run_until(at);
            self.listen();
        }
        self.now = self.now.max(until);
        self.ensemble.run_until(until);
    }

    pub(super) fn run_for(&mut self, time: Duration) {
        self.run_to(self.now + time);
    }

    /// Runs until `done`, for at most a minute.
    pub(super) fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let limit = self.now + Duration::from_secs(60);
        self.listen();
        while !done(self) {
            let at = self.ensemble.next_at().expect("something is to come");
            assert!(at <= limit, "it never came about that {what}");
            self.run_to(at);
        }
    }

    pub(super) fn fault(&mut self, fault: Fault) {
        self.ensemble.fault(self.now, fault);
        self.listen();
    }

    fn listen(&mut self) {
        for (connection, output) in self.ensemble.take_output() {
            self.sent.push((self.now, connection, output.clone()));
            let ear = self.ears.entry(connection).or_default();
            match output {
                Output::Bytes(bytes) => ear.hear(self.now, &bytes),
                Output::Closed => ear.heard.push((self.now, Heard::Closed)),
            }
        }
    }
}

// Clients.
impl Lab {
    pub(super) fn dial(&mut self, server: usize) -> ConnectionNo {
        let connection = self.ensemble.accept(self.now, server);
        let connection = connection.expect("the server accepts");
        self.welcome(connection);
        connection
    }

    /// Listens to a connection.
    pub(super) fn welcome(&mut self, connection: ConnectionNo) {
        self.ears.insert(connection, Ear::default());
    }

    pub(super) fn send(&mut self, connection: ConnectionNo, bytes: &[u8]) {
        self.ensemble.receive(self.now, connection, bytes);
        self.listen();
    }

    pub(super) fn greet(&mut self, connection: ConnectionNo, request: &ConnectRequest) {
        let mut frame = Vec::new();
        request.encode(&mut frame);
        self.send(connection, &frame);
    }

    /// Connects, and waits for the answer.
    pub(super) fn meet(&mut self, server: usize, request: &ConnectRequest) -> Option<Client> {
        let connection = self.dial(server);
        self.greet(connection, request);
        let has_heard = |lab: &Self| !lab.heard(connection).is_empty();
        self.until("a client is greeted", has_heard);
        self.greeting(connection)
    }

    /// Returns the client, if it has been greeted.
    pub(super) fn greeting(&self, connection: ConnectionNo) -> Option<Client> {
        match self.heard(connection).first() {
            Some(Heard::Hello(reply)) if 0 < reply.timeout_ms => Some(Client {
                connection,
                reply: reply.clone(),
            }),
            _ => None,
        }
    }

    pub(super) fn client(&mut self, server: usize, timeout: Duration) -> Client {
        let client = self.meet(server, &new_session(timeout));
        client.expect("a new session is accepted")
    }

    /// Sends a request; returns its number.
    pub(super) fn ask(&mut self, connection: ConnectionNo, request: &Request) -> i32 {
        self.latest_xid += 1;
        let xid = match request {
            Request::Ping => xid::PING,
            Request::Auth { .. } => xid::AUTH,
            _ => self.latest_xid,
        };
        self.ask_as(connection, xid, request);
        xid
    }

    /// Sends a request with a number of the caller's.
    pub(super) fn ask_as(&mut self, connection: ConnectionNo, xid: i32, request: &Request) {
        let ear = self.ears.entry(connection).or_default();
        ear.asked.insert(xid, request.op());
        let mut frame = Vec::new();
        request.encode(xid, &mut frame);
        self.send(connection, &frame);
    }

    /// Sends a request, and waits for the answer; `None` if the connection ends.
    pub(super) fn call(
        &mut self,
        connection: ConnectionNo,
        request: &Request,
    ) -> Option<(ReplyHeader, Option<Reply>)> {
        let before = self.heard(connection).len();
        let xid = self.ask(connection, request);
        let answer = |lab: &Self| {
            let heard = lab.heard(connection).into_iter().skip(before);
            heard.into_iter().find_map(|heard| match heard {
                Heard::Reply(header, body) if header.xid == xid => Some(Some((header, body))),
                Heard::Closed => Some(None),
                _ => None,
            })
        };
        self.until("a request is answered", |lab| answer(lab).is_some());
        answer(self).flatten()
    }

    /// As `call`; returns the code of the answer.
    pub(super) fn code(&mut self, connection: ConnectionNo, request: &Request) -> ErrorCode {
        let answer = self.call(connection, request);
        answer.map_or(ErrorCode::CONNECTION_LOSS, |(header, _)| header.code)
    }

    pub(super) fn create(
        &mut self,
        connection: ConnectionNo,
        path: &str,
        mode: CreateMode,
    ) -> String {
        match self.call(connection, &create(path, mode)) {
            Some((_, Some(Reply::Created { path, .. }))) => path,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn list(&mut self, connection: ConnectionNo, path: &str) -> Vec<String> {
        match self.call(connection, &Request::list(path)) {
            Some((_, Some(Reply::Children { names, .. }))) => {
                names.iter().map(str::to_owned).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn heard(&self, connection: ConnectionNo) -> Vec<Heard> {
        let timed = self.heard_at(connection).iter();
        timed.map(|(_, heard)| heard.clone()).collect()
    }

    pub(super) fn heard_at(&self, connection: ConnectionNo) -> &[(Duration, Heard)] {
        &self.ears[&connection].heard
    }

    pub(super) fn is_closed(&self, connection: ConnectionNo) -> bool {
        self.heard(connection).last() == Some(&Heard::Closed)
    }

    pub(super) fn is_alive(&self, session: i64) -> bool {
        self.ensemble.sessions().contains(&session)
    }
}

/// A client in a session.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) connection: ConnectionNo,
    pub(super) reply: ConnectReply,
}

impl Client {
    pub(super) fn session(&self) -> i64 {
        self.reply.session
    }

    /// What the client sends on its next connection.
    pub(super) fn again(&self) -> ConnectRequest {
        ConnectRequest {
            last_zxid: 0,
            timeout_ms: self.reply.timeout_ms,
            session: self.reply.session,
            password: self.reply.password.clone(),
            read_only: false,
        }
    }
}

impl Ear {
    fn hear(&mut self, now: Duration, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        while let Some(frame) = self.next_frame() {
            let heard = self.understand(&frame);
            self.heard.push((now, heard));
        }
    }

    fn next_frame(&mut self) -> Option<Vec<u8>> {
        let (head, rest) = self.bytes.split_first_chunk::<4>()?;
        let length = usize::try_from(i32::from_be_bytes(*head)).unwrap();
        let frame = rest.get(..length)?.to_vec();
        self.bytes.drain(..4 + length);
        Some(frame)
    }

    fn understand(&mut self, frame: &[u8]) -> Heard {
        if !std::mem::replace(&mut self.greeted, true) {
            return Heard::Hello(ConnectReply::decode(frame).unwrap());
        }
        let (header, body) = ReplyHeader::decode(frame).unwrap();
        if header.xid == xid::EVENT {
            let event = Event::decode(body).unwrap();
            return Heard::Event(event.kind, event.path);
        }
        let op = self.asked.get(&header.xid).copied();
        let op = op.unwrap_or(OpCode::ERROR);
        let body = (header.code == ErrorCode::OK).then(|| Reply::decode(op, body).unwrap());
        Heard::Reply(header, body)
    }
}

// Requests.

pub(super) fn new_session(timeout: Duration) -> ConnectRequest {
    ConnectRequest {
        last_zxid: 0,
        timeout_ms: i32::try_from(timeout.as_millis()).unwrap(),
        session: 0,
        password: vec![0; 16],
        read_only: false,
    }
}

pub(super) fn open_acl() -> Vec<Access> {
    vec![Access {
        permissions: Permissions::ALL,
        scheme: "world".to_owned(),
        id: "anyone".to_owned(),
    }]
}

pub(super) fn create(path: &str, mode: CreateMode) -> Request {
    Request::Create {
        path: path.to_owned(),
        data: vec![1].into(),
        acl: open_acl(),
        mode,
        stat: mode == CreateMode::Container,
    }
}

pub(super) fn delete(path: &str) -> Request {
    Request::delete(path.to_owned())
}

/// Sets data of version 0.
pub(super) fn set(path: &str, data: &str) -> Request {
    Request::SetData {
        path: path.to_owned(),
        data: data.as_bytes().to_vec().into(),
        version: 0,
    }
}

pub(super) fn watch(path: &str) -> Request {
    Request::Exists {
        path: path.to_owned(),
        watch: true,
    }
}

pub(super) fn sync(path: &str) -> Request {
    Request::Sync {
        path: path.to_owned(),
    }
}

/// A transaction that only checks that a node is there.
pub(super) fn check(path: &str) -> Request {
    Request::Multi(vec![Request::Check {
        path: path.to_owned(),
        version: -1,
    }])
}

/// Returns when a session ended, and why.
pub(super) fn end_of(ensemble: &Ensemble, session: i64) -> Option<(Duration, SessionEnd)> {
    ensemble
        .history()
        .iter()
        .find_map(|change| match change.what {
            What::SessionEnded { session: each, why } if each == session => Some((change.at, why)),
            _ => None,
        })
}
