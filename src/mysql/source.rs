//! Where connections come from, and which one goes first if a pool has few.

use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ::mysql::{DriverError, Error, Opts, Pool, PooledConn, Result};
use parking_lot::Mutex;

/// Renewals that have found no connection ask for one again within this time.
const AGAIN: Duration = Duration::from_secs(2);

/// Where connections come from.
pub(super) enum Source {
    Server(Opts),
    Pool(SharedPool),
}

/// A pool that an application may use too.
pub(super) struct SharedPool {
    pool: Pool,
    /// The database of the first connection.
    schema: OnceLock<String>,
    /// The time until which connections are reserved for the renewals, which have none.
    reserved: Mutex<Option<Instant>>,
}

impl Source {
    pub(super) fn pool(pool: Pool) -> Self {
        Self::Pool(SharedPool {
            pool,
            schema: OnceLock::new(),
            reserved: Mutex::new(None),
        })
    }

    /// Returns `true` if the renewals are waiting for one of the pool's connections.
    pub(super) fn renewal_waits(&self) -> bool {
        matches!(self, Self::Pool(pool) if pool.is_reserved())
    }
}

impl SharedPool {
    /// Returns `true` if all connections so far have led to this database.
    pub(super) fn is_same(&self, schema: &str) -> bool {
        self.schema.get_or_init(|| schema.to_owned()) == schema
    }

    /// Wakes a thread that waits for a place.
    ///
    /// A pool that drops a connection wakes no thread (mysql 28.0). A pool that gets one back does.
    pub(super) fn wake_one(&self, limit: Duration) {
        drop(self.pool.try_get_conn(limit));
    }

    fn is_reserved(&self) -> bool {
        self.reserved.lock().is_some_and(|end| Instant::now() < end)
    }

    /// Takes a connection.
    pub(super) fn get(&self, limit: Duration, purpose: Purpose) -> Result<PooledConn> {
        match purpose {
            Purpose::Renewals => *self.reserved.lock() = Some(Instant::now() + limit + AGAIN),
            Purpose::Rest if self.is_reserved() => return Err(DriverError::Timeout.into()),
            Purpose::Rest => {}
        }
        let conn = self.pool.try_get_conn(limit);
        let is_full = matches!(conn, Err(Error::DriverError(DriverError::Timeout)));
        if purpose == Purpose::Renewals && !is_full {
            *self.reserved.lock() = None;
        }
        let mut conn = conn?;
        // A connection that an application finds in its pool must be as new.
        conn.reset_connection(true);
        Ok(conn)
    }
}

/// The purpose of a connection: leases end if the renewals get none.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Purpose {
    Renewals,
    Rest,
}

/// Shows no credentials.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server(_) => "Server",
            Self::Pool(..) => "Pool",
        })
    }
}
