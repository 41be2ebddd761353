//! A client's counters.
//!
//! Counting costs one atomic addition. With the feature `metrics`, every number also goes to the
//! recorder of the `metrics` crate, under names that begin with `zklock_`. Locks with counters of
//! their own have a label with their path there; these are few, however many locks a program uses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::histogram::{Buckets, Histogram};
#[cfg(feature = "metrics")]
use crate::system::contained;
use crate::system::sync::Mutex;
use zklock_jute::{OpCode, Request};

/// The counters of a client; see [`Client::metrics`](crate::Client::metrics).
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Metrics {
    /// Locks and permits that were granted.
    pub acquires: u64,
    /// Grants among them that waited in the queue on the server.
    pub waits: u64,
    /// The time from the call to the grant.
    pub wait_time: Histogram,
    /// The time that locks were held.
    pub hold_time: Histogram,
    /// Locks that passed from thread to thread without the server; see
    /// [`ClientBuilder::local_handoffs`](crate::ClientBuilder::local_handoffs).
    pub local_handoffs: u64,
    /// Locks that were lost while they were held.
    pub losses: u64,
    /// How many times a held lock became suspect.
    pub suspicions: u64,
    /// Connections that were made after the first one.
    pub reconnects: u64,
    /// Sessions that expired.
    pub expiries: u64,
    /// Nodes that were deleted after a timeout, an error or a lost reply, not by a guard.
    pub leftovers_deleted: u64,
    /// Requests by kind, without pings.
    pub requests: Requests,
}

/// The counters of one lock; see [`Client::metrics_by_lock`](crate::Client::metrics_by_lock).
///
/// They mean what those of the same name in [`Metrics`] mean.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct LockMetrics {
    /// Grants.
    pub acquires: u64,
    /// Grants among them that waited in the queue on the server.
    pub waits: u64,
    /// The time from the call to the grant.
    pub wait_time: Histogram,
    /// The time that the lock was held.
    pub hold_time: Histogram,
    /// How many times the lock was lost while it was held.
    pub losses: u64,
    /// How many times the lock became suspect.
    pub suspicions: u64,
}

/// How many requests of each kind a client has sent.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Requests {
    /// Creations of nodes and directories.
    pub creates: u64,
    /// Deletions.
    pub deletes: u64,
    /// Listings of directories.
    pub listings: u64,
    /// Reads of nodes.
    pub reads: u64,
    /// Transactions, among them the proofs that locks are held.
    pub multis: u64,
    /// All others.
    pub others: u64,
}

/// The counters of one client.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    all: LockCounters,
    by_lock: ByLock,
    local_handoffs: AtomicU64,
    leftovers_deleted: AtomicU64,
    /// What the recorder knows of the leftovers, the reconnects and the expired sessions.
    #[cfg(feature = "metrics")]
    told: [AtomicU64; 3],
}

/// How many requests of each kind a client's transport was given.
#[derive(Debug, Default)]
pub(crate) struct RequestCounters {
    creates: AtomicU64,
    deletes: AtomicU64,
    listings: AtomicU64,
    reads: AtomicU64,
    multis: AtomicU64,
    others: AtomicU64,
}

/// The counters of a lock, or of all locks.
#[derive(Debug, Default)]
struct LockCounters {
    acquires: AtomicU64,
    waits: AtomicU64,
    wait_time: Buckets,
    hold_time: Buckets,
    losses: AtomicU64,
    suspicions: AtomicU64,
}

/// The counters of the first locks that are used, by their paths; those of all other locks are
/// under the empty path.
#[derive(Debug, Default)]
struct ByLock {
    most: usize,
    locks: Mutex<BTreeMap<Arc<str>, Arc<LockCounters>>>,
}

/// Counts, for the client and for the recorder.
macro_rules! count {
    ($counter:expr, $name:literal $(, $label:literal => $value:literal)?) => {{
        $counter.fetch_add(1, Ordering::Relaxed);
        #[cfg(feature = "metrics")]
        contained(|| ::metrics::counter!($name $(, $label => $value)?).increment(1));
    }};
}

/// Like `count!`, for all locks and for the one at this path.
macro_rules! count_lock {
    ($counters:expr, $path:expr, $counter:ident, $name:literal) => {{
        $counters.all.$counter.fetch_add(1, Ordering::Relaxed);
        if let Some((_path, lock)) = $counters.by_lock.of($path) {
            lock.$counter.fetch_add(1, Ordering::Relaxed);
            #[cfg(feature = "metrics")]
            contained(|| ::metrics::counter!($name, "lock" => _path).increment(1));
        } else {
            #[cfg(feature = "metrics")]
            contained(|| ::metrics::counter!($name).increment(1));
        }
    }};
}

/// Records a duration, for all locks and for the one at this path.
macro_rules! time_lock {
    ($counters:expr, $path:expr, $times:ident, $name:literal, $time:expr) => {{
        $counters.all.$times.record($time);
        if let Some((_path, lock)) = $counters.by_lock.of($path) {
            lock.$times.record($time);
            #[cfg(feature = "metrics")]
            contained(|| ::metrics::histogram!($name, "lock" => _path).record($time));
        } else {
            #[cfg(feature = "metrics")]
            contained(|| ::metrics::histogram!($name).record($time));
        }
    }};
}

