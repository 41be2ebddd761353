//! One connection to the database, opened when it is needed and reopened after it broke.
//!
//! `statement_error` says what an error means for a lock.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ::mysql::prelude::Queryable;
use ::mysql::{ChangeUserOpts, Conn, DriverError, Error, PooledConn, Result};
use log::debug;
use parking_lot::Mutex;

use crate::mysql::server;
use crate::mysql::source::{Purpose, Source};
use crate::mysql::sql_session;
use crate::mysql::statement_error::{ErrorClass, StatementError, is_broken, is_silence};
use crate::system::contained;

/// A connection that was unused for this long is pinged first, because servers and firewalls
/// close idle ones. A failure before the statement leaves no doubt about the statement.
const IDLE: Duration = Duration::from_secs(5);

/// How many connections beyond the number of workers may wait for the server.
const MOST_UNANSWERED: usize = 3;

/// How long to wait for the server to end what was sent on a connection that is given up.
///
/// A proxy may swallow everything. Without a bound, such connections would use up the count.
const LONGEST_END: Duration = Duration::from_secs(600);

/// More answers than one packet of statements gets.
const MOST_ANSWERS: u32 = 100;

const BUSY_SERVER: &str = "the server still works on earlier statements of this client";

const OTHER_ANSWER: &str =
    "the connection has an answer outstanding to what somebody else has asked";

const OTHER_TRANSACTION: &str = "the connection is in a transaction that is somebody else's";

const OTHER_DATABASE: &str = "the connection leads to another database than others of the pool";

/// The connection of one worker, if it is open.
#[derive(Debug)]
pub(super) struct DatabaseConnection {
    source: Arc<Source>,
    purpose: Purpose,
    /// How long to wait for one answer, unless the source sets less.
    limit: Duration,
    open: Option<OpenConnection>,
    used: Instant,
    count: Arc<ConnectionCount>,
    /// The token of the running job. A job drops it before it answers a caller, which may submit the next job.
    pub(super) job: Option<Arc<()>>,
}

/// Counts the connections of some workers, including those that were given up while the server may
/// still be working on a statement of theirs.
///
/// The server does not notice that a client has gone while it waits for a lock, a replica or a
/// disk. Without a bound, each new try would leave one more connection on it.
#[derive(Debug)]
pub(super) struct ConnectionCount {
    /// Each connection has a clone.
    tokens: Arc<()>,
    most: usize,
}

#[derive(Debug)]
struct OpenConnection {
    conn: Connected,
    /// The server may be waiting for a password.
    logs_in: bool,
    /// The driver can reset the connection to a new session.
    can_reset: bool,
    _counted: Arc<()>,
}

#[derive(Debug)]
enum Connected {
    Own(Conn),
    Pooled(PooledConn),
}

impl DatabaseConnection {
    pub(super) fn new(
        source: Arc<Source>,
        purpose: Purpose,
        limit: Duration,
        count: Arc<ConnectionCount>,
    ) -> Self {
        Self {
            source,
            purpose,
            limit,
            open: None,
            used: Instant::now(),
            count,
            job: None,
        }
    }

    /// Runs statements on the connection.
    ///
    /// Blocks for as long as the timeouts of the connection allow; not for the threads of callers.
    pub(super) fn run<T>(
        &mut self,
        work: impl FnOnce(&mut Conn) -> Result<T>,
    ) -> std::result::Result<T, StatementError> {
        catch_unwind(AssertUnwindSafe(|| self.try_run(work))).unwrap_or_else(|panic| {
            self.discard();
            Err(StatementError::of_panic(&*panic))
        })
    }

