//! The renewal of leases, in as few packets as possible.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::error::LostReason;
use crate::mysql::connection::DatabaseConnection;
use crate::mysql::lease::RowLease;
use crate::mysql::lock_table::{self, Key, Wait};
use crate::mysql::statement_error::{ErrorClass, StatementError};
use crate::time::clock::Moment;

/// How many leases are renewed in one packet.
const BATCH: usize = 50;

/// When a renewal began, or got an answer last.
///
/// A server that needs a long time for many rows answers packet after packet. Another renewal beside
/// this one would find rows locked, and slow both down.
#[derive(Debug)]
pub(super) struct Progress(Mutex<Moment>);

impl Progress {
    pub(super) fn new(begun: Moment) -> Self {
        Self(Mutex::new(begun))
    }

    pub(super) fn last(&self) -> Moment {
        *self.0.lock()
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
    let free: Vec<_> = leases.iter().filter(is_free).cloned().collect();
    let mut first = Ok(());
    let mut rest = &free[..];
    while !rest.is_empty() {
        let batch = &rest[..rest.len().min(BATCH)];
        let (count, renewed) = renew_batch(connection, batch, length, Wait::No);
        rest = &rest[count..];
        if count > 0 {
            *progress.0.lock() = Moment::now();
        }
        if let Err(error) = renewed {
            if let Some((blocked, later)) = rest.split_first() {
                blocked.block();
                rest = later;
            }
            // The remaining leases would get the same error.
            if error.class == ErrorClass::Unreachable || !error.class.is_transient() {
                return Err(error);
            }
            first = first.and(Err(error));
        }
    }
    let blocked = leases
        .iter()
        .filter_map(|lease| Some((lease.blocked()?, lease)));
    let Some((_, lease)) = blocked.min_by_key(|(sent, _)| *sent) else {
        return first;
    };
    let last = renew_one(connection, lease, length);
    first.and(last)
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
    let mut sent = Moment::now();
    let done = connection.run(|conn| {
        sent = Moment::now();
        leases.iter().for_each(|lease| lease.sending(sent));
        let (ours, done) = lock_table::renew(conn, &keys, length, wait);
        rows = ours;
        done
    });
    let now = Moment::now();
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
