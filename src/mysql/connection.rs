//! One connection to the database, made when it is needed and made again when it broke.
//!
//! Also what the errors mean for a lock: whether to try again, and whether a statement
//! that failed may have been carried out.

use std::error::Error as _;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::mysql::prelude::Queryable;
use ::mysql::{Conn, Error, Opts, OptsBuilder, Pool, PooledConn, Result};
use log::debug;

/// A connection that was idle for so long is asked whether it is alive, since servers and
/// firewalls close idle ones. A failure before the statement leaves no doubt about it.
const IDLE: Duration = Duration::from_secs(5);

/// Every session of ours: each statement its own transaction, and a row that some other
/// program has locked does not hold us up for long. One second is the least there is.
const PREPARE: &str = "SET SESSION autocommit = 1, innodb_lock_wait_timeout = 1";

/// Where connections come from.
pub(super) enum Source {
    Server(Opts),
    Pool(Pool),
}

/// Has no room for credentials.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server(_) => "Server",
            Self::Pool(_) => "Pool",
        })
    }
}

/// How a statement failed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Trouble {
    pub(super) kind: Kind,
    /// What the server or the connection said.
    pub(super) said: String,
}

/// What a failure means.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// There was no connection: nothing was sent.
    Unreachable,
    /// The answer did not come: it may have been carried out, or may be later.
    InDoubt,
    /// The server rolled it back, and it may succeed when tried again.
    Busy,
    /// The server rolled it back, because some other transaction has the row.
    Locked,
    /// The server takes no writes.
    ReadOnly,
    /// The server refused the credentials.
    Denied,
    /// The tables are missing.
    NoTable,
    /// Trying again is of no use.
    Refused,
}

impl Kind {
    /// Returns `true` if the same may succeed later.
    pub(super) fn passes(self) -> bool {
        self.is_the_connection() || self.is_rolled_back()
    }

    /// Returns `true` if the server did not say that nothing was done.
    pub(super) fn may_be_done(self) -> bool {
        matches!(self, Self::InDoubt | Self::Refused)
    }

    /// Returns `true` if the server rolled the statement back, and is otherwise well.
    pub(super) fn is_rolled_back(self) -> bool {
        matches!(self, Self::Busy | Self::Locked)
    }

    /// Returns `true` if it was the connection, whatever the statement.
    pub(super) fn is_the_connection(self) -> bool {
        matches!(self, Self::Unreachable | Self::InDoubt)
    }
}

/// One worker's connection, if there is one at the moment.
#[derive(Debug)]
pub(super) struct Link {
    source: Arc<Source>,
    /// How long to wait for one answer, where the source leaves that to us.
    limit: Duration,
    live: Option<Live>,
    used: Instant,
}

#[derive(Debug)]
enum Live {
    Own(Conn),
    Pooled(PooledConn),
}

impl Link {
    pub(super) fn new(source: Arc<Source>, limit: Duration) -> Self {
        Self {
            source,
            limit,
            live: None,
            used: Instant::now(),
        }
    }

    /// Runs statements on the connection.
    ///
    /// Blocks for as long as the timeouts of the connection allow; not for callers.
    pub(super) fn run<T>(
        &mut self,
        work: impl FnOnce(&mut Conn) -> Result<T>,
    ) -> std::result::Result<T, Trouble> {
        self.connect().map_err(|error| Trouble::before(&error))?;
        let Some(live) = &mut self.live else {
            return Err(Trouble::new(Kind::Unreachable, "no connection".to_owned()));
        };
        let done = work(live.conn());
        self.used = Instant::now();
        done.map_err(|error| {
            let trouble = Trouble::during(&error);
            debug!("database: {trouble}");
            self.clear_up(&trouble);
            trouble
        })
    }

    /// Does not trust the connection any more.
    pub(super) fn distrust(&mut self) {
        self.live = None;
    }

    fn connect(&mut self) -> Result<()> {
        let idle = self.used.elapsed() > IDLE;
        if let Some(live) = &mut self.live
            && idle
            && live.conn().ping().is_err()
        {
            self.live = None;
        }
        if self.live.is_none() {
            let mut live = self.open()?;
            live.conn().query_drop(PREPARE)?;
            self.live = Some(live);
        }
        Ok(())
    }

