//! The ways to reach a server: every promise holds on each of them.

// Every test binary uses a part of this.
#![allow(dead_code, unused_imports, unused_macros)]

use std::time::Duration;

use zklock::{Client, SessionState};

use crate::support::eventually;

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
        let client = match self {
            Self::Wire => Client::builder(hosts).session_timeout(timeout).connect(),
            #[cfg(feature = "zookeeper")]
            Self::Handle => {
                let handle = zookeeper::ZooKeeper::connect(hosts, timeout, |_| ());
                Client::from_zookeeper(handle.expect("a handle"), timeout)
            }
        };
        let client = client.expect("a client");
        eventually("the client is connected", || {
            client.state() == SessionState::Connected
        });
        client
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