impl Counters {
    /// Returns counters that also count for each of the first `most` locks.
    pub(crate) fn by_lock(most: usize) -> Self {
        let by_lock = ByLock {
            most,
            ..ByLock::default()
        };
        Self {
            by_lock,
            ..Self::default()
        }
    }

    pub(crate) fn acquired(&self, path: &str, after: Duration) {
        count_lock!(self, path, acquires, "zklock_acquires_total");
        time_lock!(self, path, wait_time, "zklock_wait_seconds", after);
    }

    pub(crate) fn waited(&self, path: &str) {
        count_lock!(self, path, waits, "zklock_waits_total");
    }

    pub(crate) fn held(&self, path: &str, time: Duration) {
        time_lock!(self, path, hold_time, "zklock_hold_seconds", time);
    }

    pub(crate) fn handed_on(&self) {
        count!(self.local_handoffs, "zklock_local_handoffs_total");
    }

    pub(crate) fn lost(&self, path: &str) {
        count_lock!(self, path, losses, "zklock_losses_total");
    }

    pub(crate) fn suspected(&self, path: &str) {
        count_lock!(self, path, suspicions, "zklock_suspicions_total");
    }

    /// Counts it for the client; [`tell`](Self::tell) does for the recorder.
    pub(crate) fn leftover_deleted(&self) {
        self.leftovers_deleted.fetch_add(1, Ordering::Relaxed);
    }

    /// Tells the recorder of what no thread may stop for that notes it. There were so many reconnects and expired
    /// sessions so far.
    #[cfg(feature = "metrics")]
    pub(crate) fn tell(&self, reconnects: u64, expiries: u64) {
        for ((name, now), told) in [
            (
                "zklock_leftovers_deleted_total",
                now(&self.leftovers_deleted),
            ),
            ("zklock_reconnects_total", reconnects),
            ("zklock_expiries_total", expiries),
        ]
        .into_iter()
        .zip(&self.told)
        {
            let new = now.saturating_sub(told.fetch_max(now, Ordering::Relaxed));
            if 0 < new {
                contained(|| ::metrics::counter!(name).increment(new));
            }
        }
    }

    /// Returns the current numbers of each lock that is counted by itself.
    pub(crate) fn snapshot_by_lock(&self) -> BTreeMap<String, LockMetrics> {
        let locks = self.by_lock.locks.lock();
        let each = locks.iter();
        each.map(|(path, lock)| (path.to_string(), lock.snapshot()))
            .collect()
    }

    /// Returns the current numbers, without those that the status counts.
    pub(crate) fn snapshot(&self) -> Metrics {
        let LockMetrics {
            acquires,
            waits,
            wait_time,
            hold_time,
            losses,
            suspicions,
        } = self.all.snapshot();
        Metrics {
            acquires,
            waits,
            wait_time,
            hold_time,
            local_handoffs: now(&self.local_handoffs),
            losses,
            suspicions,
            leftovers_deleted: now(&self.leftovers_deleted),
            ..Metrics::default()
        }
    }
}

impl RequestCounters {
    pub(crate) fn count<'a>(&self, requests: impl Iterator<Item = &'a Request>) {
        requests.for_each(|request| self.count_one(request));
    }

    fn count_one(&self, request: &Request) {
        macro_rules! kind {
            ($counter:ident, $name:literal) => {
                count!(self.$counter, "zklock_requests_total", "kind" => $name)
            };
        }
        match request.op() {
            OpCode::CREATE | OpCode::CREATE2 | OpCode::CREATE_CONTAINER => {
                kind!(creates, "create");
            }
            OpCode::DELETE => kind!(deletes, "delete"),
            OpCode::GET_CHILDREN | OpCode::GET_CHILDREN2 => kind!(listings, "list"),
            OpCode::EXISTS | OpCode::GET_DATA => kind!(reads, "read"),
            OpCode::MULTI => kind!(multis, "multi"),
            _ => kind!(others, "other"),
        }
    }

    /// Returns the current numbers.
    pub(crate) fn snapshot(&self) -> Requests {
        Requests {
            creates: now(&self.creates),
            deletes: now(&self.deletes),
            listings: now(&self.listings),
            reads: now(&self.reads),
            multis: now(&self.multis),
            others: now(&self.others),
        }
    }
}

fn now(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl LockCounters {
    fn snapshot(&self) -> LockMetrics {
        LockMetrics {
            acquires: now(&self.acquires),
            waits: now(&self.waits),
            wait_time: self.wait_time.snapshot(),
            hold_time: self.hold_time.snapshot(),
            losses: now(&self.losses),
            suspicions: now(&self.suspicions),
        }
    }
}

impl ByLock {
    /// Returns the path to count under, and its counters; `None` if no lock is counted by itself.
    fn of(&self, path: &str) -> Option<(Arc<str>, Arc<LockCounters>)> {
        if self.most == 0 {
            return None;
        }
        let mut locks = self.locks.lock();
        let counted = locks.len() - usize::from(locks.contains_key(""));
        let path = match locks.contains_key(path) || counted < self.most {
            true => path,
            false => "",
        };
        let known = locks.get_key_value(path);
        let known = known.map(|(path, lock)| (path.clone(), lock.clone()));
        Some(known.unwrap_or_else(|| {
            let (path, lock) = (Arc::<str>::from(path), Arc::<LockCounters>::default());
            locks.insert(path.clone(), lock.clone());
            (path, lock)
        }))
    }
}
