//! A run: the servers, the clients, the network between them, and the time.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use zklock_jute::Request;
use zklock_play::Ticket;

use crate::agenda::Agenda;
use crate::client::{self, Client};
use crate::holds::is_hold;
use crate::plan::{Plan, What};
use crate::servers::tree::{Change, ConnNo};
use crate::servers::{Conn, Message, SERVERS, Said, Server, Time, Told, pop_if};
use crate::writes::{WRITTEN, Writes};

/// When a run begins: longer after the fixed moment than any session lasts.
pub(crate) const BEGINNING: Time = Duration::from_secs(1_000);

/// The locks of a run.
pub(crate) const PATHS: [&str; 2] = ["/a", "/b/c"];

/// Something that happens at its time.
#[derive(Debug)]
pub(crate) enum Happening {
    // At a client.
    Told {
        conn: ConnNo,
        told: Told,
    },
    Act {
        client: usize,
        thread: usize,
    },
    Cancel {
        client: usize,
        ticket: Ticket,
    },
    ClientTick {
        client: usize,
    },
    Connect {
        client: usize,
    },
    DialLimit {
        client: usize,
        conn: ConnNo,
    },
    // At a server.
    Said {
        conn: ConnNo,
        said: Said,
    },
    HangUp {
        conn: ConnNo,
    },
    Peer {
        from: usize,
        to: usize,
    },
    Apply {
        server: usize,
        life: u32,
    },
    Round {
        server: usize,
        life: u32,
    },
    Expiry {
        server: usize,
        life: u32,
    },
    Expire {
        server: usize,
        life: u32,
        session: i64,
    },
    Look {
        server: usize,
        life: u32,
    },
    Limit {
        server: usize,
        life: u32,
    },
    /// A follower has written so many changes to its disk.
    Logged {
        server: usize,
        life: u32,
        length: usize,
    },
    // Anywhere.
    /// One of the plan's troubles begins.
    Trouble(usize),
    Over(What),
    Calm,
    /// Another program makes a pause, or ends it.
    Pause(usize),
    Release(usize),
}

/// When a message to another server arrives, and in which lives of the two it was sent.
type Sent = (Time, (u32, u32), Message);

/// A node of a queue: when it was created and deleted, as the servers committed that.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(crate) path: Rc<str>,
    pub(crate) owner: i64,
    /// Whether it is a contender, and whether that is another program's hold.
    pub(crate) contends: bool,
    pub(crate) is_hold: bool,
    /// When it was created by the servers' clock, in milliseconds.
    pub(crate) written: i64,
    pub(crate) from: Time,
    pub(crate) to: Option<Time>,
    /// The changes that created and deleted it.
    pub(crate) zxids: (i64, Option<i64>),
    /// The node's data, version by version.
    pub(crate) data: Vec<Rc<[u8]>>,
}

/// The numbers of requests that a client has sent to the servers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) creates: u32,
    pub(crate) deletes: u32,
    /// Transactions of a deletion and a create.
    pub(crate) both: u32,
    pub(crate) lists: u32,
    pub(crate) reads: u32,
    pub(crate) checks: u32,
    /// Transactions under a guard.
    pub(crate) commits: u32,
}

/// The cases that the runs of many seeds have met.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) steps: u64,
    pub(crate) grants: u64,
    /// Locks handed on from thread to thread.
    pub(crate) handed_on: u64,
    /// Releases that took the next thread's create along.
    pub(crate) joined: u64,
    pub(crate) broken: u64,
    pub(crate) expired: u64,
    pub(crate) given_up: u64,
    /// Guards that were lost before their release.
    pub(crate) lost: u64,
    /// Requests after which a listing is up to date: for a node that may have been created.
    pub(crate) looked_for: u64,
    /// Guards that were trusted for too long after servers had broken a precondition.
    pub(crate) beyond: u64,
    /// Writes under guards, and those whose result is in doubt.
    pub(crate) written: u64,
    pub(crate) doubted: u64,
    /// Notes of orderly releases, and holders that were told that all ahead had left one.
    pub(crate) noted: u64,
    pub(crate) followed: u64,
    /// Holds that a waiter has removed.
    pub(crate) unheld: u64,
    /// News that waiting threads were told.
    pub(crate) told: u64,
    /// Locks that were granted in time when nothing broke any more.
    pub(crate) recovered: u64,
    /// Grants to readers while another reader held the lock.
    pub(crate) shared: u64,
    /// Permits that were granted.
    pub(crate) permits: u64,
    /// Losses whose reason was made more exact.
    pub(crate) explained: u64,
}