    fn try_run<T>(
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
            contained(|| debug!("database: {error}"));
            self.clean_up_after(&error);
            error
        })
    }

    /// Like [`run`](Self::run), for statements that only read: they are repeated if the connection
    /// turns out to be dead.
    pub(super) fn read<T>(
        &mut self,
        work: impl Fn(&mut Conn) -> Result<T>,
    ) -> std::result::Result<T, StatementError> {
        let was_open = self.open.is_some();
        match self.run(&work) {
            Err(error) if was_open && error.class == ErrorClass::InDoubt => self.run(&work),
            done => done,
        }
    }

    /// Gives up the connection; an answer may still be outstanding on it.
    pub(super) fn discard(&mut self) {
        if let Some(open) = self.open.take() {
            self.give_up(open);
        }
    }

    /// Returns `false` if all connections of the pool are in use.
    pub(super) fn is_to_be_had(&mut self) -> bool {
        let is_pool = matches!(*self.source, Source::Pool(_));
        !is_pool || !matches!(self.conn(), Err(Error::DriverError(DriverError::Timeout)))
    }

    /// Gives the connection back if the renewals are waiting for one.
    pub(super) fn give_way(&mut self) {
        if self.purpose == Purpose::Rest && self.source.renewal_waits() {
            self.release();
        }
    }

    /// Closes the connection, or resets it and gives it back to its pool.
    fn release(&mut self) {
        if let Some(mut open) = self.open.take()
            && !open.make_new()
        {
            self.give_up(open);
        }
    }

    fn give_up(&self, open: OpenConnection) {
        let thread = thread::Builder::new().name("zklock-mysql-end".to_owned());
        let (source, limit) = (Arc::clone(&self.source), self.limit);
        let open = Arc::new(Mutex::new(Some(open)));
        let shared = open.clone();
        let started = thread.spawn(move || {
            if let Some(open) = shared.lock().take() {
                open.end();
            }
            if let Source::Pool(shared) = &*source {
                shared.wake_one(limit);
            }
        });
        if started.is_err() {
            if let Some(open) = open.lock().take() {
                open.close();
            }
        }
    }

    fn conn(&mut self) -> Result<&mut Conn> {
        let idle = self.used.elapsed() > IDLE;
        if let Some(open) = &mut self.open
            && idle
            && open.conn().ping().is_err()
        {
            self.discard();
        }
        let open = match self.open.take() {
            Some(open) => open,
            None => self.open_and_prepare()?,
        };
        Ok(self.open.insert(open).conn())
    }

    fn open_and_prepare(&self) -> Result<OpenConnection> {
        let mut open = self.open()?;
        match self.prepare(&mut open) {
            Ok(()) => Ok(open),
            Err(error) => {
                self.give_up(open);
                Err(error)
            }
        }
    }

    fn prepare(&self, open: &mut OpenConnection) -> Result<()> {
        let is_pooled = matches!(open.conn, Connected::Pooled(_));
        if is_pooled {
            if !sql_session::answers(open.conn())? {
                return Err(io::Error::other(OTHER_ANSWER).into());
            }
            // This fails in an XA transaction. MariaDB 10.11 carries out no write in a
            // session that left a prepared one behind by a new login.
            let ended = open.conn().query_drop("ROLLBACK AND NO CHAIN NO RELEASE");
            ended.map_err(|_| io::Error::other(OTHER_TRANSACTION))?;
            // Undoes what an application may have left: another database, settings.
            open.logs_in = true;
            open.conn().change_user(ChangeUserOpts::DEFAULT)?;
            open.logs_in = false;
            // This runs the pool's first statements.
            open.conn().reset()?;
        }
        let to = sql_session::prepare(open.conn())?;
        open.can_reset = sql_session::can_reset(open.conn(), &to);
        match &*self.source {
            Source::Pool(shared) if !shared.is_same(&to.schema) => {
                Err(io::Error::other(OTHER_DATABASE).into())
            }
            _ => Ok(()),
        }
    }

    fn open(&self) -> Result<OpenConnection> {
        let counted = self
            .count
            .one_more()
            .ok_or_else(|| io::Error::other(BUSY_SERVER))?;
        let conn = match &*self.source {
            Source::Server(opts) => Connected::Own(server::connect(opts, self.limit)?),
            Source::Pool(shared) => Connected::Pooled(shared.get(self.limit, self.purpose)?),
        };
        Ok(OpenConnection {
            conn,
            logs_in: false,
            can_reset: false,
            _counted: counted,
        })
    }

    /// Leaves no open transaction behind: the server ends it, or the connection is closed.
    fn clean_up_after(&mut self, error: &StatementError) {
        if error.class == ErrorClass::InDoubt {
            self.discard();
            return;
        }
        let Some(open) = &mut self.open else {
            return;
        };
        if !error.class.is_rolled_back() {
            self.release();
        } else if open.conn().query_drop("ROLLBACK").is_err() {
            self.discard();
        }
    }
}

