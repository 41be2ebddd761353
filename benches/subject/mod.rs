//! The server that the benches measure.

// Each bench uses only a part of this module.
#![allow(dead_code)]

use std::env;
use std::time::{Duration, Instant};

use zklock::embedded::Server;
use zklock::{Client, ClientBuilder, Mutex};

/// The server of `ZKLOCK_HOSTS`, or one inside this process, which writes nothing to disk.
pub(crate) struct Subject {
    hosts: String,
    path: String,
    _server: Option<Server>,
}

impl Subject {
    pub(crate) fn new(name: &str) -> Self {
        let path = format!("/zklock-bench/{name}-{:08x}", fastrand::u32(..));
        if let Ok(hosts) = env::var("ZKLOCK_HOSTS") {
            return Self {
                hosts,
                path,
                _server: None,
            };
        }
        let server = Server::start().expect("the embedded server starts");
        Self {
            hosts: server.hosts().to_owned(),
            path,
            _server: Some(server),
        }
    }

    pub(crate) fn builder(&self) -> ClientBuilder {
        Client::builder(&self.hosts)
    }

    pub(crate) fn client(&self) -> Client {
        self.builder().connect().expect("there is a server")
    }

    /// Returns a mutex of a new client.
    pub(crate) fn mutex(&self) -> Mutex {
        self.client().mutex(&self.path).expect("a good path")
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }
}

/// Returns whether the bench only has to show that it runs: with `cargo test --benches`, which
/// leaves out an argument that `cargo bench` adds, or with `cargo bench -- --test`.
pub(crate) fn is_trial() -> bool {
    let is_given = |wanted| env::args().any(|arg| arg == wanted);
    is_given("--test") || !is_given("--bench")
}

/// Measures `count` cycles of all the mutexes, each in a thread of its own, with the work
/// shared evenly.
pub(crate) fn cycles(mutexes: &[Mutex], count: u64) -> Duration {
    let each = count.div_ceil(mutexes.len() as u64);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for mutex in mutexes {
            scope.spawn(move || {
                for _ in 0..each {
                    drop(mutex.lock().expect("the server is there"));
                }
            });
        }
    });
    begun
        .elapsed()
        .mul_f64(count as f64 / (each * mutexes.len() as u64) as f64)
}