    fn open(&self) -> Result<Live> {
        match &*self.source {
            Source::Server(opts) => Conn::new(bounded(opts, self.limit)).map(Live::Own),
            Source::Pool(pool) => pool.try_get_conn(self.limit).map(Live::Pooled),
        }
    }

    /// Leaves no open transaction behind: the server ends it, or the connection goes.
    fn clear_up(&mut self, trouble: &Trouble) {
        let Some(live) = &mut self.live else {
            return;
        };
        if !trouble.kind.is_rolled_back() || live.conn().query_drop("ROLLBACK").is_err() {
            self.live = None;
        }
    }
}

impl Live {
    fn conn(&mut self) -> &mut Conn {
        match self {
            Self::Own(conn) => conn,
            Self::Pooled(conn) => conn.as_mut(),
        }
    }
}

impl Trouble {
    pub(super) fn new(kind: Kind, said: String) -> Self {
        Self { kind, said }
    }

    /// The connection could not be made.
    fn before(error: &Error) -> Self {
        let during = Self::during(error);
        let kind = match during.kind {
            Kind::InDoubt | Kind::Busy | Kind::Locked => Kind::Unreachable,
            kind => kind,
        };
        Self { kind, ..during }
    }

    /// A statement failed.
    fn during(error: &Error) -> Self {
        let kind = match error {
            Error::MySqlError(error) => kind_of(error.code),
            Error::UrlError(_) | Error::FromValueError(_) | Error::FromRowError(_) => Kind::Refused,
            _ => Kind::InDoubt,
        };
        Self::new(kind, said(error))
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.said)
    }
}

/// What an error says, without the driver's wrapping.
fn said(error: &Error) -> String {
    match error {
        Error::IoError(error) => said_by_io(error),
        Error::CodecError(error) => match error.source().and_then(|source| source.downcast_ref()) {
            Some(error) => said_by_io(error),
            None => error.to_string(),
        },
        Error::MySqlError(error) => format!("{} ({})", error.message, error.code),
        Error::DriverError(error) => error.to_string(),
        other => other.to_string(),
    }
}

fn said_by_io(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no answer in time".to_owned(),
        _ => error.to_string(),
    }
}

/// The codes of MySQL, MariaDB and Galera.
fn kind_of(code: u16) -> Kind {
    match code {
        1205 => Kind::Locked,
        // A row that changed under a snapshot, a deadlock (Galera says so of every conflict
        // between two nodes), a conflict in group replication.
        1020 | 1213 | 3101 => Kind::Busy,
        // Too many connections, a node that is not ready, shutdown, a killed or timed-out
        // connection, trouble with its packets.
        1040
        | 1047
        | 1053
        | 1152..=1161
        | 1180
        | 1203
        | 1226
        | 1317
        | 1927
        | 2006
        | 2013
        | 3169
        | 4031 => Kind::InDoubt,
        1290 | 1792 | 1836 => Kind::ReadOnly,
        1044 | 1045 | 1698 => Kind::Denied,
        1146 => Kind::NoTable,
        _ => Kind::Refused,
    }
}

/// Nothing waits for ever on a connection of ours.
fn bounded(opts: &Opts, limit: Duration) -> Opts {
    let or_ours = |theirs: Option<Duration>| Some(theirs.map_or(limit, |theirs| theirs.min(limit)));
    OptsBuilder::from_opts(opts.clone())
        .tcp_connect_timeout(or_ours(opts.get_tcp_connect_timeout()))
        .read_timeout(or_ours(opts.get_read_timeout().copied()))
        .write_timeout(or_ours(opts.get_write_timeout().copied()))
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_shows_no_credentials() {
        let opts = Opts::from_url("mysql://app:secret@db/app").expect("a good URL");
        let link = Link::new(Arc::new(Source::Server(opts)), Duration::from_secs(1));
        assert!(!format!("{link:?}").contains("secret"));
    }

    #[test]
    fn what_failed_before_it_was_sent_leaves_no_doubt() {
        let error = || Error::from(io::Error::other("refused"));
        assert_eq!(Trouble::before(&error()).kind, Kind::Unreachable);
        assert_eq!(Trouble::during(&error()).kind, Kind::InDoubt);
    }
}
