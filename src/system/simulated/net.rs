//! A network in memory: connections whose bytes take their time, and what can happen to them.

use std::any::Any;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use super::clock;
use super::scheduler::{Here, here, new_key, try_here};
use super::state::{Key, Outside, text_of};

/// The port of every server.
const PORT: u16 = 2181;

/// What the servers do: told what arrives and when, it says what leaves.
pub trait Peer: Send {
    /// A client connects; `None` if the server does not listen.
    fn accept(&mut self, now: Duration, server: usize) -> Option<u64>;
    /// Bytes of a client, in order, cut anywhere.
    fn receive(&mut self, now: Duration, connection: u64, bytes: &[u8]);
    /// A client's side of a connection has ended.
    fn hang_up(&mut self, now: Duration, connection: u64);
    /// When there is next something to do without a client.
    fn next_at(&self) -> Option<Duration>;
    /// Does all that is due.
    fn run_until(&mut self, now: Duration);
    /// What leaves for the clients, in order.
    fn take_output(&mut self) -> Vec<(u64, Output)>;
    /// The peer itself, for tests.
    fn as_any(&mut self) -> &mut dyn Any;
}

/// What a server sends.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Output {
    /// Bytes.
    Bytes(Vec<u8>),
    /// The end of the connection; nothing follows.
    Closed,
}

/// The way between a process and a server.
#[derive(Clone, Debug)]
pub struct Link {
    /// How long a message takes.
    pub latency: Range<Duration>,
    /// Nothing arrives at the server; it is sent again once this ends.
    pub holds_up: bool,
    /// Nothing arrives at the client.
    pub holds_down: bool,
    /// Connections are refused.
    pub refuses: bool,
    /// How many bytes may be on their way to the server.
    pub window: usize,
    /// The most bytes that a client reads or writes at once.
    pub piece: usize,
    /// A connection is cut once so many bytes have gone up.
    pub cut_up_after: Option<u64>,
    /// A connection is cut once so many bytes have come down.
    pub cut_down_after: Option<u64>,
    /// Comes down in the place of what a server sends next.
    pub garbage: Option<Vec<u8>>,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            latency: Duration::from_micros(50)..Duration::from_micros(500),
            holds_up: false,
            holds_down: false,
            refuses: false,
            window: 256 * 1024,
            piece: usize::MAX,
            cut_up_after: None,
            cut_down_after: None,
            garbage: None,
        }
    }
}

/// All connections, and the servers behind them.
pub struct Network {
    peer: Box<dyn Peer>,
    rng: fastrand::Rng,
    usual: Link,
    links: BTreeMap<(usize, usize), Link>,
    connections: BTreeMap<u64, Connection>,
    /// The connection that each of the peer's numbers stands for.
    numbers: BTreeMap<u64, u64>,
    latest: u64,
    queue: BinaryHeap<Reverse<(u64, u64, Arrival)>>,
    sequence: u64,
    woken: Vec<Key>,
    /// Names that cannot be resolved.
    unknown: BTreeSet<String>,
    slow_names: Duration,
}

struct Connection {
    process: usize,
    server: usize,
    key: Key,
    stage: Stage,
    /// What the peer calls it.
    number: Option<u64>,
    inbound: VecDeque<u8>,
    end: Option<End>,
    shut: bool,
    /// Nothing that the server sends from here on arrives.
    cut: bool,
    /// When the last message in each direction arrives.
    last_up: u64,
    last_down: u64,
    unacknowledged: usize,
    gone_up: u64,
    come_down: u64,
    held_up: Vec<Arrival>,
    held_down: Vec<Arrival>,
    dropped: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    Connecting,
    Refused,
    Connected,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    Closed,
    Reset,
}

#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Arrival {
    Call(u64),
    Answer(u64, bool),
    Up(u64, Vec<u8>),
    UpEnd(u64),
    Down(u64, Vec<u8>),
    DownEnd(u64),
}

impl Arrival {
    fn connection(&self) -> u64 {
        match self {
            Self::Call(id) | Self::Answer(id, _) | Self::Up(id, _) | Self::UpEnd(id) => *id,
            Self::Down(id, _) | Self::DownEnd(id) => *id,
        }
    }

    fn goes_up(&self) -> bool {
        matches!(self, Self::Call(_) | Self::Up(..) | Self::UpEnd(_))
    }
}

impl Network {
    /// A network with these servers.
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

    /// The servers.
    pub fn peer(&mut self) -> &mut dyn Peer {
        &mut *self.peer
    }

    /// Sends what the peer has to say, after something was done to it.
    pub fn peer_changed(&mut self, now: u64) {
        self.collect(now);
    }

