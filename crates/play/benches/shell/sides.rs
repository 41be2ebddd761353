//! The two sides: the client that ships, and the core behind its shell.

use std::sync::Arc;
use std::time::Duration;

use crate::client::Client;
use crate::window::Cycles;

pub(crate) trait Side: Sync {
    fn connect(hosts: &str, local_handoffs: u32) -> Self;

    /// Takes a lock and releases it, again and again.
    fn cycles(&self, path: &str, cycles: &Cycles);
}

pub(crate) struct Ours(zklock::Client);

impl Side for Ours {
    fn connect(hosts: &str, local_handoffs: u32) -> Self {
        let builder = zklock::Client::builder(hosts).local_handoffs(local_handoffs);
        Self(builder.connect().expect("a server"))
    }

    fn cycles(&self, path: &str, cycles: &Cycles) {
        let mutex = self.0.mutex(path).expect("a path");
        while cycles.go_on() {
            drop(mutex.lock().expect("the lock"));
            cycles.done();
        }
    }
}

pub(crate) struct Cores(Client);

impl Side for Cores {
    fn connect(hosts: &str, local_handoffs: u32) -> Self {
        Self(Client::connect(
            hosts,
            Duration::from_secs(20),
            local_handoffs,
        ))
    }

    fn cycles(&self, path: &str, cycles: &Cycles) {
        let path = Arc::from(path);
        let mut last = 0;
        while cycles.go_on() {
            let guard = self.0.lock(&path, None).expect("the lock");
            assert!(guard.check() && last <= guard.token);
            last = guard.token;
            drop(guard);
            cycles.done();
        }
    }
}