impl Seen {
    pub(crate) fn add(&mut self, other: Self) {
        self.steps += other.steps;
        self.grants += other.grants;
        self.handed_on += other.handed_on;
        self.joined += other.joined;
        self.broken += other.broken;
        self.expired += other.expired;
        self.given_up += other.given_up;
        self.lost += other.lost;
        self.looked_for += other.looked_for;
        self.beyond += other.beyond;
        self.written += other.written;
        self.doubted += other.doubted;
        self.noted += other.noted;
        self.followed += other.followed;
        self.unheld += other.unheld;
        self.told += other.told;
        self.recovered += other.recovered;
        self.shared += other.shared;
        self.permits += other.permits;
        self.explained += other.explained;
    }
}

/// See the module's documentation.
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) chance: Rng,
    pub(crate) now: Time,
    agenda: Agenda,
    planned: u64,
    /// The same as `PATHS`.
    pub(crate) paths: [Arc<str>; 2],
    pub(crate) servers: [Server; SERVERS],
    pub(crate) conns: Vec<Conn>,
    /// The connections that are open, in their order.
    pub(crate) open: Vec<ConnNo>,
    pub(crate) clients: Vec<Client>,
    pub(crate) ops: Vec<client::Op>,
    /// How long a disk takes to write, if that is long.
    pub(crate) disk: Duration,
    pub(crate) epoch: i64,
    pub(crate) last_session: i64,
    /// The messages that are on their way from one server to another, or wait for the end of a cut.
    peers: [[VecDeque<Sent>; SERVERS]; SERVERS],
    recorded: i64,
    pub(crate) lives: Vec<Life>,
    /// The nodes that another client has deleted.
    pub(crate) evicted: Vec<String>,
    pub(crate) writes: Writes,
    /// The directories into which another program has written.
    pub(crate) foreign: Vec<String>,
    pub(crate) is_calm: bool,
    /// The time since which nothing breaks any more.
    pub(crate) calm_at: Time,
    pub(crate) seen: Seen,
    story: Option<Vec<String>>,
    pub(crate) failure: Option<String>,
}

impl World {
    pub(crate) fn new(plan: Plan, seed: u64, tells: bool) -> Self {
        let chance = Rng::with_seed(seed ^ 0x9e37_79b9_7f4a_7c15);
        let clients = plan.clients.iter().enumerate();
        let clients = clients.map(|(at, threads)| Client::new(at, threads, &plan));
        let mut world = Self {
            clients: clients.collect(),
            plan,
            chance,
            now: BEGINNING,
            agenda: Agenda::new(),
            planned: 0,
            paths: PATHS.map(Arc::from),
            servers: Default::default(),
            conns: Vec::with_capacity(16),
            open: Vec::with_capacity(4),
            ops: Vec::with_capacity(16),
            disk: Duration::ZERO,
            epoch: 0,
            last_session: 0,
            peers: Default::default(),
            recorded: 0,
            lives: Vec::with_capacity(32),
            evicted: Vec::new(),
            writes: Writes::default(),
            foreign: Vec::new(),
            is_calm: false,
            calm_at: Time::MAX,
            seen: Seen::default(),
            story: tells.then(Vec::new),
            failure: None,
        };
        world.begin_servers();
        world.begin_writes();
        world.begin_clients();
        world
    }

    fn begin_clients(&mut self) {
        for client in 0..self.clients.len() {
            self.plan(self.now, Happening::Connect { client });
            for thread in 0..self.clients[client].threads.len() {
                self.next_want(client, thread);
            }
        }
        for trouble in 0..self.plan.troubles.len() {
            let at = BEGINNING + self.plan.troubles[trouble].at;
            self.plan(at, Happening::Trouble(trouble));
        }
        for pause in 0..self.plan.pauses.len() {
            let at = BEGINNING + self.plan.pauses[pause].at;
            self.plan(at, Happening::Pause(pause));
        }
        let last = self.plan.troubles.iter().map(|it| it.at + it.time).max();
        let calm = last.map_or(Duration::ZERO, |last| last + self.plan.timeout);
        self.plan(BEGINNING + calm, Happening::Calm);
    }

