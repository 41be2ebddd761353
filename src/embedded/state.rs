//! Everything that is behind the server's one lock.
//!
//! Whatever happens, happens in here in one order, and what clients are to see of it
//! goes into their outboxes in that order: an event is before the reply of any later
//! state. Nothing in here waits.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::acl::{Acl, Identity};
use super::admin::name;
use super::builder::Config;
use super::change::Change;
use super::faults::Faults;
use super::lag::Lag;
use super::node::Moment;
use super::outbox::Outbox;
use super::requests::Answer;
use super::sessions::{Password, Sessions};
use super::tree::Tree;
use super::watches::{Notice, Watcher, Watches};
use crate::jute::{ConnectReply, ConnectRequest, ErrorCode, Event, Permissions, Request};

pub(super) struct State {
    pub(super) config: Config,
    pub(super) tree: Tree,
    pub(super) watches: Watches,
    pub(super) sessions: Sessions,
    pub(super) faults: Faults,
    /// A follower that does not know of the last changes yet.
    pub(super) lag: Option<Lag>,
    pub(super) connections: BTreeMap<Watcher, Connection>,
    /// Of the last change.
    pub(super) zxid: i64,
    pub(super) traffic: Traffic,
    /// How many clients could not show who they are.
    pub(super) refused_identities: u64,
    started: Instant,
    latest_connection: Watcher,
    /// Sessions that are dead, and when their nodes go.
    dying: Vec<(Instant, i64)>,
    next_reaping: Instant,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) peer: SocketAddr,
    pub(super) session: Option<i64>,
    pub(super) identities: Vec<Identity>,
    pub(super) traffic: Traffic,
    /// Since the epoch.
    pub(super) since_ms: i64,
    pub(super) timeout_ms: i32,
    pub(super) last: Last,
    outbox: Arc<Outbox>,
}

/// What a client asked last, and when that was answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Last {
    pub(super) op: &'static str,
    pub(super) xid: i32,
    pub(super) zxid: i64,
    /// Since the server started.
    pub(super) at_ms: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    pub(super) received: u64,
    pub(super) sent: u64,
}

impl State {
    pub(super) fn new(config: Config) -> Self {
        let now = Instant::now();
        // As in ZooKeeper, so that a session of an earlier server is not mistaken for
        // one of this one.
        let first = (epoch_ms() << 24) >> 8 & (i64::MAX >> 8);
        Self {
            tree: Tree::new(),
            watches: Watches::default(),
            sessions: Sessions::new(config.timeouts(), first),
            faults: Faults::default(),
            lag: None,
            connections: BTreeMap::new(),
            zxid: first_zxid(),
            traffic: Traffic::default(),
            refused_identities: 0,
            started: now,
            latest_connection: 0,
            dying: Vec::new(),
            next_reaping: now + config.container_check,
            config,
        }
    }

