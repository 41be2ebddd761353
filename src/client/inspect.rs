//! The reports of a client: on others, the holders, the waiters and what they wait for; on itself,
//! its counters.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Client;
use crate::contender::Contender;
use crate::error::Result;
use crate::metrics::{LockMetrics, Metrics};
use crate::path;
use crate::queues::{Blockers, Locks};
use crate::time::limit::Limit;
use crate::token::FencingToken;

impl Client {
    /// Asks whether the holder with this token still has the lock at `path`.
    ///
    /// For a storage service that receives a token and has its own client. The answer is advice,
    /// not a fence: the lock may go to another client while the answer is on its way. A write to
    /// ZooKeeper itself is fenced by [`LockGuard::transaction`](crate::LockGuard::transaction);
    /// storage that remembers the highest token does not need to ask.
    ///
    /// Blocks for a few round trips, at most 15 s each, also when the connection is lost. Reads
    /// from a server that has caught up with the leader: the answer was true at some time after the
    /// call began. A leader that was replaced and does not know it yet makes the answer older, by
    /// as long as the servers wait for each other (`syncLimit` ticks). A holder whose token is no
    /// longer current never has the lock again.
    ///
    /// # Errors
    ///
    /// As [`contenders`](Self::contenders).
    ///
    /// # Example
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zklock::embedded::Server::start()?;
    /// # let client = zklock::Client::connect(server.hosts())?;
    /// let guard = client.mutex("/locks/nightly-report")?.lock()?;
    /// let token = guard.fencing_token();
    /// assert!(client.is_current("/locks/nightly-report", token)?);
    /// guard.unlock()?;
    /// assert!(!client.is_current("/locks/nightly-report", token)?);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "CheckSequencer")]
    pub fn is_current(&self, path: &str, token: FencingToken) -> Result<bool> {
        path::check(path)?;
        self.locks.session.is_held_with(path, token)
    }

    /// Lists the holders of the lock at `path` and its waiters, in the order of the queue.
    ///
    /// Blocks for a few round trips, at most 15 s each. A path that does not exist has no
    /// contenders, and is not created. Reads from a server that has caught up with its leader: a
    /// client that was told that it has the lock, or has released it, is listed accordingly. A
    /// leading server may be a few milliseconds behind.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::BadPath`](crate::Error::BadPath) if the path cannot name a lock, and if
    /// the server refuses a request or does not answer in time.
    pub fn contenders(&self, path: &str) -> Result<Vec<Contender>> {
        path::check(path)?;
        self.locks.session.contenders(path)
    }

    /// Lists every lock below `root` that a client holds or waits for, with its queue.
    ///
    /// Reads all nodes below `root`, several hundred at a time: 10,000 locks take about a second.
    /// Blocks for that long, at most 15 s for each batch, also when the connection is lost.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::BadPath`](crate::Error::BadPath) if `root` is neither a path nor `/`,
    /// and if no server answers in time. Nodes that this client cannot read are not an error:
    /// [`Locks::unreadable`] lists them.
    pub fn locks(&self, root: &str) -> Result<Locks> {
        path::check_root(root)?;
        Locks::below(&self.locks.session, root)
    }

    /// Returns the holders that keep the first waiter at `path` waiting, and the holders that they
    /// wait for.
    ///
    /// A holder that waits for another lock, below `root`, is blocked by the holders of that lock,
    /// and so on to the end. Contenders belong together by session and thread. Contenders that name
    /// no thread, such as those of other libraries, belong together by session alone, which counts
    /// as waiting for the first of its locks. A waiter for a permit waits for any one of its
    /// holders, any other waiter for all of them. Blocks as [`locks`](Self::locks).
    ///
    /// # Errors
    ///
    /// As [`locks`](Self::locks), and with [`Error::NoAuth`](crate::Error::NoAuth) if this client
    /// cannot read the lock itself.
    pub fn blockers(&self, path: &str, root: &str) -> Result<Blockers> {
        path::check(path)?;
        path::check_root(root)?;
        Locks::blockers(&self.locks.session, path, root)
    }

    /// Waits until the contenders at `path` differ from the `known` ones, and lists them.
    ///
    /// Blocks for at most `limit` while nothing changes, and then returns the contenders as they
    /// are; after a change, as long as [`contenders`](Self::contenders). Costs no request while
    /// nothing changes. The path does not have to exist, and is not created. Servers do not tell a client that
    /// loses the right to read the path of changes; the next call fails.
    ///
    /// # Errors
    ///
    /// As [`contenders`](Self::contenders). A lost connection is not an error, unless no server has
    /// listed the contenders by the limit: then this fails with
    /// [`Error::ConnectTimeout`](crate::Error::ConnectTimeout). A limit of zero ends before a
    /// server can answer.
    ///
    /// # Example
    ///
    /// ```no_run
    /// # fn main() -> zklock::Result<()> {
    /// # use std::time::Duration;
    /// # let client = zklock::Client::connect("zk1:2181")?;
    /// let mut present = client.contenders("/locks/deploy")?;
    /// while !present.is_empty() {
    ///     println!("{} in the queue", present.len());
    ///     present = client.wait_for_change("/locks/deploy", &present, Duration::from_secs(60))?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_for_change(
        &self,
        path: &str,
        known: &[Contender],
        limit: Duration,
    ) -> Result<Vec<Contender>> {
        path::check(path)?;
        let session = &self.locks.session;
        let present = session.wait_for_change(path, known, &Limit::after(limit))?;
        present.ok_or_else(|| session.unanswered_within(limit))
    }

    /// Returns this client's counters. Costs no I/O.
    pub fn metrics(&self) -> Metrics {
        let status = &self.locks.session.status;
        let mut metrics = self.locks.session.counters.snapshot();
        metrics.reconnects = status.snapshot().connects.saturating_sub(1);
        metrics.expiries = status.expiries();
        metrics.requests = status.requests.snapshot();
        metrics
    }

    /// Returns the counters of each lock that is counted by itself, by the locks' paths; those of
    /// all other locks are under the empty path. Costs no I/O.
    ///
    /// Empty without [`ClientBuilder::metrics_by_lock`](crate::ClientBuilder::metrics_by_lock).
    ///
    /// # Example
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zklock::embedded::Server::start()?;
    /// # let hosts = server.hosts();
    /// let client = zklock::Client::builder(hosts).metrics_by_lock(100).connect()?;
    /// client.mutex("/locks/report")?.lock()?.unlock()?;
    /// let locks = client.metrics_by_lock();
    /// assert_eq!(locks["/locks/report"].acquires, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn metrics_by_lock(&self) -> BTreeMap<String, LockMetrics> {
        self.locks.session.counters.snapshot_by_lock()
    }
}
