//! A client's counters.
//!
//! Counting costs one atomic addition. With the feature `metrics`, every number also goes to the
//! recorder of the `metrics` crate, under names that begin with `zklock_`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::jute::{OpCode, Request};

/// The number of buckets of a histogram; the last one holds all longer durations.
const BUCKETS: usize = 32;

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

/// How many durations fell into each bucket.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Histogram {
    buckets: [u64; BUCKETS],
    total: Duration,
}

impl Histogram {
    /// Returns the number of recorded durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the sum of the recorded durations.
    pub fn total(&self) -> Duration {
        self.total
    }

    /// Returns, for each bucket, its upper bound and the number of durations in it. The
    /// bounds are powers of two of microseconds; the last bucket has none.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let bounds = (0..BUCKETS).map(|at| match at + 1 {
            BUCKETS => Duration::MAX,
            _ => Duration::from_micros(1 << at),
        });
        bounds.zip(self.buckets.iter().copied())
    }

    /// Returns the upper bound of the bucket that contains this quantile, from 0 to 1; zero if
    /// nothing was recorded.
    pub fn quantile(&self, quantile: f64) -> Duration {
        let wanted = (self.count() as f64 * quantile.clamp(0.0, 1.0)).ceil() as u64;
        let mut seen = 0;
        let reached = self.buckets().find(|(_, number)| {
            seen += number;
            seen >= wanted.max(1)
        });
        reached.map_or(Duration::ZERO, |(bound, _)| bound)
    }
}

/// The counters of one client.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    acquires: AtomicU64,
    waits: AtomicU64,
    wait_time: Buckets,
    hold_time: Buckets,
    local_handoffs: AtomicU64,
    losses: AtomicU64,
    suspicions: AtomicU64,
    leftovers_deleted: AtomicU64,
    creates: AtomicU64,
    deletes: AtomicU64,
    listings: AtomicU64,
    reads: AtomicU64,
    multis: AtomicU64,
    others: AtomicU64,
}

#[derive(Debug, Default)]
struct Buckets {
    buckets: [AtomicU64; BUCKETS],
    micros: AtomicU64,
}

/// Counts, for the client and for the recorder.
macro_rules! count {
    ($counter:expr, $name:literal $(, $label:literal => $value:literal)?) => {{
        $counter.fetch_add(1, Ordering::Relaxed);
        #[cfg(feature = "metrics")]
        ::metrics::counter!($name $(, $label => $value)?).increment(1);
    }};
}

impl Counters {
    pub(crate) fn acquired(&self, after: Duration) {
        count!(self.acquires, "zklock_acquires_total");
        self.wait_time.record(after);
        #[cfg(feature = "metrics")]
        ::metrics::histogram!("zklock_wait_seconds").record(after);
    }

    pub(crate) fn waited(&self) {
        count!(self.waits, "zklock_waits_total");
    }

    pub(crate) fn held(&self, time: Duration) {
        self.hold_time.record(time);
        #[cfg(feature = "metrics")]
        ::metrics::histogram!("zklock_hold_seconds").record(time);
    }

    pub(crate) fn handed_on(&self) {
        count!(self.local_handoffs, "zklock_local_handoffs_total");
    }

    pub(crate) fn lost(&self) {
        count!(self.losses, "zklock_losses_total");
    }

    pub(crate) fn suspected(&self) {
        count!(self.suspicions, "zklock_suspicions_total");
    }

    pub(crate) fn leftover_deleted(&self) {
        count!(self.leftovers_deleted, "zklock_leftovers_deleted_total");
    }

    pub(crate) fn requested(&self, request: &Request) {
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

    /// The current numbers, without those that the status counts.
    pub(crate) fn snapshot(&self) -> Metrics {
        let now = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Metrics {
            acquires: now(&self.acquires),
            waits: now(&self.waits),
            wait_time: self.wait_time.snapshot(),
            hold_time: self.hold_time.snapshot(),
            local_handoffs: now(&self.local_handoffs),
            losses: now(&self.losses),
            suspicions: now(&self.suspicions),
            leftovers_deleted: now(&self.leftovers_deleted),
            requests: Requests {
                creates: now(&self.creates),
                deletes: now(&self.deletes),
                listings: now(&self.listings),
                reads: now(&self.reads),
                multis: now(&self.multis),
                others: now(&self.others),
            },
            ..Metrics::default()
        }
    }
}

impl Buckets {
    fn record(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bits = (u64::BITS - micros.leading_zeros()) as usize;
        if let Some(bucket) = self.buckets.get(bits.min(BUCKETS - 1)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    fn snapshot(&self) -> Histogram {
        let mut buckets = [0; BUCKETS];
        for (number, bucket) in buckets.iter_mut().zip(&self.buckets) {
            *number = bucket.load(Ordering::Relaxed);
        }
        Histogram {
            buckets,
            total: Duration::from_micros(self.micros.load(Ordering::Relaxed)),
        }
    }
}

/// Reports a reconnect to the recorder; the status counts it.
pub(crate) fn reconnected() {
    #[cfg(feature = "metrics")]
    ::metrics::counter!("zklock_reconnects_total").increment(1);
}

/// Reports an expired session to the recorder; the status counts it.
pub(crate) fn expired() {
    #[cfg(feature = "metrics")]
    ::metrics::counter!("zklock_expiries_total").increment(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_go_into_the_bucket_below_whose_bound_they_lie() {
        let buckets = Buckets::default();
        for micros in [0, 1, 2, 3, 1000, u64::MAX] {
            buckets.record(Duration::from_micros(micros));
        }
        let histogram = buckets.snapshot();
        let filled: Vec<_> = histogram.buckets().filter(|(_, n)| *n > 0).collect();
        let micros = Duration::from_micros;
        let expected = [
            (micros(1), 1),
            (micros(2), 1),
            (micros(4), 2),
            (micros(1024), 1),
            (Duration::MAX, 1),
        ];
        assert_eq!(filled, expected);
        assert_eq!(histogram.quantile(0.5), micros(4));
        assert_eq!(histogram.quantile(1.0), Duration::MAX);
        assert_eq!(Histogram::default().quantile(0.5), Duration::ZERO);
    }
}
