//! How a client's connection begins, brings bytes, and ends.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use super::connection::{Arrival, Connection, ConnectionNo, Output, Phase};
use super::message::{Ask, Deed, Message, Origin, Towards};
use super::server::Role;
use super::state::{Ensemble, Event};
use zklock_embedded::parts::{Identity, Password};
use zklock_jute::{ConnectReply, ConnectRequest};

/// The time at which every run begins, in milliseconds since the epoch.
const BEGINNING_MS: i64 = 1_700_000_000_000;

/// How long a client may take for its first frame.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// Where all clients come from.
const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// What the passwords of the sessions are made from.
const SECRET: u64 = 0xb3415c00;

impl Ensemble {
    /// Connects a client to a server; `None` if the server is down or refuses.
    ///
    /// A server without a leader accepts a connection, and ends it at the first bytes.
    pub fn accept(&mut self, now: Duration, server: usize) -> Option<ConnectionNo> {
        self.run_until(now);
        let node = self.servers.get(server)?;
        if node.refuses || matches!(node.role, Role::Down) {
            return None;
        }
        self.latest_connection += 1;
        let number = self.latest_connection;
        let connection = Connection::new(server, Identity::of_address(ADDRESS));
        self.connections.insert(number, connection);
        let event = Event::Handshake { connection: number };
        self.after(HANDSHAKE_LIMIT, event);
        Some(number)
    }

    /// Takes what a client sends, in pieces of any size.
    pub fn receive(&mut self, now: Duration, connection: ConnectionNo, bytes: &[u8]) {
        self.run_until(now);
        self.input_or_wait(connection, Some(bytes.to_vec()));
    }

    /// Takes the end of a connection.
    pub fn hang_up(&mut self, now: Duration, connection: ConnectionNo) {
        self.run_until(now);
        self.input_or_wait(connection, None);
    }

    fn input_or_wait(&mut self, number: ConnectionNo, bytes: Option<Vec<u8>>) {
        let Some(connection) = self.connections.get(&number) else {
            return;
        };
        let until = self.servers[connection.server].paused_until;
        if self.now < until {
            let event = Event::Input {
                connection: number,
                bytes,
            };
            return self.agenda.add(until, event);
        }
        self.input(number, bytes);
    }

    pub(super) fn input(&mut self, number: ConnectionNo, bytes: Option<Vec<u8>>) {
        let Some(bytes) = bytes else {
            return self.forget(number);
        };
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.take_in(&bytes);
            self.read_frames(number);
        }
    }

    fn read_frames(&mut self, number: ConnectionNo) {
        while let Some(connection) = self.connections.get_mut(&number) {
            if connection.phase == Phase::Handshake {
                return;
            }
            if connection.has_begun() && !self.servers[connection.server].is_serving() {
                return self.close(number);
            }
            let phase = connection.phase;
            let Ok(frame) = connection.next_frame(&self.settings) else {
                return self.close(number);
            };
            let Some(frame) = frame else {
                return;
            };
            match phase {
                Phase::New => self.shake_hands(number, &frame),
                Phase::Handshake | Phase::Open => self.take_request(number, &frame),
            }
        }
    }

    /// Ends a connection from the server's side.
    pub(super) fn close(&mut self, number: ConnectionNo) {
        if self.connections.contains_key(&number) {
            self.output.push((number, Output::Closed));
            self.forget(number);
        }
    }

    pub(super) fn end_if_new(&mut self, number: ConnectionNo) {
        let connection = self.connections.get(&number);
        if connection.is_some_and(|connection| connection.phase == Phase::New) {
            self.close(number);
        }
    }

    /// Forgets a connection; its session goes on until its timeout.
    fn forget(&mut self, number: ConnectionNo) {
        let Some(connection) = self.connections.remove(&number) else {
            return;
        };
        let node = &mut self.servers[connection.server];
        node.view.watches.forget(number);
        if node.clients.get(&connection.session) == Some(&number) {
            node.clients.remove(&connection.session);
        }
    }
}