    pub(crate) fn plan(&mut self, at: Time, happening: Happening) {
        self.planned += 1;
        self.put((at, self.planned), happening);
    }

    fn put(&mut self, (at, number): (Time, u64), happening: Happening) {
        self.agenda.put(at.max(self.now), number, happening);
    }

    /// Plays until all threads have done what they wanted and no node is left, or something is
    /// wrong.
    pub(crate) fn run(&mut self) {
        let patience = self.plan.timeout * 40 + self.longest();
        let (grace, lasts) = (self.grace(), self.plan.timeout * 3);
        let mut over = None;
        while self.failure.is_none() {
            let Some((at, number, happening)) = self.agenda.next() else {
                break;
            };
            self.now = at;
            self.seen.steps += 1;
            self.happens(number, happening);
            if over.is_none() && self.is_calm && self.is_done() {
                // The nodes that are left must be gone soon.
                over = Some(self.now);
            }
            let is_clean = || self.clients.iter().all(|it| it.core.leftovers() == 0);
            match over {
                Some(done) if done + grace < self.now && is_clean() => break,
                Some(done) if done + lasts < self.now => {
                    self.fail("a node is left that its client does not get rid of");
                }
                None if BEGINNING + patience < self.now => self.fail("an ask never ends"),
                _ => {}
            }
        }
    }

    /// Returns the time by which all messages on their way have arrived.
    fn grace(&self) -> Duration {
        (self.plan.trip + self.plan.jitter) * 4 + self.plan.hop * 8
    }

    fn longest(&self) -> Duration {
        let holds = self.plan.clients.iter().flatten().flatten();
        let holds = holds.map(|want| want.hold + want.pause);
        let troubles = self.plan.troubles.iter().map(|it| it.at + it.time).max();
        let pauses = self.plan.pauses.iter();
        let pauses = pauses.map(|it| it.at + it.lasts.unwrap_or(it.released));
        holds.chain(pauses).sum::<Duration>() + troubles.unwrap_or_default()
    }

    fn is_done(&self) -> bool {
        let mut threads = self.clients.iter().flat_map(|client| &client.threads);
        threads.all(|thread| thread.is_done())
    }

    fn happens(&mut self, number: u64, happening: Happening) {
        if let Some(until) = self.busy_until(&happening) {
            // Messages that have arrived are read before anything that is due by the clock.
            let late = match happening {
                Happening::ClientTick { .. } | Happening::DialLimit { .. } => {
                    Duration::from_nanos(1)
                }
                _ => Duration::ZERO,
            };
            // Later messages may have been put off until then already.
            return self.put((until + late, number), happening);
        }
        match happening {
            Happening::Told { conn, told } => self.at_client(conn, told),
            Happening::Act { client, thread } => self.act(client, thread),
            Happening::Cancel { client, ticket } => self.cancel(client, ticket),
            Happening::ClientTick { client } => self.client_tick(client),
            Happening::Connect { client } => self.connect(client),
            Happening::DialLimit { client, conn } => self.dial_limit(client, conn),
            Happening::Said { conn, said } => self.at_server(conn, said),
            Happening::HangUp { conn } => self.forget(conn),
            Happening::Peer { from, to } => self.deliver(from, to),
            Happening::Trouble(trouble) => self.trouble(trouble),
            Happening::Over(what) => self.trouble_ends(what),
            Happening::Calm => self.calm(),
            Happening::Pause(pause) => self.pause(pause),
            Happening::Release(pause) => self.release_pause(pause),
            of_a_server => self.server_does(of_a_server),
        }
    }

    fn server_does(&mut self, happening: Happening) {
        let lives = |server: usize, life: u32| self.servers[server].life == life;
        match happening {
            Happening::Apply { server, life } if lives(server, life) => self.apply_due(server),
            Happening::Round { server, life } if lives(server, life) => self.round(server, life),
            Happening::Expiry { server, life } if lives(server, life) => {
                self.expiry_tick(server, life);
            }
            Happening::Expire {
                server,
                life,
                session,
            } if lives(server, life) => self.expire(server, session),
            Happening::Look { server, life } if lives(server, life) => self.look(server),
            Happening::Limit { server, life } if lives(server, life) => {
                self.lose_leader(server, life);
            }
            Happening::Logged {
                server,
                life,
                length,
            } if lives(server, life) => self.acknowledge(server, length),
            // The step belongs to an earlier life.
            _ => {}
        }
    }

