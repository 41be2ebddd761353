//! The client of a database, and its builder.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ::mysql::{Opts, OptsBuilder, Pool, UrlError};

use crate::error::{Error, Result};
use crate::mysql::database::Timings;
use crate::mysql::job::Job;
use crate::mysql::mutex::Mutex;
use crate::mysql::reentrant_mutex::ReentrantMutex;
use crate::mysql::shared_client::SharedClient;
use crate::mysql::source::Source;

/// A client of one database. It makes the mutexes.
///
/// Clones are cheap and share connections, threads and local queues. As they are needed, a
/// client starts up to four threads with a connection each, one with a connection for
/// renewals, and one that schedules the renewals.
///
/// Dropping the last clone, and the last mutex made from it, waits until the rows of released
/// locks are deleted, for at most two seconds.
///
/// In a forked child the locks are still the parent's: a request fails with
/// [`Error::Closed`], and dropping guards and clients releases nothing.
#[derive(Clone)]
pub struct Client {
    shared: Arc<SharedClient>,
}

impl Client {
    /// Connects to the database that the URL names, `mysql://user:password@host:port/name`.
    ///
    /// The documentation of the `mysql` crate lists the parameters of the URL. With
    /// `?root_cert_path=ca.pem`, for example, connections use TLS and nothing else: the
    /// server's certificate must be valid for the host in the URL, and issued by an authority
    /// in that file or by a public one. A loopback address is not exchanged for the server's
    /// socket, which the driver by itself prefers. Waits for the connection for at most 15 seconds.
    ///
    /// # Errors
    ///
    /// Fails if there is no connection in time, if the credentials are refused, and if there
    /// is a table that does not suit these locks. A missing table is not an error: see
    /// [`create_table`](Self::create_table).
    pub fn connect(url: &str) -> Result<Self> {
        Self::builder(url).connect()
    }

    /// Returns a client that takes up to five connections from a pool and keeps them.
    ///
    /// The client needs two connections, one of them for renewals alone. The pool should have more than the
    /// application takes at a time. Connections are reset when taken and when given back, or closed.
    ///
    /// Give the pool timeouts for connecting, reading and writing: without them, a connection into
    /// a dead network is occupied until the kernel gives it up. No call hangs because of that, but
    /// later calls may find no connection. If the address is a tunnel's or a proxy's on this
    /// machine, give the pool `prefer_socket(false)` as well.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub fn from_pool(pool: Pool) -> Result<Self> {
        Self::builder_from_pool(pool).connect()
    }

    /// Returns a builder, for other settings.
    ///
    /// [`ClientBuilder::connect`] fails if the URL cannot be read.
    pub fn builder(url: &str) -> ClientBuilder {
        let opts = Opts::from_url(url).map_err(|error| Error::Database {
            what: "read the database's URL",
            message: format!(
                "{}; write mysql://user:password@host:port/database",
                what_is_wrong(url, &error)
            ),
        });
        ClientBuilder::new(opts.map(Source::Server))
    }

    /// As [`builder`](Self::builder), with a pool.
    pub fn builder_from_pool(pool: Pool) -> ClientBuilder {
        ClientBuilder::new(Ok(Source::pool(pool)))
    }

    /// Creates the tables if they do not exist.
    ///
    /// This needs the right to create tables. If the user lacks it, have an administrator run
    /// [`CREATE_TABLE`](crate::mysql::CREATE_TABLE). The locks themselves need SELECT,
    /// INSERT, UPDATE and DELETE on all three tables. Waits for the database as long as
    /// [`connect`](Self::connect) does.
    ///
    /// # Errors
    ///
    /// Fails if the database fails or takes no writes, or if there is a table that does not suit
    /// these locks.
    pub fn create_table(&self) -> Result<()> {
        self.shared.database.create_tables()
    }

    /// Returns the mutex with that name.
    ///
    /// Names are compared byte by byte. This does no I/O.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::BadArgument`] if the name is empty, is longer than 255 bytes,
    /// contains control characters, or ends with a space (which the database would ignore).
    pub fn mutex(&self, name: &str) -> Result<Mutex> {
        Ok(Mutex::new(self.shared.clone(), checked(name)?))
    }

    /// Returns the reentrant mutex with that name; it is the same lock as the mutex.
    ///
    /// # Errors
    ///
    /// As [`mutex`](Self::mutex).
    pub fn reentrant_mutex(&self, name: &str) -> Result<ReentrantMutex> {
        Ok(ReentrantMutex::new(self.shared.clone(), checked(name)?))
    }

    /// Returns the job with that name; its lock is the mutex with that name.
    ///
    /// # Errors
    ///
    /// As [`mutex`](Self::mutex).
    pub fn job(&self, name: &str) -> Result<Job> {
        Ok(Job::new(self.shared.clone(), checked(name)?))
    }

    /// Returns the length of the lease of the client's locks.
    pub fn lease(&self) -> Duration {
        self.shared.database.lease()
    }

    /// Ends all waits for a lock with [`Error::Closed`], and acquires no more locks.
    ///
    /// Existing guards become lost; their rows are deleted when they are dropped.
    pub fn close(&self) {
        self.shared.close();
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.describe("Client", None, f)
    }
}

