//! The ways to reach a server: every promise holds on each of them.

// Every test binary uses a part of this module.
#![allow(dead_code, unused_imports, unused_macros)]

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use zklock::embedded::Server;
use zklock::{Client, Error, GuardEvent, LockGuard, SessionState};

use crate::support::eventually;
use crate::support::proxy::Proxy;
use crate::support::raw::{self, Raw};
use crate::support::relay::unhurried;
use crate::support::zookeeper::ZooKeeper;

/// The session timeout of test clients, unless they say otherwise.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);

/// A time longer than any call takes unless it hangs, and shorter than a hang.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// The transport of a client's requests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Transport {
    /// Our own client of the protocol.
    Wire,
    /// A handle of the `zookeeper` crate.
    #[cfg(feature = "zookeeper")]
    Handle,
}

impl Transport {
    /// Returns all transports.
    pub(crate) fn all() -> Vec<Self> {
        vec![
            Self::Wire,
            #[cfg(feature = "zookeeper")]
            Self::Handle,
        ]
    }

    /// Returns a client that is connected.
    #[track_caller]
    pub(crate) fn connect(self, hosts: &str) -> Client {
        self.connect_with(hosts, TIMEOUT)
    }

    /// Returns a client that is connected, with this session timeout.
    #[track_caller]
    pub(crate) fn connect_with(self, hosts: &str, timeout: Duration) -> Client {
        let mut client = self.begin(hosts, timeout);
        eventually("the client is connected", || {
            // On a busy machine, connecting a handle may take longer than its session lasts.
            if client.state() == SessionState::Closed {
                client = self.begin(hosts, timeout);
            }
            client.state() == SessionState::Connected
        });
        client
    }

    #[track_caller]
    fn begin(self, hosts: &str, timeout: Duration) -> Client {
        let client = match self {
            Self::Wire => Client::builder(hosts).session_timeout(timeout).connect(),
            #[cfg(feature = "zookeeper")]
            Self::Handle => {
                let handle = zookeeper::ZooKeeper::connect(&unhurried(hosts), timeout, |_| ());
                // The servers of the tests grant the timeout that they are asked for.
                let builder = Client::builder(hosts).session_timeout(timeout);
                let builder = builder.granted_at_least(timeout);
                builder.over_zookeeper(handle.expect("a handle"))
            }
        };
        client.expect("a client")
    }

    /// Returns the transport of this name, as `Debug` gives it.
    pub(crate) fn named(name: &str) -> Self {
        match name {
            #[cfg(feature = "zookeeper")]
            "Handle" => Self::Handle,
            _ => Self::Wire,
        }
    }
}

/// Makes a test of each of these functions for each transport, which they get.
macro_rules! on_every_transport {
    ($($promise:ident)*) => {
        mod wire {
            $(
                #[test]
                #[ignore = "needs a real ZooKeeper: tests/all.sh"]
                fn $promise() {
                    super::$promise(crate::transport::Transport::Wire);
                }
            )*
        }

        #[cfg(feature = "zookeeper")]
        mod handle {
            $(
                #[test]
                #[ignore = "needs a real ZooKeeper: tests/all.sh"]
                fn $promise() {
                    super::$promise(crate::transport::Transport::Handle);
                }
            )*
        }
    };
}

pub(crate) use on_every_transport;

/// The transport of a client's requests, and the kind of server that answers them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) transport: Transport,
    pub(crate) embedded: bool,
}

/// A server that can be stopped.
pub(crate) trait Stoppable: Sync {
    /// Returns the address that clients connect to.
    fn hosts(&self) -> String;
    /// Lets nothing through, in either direction.
    fn pause(&self);
    /// Lets everything through again.
    fn resume(&self);
    /// Stops serving.
    fn kill(&self);
    /// Serves again.
    fn restart(&self);
    /// Ends a session, which to its client is an expiry.
    fn expire(&self, session: i64);
}

impl Place {
    /// Returns a client that is connected. Its session lasts as long as a real server allows, so
    /// that a slow machine costs no lock. On a handle the session is shorter: a handle may need all
    /// that time to find out that it has ended.
    #[track_caller]
    pub(crate) fn connect(self, hosts: &str) -> Client {
        let timeout = match self.transport {
            Transport::Wire => 2 * TIMEOUT,
            #[cfg(feature = "zookeeper")]
            Transport::Handle => TIMEOUT,
        };
        self.transport.connect_with(hosts, timeout)
    }