impl Drop for DatabaseConnection {
    fn drop(&mut self) {
        self.release();
    }
}

impl ConnectionCount {
    /// Returns the count for this many workers.
    pub(super) fn of_workers(workers: usize) -> Self {
        Self {
            tokens: Arc::default(),
            most: workers + MOST_UNANSWERED,
        }
    }

    /// Counts one more connection, if that is allowed.
    fn one_more(&self) -> Option<Arc<()>> {
        let token = self.tokens.clone();
        // One clone is the counter's own.
        (Arc::strong_count(&self.tokens) <= 1 + self.most).then_some(token)
    }
}

impl OpenConnection {
    fn conn(&mut self) -> &mut Conn {
        match &mut self.conn {
            Connected::Own(conn) => conn,
            Connected::Pooled(conn) => conn.as_mut(),
        }
    }

    /// Resets a pool's session for its next user; returns whether that succeeded.
    fn make_new(&mut self) -> bool {
        match &mut self.conn {
            Connected::Own(_) => true,
            Connected::Pooled(conn) => {
                let is_new = self.can_reset && conn.as_mut().reset().is_ok();
                // If the session has been reset, it must not be reset again; otherwise the pool must drop it.
                conn.reset_connection(!is_new);
                is_new
            }
        }
    }

    /// Closes the connection; a pool loses its place.
    fn close(self) {
        if let Connected::Pooled(conn) = self.conn {
            drop(conn.unwrap());
        }
    }

    /// Waits until the server has ended what was sent to it, then closes the connection.
    ///
    /// A pool must not get it back: the pool could take the outstanding answer for the answer
    /// to its next statement.
    fn end(mut self) {
        let (mut answers, begun) = (0, Instant::now());
        while answers < MOST_ANSWERS && begun.elapsed() < LONGEST_END {
            let asked = match answers {
                // The outstanding answer may belong to a login. The driver would take it for the
                // beginning of rows, and panic. It does not look into an answer to a ping.
                0 => self.conn().ping(),
                // The server reads this after everything that was sent before; its answer is the
                // end of the connection.
                _ => self.conn().query_drop("KILL CONNECTION_ID()"),
            };
            match asked {
                // The server took it for a password. It will not answer the pool, which drops the connection.
                Err(error) if is_silence(&error) && self.logs_in && answers > 0 => return,
                Err(error) if is_silence(&error) => {}
                // A pool drops a connection that it cannot reset.
                Err(error) if is_broken(&error) => return,
                Ok(()) | Err(_) => answers += 1,
            }
        }
        // A proxy does not carry out KILL, or does not answer at all.
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use ::mysql::Opts;

    use super::*;

    #[test]
    fn the_source_shows_no_credentials() {
        let opts = Opts::from_url("mysql://app:secret@db/app").expect("a good URL");
        let source = Arc::new(Source::Server(opts));
        let count = Arc::new(ConnectionCount::of_workers(1));
        let connection =
            DatabaseConnection::new(source, Purpose::Rest, Duration::from_secs(1), count);
        assert!(!format!("{connection:?}").contains("secret"));
    }
}
