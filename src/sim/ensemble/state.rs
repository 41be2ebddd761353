//! The whole ensemble, and what comes due in it.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::config::EnsembleConfig;
use super::connection::{Arrival, Connection, ConnectionNo, Output};
use super::history::{Asked, Change};
use super::message::{Link, LinkNo, Towards};
use super::server::ServerNode;
use zklock_embedded::RequestKind;
use zklock_embedded::parts::{Faults, ServerConfig};

/// Simulated servers; the [module](super) says what they are faithful to.
///
/// Time is virtual: it begins at zero, and no call may name an earlier time than the one before.
/// Each call does first what is due by then. What the servers send is stamped by the call after
/// which it is taken, so step from [`next_at`](Self::next_at) to `next_at`.
#[derive(Debug)]
pub struct Ensemble {
    pub(super) config: EnsembleConfig,
    pub(super) settings: ServerConfig,
    pub(super) chance: fastrand::Rng,
    pub(super) now: Duration,
    pub(super) servers: Vec<ServerNode>,
    pub(super) connections: BTreeMap<ConnectionNo, Connection>,
    pub(super) links: BTreeMap<LinkNo, Link>,
    pub(super) agenda: Agenda,
    pub(super) output: Vec<(ConnectionNo, Output)>,
    pub(super) history: Vec<Change>,
    /// How much of the log is in the history.
    pub(super) recorded: usize,
    pub(super) epoch: i64,
    pub(super) latest_connection: ConnectionNo,
    pub(super) latest_link: LinkNo,
    pub(super) faults: Faults,
    pub(super) late_pings: Duration,
    /// The server to elect, if no other knows more.
    pub(super) favourite: Option<usize>,
    /// What came to a server from each session, and when.
    pub(super) arrivals: BTreeMap<i64, Vec<(Duration, Arrival)>>,
    /// What each session has asked for, and when it came to a server.
    pub(super) asked: BTreeMap<i64, Vec<Asked>>,
}

/// What is to happen, by time and then in the order in which it was planned.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    events: BTreeMap<(Duration, u64), Event>,
    latest: u64,
}

#[derive(Debug)]
pub(super) enum Event {
    /// A message has arrived, or could not be delivered before.
    Deliver {
        link: LinkNo,
        towards: Towards,
    },
    /// A leader's half tick: pings, and whether there is a quorum.
    Round {
        server: usize,
        life: u64,
    },
    /// A ping that leaves late.
    Ping {
        server: usize,
        link: LinkNo,
    },
    /// A tick of a leader's clock, at which sessions end.
    Tick {
        server: usize,
        life: u64,
    },
    /// The leader comes to a session whose end has come.
    Expire {
        server: usize,
        life: u64,
        session: i64,
    },
    CheckContainers {
        server: usize,
        life: u64,
    },
    /// A server with a lag applies what is due.
    Apply {
        server: usize,
        life: u64,
    },
    /// A follower may have heard nothing for too long.
    Limit {
        server: usize,
        life: u64,
    },
    /// A server without a leader looks for one.
    Look {
        server: usize,
        life: u64,
    },
    /// A client may have sent nothing since it connected.
    Handshake {
        connection: ConnectionNo,
    },
    /// A client's bytes, or its end, that a paused server has not looked at.
    Input {
        connection: ConnectionNo,
        bytes: Option<Vec<u8>>,
    },
}

impl Agenda {
    pub(super) fn add(&mut self, at: Duration, event: Event) {
        self.latest += 1;
        self.events.insert((at, self.latest), event);
    }

    pub(super) fn next_at(&self) -> Option<Duration> {
        self.events.first_key_value().map(|((at, _), _)| *at)
    }

    #[cfg(test)]
    pub(super) fn planned(&self) -> impl Iterator<Item = (Duration, &Event)> {
        self.events.iter().map(|((at, _), event)| (*at, event))
    }

    /// Takes the next event if it is due.
    pub(super) fn pop(&mut self, now: Duration) -> Option<(Duration, u64, Event)> {
        let first = self.events.first_entry()?;
        let (at, number) = *first.key();
        (at <= now).then(|| (at, number, first.remove()))
    }

    /// Puts an event off, without changing the order among those put off to the same time.
    pub(super) fn put_off(&mut self, until: Duration, number: u64, event: Event) {
        self.events.insert((until, number), event);
    }
}