// The handshake.
impl Ensemble {
    fn shake_hands(&mut self, number: ConnectionNo, frame: &[u8]) {
        let Ok(request) = ConnectRequest::decode(frame) else {
            return self.close(number);
        };
        let timeout_ms = self.settings.timeouts().negotiate(request.timeout_ms);
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        let server = connection.server;
        // The client has seen changes that this server does not have.
        if !self.config.keeper && self.servers[server].view.zxid < request.last_zxid {
            return self.close(number);
        }
        connection.phase = Phase::Handshake;
        connection.timeout_ms = timeout_ms;
        if request.session == 0 || self.config.keeper {
            return self.begin_session(number, server, timeout_ms);
        }
        // Before the password is checked, as in ZooKeeper.
        if let Some(former) = self.servers[server].clients.get(&request.session) {
            self.close(*former);
        }
        self.attach(number, server, request.session);
        if *request.password != password_of(request.session) {
            return self.finish_handshake(number, false);
        }
        self.revalidate(number, server, request.session, timeout_ms);
    }

    fn attach(&mut self, number: ConnectionNo, server: usize, session: i64) {
        self.note_arrival(session, Arrival::Handshake);
        self.servers[server].clients.insert(session, number);
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.session = session;
        }
    }

    fn begin_session(&mut self, number: ConnectionNo, server: usize, timeout_ms: u64) {
        let node = &mut self.servers[server];
        node.latest_session += 1;
        let session = node.latest_session;
        self.attach(number, server, session);
        if self.servers[server].following().is_some() {
            self.servers[server].touched.insert(session, timeout_ms);
        }
        let ask = Ask {
            origin: Some(Origin {
                server,
                connection: number,
                xid: 0,
            }),
            session,
            who: Vec::new(),
            deed: Deed::Begin { timeout_ms },
        };
        self.order(server, ask);
    }

    /// Asks the leader whether a session is alive, which touches it.
    fn revalidate(&mut self, number: ConnectionNo, server: usize, session: i64, timeout_ms: u64) {
        if self.servers[server].leads() {
            let valid = self.take_over(server, server, session, timeout_ms);
            return self.finish_handshake(number, valid);
        }
        if let Some(following) = self.servers[server].following() {
            let link = following.link;
            let message = Message::Revalidate {
                session,
                timeout_ms,
                connection: number,
            };
            self.send(link, Towards::Leader, message);
        }
    }

    /// Answers the first frame.
    pub(super) fn finish_handshake(&mut self, number: ConnectionNo, valid: bool) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        connection.phase = Phase::Open;
        let mut frame = Vec::new();
        if !valid {
            ConnectReply::expired().encode(&mut frame);
            self.put(number, frame);
            return self.close(number);
        }
        let reply = ConnectReply {
            timeout_ms: i32::try_from(connection.timeout_ms).unwrap_or(i32::MAX),
            session: connection.session,
            password: match self.config.keeper {
                true => Password::default().to_vec(),
                false => password_of(connection.session).to_vec(),
            },
            read_only: false,
        };
        reply.encode(&mut frame);
        self.put(number, frame);
        self.read_frames(number);
    }

    /// Has the leader put something into the log.
    pub(super) fn order(&mut self, server: usize, ask: Ask) {
        if let Deed::Write(_) = ask.deed {
            self.note_arrival(ask.session, Arrival::Write);
        }
        match &self.servers[server].role {
            Role::Leading(_) => self.propose(server, server, ask),
            Role::Following(following) => {
                let link = following.link;
                self.send(link, Towards::Leader, Message::Ask(ask));
            }
            Role::Down | Role::Looking => {}
        }
    }

    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.now.as_millis()).unwrap_or(u64::MAX)
    }

    /// The time of day.
    pub(super) fn epoch_ms(&self) -> i64 {
        BEGINNING_MS + i64::try_from(self.now_ms()).unwrap_or(0)
    }
}

/// Every server can work out the password of a session.
fn password_of(session: i64) -> Password {
    let mut password = Password::default();
    fastrand::Rng::with_seed(session as u64 ^ SECRET).fill(&mut password);
    password
}
