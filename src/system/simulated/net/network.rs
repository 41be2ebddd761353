//! All connections, and the servers behind them.

mod client_side;

use std::any::Any;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::fmt;
use std::time::Duration;

use super::connection::{Arrival, Connection, End, Stage};
use super::link::{Link, Output, Peer};
use crate::system::simulated::state::{Key, Outside};

/// All connections, and the servers behind them.
pub struct Network {
    peer: Box<dyn Peer>,
    rng: fastrand::Rng,
    usual: Link,
    links: BTreeMap<(usize, usize), Link>,
    connections: BTreeMap<u64, Connection>,
    /// The connections, by the numbers that the peer has for them.
    numbers: BTreeMap<u64, u64>,
    latest: u64,
    queue: BinaryHeap<Reverse<(u64, u64, Arrival)>>,
    sequence: u64,
    woken: Vec<Key>,
    /// Names that cannot be resolved.
    unknown: BTreeSet<String>,
    slow_names: Duration,
}

impl Network {
    /// Creates a network with these servers.
    pub fn new(peer: Box<dyn Peer>, usual: Link, seed: u64) -> Self {
        Self {
            peer,
            rng: fastrand::Rng::with_seed(seed),
            usual,
            links: BTreeMap::new(),
            connections: BTreeMap::new(),
            numbers: BTreeMap::new(),
            latest: 0,
            queue: BinaryHeap::new(),
            sequence: 0,
            woken: Vec::new(),
            unknown: BTreeSet::new(),
            slow_names: Duration::ZERO,
        }
    }

    /// Returns the servers.
    pub fn peer(&mut self) -> &mut dyn Peer {
        &mut *self.peer
    }

    /// Sends the peer's output, after something was done to the peer.
    pub fn peer_changed(&mut self, now: u64) {
        self.collect(now);
    }

    /// Changes the link between a process and a server. Messages that the link no longer holds up go on.
    pub fn change_link(
        &mut self,
        process: usize,
        server: usize,
        now: u64,
        change: impl FnOnce(&mut Link),
    ) {
        let usual = self.usual.clone();
        let link = self.links.entry((process, server)).or_insert(usual);
        change(link);
        let link = link.clone();
        let mut released = Vec::new();
        for connection in self.connections.values_mut() {
            if (connection.process, connection.server) == (process, server) {
                if !link.holds_up {
                    released.append(&mut connection.held_up);
                }
                if !link.holds_down {
                    released.append(&mut connection.held_down);
                }
            }
        }
        // Released messages arrive before later ones that are already on their way.
        for arrival in released {
            self.sequence += 1;
            self.queue.push(Reverse((now, self.sequence, arrival)));
        }
    }