impl Ensemble {
    /// Returns an ensemble in order: all servers serve, and one of them leads.
    ///
    /// # Panics
    ///
    /// Panics if there are to be no servers, or if a tick takes less than 1 ms.
    pub fn new(config: EnsembleConfig, seed: u64) -> Self {
        assert!(0 < config.servers, "an ensemble has a server");
        assert!(
            Duration::from_millis(1) <= config.tick,
            "a tick takes at least 1 ms"
        );
        let settings = config.of_server();
        let servers = (0..config.servers).map(|_| ServerNode::new(&settings));
        let mut ensemble = Self {
            servers: servers.collect(),
            settings,
            chance: fastrand::Rng::with_seed(seed),
            now: Duration::ZERO,
            connections: BTreeMap::new(),
            links: BTreeMap::new(),
            agenda: Agenda::default(),
            output: Vec::new(),
            history: Vec::new(),
            recorded: 0,
            arrivals: BTreeMap::new(),
            asked: BTreeMap::new(),
            epoch: 0,
            latest_connection: 0,
            latest_link: 0,
            faults: Faults::default(),
            late_pings: Duration::ZERO,
            favourite: None,
            config,
        };
        ensemble.begin();
        ensemble
    }

    /// Returns when something comes due; the leader's pings always do.
    pub fn next_at(&self) -> Option<Duration> {
        self.agenda.next_at()
    }

    /// Takes what the servers have sent, in its order.
    pub fn take_output(&mut self) -> Vec<(ConnectionNo, Output)> {
        std::mem::take(&mut self.output)
    }

    /// Returns what was committed, in its order.
    pub fn history(&self) -> &[Change] {
        &self.history
    }

    /// Returns the paths of all nodes that are committed, in order, without ZooKeeper's own.
    pub fn nodes(&self) -> Vec<String> {
        let view = &self.best_informed().view;
        let mut paths: Vec<_> = view.tree.paths().map(str::to_owned).collect();
        paths.sort_unstable();
        paths
    }

    /// Returns the sessions that are committed and have not ended.
    pub fn sessions(&self) -> Vec<i64> {
        self.best_informed().sessions.keys().copied().collect()
    }

    /// Returns what came to a server from a session and when, whatever became of it.
    pub fn arrivals(&self, session: i64) -> &[(Duration, Arrival)] {
        self.arrivals.get(&session).map_or(&[], Vec::as_slice)
    }

    /// Returns what a session has asked for, without its pings, in the order in which it came.
    pub fn asked(&self, session: i64) -> &[Asked] {
        self.asked.get(&session).map_or(&[], Vec::as_slice)
    }

    pub(super) fn note_asked(&mut self, session: i64, kind: RequestKind) {
        let asked = Asked { at: self.now, kind };
        self.asked.entry(session).or_default().push(asked);
    }

    pub(super) fn note_arrival(&mut self, session: i64, what: Arrival) {
        let all = self.arrivals.entry(session).or_default();
        all.push((self.now, what));
    }

    /// Returns the leader that a quorum can reach.
    pub fn leader(&self) -> Option<usize> {
        (0..self.servers.len()).find(|server| self.may_lead(*server))
    }

    /// Returns the server of this connection.
    pub fn server_of(&self, connection: ConnectionNo) -> Option<usize> {
        let connection = self.connections.get(&connection)?;
        Some(connection.server)
    }

    /// Returns the number of watches that the servers keep.
    pub fn watch_count(&self) -> usize {
        self.servers
            .iter()
            .map(|server| server.view.watches.len())
            .sum()
    }

    /// Returns the number of connections that are open.
    pub fn connection_count(&self) -> usize {
        self.connections.len()
    }

    /// The leader, unless another has applied more.
    fn best_informed(&self) -> &ServerNode {
        let rank = |server: &&ServerNode| (server.applied, server.leads());
        let best = self.servers.iter().max_by_key(rank);
        best.expect("there is a server")
    }

    /// Draws a time from a range.
    pub(super) fn draw(&mut self, range: RangeInclusive<Duration>) -> Duration {
        let nanos = |time: &Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let (least, most) = (nanos(range.start()), nanos(range.end()));
        Duration::from_nanos(self.chance.u64(least..=most.max(least)))
    }

    pub(super) fn hop(&mut self) -> Duration {
        self.draw(self.config.hop.clone())
    }

    /// Plans an event for `time` from now.
    pub(super) fn after(&mut self, time: Duration, event: Event) {
        self.agenda.add(self.now.saturating_add(time), event);
    }

    pub(super) fn is_paused(&self, server: usize) -> bool {
        self.now < self.servers[server].paused_until
    }
}