    /// Returns until when the client or server of this happening is frozen or stopped.
    fn busy_until(&self, happening: &Happening) -> Option<Time> {
        let until = match happening {
            Happening::Told { conn, .. } => self.clients[self.conns[*conn].client].stopped_until,
            Happening::Act { client, .. }
            | Happening::Cancel { client, .. }
            | Happening::ClientTick { client }
            | Happening::Connect { client }
            | Happening::DialLimit { client, .. } => self.clients[*client].stopped_until,
            Happening::Said { conn, .. } | Happening::HangUp { conn } => {
                self.servers[self.conns[*conn].server].frozen_until
            }
            Happening::Peer { to: server, .. }
            | Happening::Apply { server, .. }
            | Happening::Round { server, .. }
            | Happening::Expiry { server, .. }
            | Happening::Expire { server, .. }
            | Happening::Look { server, .. }
            | Happening::Limit { server, .. }
            | Happening::Logged { server, .. } => self.servers[*server].frozen_until,
            Happening::Trouble(_)
            | Happening::Over(_)
            | Happening::Calm
            | Happening::Pause(_)
            | Happening::Release(_) => Time::ZERO,
        };
        (self.now < until).then_some(until)
    }

    pub(crate) fn fail(&mut self, why: impl Into<String>) {
        if self.failure.is_none() {
            let why = why.into();
            self.tell_story(|| format!("WRONG: {why}"));
            self.failure = Some(why);
        }
    }

    /// Adds a line to the story, if it is told.
    pub(crate) fn tell_story(&mut self, line: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            let at = self.now - BEGINNING;
            // Ids differ in their first and last digits.
            let line = line().replace("-0000-8000-8000-0000000000", "..");
            story.push(format!("{:>12.6} {line}", at.as_secs_f64()));
        }
    }

    pub(crate) fn story(&self) -> String {
        self.story
            .iter()
            .flatten()
            .fold(String::new(), |all, line| all + line + "\n")
    }

    /// Returns whether the story is told.
    pub(crate) fn tells(&self) -> bool {
        self.story.is_some()
    }
}

// The network.
impl World {
    pub(crate) fn send(&mut self, from: usize, to: usize, message: Message) {
        let lives = (self.servers[from].life, self.servers[to].life);
        let hop = self.plan.hop.as_nanos() as u64;
        let arrival = self.now + Duration::from_nanos(self.chance.u64(hop / 4..=hop));
        // No message overtakes an earlier one.
        let queue = &mut self.peers[from][to];
        let last = queue.back().map_or(arrival, |(last, ..)| *last);
        let arrival = arrival.max(last);
        queue.push_back((arrival, lives, message));
        self.plan(arrival, Happening::Peer { from, to });
    }

    /// Delivers the messages that have arrived, unless one of the two servers is cut off.
    fn deliver(&mut self, from: usize, to: usize) {
        while !self.servers[from].is_cut && !self.servers[to].is_cut {
            let now = self.now;
            let queue = &mut self.peers[from][to];
            let Some((_, lives, message)) = pop_if(queue, |(at, ..)| *at <= now) else {
                return;
            };
            // A server that resigns is in another life when its last message arrives.
            let sender = matches!(message, Message::Reset) || self.servers[from].life == lives.0;
            if sender && self.servers[to].life == lives.1 {
                self.at_peer(from, to, message);
            }
        }
    }

    /// Sends a message to a client.
    pub(crate) fn tell(&mut self, conn: ConnNo, told: Told) {
        if self.conns[conn].open {
            let client = self.conns[conn].client;
            let at = self.arrival(client, true);
            self.plan(at, Happening::Told { conn, told });
        }
    }

    /// Sends a message of a client.
    pub(crate) fn say(&mut self, conn: ConnNo, said: Said) {
        let client = self.conns[conn].client;
        let at = self.arrival(client, false);
        self.plan(at, Happening::Said { conn, said });
    }

