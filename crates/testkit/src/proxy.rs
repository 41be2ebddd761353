//! A network that misbehaves, in front of a ZooKeeper server.
//!
//! Two threads work in each direction: one reads frames, and the other holds them back as long as
//! the network is slow or gone, and passes them on. The proxy knows the frames, so it can lose one
//! that a test names.

mod connection;
mod frames;
mod listener;

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, unbounded};

use self::connection::{Connection, OURS};
use self::frames::{Parcel, Verdict, enqueue, int_at, read_frame};
use self::listener::Listener;
use super::{eventually, free_port};

/// A proxy in front of one server; all connections are cut when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    address: SocketAddr,
}

#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    listener: Option<Listener>,
    blackholed: bool,
    delay: Duration,
    rule: Option<Rule>,
    connections: Vec<Arc<Connection>>,
    accepted: usize,
    /// The number of connect requests that reached the server.
    greetings: usize,
    loses_greetings: bool,
    /// The kind of request that never reaches the server, and what happens to it.
    unknown: Option<(i32, Verdict)>,
    requests: HashMap<i32, usize>,
}

/// A fault that happens once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Rule {
    DropRequest(i32),
    DropReplyTo(i32),
    TruncateReply,
    BlackholeAt(i32),
}

impl Proxy {
    /// Starts a proxy in front of `server`, one `host:port`.
    pub fn start(server: &str) -> Self {
        let server = server
            .to_socket_addrs()
            .expect("resolving the server's name")
            .next()
            .expect("an address of the server");
        let shared = Arc::new(Shared {
            server,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let address = (0..100)
            .map(|_| SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())))
            .find(|address| shared.listen(*address).is_ok())
            .expect("a port for the proxy");
        Self { shared, address }
    }

    /// Leaves the address, and listens on another address with the same port.
    pub fn move_to(&mut self, host: IpAddr) {
        self.refuse();
        self.address.set_ip(host);
        self.accept();
    }