    /// Cuts the connections of a process to a server: some of the data on its way is lost.
    pub fn cut(&mut self, process: usize, server: usize, now: u64) {
        let ids: Vec<u64> = self
            .connections
            .iter()
            .filter(|(_, one)| (one.process, one.server) == (process, server))
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            self.cut_one(id, now);
        }
    }

    /// Makes a name unresolvable from now on, or resolvable again.
    pub fn make_unknown(&mut self, host: &str, unknown: bool) {
        match unknown {
            true => self.unknown.insert(host.to_owned()),
            false => self.unknown.remove(host),
        };
    }

    /// Makes every name take `by` to be resolved from now on.
    pub fn slow_names(&mut self, by: Duration) {
        self.slow_names = by;
    }

    /// Returns how many connections have a client.
    pub fn connections(&self) -> usize {
        self.connections.values().filter(|one| !one.dropped).count()
    }

    /// Returns how far a connection has come, and the key that wakes the threads that wait for it.
    pub(super) fn stage(&self, id: u64) -> (Stage, Key) {
        let connection = &self.connections[&id];
        (connection.stage, connection.key)
    }

    pub(super) fn is_unknown(&self, host: &str) -> bool {
        self.unknown.contains(host)
    }

    /// Returns how long it takes to resolve a name.
    pub(super) fn takes_for_a_name(&self) -> Duration {
        self.slow_names
    }

    fn link(&self, id: u64) -> &Link {
        let connection = self.connections.get(&id);
        connection
            .and_then(|one| self.links.get(&(one.process, one.server)))
            .unwrap_or(&self.usual)
    }

    fn arrive(&mut self, now: u64, arrival: Arrival) {
        let id = arrival.connection();
        let (holds_up, holds_down) = (self.link(id).holds_up, self.link(id).holds_down);
        let refuses = self.link(id).refuses;
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        match arrival.goes_up() {
            true if holds_up => return connection.held_up.push(arrival),
            false if holds_down => return connection.held_down.push(arrival),
            _ => {}
        }
        let time = Duration::from_nanos(now);
        match arrival {
            Arrival::Call(id) => {
                let number = match refuses || connection.dropped {
                    true => None,
                    false => self.peer.accept(time, connection.server),
                };
                connection.number = number;
                if let Some(number) = number {
                    self.numbers.insert(number, id);
                }
                self.schedule(now, Arrival::Answer(id, number.is_some()));
            }
            Arrival::Answer(_, accepted) => {
                connection.stage = match accepted {
                    true => Stage::Connected,
                    false => Stage::Refused,
                };
                self.woken.push(connection.key);
            }
            Arrival::Up(_, bytes) => {
                connection.unacknowledged -= bytes.len().min(connection.unacknowledged);
                self.woken.push(connection.key);
                if let Some(number) = connection.number {
                    self.peer.receive(time, number, &bytes);
                }
            }
            Arrival::UpEnd(_) => {
                if let Some(number) = connection.number.take() {
                    self.numbers.remove(&number);
                    self.peer.hang_up(time, number);
                }
                if connection.dropped {
                    self.connections.remove(&id);
                }
            }
            Arrival::Down(_, bytes) => {
                connection.inbound.extend(bytes);
                self.woken.push(connection.key);
            }
            Arrival::DownEnd(_) => {
                connection.end.get_or_insert(End::Closed);
                self.woken.push(connection.key);
            }
        }
    }

    /// Sends the peer's output.
    fn collect(&mut self, now: u64) {
        for (number, output) in self.peer.take_output() {
            let Some(id) = self.numbers.get(&number).copied() else {
                continue;
            };
            match output {
                Output::Bytes(bytes) => {
                    let bytes = self.take_garbage(id).unwrap_or(bytes);
                    let limit = self.link(id).cut_down_after;
                    let Some(connection) = self.connections.get_mut(&id) else {
                        continue;
                    };
                    if connection.cut {
                        continue;
                    }
                    connection.come_down += bytes.len() as u64;
                    match limit.filter(|limit| *limit < connection.come_down) {
                        Some(limit) => {
                            let over = connection.come_down - limit;
                            let keep = (bytes.len() as u64).saturating_sub(over) as usize;
                            let kept = bytes.get(..keep).unwrap_or_default().to_vec();
                            connection.cut = true;
                            self.forget_cuts(id);
                            self.schedule(now, Arrival::Down(id, kept));
                            self.schedule(now, Arrival::DownEnd(id));
                            self.schedule(now, Arrival::UpEnd(id));
                        }
                        None => self.schedule(now, Arrival::Down(id, bytes)),
                    }
                }
                Output::Closed => {
                    self.numbers.remove(&number);
                    if let Some(connection) = self.connections.get_mut(&id) {
                        connection.number = None;
                    }
                    self.schedule(now, Arrival::DownEnd(id));
                }
            }
        }
    }

    /// Removes the planned cuts of a link: a cut after a number of bytes happens to one connection only.
    fn forget_cuts(&mut self, id: u64) {
        if let Some(link) = self.own_link(id) {
            link.cut_down_after = None;
            link.cut_up_after = None;
        }
    }

    fn take_garbage(&mut self, id: u64) -> Option<Vec<u8>> {
        self.own_link(id)?.garbage.take()
    }

    /// Returns the link of a connection, if it differs from the usual one.
    fn own_link(&mut self, id: u64) -> Option<&mut Link> {
        let connection = self.connections.get(&id)?;
        let place = (connection.process, connection.server);
        self.links.get_mut(&place)
    }

    fn schedule(&mut self, now: u64, arrival: Arrival) {
        let id = arrival.connection();
        let latency = self.link(id).latency.clone();
        let range = latency.start.as_nanos() as u64..latency.end.as_nanos() as u64 + 1;
        let at = now + self.rng.u64(range);
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let last = match arrival.goes_up() {
            true => &mut connection.last_up,
            false => &mut connection.last_down,
        };
        *last = at.max(*last + 1);
        let at = *last;
        self.sequence += 1;
        self.queue.push(Reverse((at, self.sequence, arrival)));
    }

    fn cut_one(&mut self, id: u64, now: u64) {
        let all = std::mem::take(&mut self.queue);
        // In each direction, everything after a random point is lost.
        let (mut up, mut down) = (true, true);
        let mut all: Vec<_> = all.into_sorted_vec();
        all.reverse();
        for Reverse((at, sequence, arrival)) in all {
            if arrival.connection() == id {
                let goes_on = if arrival.goes_up() {
                    &mut up
                } else {
                    &mut down
                };
                *goes_on &= self.rng.bool();
                if !*goes_on {
                    continue;
                }
            }
            self.queue.push(Reverse((at, sequence, arrival)));
        }
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.cut = true;
            connection.held_up.clear();
            connection.held_down.clear();
            connection.end = Some(End::Reset);
            if connection.stage == Stage::Connecting {
                connection.stage = Stage::Refused;
            }
            self.woken.push(connection.key);
        }
        self.schedule(now, Arrival::UpEnd(id));
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").finish_non_exhaustive()
    }
}

impl Outside for Network {
    fn run_until(&mut self, now: u64) {
        while let Some(at) = self.next_at().filter(|at| *at <= now) {
            self.peer.run_until(Duration::from_nanos(at));
            self.collect(at);
            let due = |next: &Reverse<(u64, u64, Arrival)>| next.0.0 <= at;
            if self.queue.peek().is_some_and(due) {
                if let Some(Reverse((at, _, arrival))) = self.queue.pop() {
                    self.arrive(at, arrival);
                    self.collect(at);
                }
            }
        }
    }

    fn next_at(&self) -> Option<u64> {
        let queued = self.queue.peek().map(|Reverse((at, ..))| *at);
        let peer = self.peer.next_at().map(|at| at.as_nanos() as u64);
        [queued, peer].into_iter().flatten().min()
    }

    fn take_woken(&mut self) -> Vec<Key> {
        std::mem::take(&mut self.woken)
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}