    /// Returns whether a client always outlives the loss of its connection. The `zookeeper` crate
    /// may find that its handle has ended, which also ends our client.
    fn outlives_connections(self) -> bool {
        self.transport == Transport::Wire
    }

    /// Waits until a client whose session has expired gets in, if it can.
    #[track_caller]
    pub(crate) fn assert_gets_in(self, waiting: &Receiver<Result<(), Error>>) {
        match waiting.recv_timeout(SOON).expect("it waits for ever") {
            Err(Error::Closed) if !self.outlives_connections() => {}
            outcome => assert_eq!(outcome, Ok(())),
        }
    }

    /// Returns a client that goes on after its connection was lost, or takes its place.
    #[track_caller]
    pub(crate) fn survivor(self, client: &Client) -> Client {
        match self.outlives_connections() {
            true => client.clone(),
            false => self.connect(&self.shared().hosts()),
        }
    }

    /// Returns a server that other tests use as well.
    pub(crate) fn shared(self) -> &'static dyn Stoppable {
        static EMBEDDED: OnceLock<Server> = OnceLock::new();
        match self.embedded {
            true => EMBEDDED.get_or_init(|| Server::start().expect("a server")),
            false => ZooKeeper::shared(),
        }
    }

    /// Returns a server that no other test uses.
    pub(crate) fn start(self) -> Box<dyn Stoppable> {
        match self.embedded {
            true => Box::new(Server::start().expect("a server")),
            false => Box::new(ZooKeeper::start()),
        }
    }
}

impl Stoppable for ZooKeeper {
    fn hosts(&self) -> String {
        self.hosts()
    }

    fn pause(&self) {
        self.pause();
    }

    fn resume(&self) {
        self.resume();
    }

    fn kill(&self) {
        self.kill();
    }

    fn restart(&self) {
        self.restart();
    }

    fn expire(&self, session: i64) {
        raw::expire(&self.hosts(), session);
    }
}

impl Stoppable for Server {
    fn hosts(&self) -> String {
        self.hosts().to_owned()
    }

    fn pause(&self) {
        self.blackhole();
    }

    fn resume(&self) {
        self.resume();
    }

    fn kill(&self) {
        self.refuse();
        self.disconnect_all();
    }

    fn restart(&self) {
        self.resume();
    }

    fn expire(&self, session: i64) {
        self.expire_session(session);
    }
}

/// Lets the session that owns this node expire.
///
/// Asks the server for the owner: a handle does not tell its session.
#[track_caller]
pub(crate) fn expire_owner(server: &dyn Stoppable, node: &str) {
    server.expire(raw::owner(&server.hosts(), node));
}

/// A client that waits behind others, and loses its session meanwhile.
pub(crate) struct Waiter {
    server: &'static dyn Stoppable,
    network: Proxy,
    pub(crate) client: Client,
}

impl Waiter {
    /// Connects a waiter. Its timeout is short because a handle that has ended says so after that
    /// time.
    #[track_caller]
    pub(crate) fn connect(place: Place) -> Self {
        let (server, timeout) = (place.shared(), Duration::from_secs(2));
        let network = Proxy::start(&server.hosts());
        let client = place.transport.connect_with(&network.hosts(), timeout);
        Self {
            server,
            network,
            client,
        }
    }

    /// Lets the waiter's session expire twice while it waits in `dir` behind `holder`, and waits
    /// until it is in the queue again, or has given up. The first time it learns of the end of its
    /// node before that of its connection, and the second time after.
    #[track_caller]
    pub(crate) fn lose_sessions<T>(&self, dir: &str, holder: &str, waiting: &Receiver<T>) {
        let Some(first) = self.wait_for_node(dir, &[holder], waiting) else {
            return;
        };
        self.network.end_sessions();
        let Some(second) = self.wait_for_node(dir, &[holder, &first], waiting) else {
            return;
        };
        if let Some(stat) = Raw::connect(&self.server.hosts()).stat(&second) {
            self.server.expire(stat.owner);
        }
        self.wait_for_node(dir, &[holder, &first, &second], waiting);
    }

