//! The ways to reach a server: every promise holds on each of them.

// Every test binary uses a part of this.
#![allow(dead_code, unused_imports, unused_macros)]

use std::sync::OnceLock;
use std::time::Duration;

use zklock::embedded::Server;
use zklock::{Client, SessionState};

use crate::support::eventually;
use crate::support::zookeeper::ZooKeeper;

/// The session timeout of test clients, unless they say otherwise.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);

/// What carries a client's requests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Transport {
    /// Our own client of the protocol.
    Wire,
    /// A handle of the `zookeeper` crate.
    #[cfg(feature = "zookeeper")]
    Handle,
}

impl Transport {
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
            // On a busy machine a handle may take longer than its session may last.
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
                let handle = zookeeper::ZooKeeper::connect(hosts, timeout, |_| ());
                Client::from_zookeeper(handle.expect("a handle"), timeout)
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

/// What carries a client's requests, and what kind of server answers them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) transport: Transport,
    pub(crate) embedded: bool,
}

/// A server that can be stopped.
pub(crate) trait Stoppable: Sync {
    /// Returns what clients connect to.
    fn hosts(&self) -> String;
    /// Lets nothing through, in either direction.
    fn pause(&self);
    /// Lets everything through again.
    fn resume(&self);
    /// Is gone.
    fn kill(&self);
    /// Is back.
    fn restart(&self);
}

impl Place {
    /// As [`Transport::connect`].
    #[track_caller]
    pub(crate) fn connect(self, hosts: &str) -> Client {
        self.transport.connect(hosts)
    }

    /// Returns a server that other tests use as well.
    pub(crate) fn shared(self) -> &'static dyn Stoppable {
        static EMBEDDED: OnceLock<Server> = OnceLock::new();
        match self.embedded {
            true => EMBEDDED.get_or_init(|| Server::start().expect("a server")),
            false => ZooKeeper::shared(),
        }
    }

    /// Returns a server of one's own.
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
}

/// Makes a test of each of these functions for each transport and each kind of server.
macro_rules! in_every_place {
    ($($promise:ident)*) => {
        in_every_place!(@ embedded_wire, Wire, true, [], $($promise)*);
        #[cfg(feature = "zookeeper")]
        in_every_place!(@ embedded_handle, Handle, true, [], $($promise)*);
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