    /// Listens at the address of another proxy.
    pub fn take_over(&mut self, host: IpAddr, port: u16) {
        self.refuse();
        self.address = SocketAddr::new(host, port);
        self.accept();
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns the address that clients connect to.
    pub fn hosts(&self) -> String {
        self.address.to_string()
    }

    /// Closes all connections; accepts new ones.
    pub fn cut(&self) {
        self.shared.cut();
    }

    /// Closes all connections and refuses new ones, as when no process listens.
    pub fn refuse(&self) {
        // The lock is released first: the listener's thread may wait for it.
        let listener = self.shared.state().listener.take();
        drop(listener);
        self.shared.cut();
    }

    /// Accepts connections again.
    pub fn accept(&self) {
        if self.shared.state().listener.is_none() {
            // Another socket may have the port for a moment.
            eventually("listening again", || {
                self.shared.listen(self.address).is_ok()
            });
        }
    }

    /// Lets nothing through in either direction, while all sockets stay open; new connections are
    /// accepted and get no answer.
    pub fn blackhole(&self) {
        self.shared.change(|state| state.blackholed = true);
    }

    /// Ends a blackhole, whose bytes arrive late on connections that were not cut, and a loss of greetings.
    pub fn heal(&self) {
        let heal = |state: &mut State| (state.blackholed, state.loses_greetings) = (false, false);
        self.shared.change(heal);
    }

    /// Delays everything by this time, each way.
    pub fn delay(&self, delay: Duration) {
        self.shared.change(|state| state.delay = delay);
    }

    /// Lets the next request of this kind through, loses its reply, and cuts the connection: the
    /// server has carried it out, and the client cannot know.
    pub fn drop_next_reply_to(&self, opcode: i32) {
        self.shared.arm(Rule::DropReplyTo(opcode));
    }

    /// Lets nothing through from the next request of this kind on, which is the first to
    /// arrive late.
    pub fn blackhole_at_next_request(&self, opcode: i32) {
        self.shared.arm(Rule::BlackholeAt(opcode));
    }

    /// Loses the next request of this kind and cuts the connection: the server never saw it, and
    /// the client cannot know.
    pub fn drop_next_request(&self, opcode: i32) {
        self.shared.arm(Rule::DropRequest(opcode));
    }

    /// Swallows every request of this kind from now on, as a server does that drops requests that
    /// it does not know. Later frames of the connection are passed on.
    pub fn swallow(&self, opcode: i32) {
        let unknown = Some((opcode, Verdict::Swallow));
        self.shared.change(|state| state.unknown = unknown);
    }

    /// Hangs up at every request of this kind from now on, as a server does that does not know it.
    pub fn hang_up_at(&self, opcode: i32) {
        let unknown = Some((opcode, Verdict::Drop));
        self.shared.change(|state| state.unknown = unknown);
    }

    /// Ends the session of each connection, which to its client is an expiry: the server reports
    /// the deleted nodes, and then the connection is cut.
    pub fn end_sessions(&self) {
        for connection in &self.shared.state().connections {
            connection.end_session();
        }
    }

    /// Passes half of the next reply on and cuts the connection.
    pub fn truncate_next_reply(&self) {
        self.shared.arm(Rule::TruncateReply);
    }

    /// Returns whether the fault that one of the `next` methods has armed has happened.
    pub fn fired(&self) -> bool {
        self.shared.state().rule.is_none()
    }

    /// Returns how many requests of this kind clients have sent.
    pub fn requests(&self, opcode: i32) -> usize {
        let state = self.shared.state();
        state.requests.get(&opcode).copied().unwrap_or(0)
    }

    /// Returns how many requests of any kind but pings clients have sent.
    pub fn all_requests(&self) -> usize {
        let state = self.shared.state();
        let counts = state.requests.iter();
        counts
            .filter(|(opcode, _)| **opcode != super::raw::op::PING)
            .map(|(_, count)| count)
            .sum()
    }

    /// Lets connect requests through from now on, and swallows their answers.
    pub fn drop_greetings(&self) {
        self.shared.change(|state| {
            state.loses_greetings = true;
            state.greetings = 0;
        });
    }

    /// Returns how many connect requests the server has answered.
    pub fn greetings(&self) -> usize {
        self.shared.state().greetings
    }

    /// Returns how many connections clients have made.
    pub fn connections(&self) -> usize {
        self.shared.state().accepted
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.refuse();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    fn arm(&self, rule: Rule) {
        let before = self.state().rule.replace(rule);
        assert_eq!(before, None, "one thing at a time");
    }

    fn cut(&self) {
        let connections = std::mem::take(&mut self.state().connections);
        for connection in connections {
            connection.cut();
        }
        self.changed.notify_all();
    }

    fn listen(self: &Arc<Self>, address: SocketAddr) -> io::Result<()> {
        let socket = TcpListener::bind(address)?;
        let shared = Arc::clone(self);
        self.state().listener = Some(Listener::start(socket, move |client| {
            shared.welcome(client)
        }));
        Ok(())
    }

    fn welcome(self: &Arc<Self>, client: TcpStream) {
        let connection = {
            let mut state = self.state();
            state.accepted += 1;
            let connection = Arc::new(Connection::new(client));
            state.connections.push(Arc::clone(&connection));
            connection
        };
        let shared = Arc::clone(self);
        thread::spawn(move || {
            if shared.serve(&connection).is_err() {
                connection.cut();
            }
        });
    }

    /// Connects to the server as soon as the network lets it.
    fn serve(self: &Arc<Self>, connection: &Arc<Connection>) -> io::Result<()> {
        self.wait_for_the_network(connection);
        let server = TcpStream::connect_timeout(&self.server, Duration::from_secs(5))?;
        server.set_nodelay(true)?;
        let client = connection.client.try_clone()?;
        connection.attach(server.try_clone()?);
        let (requests, replies) = (server.try_clone()?, client.try_clone()?);
        self.pump(connection, client, requests, Self::judge_request);
        self.pump(connection, server, replies, Self::judge_reply);
        Ok(())
    }

    /// Passes frames on from one socket to the other, until either ends.
    fn pump(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        mut from: TcpStream,
        to: TcpStream,
        judge: fn(&Self, &Connection, &[u8]) -> Verdict,
    ) {
        let (queue, waiting) = unbounded();
        let (shared, ours) = (Arc::clone(self), Arc::clone(connection));
        thread::spawn(move || {
            while let Ok(frame) = read_frame(&mut from) {
                let verdict = judge(&shared, &ours, &frame);
                if !enqueue(&queue, frame, verdict) {
                    break;
                }
            }
        });
        let (shared, ours) = (Arc::clone(self), Arc::clone(connection));
        thread::spawn(move || {
            shared.deliver(&ours, &waiting, to);
            ours.cut();
        });
    }

    fn deliver(&self, connection: &Connection, waiting: &Receiver<Parcel>, mut to: TcpStream) {
        for parcel in waiting {
            let delay = self.state().delay;
            thread::sleep((parcel.arrived + delay).saturating_duration_since(Instant::now()));
            self.wait_for_the_network(connection);
            if to.write_all(&parcel.bytes).is_err() || parcel.last {
                return;
            }
        }
        // The sender closed its end; through a blackhole the receiver cannot learn of that.
        self.wait_for_the_network(connection);
    }

    fn wait_for_the_network(&self, connection: &Connection) {
        let state = self.state();
        let gone = |state: &mut State| state.blackholed && !connection.is_cut();
        drop(self.changed.wait_while(state, gone));
    }

    fn judge_request(&self, connection: &Connection, frame: &[u8]) -> Verdict {
        // The first frame of a connection asks for a session.
        if !connection.lock().greeted {
            connection.lock().greeted = true;
            return Verdict::Pass;
        }
        let (xid, mut opcode) = (int_at(frame, 4), int_at(frame, 8));
        // A look at the root is the ping of a client that cannot see its own pings.
        if opcode == super::raw::op::EXISTS && int_at(frame, 12) == 1 {
            opcode = super::raw::op::PING;
        }
        let mut state = self.state();
        *state.requests.entry(opcode).or_default() += 1;
        if let Some((_, verdict)) = state.unknown.filter(|(unknown, _)| *unknown == opcode) {
            return verdict;
        }
        match state.rule {
            Some(Rule::DropRequest(wanted)) if wanted == opcode => {
                state.rule = None;
                Verdict::Drop
            }
            Some(Rule::BlackholeAt(wanted)) if wanted == opcode => {
                state.rule = None;
                state.blackholed = true;
                Verdict::Pass
            }
            Some(Rule::DropReplyTo(wanted)) if wanted == opcode => {
                connection.lock().doomed.insert(xid);
                Verdict::Pass
            }
            _ => Verdict::Pass,
        }
    }

    fn judge_reply(&self, connection: &Connection, frame: &[u8]) -> Verdict {
        let mut state = self.state();
        if !connection.lock().answered {
            connection.lock().answered = true;
            state.greetings += 1;
            return match state.loses_greetings {
                true => Verdict::Swallow,
                false => Verdict::Pass,
            };
        }
        let xid = int_at(frame, 4);
        if connection.lock().doomed.contains(&xid) && state.rule.take().is_some() {
            return Verdict::Drop;
        }
        if xid == OURS {
            return Verdict::Drop;
        }
        // Numbers below zero are pings and events.
        if state.rule == Some(Rule::TruncateReply) && xid > 0 {
            state.rule = None;
            return Verdict::Truncate;
        }
        Verdict::Pass
    }
}