    /// Changes the way between a process and a server. What was held goes on.
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
        for arrival in released {
            self.schedule(now, arrival);
        }
    }

    /// Cuts the connections of a process to a server: some of what is on its way is lost.
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

    /// From here on a name cannot be resolved, or can again.
    pub fn make_unknown(&mut self, host: &str, unknown: bool) {
        match unknown {
            true => self.unknown.insert(host.to_owned()),
            false => self.unknown.remove(host),
        };
    }

    /// From here on every name takes so long to be resolved.
    pub fn slow_names(&mut self, by: Duration) {
        self.slow_names = by;
    }

    /// How many connections have a client.
    pub fn connections(&self) -> usize {
        self.connections.values().filter(|one| !one.dropped).count()
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

    /// Sends what the peer has to say.
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

    /// A cut after so many bytes happens to one connection.
    fn forget_cuts(&mut self, id: u64) {
        if let Some(link) = self.own_link(id) {
            link.cut_down_after = None;
            link.cut_up_after = None;
        }
    }

    fn take_garbage(&mut self, id: u64) -> Option<Vec<u8>> {
        self.own_link(id)?.garbage.take()
    }

    /// The link of a connection, if it differs from the usual one.
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
        // In each direction, what comes after a point of chance is lost.
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

    fn open(&mut self, process: usize, server: usize, now: u64) -> u64 {
        self.latest += 1;
        let id = self.latest;
        self.connections.insert(
            id,
            Connection {
                process,
                server,
                key: new_key(),
                stage: Stage::Connecting,
                number: None,
                inbound: VecDeque::new(),
                end: None,
                shut: false,
                cut: false,
                last_up: 0,
                last_down: 0,
                unacknowledged: 0,
                gone_up: 0,
                come_down: 0,
                held_up: Vec::new(),
                held_down: Vec::new(),
                dropped: false,
            },
        );
        self.schedule(now, Arrival::Call(id));
        id
    }

    fn write(&mut self, id: u64, bytes: &[u8], now: u64) -> Option<io::Result<usize>> {
        let link = self.link(id).clone();
        let connection = self.connections.get_mut(&id)?;
        if connection.shut {
            return Some(Err(ErrorKind::BrokenPipe.into()));
        }
        if connection.end.is_some() {
            return Some(Err(ErrorKind::ConnectionReset.into()));
        }
        let room = link.window.saturating_sub(connection.unacknowledged);
        let taken = bytes.len().min(room).min(link.piece);
        if taken == 0 {
            return None;
        }
        let bytes = bytes.get(..taken).unwrap_or_default();
        connection.unacknowledged += taken;
        connection.gone_up += taken as u64;
        let cut = link
            .cut_up_after
            .filter(|limit| *limit < connection.gone_up);
        match cut {
            Some(limit) => {
                let over = (connection.gone_up - limit) as usize;
                let kept = bytes.get(..taken.saturating_sub(over)).unwrap_or_default();
                connection.end = Some(End::Reset);
                let kept = Arrival::Up(id, kept.to_vec());
                self.forget_cuts(id);
                self.schedule(now, kept);
                self.schedule(now, Arrival::UpEnd(id));
            }
            None => self.schedule(now, Arrival::Up(id, bytes.to_vec())),
        }
        Some(Ok(taken))
    }

    fn read(&mut self, id: u64, into: &mut [u8]) -> Option<io::Result<usize>> {
        let piece = self.link(id).piece;
        let connection = self.connections.get_mut(&id)?;
        if connection.shut {
            return Some(Ok(0));
        }
        let most = into.len().min(piece).min(connection.inbound.len());
        if most > 0 {
            for (to, from) in into.iter_mut().zip(connection.inbound.drain(..most)) {
                *to = from;
            }
            return Some(Ok(most));
        }
        match connection.end? {
            End::Closed => Some(Ok(0)),
            End::Reset => Some(Err(ErrorKind::ConnectionReset.into())),
        }
    }

    fn shut(&mut self, id: u64, now: u64) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if !std::mem::replace(&mut connection.shut, true) {
            self.woken.push(connection.key);
            self.schedule(now, Arrival::UpEnd(id));
        }
    }

    fn drop_it(&mut self, id: u64, now: u64) {
        self.shut(id, now);
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        connection.dropped = true;
        if connection.end == Some(End::Reset) && connection.number.is_none() {
            self.connections.remove(&id);
        }
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
            if self.queue.peek().is_some_and(due)
                && let Some(Reverse((at, _, arrival))) = self.queue.pop()
            {
                self.arrive(at, arrival);
                self.collect(at);
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

/// Builds the network of the calling thread's run.
pub fn build(network: Network) {
    here().state().outside = Some(Box::new(network));
}

/// Does something with the network, at the time that it is told.
pub fn network<R>(run: impl FnOnce(&mut Network, u64) -> R) -> R {
    with(&here(), run)
}

/// Uses the network, and wakes whom that concerns.
fn with<R>(here: &Here, run: impl FnOnce(&mut Network, u64) -> R) -> R {
    let mut state = here.state();
    let now = state.now;
    let mut outside = state.outside.take().expect("a network");
    let network = outside.as_any().downcast_mut().expect("a network");
    let result = catch_unwind(AssertUnwindSafe(|| run(network, now)));
    if let Err(panic) = &result {
        let reason = format!("the servers panicked: {}", text_of(&**panic));
        state.failure.get_or_insert(reason);
    }
    for key in outside.take_woken() {
        state.wake(key);
    }
    state.outside = Some(outside);
    drop(state);
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

/// The client's side of a connection.
#[derive(Debug)]
pub(crate) struct TcpStream {
    id: u64,
    key: Key,
    read_limit: Mutex<Option<Duration>>,
    write_limit: Mutex<Option<Duration>>,
}

/// See the real side.
pub(crate) fn connect(address: &SocketAddr, limit: Duration) -> io::Result<TcpStream> {
    let here = here();
    here.step();
    let SocketAddr::V4(address) = address else {
        return Err(ErrorKind::AddrNotAvailable.into());
    };
    let server = usize::from(address.ip().octets()[3]) - 1;
    let process = here.state().tasks[here.me].process;
    let id = with(&here, |network, now| network.open(process, server, now));
    let key = with(&here, |network, _| network.connections[&id].key);
    let stream = TcpStream {
        id,
        key,
        read_limit: Mutex::default(),
        write_limit: Mutex::default(),
    };
    let until = clock::after(&here, limit);
    let stage = here.wait(&[key], Some(until), "for a connection", || {
        let stage = with(&here, |network, _| network.connections[&id].stage);
        (stage != Stage::Connecting).then_some(stage)
    });
    match stage {
        Some(Stage::Connected) => Ok(stream),
        Some(_) => Err(ErrorKind::ConnectionRefused.into()),
        None => Err(io::Error::new(ErrorKind::TimedOut, "connection timed out")),
    }
}

/// See the real side. The servers' names are `zk1`, `zk2` and so on.
pub(crate) fn resolve(host: &str, _port: u16) -> io::Result<Vec<SocketAddr>> {
    let here = here();
    let slow = with(&here, |network, _| network.slow_names);
    if !slow.is_zero() {
        super::thread::sleep(slow);
    }
    let unknown = || io::Error::new(ErrorKind::NotFound, "no such name");
    if with(&here, |network, _| network.unknown.contains(host)) {
        return Err(unknown());
    }
    let number: u8 = host
        .strip_prefix("zk")
        .and_then(|number| number.parse().ok())
        .ok_or_else(unknown)?;
    Ok(vec![SocketAddr::from((
        Ipv4Addr::new(10, 0, 0, number),
        PORT,
    ))])
}

impl TcpStream {
    pub(crate) fn set_nodelay(&self, _on: bool) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        *self
            .read_limit
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = limit;
        Ok(())
    }

    pub(crate) fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        *self
            .write_limit
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = limit;
        Ok(())
    }

    pub(crate) fn shutdown(&self, _how: Shutdown) -> io::Result<()> {
        let here = here();
        with(&here, |network, now| network.shut(self.id, now));
        here.step();
        Ok(())
    }

    fn wait<R>(
        &self,
        limit: &Mutex<Option<Duration>>,
        what: &'static str,
        mut attempt: impl FnMut(&mut Network, u64) -> Option<io::Result<R>>,
    ) -> io::Result<R> {
        let here = here();
        here.step();
        let limit = *limit.lock().unwrap_or_else(PoisonError::into_inner);
        let until = limit.map(|limit| clock::after(&here, limit));
        let done = here.wait(&[self.key], until, what, || with(&here, &mut attempt));
        done.unwrap_or_else(|| Err(ErrorKind::WouldBlock.into()))
    }
}

impl Read for &TcpStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.wait(&self.read_limit, "for bytes", |network, _| {
            network.read(self.id, into)
        })
    }
}

impl Write for &TcpStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait(&self.write_limit, "to write", |network, now| {
            network.write(self.id, bytes, now)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        if let Some(here) = try_here() {
            with(&here, |network, now| network.drop_it(self.id, now));
        }
    }
}