    fn arrival(&mut self, client: usize, to_client: bool) -> Time {
        let jitter = self.plan.jitter.as_nanos() as u64;
        let late = match jitter {
            0 => Duration::ZERO,
            most => Duration::from_nanos(self.chance.u64(..most)),
        };
        let at = self.now + self.plan.trip + late;
        let client = &mut self.clients[client];
        let at = at.max(client.delayed_until);
        let last = &mut client.arrivals[usize::from(to_client)];
        *last = at.max(*last);
        *last
    }
}

// The record of what the servers committed.
impl World {
    /// Notes a committed change, once for all servers.
    pub(crate) fn record(&mut self, server: usize, zxid: i64, session: i64, changes: &[Change]) {
        if zxid <= self.recorded {
            return;
        }
        self.recorded = zxid;
        for change in changes {
            match change {
                Change::Created(path) => {
                    let node = self.servers[server].tree.nodes.get(path);
                    let (owner, written) = node.map_or((0, 0), |node| (node.owner, node.ctime));
                    let data = node.map(|node| node.data.clone()).into_iter().collect();
                    self.tell_story(|| format!("{path} is created by session {session}"));
                    let is_hold = is_hold(path);
                    self.lives.push(Life {
                        path: path.clone(),
                        owner,
                        contends: owner != 0 || is_hold,
                        is_hold,
                        written,
                        from: self.now,
                        to: None,
                        zxids: (zxid, None),
                        data,
                    });
                }
                Change::Deleted(path) => {
                    self.tell_story(|| format!("{path} is deleted by session {session}"));
                    let mut lives = self.lives.iter_mut().rev();
                    if let Some(life) = lives.find(|life| life.path == *path) {
                        life.to = Some(self.now);
                        life.zxids.1 = Some(zxid);
                    }
                    // The directory may be created anew.
                    self.foreign.retain(|dir| **dir != **path);
                    self.judge_deletion(path);
                    if is_hold(path) {
                        self.judge_hold(path, session);
                    }
                }
                Change::Set(path) => {
                    self.record_data(server, path);
                    self.judge_set((server, path), session, changes);
                }
            }
        }
    }

    /// Judges a write to the data of a node.
    fn judge_set(&mut self, (server, path): (usize, &str), session: i64, changes: &[Change]) {
        let node = self.servers[server].tree.nodes.get(path);
        let data = node.map(|node| node.data.clone()).unwrap_or_default();
        let deleted = changes.iter().find_map(|change| match change {
            Change::Deleted(path) => Some(&**path),
            _ => None,
        });
        match path {
            WRITTEN => self.judge_write(&data, deleted),
            path if PATHS.contains(&path) && self.plan.has_permits() => {
                self.judge_number(path, &data)
            }
            path if PATHS.contains(&path) => self.judge_note((path, &data), session, deleted),
            _ => {}
        }
    }

    fn record_data(&mut self, server: usize, path: &str) {
        let node = self.servers[server].tree.nodes.get(path);
        let mut lives = self.lives.iter_mut().rev();
        if let Some(life) = lives.find(|life| &*life.path == path) {
            life.data.extend(node.map(|node| node.data.clone()));
        }
    }

    pub(crate) fn note_asked(&mut self, conn: ConnNo, request: &Request) {
        let client = self.conns[conn].client;
        let asked = &mut self.clients[client].asked;
        match request {
            Request::Create { .. } => asked.creates += 1,
            Request::SetData { path, .. } if path.ends_with("/_sync") => self.seen.looked_for += 1,
            Request::Delete { .. } => asked.deletes += 1,
            Request::GetChildren { .. } => asked.lists += 1,
            Request::Multi(ops) => match ops[..] {
                [Request::Delete { .. }, Request::Create { .. }, ..] => {
                    asked.both += 1;
                    self.seen.joined += 1;
                }
                [Request::Delete { .. }, ..] => asked.deletes += 1,
                [Request::Check { .. }, Request::SetData { .. }] => asked.commits += 1,
                _ => asked.checks += 1,
            },
            _ => asked.reads += 1,
        }
    }

    /// Returns the nodes that exist, by what the servers have committed.
    pub(crate) fn standing(&self) -> BTreeMap<&str, i64> {
        let lives = self
            .lives
            .iter()
            .filter(|it| it.to.is_none() && it.owner != 0);
        lives.map(|life| (&*life.path, life.owner)).collect()
    }
}