    /// Deletes the waiter's node while it waits in `dir` behind `holders`, makes it look, and ends
    /// its session before it has found out in which session it looks. Waits until it is in the
    /// queue again.
    #[track_caller]
    pub(crate) fn lose_node_and_session<T>(
        &self,
        dir: &str,
        holders: &[&str],
        waiting: &Receiver<T>,
        make_it_look: impl FnOnce(),
    ) {
        let node = self.wait_for_node(dir, holders, waiting);
        let node = node.expect("a node, as it waits");
        let session = raw::owner(&self.server.hosts(), &node);
        eventually("it has asked for who is ahead", || {
            self.network.requests(raw::op::GET_DATA) > 0
        });
        self.network.blackhole_at_next_request(raw::op::EXISTS);
        let mut raw = Raw::connect(&self.server.hosts());
        raw.delete(&node).unwrap();
        make_it_look();
        eventually("it asks for its node", || self.network.fired());
        self.server.expire(session);
        self.network.heal();
        let known: Vec<_> = holders.iter().copied().chain([&*node]).collect();
        self.wait_for_node(dir, &known, waiting);
    }

    /// Waits until there is a node that is none of these, or the waiter has given up: then there is
    /// none.
    #[track_caller]
    fn wait_for_node<T>(&self, dir: &str, known: &[&str], waiting: &Receiver<T>) -> Option<String> {
        let mut raw = Raw::connect(&self.server.hosts());
        let mut node = None;
        eventually("it waits, in another node", || {
            let names = raw.children(dir).unwrap_or_default();
            let mut nodes = names.iter().map(|name| format!("{dir}/{name}"));
            node = nodes.find(|node| !known.contains(&&**node));
            !waiting.is_empty() || node.is_some()
        });
        node
    }
}

/// Waits until the guard reports this.
#[track_caller]
pub(crate) fn wait_for(guard: &(impl LockGuard + ?Sized), wanted: GuardEvent) {
    let deadline = Instant::now() + SOON;
    loop {
        let event = guard.events().recv_deadline(deadline);
        if event.expect("the event") == wanted {
            return;
        }
    }
}

/// Waits until `count` contenders are in the queue.
#[track_caller]
pub(crate) fn wait_for_queue(client: &Client, dir: &str, count: usize) {
    eventually(&format!("{count} contenders in {dir}"), || {
        client.contenders(dir).unwrap().len() == count
    });
}

/// Waits until `count` threads of the client stand in line for its locks.
#[track_caller]
pub(crate) fn wait_for_line(client: &Client, count: usize) {
    eventually(&format!("{count} threads in line"), || {
        format!("{client:?}").contains(&format!("waiting: {count}"))
    });
}

/// Makes a test of each of these functions over our own client for each kind of server, and over
/// a handle on a real one. The embedded server answers a handle as it answers our own client,
/// and as a real one does: `tests/embedded/differential` compares every reply.
macro_rules! in_every_place {
    ($($promise:ident)*) => {
        in_every_place!(@ embedded_wire, Wire, true, [], $($promise)*);
        in_every_place!(@ wire, Wire, false, [#[ignore = "needs a real ZooKeeper: tests/all.sh"]], $($promise)*);
        #[cfg(feature = "zookeeper")]
        in_every_place!(@ handle, Handle, false, [#[ignore = "needs a real ZooKeeper: tests/all.sh"]], $($promise)*);
    };
    (@ $place:ident, $transport:ident, $embedded:literal, $marks:tt, $($promise:ident)*) => {
        mod $place {
            $(crate::transport::in_every_place!(@@ $promise, $transport, $embedded, $marks);)*
        }
    };
    (@@ $promise:ident, $transport:ident, $embedded:literal, [$(#[$mark:meta])*]) => {
        #[test]
        $(#[$mark])*
        fn $promise() {
            super::$promise(crate::transport::Place {
                transport: crate::transport::Transport::$transport,
                embedded: $embedded,
            });
        }
    };
}

pub(crate) use in_every_place;

/// Makes a test of each of these functions for each kind of server, over our own client: for what a
/// handle of the `zookeeper` crate cannot do.
macro_rules! on_every_server {
    ($($promise:ident)*) => {
        crate::transport::in_every_place!(@ embedded_server, Wire, true, [], $($promise)*);
        crate::transport::in_every_place!(@ real_server, Wire, false, [#[ignore = "needs a real ZooKeeper: tests/all.sh"]], $($promise)*);
    };
}

pub(crate) use on_every_server;
