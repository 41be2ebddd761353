//! A client's counters.
//!
//! Counting takes a mutex for a moment, in which nothing else is done. With the feature `metrics`,
//! every number also goes to the recorder of the `metrics` crate, under names that begin with
//! `zklock_`. Locks with counters of their own have a label with their path there; these are few,
//! however many locks a program uses.

use std::collections::BTreeMap;
use std::sync::Arc;
#[cfg(feature = "metrics")]
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::histogram::Histogram;
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
#[derive(Default)]
pub(crate) struct Counters {
    /// How many locks have counters of their own.
    most: usize,
    counted: Mutex<Counted>,
    /// What the recorder knows of the leftovers, the reconnects and the expired sessions.
    #[cfg(feature = "metrics")]
    told: [AtomicU64; 3],
}

#[derive(Default)]
struct Counted {
    all: LockMetrics,
    /// The counters of the first locks that are used, by their paths; those of all other locks are
    /// under the empty path.
    by_lock: BTreeMap<Arc<str>, LockMetrics>,
    local_handoffs: u64,
    leftovers_deleted: u64,
}

/// How many requests of each kind a client's transport was given.
#[derive(Default)]
pub(crate) struct RequestCounters(Mutex<Requests>);

/// Tells the recorder of a number, for the lock at this path if it is counted by itself.
macro_rules! tell {
    ($kind:ident, $name:literal, $path:expr, $change:ident($by:expr)) => {
        #[cfg(feature = "metrics")]
        contained(|| match $path {
            Some(path) => ::metrics::$kind!($name, "lock" => path).$change($by),
            None => ::metrics::$kind!($name).$change($by),
        });
    };
}

impl Counters {
    /// Returns counters that also count for each of the first `most` locks.
    pub(crate) fn by_lock(most: usize) -> Self {
        Self {
            most,
            ..Self::default()
        }
    }

    pub(crate) fn acquired(&self, path: &str, after: Duration) {
        let _of = self.count(path, |lock| {
            lock.acquires += 1;
            lock.wait_time.record(after);
        });
        tell!(counter, "zklock_acquires_total", _of.clone(), increment(1));
        tell!(histogram, "zklock_wait_seconds", _of, record(after));
    }

    pub(crate) fn waited(&self, path: &str) {
        let _of = self.count(path, |lock| lock.waits += 1);
        tell!(counter, "zklock_waits_total", _of, increment(1));
    }

    pub(crate) fn held(&self, path: &str, time: Duration) {
        let _of = self.count(path, |lock| lock.hold_time.record(time));
        tell!(histogram, "zklock_hold_seconds", _of, record(time));
    }

    pub(crate) fn handed_on(&self) {
        self.counted.lock().local_handoffs += 1;
        #[cfg(feature = "metrics")]
        contained(|| ::metrics::counter!("zklock_local_handoffs_total").increment(1));
    }

    pub(crate) fn lost(&self, path: &str) {
        let _of = self.count(path, |lock| lock.losses += 1);
        tell!(counter, "zklock_losses_total", _of, increment(1));
    }

    pub(crate) fn suspected(&self, path: &str) {
        let _of = self.count(path, |lock| lock.suspicions += 1);
        tell!(counter, "zklock_suspicions_total", _of, increment(1));
    }

    /// Counts it for the client; [`tell`](Self::tell) does for the recorder.
    pub(crate) fn leftover_deleted(&self) {
        self.counted.lock().leftovers_deleted += 1;
    }

    /// Tells the recorder of what no thread may stop for that notes it. There were so many reconnects and expired
    /// sessions so far.
    #[cfg(feature = "metrics")]
    pub(crate) fn tell(&self, reconnects: u64, expiries: u64) {
        let leftovers = self.counted.lock().leftovers_deleted;
        for ((name, now), told) in [
            ("zklock_leftovers_deleted_total", leftovers),
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
        let counted = self.counted.lock();
        let each = counted.by_lock.iter();
        each.map(|(path, lock)| (path.to_string(), lock.clone()))
            .collect()
    }

    /// Returns the current numbers, without those that the status counts.
    pub(crate) fn snapshot(&self) -> Metrics {
        let counted = self.counted.lock();
        let all = counted.all.clone();
        Metrics {
            acquires: all.acquires,
            waits: all.waits,
            wait_time: all.wait_time,
            hold_time: all.hold_time,
            local_handoffs: counted.local_handoffs,
            losses: all.losses,
            suspicions: all.suspicions,
            leftovers_deleted: counted.leftovers_deleted,
            ..Metrics::default()
        }
    }

    /// Counts for all locks and for the one at this path. Returns the path to count under, unless no lock is
    /// counted by itself.
    fn count(&self, path: &str, count: impl Fn(&mut LockMetrics)) -> Option<Arc<str>> {
        let counted = &mut *self.counted.lock();
        count(&mut counted.all);
        if self.most == 0 {
            return None;
        }
        let locks = &mut counted.by_lock;
        let known = locks.len() - usize::from(locks.contains_key(""));
        let path = match locks.contains_key(path) || known < self.most {
            true => path,
            false => "",
        };
        let known = locks.get_key_value(path).map(|(path, _)| path.clone());
        let path = known.unwrap_or_else(|| path.into());
        count(locks.entry(path.clone()).or_default());
        Some(path)
    }
}

impl RequestCounters {
    pub(crate) fn count<'a>(&self, requests: impl Iterator<Item = &'a Request>) {
        requests.for_each(|request| self.count_one(request));
    }

    fn count_one(&self, request: &Request) {
        macro_rules! kind {
            ($counter:ident, $name:literal) => {{
                self.0.lock().$counter += 1;
                #[cfg(feature = "metrics")]
                contained(|| {
                    ::metrics::counter!("zklock_requests_total", "kind" => $name).increment(1);
                });
            }};
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
        *self.0.lock()
    }
}
