//! Queues in which a test counts one client's requests.

use std::thread;
use std::time::Duration;

use crossbeam_channel::{Sender, unbounded};
use zklock::embedded::Server;
use zklock::{Client, LockOptions, MutexGuard};

use super::tap::Tap;
use crate::support::fresh_path;
use crate::support::raw::op;
use crate::transport::wait_for_queue;

/// The requests that take a free lock, in one write.
pub(super) const ENTER: [i32; 2] = [op::CREATE2, op::GET_CHILDREN];

/// The watches of a waiter with several ahead, in one write: on its own node, and on the two nearest ones.
pub(super) const WATCH: [i32; 3] = [op::GET_DATA; 3];

/// Stands for the moment when the nearest holder releases.
pub(super) const LET_GO: [i32; 0] = [];

/// A server, and a client whose connection to it is tapped.
pub(super) struct Scene {
    pub(super) server: Server,
    pub(super) tap: Tap,
    pub(super) client: Client,
    pub(super) path: String,
}

impl Scene {
    /// Starts a scene whose session is so long that no lock is proven again because the machine is busy.
    pub(super) fn new(name: &str) -> Self {
        Self::with_timeout(name, Duration::from_secs(40))
    }

    pub(super) fn with_timeout(name: &str, timeout: Duration) -> Self {
        let server = Server::start().unwrap();
        let tap = Tap::start(server.hosts());
        let client = Client::builder(&tap.hosts).session_timeout(timeout);
        let client = client.connect().unwrap();
        let path = fresh_path(name);
        // The directory exists, and the first cycle has ended.
        let warm = Client::connect(server.hosts()).unwrap();
        warm.mutex(&path).unwrap().lock().unwrap().unlock().unwrap();
        Self {
            server,
            tap,
            client,
            path,
        }
    }

    /// Queues the tapped client behind this many others. The first one holds for `first`, and the last one for
    /// `last`, at least until the tapped client is next; those between release at once.
    pub(super) fn lock_behind_others(&self, others: usize, first: Duration, last: Duration) {
        let clients: Vec<_> = (0..others).map(|_| self.connect()).collect();
        let lock = |at: usize| clients[at].mutex(&self.path).unwrap().lock().unwrap();
        let holder = lock(0);
        let (to, positions) = unbounded();
        thread::scope(|scope| {
            for at in 1..others {
                let positions = positions.clone();
                scope.spawn(move || {
                    let guard = lock(at);
                    if at + 1 == others {
                        assert_eq!(positions.recv(), Ok(1));
                        thread::sleep(last);
                        self.tap.write_down(&LET_GO);
                    }
                    guard.unlock().unwrap();
                });
                wait_for_queue(&self.connect(), &self.path, at + 1);
            }
            scope.spawn(|| self.lock_telling(to));
            assert_eq!(positions.recv(), Ok(others));
            thread::sleep(first);
            drop(holder);
        });
    }

    /// Takes the tapped client through the queue, and reports its place as soon as all its watches are set.
    pub(super) fn lock_telling(&self, to: Sender<usize>) {
        let mutex = self.client.mutex(&self.path).unwrap();
        let options = LockOptions::new().on_wait(|waiting| to.send(waiting.position()).unwrap());
        let guard = mutex.lock_with(options).unwrap();
        guard.unwrap().unlock().unwrap();
    }

    pub(super) fn connect(&self) -> Client {
        Client::connect(self.server.hosts()).unwrap()
    }

    /// Queues the tapped client behind `holder`, which then leaves, and lets it through.
    pub(super) fn lock_behind(&self, holder: MutexGuard) {
        let (to, positions) = unbounded();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| self.lock_telling(to));
            assert_eq!(positions.recv(), Ok(1));
            drop(holder);
            waiter.join().unwrap();
        });
    }
}