/// The settings of a [`Client`].
#[derive(Debug)]
#[must_use = "a builder does nothing until connect is called"]
pub struct ClientBuilder {
    source: Result<Source>,
    password_file: Option<PathBuf>,
    timings: Timings,
}

impl ClientBuilder {
    fn new(source: Result<Source>) -> Self {
        let timings = Timings {
            lease: Duration::from_secs(20),
            connect_timeout: Duration::from_secs(15),
            poll: (Duration::from_millis(10), Duration::from_millis(500)),
            clean_every: Duration::from_secs(600),
        };
        Self {
            source,
            password_file: None,
            timings,
        }
    }

    /// Reads the password from this file, in place of one in the URL.
    ///
    /// A line break at its end is not part of the password. [`connect`](Self::connect) reads
    /// the file once; for a pool it fails with [`Error::BadArgument`]. Defaults to none.
    pub fn password_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.password_file = Some(path.into());
        self
    }

    /// Sets how long a lock lasts without a renewal; it is renewed every sixth of that time.
    ///
    /// If a holder dies, another client gets its lock after this time. A guard that cannot
    /// renew is suspect after a third of it and lost after three quarters. Defaults to 20
    /// seconds.
    ///
    /// # Panics
    ///
    /// Panics if it is shorter than one second or longer than a day.
    pub fn lease(mut self, lease: Duration) -> Self {
        let range = Duration::from_secs(1)..=Duration::from_secs(86_400);
        assert!(
            range.contains(&lease),
            "a lease of {lease:?} is out of range"
        );
        self.timings.lease = lease;
        self
    }

    /// Sets how long [`connect`](Self::connect) and [`Client::create_table`] wait, and how long a
    /// lock waits for a server that takes no writes, as during a fail-over. Defaults to 15 seconds.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.timings.connect_timeout = limit.min(Duration::from_secs(86_400));
        self
    }

    /// Sets the first and the longest pause between two looks at a lock that is taken.
    ///
    /// The pause grows by half each time, and varies by a quarter. A client may notice a
    /// release up to `most` late. Defaults to 10 and 500 milliseconds.
    ///
    /// # Panics
    ///
    /// Panics if one is zero, if `most` is less than `first`, or if `most` is longer than a day.
    pub fn poll_interval(mut self, first: Duration, most: Duration) -> Self {
        let good = !first.is_zero() && first <= most && most <= Duration::from_secs(86_400);
        assert!(
            good,
            "poll intervals of {first:?} to {most:?} are out of range"
        );
        self.timings.poll = (first, most);
        self
    }

    /// Sets how often rows are deleted whose lease ended long ago and for which no client waits.
    ///
    /// Defaults to ten minutes.
    ///
    /// # Panics
    ///
    /// Panics if it is shorter than 100 milliseconds or longer than a year.
    pub fn clean_interval(mut self, interval: Duration) -> Self {
        let range = Duration::from_millis(100)..=Duration::from_secs(365 * 86_400);
        assert!(
            range.contains(&interval),
            "an interval of {interval:?} is out of range"
        );
        self.timings.clean_every = interval;
        self
    }

    /// Connects.
    ///
    /// # Errors
    ///
    /// As [`Client::connect`].
    pub fn connect(self) -> Result<Client> {
        let source = match (self.source?, self.password_file) {
            (Source::Server(opts), file) => source_of(opts, file.as_deref())?,
            (pool, None) => pool,
            (Source::Pool(..), Some(_)) => {
                return Err(Error::BadArgument {
                    name: "password_file",
                    rule: "a pool has its own password".into(),
                });
            }
        };
        let shared = SharedClient::start(source, self.timings)?;
        shared.database.connect()?;
        Ok(Client {
            shared: Arc::new(shared),
        })
    }
}