    /// Takes a new connection in; `None` if there are too many.
    pub(super) fn admit(&mut self, peer: SocketAddr, outbox: Arc<Outbox>) -> Option<Watcher> {
        if self.connections.len() >= self.config.max_connections {
            return None;
        }
        self.latest_connection += 1;
        let connection = Connection {
            peer,
            session: None,
            identities: vec![Identity::of_address(peer.ip())],
            traffic: Traffic::default(),
            since_ms: epoch_ms(),
            timeout_ms: 0,
            last: Last {
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

    /// Answers a client's first frame; `false` if that was also its last.
    pub(super) fn connect(&mut self, id: Watcher, request: &ConnectRequest) -> bool {
        // The client has seen a state that this server does not have.
        if request.last_zxid > self.zxid {
            return false;
        }
        let reply = if request.session == 0 {
            Some(self.begin_session(id, request.timeout_ms))
        } else {
            self.resume_session(id, request)
        };
        let accepted = reply.is_some();
        let mut frame = Vec::new();
        reply.unwrap_or_else(expired).encode(&mut frame);
        // A new session is a change that a follower has to go through first.
        if let Some(lag) = &mut self.lag
            && request.session != 0
        {
            lag.admit(id, request.last_zxid);
        }
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.put(frame);
        }
        accepted
    }

    /// Answers a request.
    pub(super) fn receive(&mut self, id: Watcher, xid: i32, request: Result<Request, ErrorCode>) {
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
            let zxid = answer.header.zxid;
            let at_ms = now_ms;
            connection.last = Last {
                op,
                xid,
                zxid,
                at_ms,
            };
        }
        if self.faults.loses_reply_to(kind) {
            return self.cut(id);
        }
        self.send(id, answer);
    }

    /// The connection is no more; its session lives on for a while.
    pub(super) fn disconnected(&mut self, id: Watcher) {
        self.watches.forget(id);
        if let Some(lag) = &mut self.lag {
            lag.forget(id);
        }
        let connection = self.connections.remove(&id);
        let session = connection.and_then(|connection| connection.session);
        if let Some(session) = session.and_then(|session| self.sessions.get_mut(session))
            && session.connection == Some(id)
        {
            session.connection = None;
        }
    }

    /// Ends what is overdue, and says when to look again.
    pub(super) fn tick(&mut self) -> Duration {
        for session in self.sessions.overdue(self.now_ms()) {
            self.expire(session);
        }
        let now = Instant::now();
        let (over, dying) = self.dying.drain(..).partition(|(end, _)| *end <= now);
        self.dying = dying;
        for (_, session) in over {
            self.bury(session);
        }
        if self.lag.as_ref().is_some_and(|lag| lag.ends <= now) {
            self.catch_up();
        }
        if now >= self.next_reaping {
            self.next_reaping = now + self.config.container_check;
            self.reap_containers();
        }
        self.until_next_tick(now)
    }

    /// Ends a session as if its time were over; `false` if there is no such session.
    pub(super) fn expire(&mut self, session: i64) -> bool {
        let Some(ended) = self.sessions.end(session) else {
            return false;
        };
        if self.faults.linger.is_zero() {
            self.bury(session);
        } else {
            self.dying
                .push((Instant::now() + self.faults.linger, session));
        }
        if let Some(connection) = ended.connection {
            self.cut(connection);
        }
        true
    }

    /// Cuts the connections of which `which` is true.
    pub(super) fn disconnect(&mut self, which: impl Fn(&Connection) -> bool) -> bool {
        let wanted = |(id, connection): (&Watcher, &Connection)| which(connection).then_some(*id);
        let ids: Vec<_> = self.connections.iter().filter_map(wanted).collect();
        ids.iter().for_each(|id| self.cut(*id));
        !ids.is_empty()
    }

    /// The moment of the next change.
    pub(super) fn advance(&mut self) -> Moment {
        self.zxid += 1;
        Moment {
            zxid: self.zxid,
            ms: epoch_ms(),
        }
    }

    /// Tells those who wait for it of each change.
    pub(super) fn announce(&mut self, changes: &[Change]) {
        for change in changes {
            if let Change::Created { path, .. } = change
                && let Some(counter) = self.config.counters.remove(path)
            {
                self.tree.set_counter(path, counter);
            }
            if let Some(lag) = &mut self.lag {
                lag.miss(change);
            }
            for notice in self.watches.fire(change) {
                self.tell(notice);
            }
        }
    }

    /// Takes the session's nodes away.
    pub(super) fn bury(&mut self, session: i64) {
        let at = self.advance();
        let changes = self.tree.end_session(session, at);
        self.announce(&changes);
    }

    pub(super) fn tell(&mut self, notice: Notice) {
        let Some(connection) = self.connections.get_mut(&notice.watcher) else {
            return;
        };
        let may_not = |acl: &Acl| {
            acl.check(Permissions::READ.0, &connection.identities)
                .is_err()
        };
        // The watch has fired for all that.
        if notice.acl.as_ref().is_some_and(may_not) {
            return;
        }
        let event = Event {
            kind: notice.kind,
            state: Event::SYNC_CONNECTED,
            path: notice.path,
        };
        let mut frame = Vec::new();
        event.encode(&mut frame);
        connection.put(frame);
    }

    fn send(&mut self, id: Watcher, answer: Answer) {
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

    fn cut(&mut self, id: Watcher) {
        if let Some(connection) = self.connections.get(&id) {
            connection.outbox.cut();
        }
        self.disconnected(id);
    }

    fn begin_session(&mut self, id: Watcher, asked_ms: i32) -> ConnectReply {
        self.advance();
        let password = new_password();
        let session = self.sessions.begin(asked_ms, password, self.now_ms());
        self.attach(id, session, password)
    }

    fn resume_session(&mut self, id: Watcher, request: &ConnectRequest) -> Option<ConnectReply> {
        let now_ms = self.now_ms();
        let password = &request.password;
        let session =
            self.sessions
                .resume(request.session, password, request.timeout_ms, now_ms)?;
        let (password, former) = (session.password, session.connection.take());
        if let Some(former) = former {
            self.cut(former);
        }
        Some(self.attach(id, request.session, password))
    }

    fn attach(&mut self, id: Watcher, session: i64, password: Password) -> ConnectReply {
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

    fn reap_containers(&mut self) {
        for path in self.tree.spent_containers() {
            let at = self.advance();
            let change = self.tree.reap(&path, at);
            self.announce(change.ok().as_slice());
        }
    }

    fn until_next_tick(&self, now: Instant) -> Duration {
        let tick_ms = self.config.timeouts().tick_ms;
        let into_tick = self.started.elapsed().as_millis() % u128::from(tick_ms);
        let rest = tick_ms - u64::try_from(into_tick).unwrap_or(0);
        let next_end = self
            .dying
            .iter()
            .map(|(end, _)| *end)
            .chain([self.next_reaping])
            .chain(self.lag.as_ref().map(|lag| lag.ends))
            .min();
        let until_end = next_end.map(|end| end.saturating_duration_since(now));
        until_end
            .unwrap_or(Duration::MAX)
            .min(Duration::from_millis(rest))
    }

    /// A time on this server's clock as one since the epoch.
    pub(super) fn epoch_ms_at(&self, ms: u64) -> u64 {
        let ahead = ms.saturating_sub(self.now_ms());
        u64::try_from(epoch_ms()).unwrap_or(0) + ahead
    }

    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Connection {
    fn put(&mut self, frame: Vec<u8>) {
        self.traffic.sent += 1;
        self.outbox.put(frame);
    }
}

/// What a client is told whose session is no more.
fn expired() -> ConnectReply {
    ConnectReply {
        timeout_ms: 0,
        session: 0,
        password: vec![0; 16],
        read_only: false,
    }
}

fn new_password() -> Password {
    uuid::Uuid::new_v4().into_bytes()
}

/// Where the zxids of a server begin: above those of any earlier server at this address,
/// so that its clients come back to hear that their sessions are over. A server would not
/// let in who has seen more than it has itself. There are 4096 of them a millisecond, more
/// than a server can use up, and a language with floating point numbers only can still
/// tell them apart.
fn first_zxid() -> i64 {
    epoch_ms() << 12
}

fn epoch_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}
