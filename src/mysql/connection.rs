//! One connection to the database, opened when it is needed and again after it broke.
//!
//! What an error means for a lock is in `statement_error`.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::mysql::prelude::Queryable;
use ::mysql::{Conn, Opts, OptsBuilder, Pool, PooledConn, Result};
use log::debug;

use crate::mysql::statement_error::StatementError;

/// After so long without use a connection is pinged first, because servers and firewalls
/// close idle ones. A failure before the statement leaves no doubt about the statement.
const IDLE: Duration = Duration::from_secs(5);

/// Every statement is its own transaction, and waits only a second, the shortest that can
/// be set, for a row that another program has locked.
///
/// The rest takes back what an application may have set for the sessions of its pool: a
/// COMMIT that begins the next transaction, a unique key that need not be checked, a SELECT
/// that leaves rows out, a clock that stands.
const PREPARE: &str = "SET SESSION autocommit = 1, innodb_lock_wait_timeout = 1, \
                       completion_type = 0, unique_checks = 1, sql_select_limit = DEFAULT, \
                       timestamp = DEFAULT";

/// Where connections come from.
pub(super) enum Source {
    Server(Opts),
    Pool(Pool),
}

/// Shows no credentials.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server(_) => "Server",
            Self::Pool(_) => "Pool",
        })
    }
}

/// The connection of one worker, if it is open at the moment.
#[derive(Debug)]
pub(super) struct DatabaseConnection {
    source: Arc<Source>,
    /// How long to wait for one answer, where the source does not set less.
    limit: Duration,
    open: Option<OpenConnection>,
    used: Instant,
}

#[derive(Debug)]
enum OpenConnection {
    Own(Conn),
    Pooled(PooledConn),
}

impl DatabaseConnection {
    pub(super) fn new(source: Arc<Source>, limit: Duration) -> Self {
        Self {
            source,
            limit,
            open: None,
            used: Instant::now(),
        }
    }

    /// Runs statements on the connection.
    ///
    /// Blocks for as long as the timeouts of the connection allow; not for callers.
    pub(super) fn run<T>(
        &mut self,
        work: impl FnOnce(&mut Conn) -> Result<T>,
    ) -> std::result::Result<T, StatementError> {
        let conn = self
            .conn()
            .map_err(|error| StatementError::before_sending(&error))?;
        let done = work(conn);
        self.used = Instant::now();
        done.map_err(|error| {
            let error = StatementError::after_sending(&error);
            debug!("database: {error}");
            self.clean_up_after(&error);
            error
        })
    }

    /// Closes the connection, whose state is not known.
    pub(super) fn discard(&mut self) {
        self.open = None;
    }

    fn conn(&mut self) -> Result<&mut Conn> {
        let idle = self.used.elapsed() > IDLE;
        if let Some(open) = &mut self.open
            && idle
            && open.conn().ping().is_err()
        {
            self.open = None;
        }
        let open = match self.open.take() {
            Some(open) => open,
            None => {
                let mut open = self.open()?;
                open.conn().query_drop(PREPARE)?;
                open
            }
        };
        Ok(self.open.insert(open).conn())
    }

    fn open(&self) -> Result<OpenConnection> {
        match &*self.source {
            Source::Server(opts) => {
                Conn::new(with_timeouts(opts, self.limit)).map(OpenConnection::Own)
            }
            Source::Pool(pool) => pool.try_get_conn(self.limit).map(OpenConnection::Pooled),
        }
    }

    /// Leaves no open transaction behind: the server ends it, or the connection is closed.
    fn clean_up_after(&mut self, error: &StatementError) {
        let Some(open) = &mut self.open else {
            return;
        };
        if !error.class.is_rolled_back() || open.conn().query_drop("ROLLBACK").is_err() {
            self.open = None;
        }
    }
}

impl OpenConnection {
    fn conn(&mut self) -> &mut Conn {
        match self {
            Self::Own(conn) => conn,
            Self::Pooled(conn) => conn.as_mut(),
        }
    }
}

/// Limits every wait on a connection; a shorter timeout in the URL stays.
fn with_timeouts(opts: &Opts, limit: Duration) -> Opts {
    let at_most = |set: Option<Duration>| Some(set.map_or(limit, |set| set.min(limit)));
    OptsBuilder::from_opts(opts.clone())
        .tcp_connect_timeout(at_most(opts.get_tcp_connect_timeout()))
        .read_timeout(at_most(opts.get_read_timeout().copied()))
        .write_timeout(at_most(opts.get_write_timeout().copied()))
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_shows_no_credentials() {
        let opts = Opts::from_url("mysql://app:secret@db/app").expect("a good URL");
        let source = Arc::new(Source::Server(opts));
        let connection = DatabaseConnection::new(source, Duration::from_secs(1));
        assert!(!format!("{connection:?}").contains("secret"));
    }
}
