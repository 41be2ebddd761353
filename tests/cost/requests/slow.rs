//! A network so slow that nothing else matters.

use std::thread;
use std::time::{Duration, Instant};

use zklock::embedded::Server;
use zklock::{Client, MutexGuard};

use crate::support::fresh_path;
use crate::support::proxy::Proxy;
use crate::transport::wait_for_queue;

/// The delay in each direction; nothing else in a lock takes nearly as long.
pub(super) const DELAY: Duration = Duration::from_millis(100);
pub(super) const ROUND_TRIP: Duration = Duration::from_millis(200);

/// A client with a slow connection to the server.
pub(super) struct Slow {
    pub(super) proxy: Proxy,
    pub(super) client: Client,
    pub(super) path: String,
    pub(super) server: Server,
}

impl Slow {
    pub(super) fn new(name: &str) -> Self {
        let server = Server::start().unwrap();
        let proxy = Proxy::start(server.hosts());
        let client = Client::connect(&proxy.hosts()).unwrap();
        let path = fresh_path(name);
        Self {
            proxy,
            client,
            path,
            server,
        }
    }

    /// Takes the best of a few tries, so that a busy machine does not matter.
    #[track_caller]
    pub(super) fn within(&self, limit: Duration, mut attempt: impl FnMut() -> Duration) {
        let mut best = Duration::MAX;
        for _ in 0..5 {
            best = best.min(attempt());
            if best < limit {
                return;
            }
        }
        panic!("{best:?} where {limit:?} is too much");
    }

    /// Returns the time from a release until the last of the waiters has had the lock.
    pub(super) fn hand_off(&self, waiters: &[&zklock::Mutex], holder: MutexGuard) -> Duration {
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for (mutex, ahead) in waiters.iter().zip(1..) {
                let wait = || {
                    let guard = mutex.lock().unwrap();
                    let got = Instant::now();
                    drop(guard);
                    got
                };
                threads.push(scope.spawn(wait));
                wait_for_queue(&self.client, &self.path, ahead + 1);
            }
            // The watch of the last waiter is set a round trip after its node.
            thread::sleep(2 * ROUND_TRIP);
            let released = Instant::now();
            drop(holder);
            let got = threads.into_iter().map(|thread| thread.join().unwrap());
            got.max().unwrap() - released
        })
    }
}