/// Returns where to connect, with this password if there is one.
fn source_of(opts: Opts, password_file: Option<&Path>) -> Result<Source> {
    let path = opts.get_ssl_opts().and_then(|tls| tls.root_cert_path());
    if let Some(path) = path {
        // The driver would not name the file.
        File::open(path).map_err(|error| unreadable("read the authorities", path, &error))?;
    }
    let Some(path) = password_file else {
        return Ok(Source::Server(opts));
    };
    let password = fs::read_to_string(path);
    let password = password.map_err(|error| unreadable("read the password", path, &error))?;
    let password = password.trim_end_matches(['\r', '\n']);
    let opts = OptsBuilder::from_opts(opts).pass(Some(password));
    Ok(Source::Server(opts.into()))
}

/// Returns what is wrong with a URL, without showing its credentials.
///
/// The driver's message names parameters. Text after a `?` in the password is part of the password.
fn what_is_wrong(url: &str, error: &UrlError) -> String {
    match url.split_once('?') {
        Some((_, rest)) if rest.contains('@') => "a `?` in a password is written %3F".to_owned(),
        _ if !url.contains("://") => "it does not begin with mysql://".to_owned(),
        _ if matches!(error, UrlError::UnknownParameter(name) if name.contains("ssl") || name.contains("tls")) =>
        {
            format!("{error} (for TLS, write ?root_cert_path=ca.pem)")
        }
        _ => match error {
            UrlError::UnknownParameter(name) => {
                format!("it knows no parameter {name}: leave that out")
            }
            error => error.to_string(),
        },
    }
}

fn unreadable(what: &'static str, path: &Path, error: &io::Error) -> Error {
    Error::Database {
        what,
        message: format!(
            "{}: {error}; name a file that this user may read",
            path.display()
        ),
    }
}

fn checked(name: &str) -> Result<Arc<str>> {
    let rule = if name.is_empty() {
        "it is empty; write one such as nightly-report"
    } else if name.len() > 255 {
        "it is longer than 255 bytes; write a shorter one"
    } else if name.chars().any(char::is_control) {
        "it has a control character; leave that out"
    } else if name.ends_with(' ') {
        "it ends with a space, which the database would ignore; leave that out"
    } else {
        return Ok(name.into());
    };
    Err(Error::BadArgument {
        name: "name",
        rule: rule.into(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::support::fuzz;

    const VALID: &[&str] = &[
        "mysql://app:secret@db:3306/app",
        "mysql://app@[2001:db8::1]/app?prefer_socket=false&compress=fast",
        "mysql://ann%40home:p%2Fw@127.0.0.1/%C3%A9?root_cert_path=ca.pem",
    ];

    #[rustfmt::skip]
    const WORDS: &[&str] = &[
        ":", "/", "//", "@", "?", "&", "=", "%", "%2", "%zz", "%00", "[", "]", "#", "mysql://", "65536", "-1",
        "pool_min=9", "pool_max=1", "tcp_keepalive_time_ms=x", "compress=", "\0", "é", "😀", " ",
    ];

    fn is_read_or_refused_well(url: &str) {
        let Err(error) = Client::builder(url).source else {
            return;
        };
        assert!(matches!(&error, Error::Database { message, .. } if !message.is_empty()));
        let shown = error.to_string();
        assert!(shown.contains("write mysql://"), "{shown}");
        assert!(shown.len() < 500 + 12 * url.len(), "{}", shown.len());
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn a_url_with_mistakes_is_read_or_refused_well(url in fuzz::texts(VALID, WORDS)) {
            is_read_or_refused_well(&url);
        }

        #[test]
        fn a_name_with_mistakes_is_taken_or_refused_with_a_rule(
            name in fuzz::texts(&["nightly", "é λ"], &[" ", "\0", "\n", "\u{85}", "x"]),
        ) {
            match checked(&name) {
                Ok(taken) => {
                    prop_assert_eq!(&*taken, &name);
                    prop_assert!((1..256).contains(&name.len()) && !name.ends_with(' '));
                    prop_assert!(!name.contains(char::is_control));
                }
                Err(error) => prop_assert!(error.is_bad_input()),
            }
        }
    }
}
