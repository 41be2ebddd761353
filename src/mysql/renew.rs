//! The renewal of leases, in as few packets as possible.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use ::mysql::Conn;
use parking_lot::Mutex;

use crate::error::LostReason;
use crate::mysql::connection::DatabaseConnection;
use crate::mysql::lease::RowLease;
use crate::mysql::lock_table::{self, Key, Wait};
use crate::mysql::statement_error::{ErrorClass, StatementError};
use crate::system::clock::since_boot;

/// How many leases are renewed in one packet at most, and in how many packets where that takes long.
const BATCH: usize = 50;
const PACKETS: usize = 8;

/// The progress of one renewal of several leases.
///
/// A server that needs a long time for many rows answers packet after packet. Another renewal beside
/// this one would find rows locked, and slow both down.
#[derive(Debug)]
pub(super) struct Progress {
    begun: Duration,
    leases: u32,
    /// Whether the leases are likely to take longer than the time after which they are due.
    slow: bool,
    /// When the renewal began, or got an answer last.
    last: Mutex<Duration>,
}

impl Progress {
    /// Begins a renewal of this many leases, each of which is likely to take as long as `each`.
    pub(super) fn new(leases: usize, each: Duration, length: Duration) -> Self {
        let (begun, leases) = (since_boot(), u32::try_from(leases).unwrap_or(u32::MAX));
        Self {
            begun,
            leases,
            slow: each.saturating_mul(leases) > length / 6,
            last: Mutex::new(begun),
        }
    }

    pub(super) fn last(&self) -> Duration {
        *self.last.lock()
    }

    /// Returns how long each lease has taken by now.
    pub(super) fn each(&self) -> Duration {
        since_boot().saturating_sub(self.begun) / self.leases
    }

    /// Returns how many leases to renew in one packet.
    ///
    /// A lease counts from when its packet was sent, so it gets older by the time of a whole packet
    /// than if it had been sent alone. But each packet costs a round trip.
    fn batch(&self, connection: &mut DatabaseConnection, leases: usize, length: Duration) -> usize {
        if !self.slow {
            return BATCH;
        }
        let begun = since_boot();
        // If this fails, the first packet tells why.
        let _ = connection.run(Conn::ping);
        let trip = since_boot().saturating_sub(begun).as_nanos().max(1);
        let packets = usize::try_from(length.as_nanos() / 6 / trip).unwrap_or(PACKETS);
        leases.div_ceil(packets.clamp(1, PACKETS)).clamp(1, BATCH)
    }
}

/// Renews leases; one that cannot be renewed now does not hold up the others.
///
/// Rows that another program had locked at the last try come after the rest, and only one of them
/// is tried, so that the next round comes soon.
pub(super) fn renew_all(
    connection: &mut DatabaseConnection,
    leases: &[Arc<RowLease>],
    length: Duration,
    progress: &Progress,
) -> Result<(), StatementError> {
    let is_free = |lease: &&Arc<RowLease>| lease.blocked().is_none();
    let mut rest: Vec<_> = leases.iter().filter(is_free).cloned().collect();
    let size = progress.batch(connection, rest.len(), length);
    let (mut first, mut took) = (Ok(()), Duration::ZERO);
    loop {
        let begun = since_boot();
        order(&mut rest, begun, took);
        let batch = &rest[..rest.len().min(size)];
        if batch.is_empty() {
            break;
        }
        let (count, renewed) = renew_batch(connection, batch, length, Wait::No);
        rest.drain(..count);
        let now = since_boot();
        took = now.saturating_sub(begun);
        if count > 0 {
            *progress.last.lock() = now;
        }
        if let Err(error) = renewed {
            if !rest.is_empty() {
                rest.remove(0).block();
            }
            // The remaining leases would get the same error.
            if error.class == ErrorClass::Unreachable || !error.class.is_transient() {
                return Err(error);
            }
            first = first.and(Err(error));
        }
    }
    let last = renew_blocked(connection, leases, length);
    first.and(last)
}

/// Puts those first that an answer reaches in time if it takes as long as the last one. The time for a lease that is
/// lost, or would be before the answer, is better spent on the others.
fn order(leases: &mut Vec<Arc<RowLease>>, now: Duration, took: Duration) {
    leases.retain(|lease| !lease.is_over());
    leases.sort_by_key(|lease| lease.valid_for(now) < took);
}

/// Renews the lease that has waited longest of those whose row another program had locked.
fn renew_blocked(
    connection: &mut DatabaseConnection,
    leases: &[Arc<RowLease>],
    length: Duration,
) -> Result<(), StatementError> {
    let blocked = leases
        .iter()
        .filter_map(|lease| Some((lease.blocked()?, lease)));
    match blocked.min_by_key(|(sent, _)| *sent) {
        Some((_, lease)) => renew_one(connection, lease, length),
        None => Ok(()),
    }
}

/// Returns how many renewals were answered, and the error that ended them.
fn renew_batch(
    connection: &mut DatabaseConnection,
    leases: &[Arc<RowLease>],
    length: Duration,
    wait: Wait,
) -> (usize, Result<(), StatementError>) {
    let keys: Vec<_> = leases.iter().map(|lease| key(lease)).collect();
    let mut rows = Vec::new();
    let mut sent = since_boot();
    let done = connection.run(|conn| {
        sent = since_boot();
        leases.iter().for_each(|lease| lease.sending(sent));
        let (ours, done) = lock_table::renew(conn, &keys, length, wait);
        rows = ours;
        done
    });
    let now = since_boot();
    for (lease, ours) in leases.iter().zip(&rows) {
        if *ours {
            lease.confirm(sent, now)
        } else {
            lease.lose(LostReason::Evicted)
        }
    }
    (rows.len(), done)
}

/// Renews one lease now, to verify it.
pub(super) fn renew_one(
    connection: &mut DatabaseConnection,
    lease: &Arc<RowLease>,
    length: Duration,
) -> Result<(), StatementError> {
    renew_batch(connection, slice::from_ref(lease), length, Wait::Yes).1
}

fn key(lease: &RowLease) -> Key<'_> {
    Key {
        name: &lease.name,
        owner: &lease.owner,
    }
}
