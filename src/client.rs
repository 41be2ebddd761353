//! A client: one session with ZooKeeper, shared by any number of locks.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver;

use crate::builder::{ClientBuilder, Opened};
use crate::contender::Contender;
use crate::error::{Error, Result};
use crate::lock::Locks;
use crate::metrics::Metrics;
use crate::multi_lock::MultiLock;
use crate::mutex::Mutex;
use crate::reentrant_mutex::ReentrantMutex;
use crate::rwlock::RwLock;
use crate::semaphore::Semaphore;
use crate::session::{CLOSE_LIMIT, Session, Settings};
use crate::time::limit::Limit;
use crate::transport::session_state::{SessionEvent, SessionState};
use crate::transport::status::Status;

/// A session with ZooKeeper, shared by all clones.
///
/// It connects again by itself, to any server of the list, and keeps its session as long
/// as the ensemble does. When the last clone, lock and guard of it is dropped, the
/// end of the session is sent, and the drop does not wait for an answer (only for the time
/// of [`LockOptions::hold_at_least`](crate::LockOptions::hold_at_least)); [`close`](Self::close)
/// does. After [`std::process::exit`] or an abort its locks become free only when the session
/// has timed out.
///
/// # When the ensemble was set up anew or restored
///
/// Servers whose data is older than what a client has seen hang up on it. When none of them
/// has served it for longer than the session timeout, it asks for a new session:
/// [`SessionEvent::Expired`] and [`SessionEvent::Connected`] tell so, its guards are lost,
/// and who waits for a lock queues again. Guards trust the servers to keep what they have
/// committed: one that was confirmed just before passes
/// [`check`](crate::MutexGuard::check) for up to half a session timeout, whatever the
/// servers have forgotten meanwhile.
///
/// # What is expected of the servers
///
/// That `minSessionTimeout` is two ticks or more, as it is by default. A server counts a
/// session's time in whole ticks, and a follower tells the leader every half tick which
/// sessions it has heard of; with a shorter timeout a lock may go to somebody else before its
/// holder can know it.
///
/// # After a fork
///
/// A session belongs to the process that has made it. In a forked child its clients and
/// guards must not be used: a request fails with [`Error::Closed`], or hangs if another
/// thread of the parent was in the middle of one at the fork; to drop them gives nothing up,
/// for the locks are the parent's. A guard's `check`, which does no I/O, may go
/// on passing there for up to half a session timeout, though the parent has released the
/// lock. Starting programs with [`std::process::Command`] is no such fork.
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// use zklock::Client;
///
/// # let hosts = server.hosts();
/// // "zk1:2181,zk2:2181,zk3:2181/app" in production.
/// let client = Client::connect(hosts)?;
/// let zk_mutex = client.mutex("/locks/nightly-report")?;
/// let _guard = zk_mutex.lock()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) locks: Arc<Locks>,
}

impl Client {
    /// Connects to the first server of `hosts` that answers.
    ///
    /// `hosts` is `host:port,host:port/chroot`; the port defaults to 2181, IPv6 addresses
    /// stand in brackets, and everything happens below the chroot if there is one, which must
    /// exist. Blocks
    /// until there is a session, for 15 s at most.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::BadHosts`] if the list cannot be read, with
    /// [`Error::ConnectTimeout`], which tells what each server said, and with
    /// [`Error::AuthFailed`].
    pub fn connect(hosts: &str) -> Result<Self> {
        Self::builder(hosts).connect()
    }

    /// Returns a builder, for what [`connect`](Self::connect) does not say.
    pub fn builder(hosts: &str) -> ClientBuilder {
        ClientBuilder::new(hosts)
    }

    /// Uses a handle of the `zookeeper` crate, for programs that own one already.
    ///
    /// `session_timeout` is what the handle was connected with: it does not tell. Nor does it
    /// tell what the server granted, so no more than 4 s of it are believed, which servers
    /// grant under their default limits whatever they are asked for; with
    /// [`from_zookeeper_within`](Self::from_zookeeper_within) you say what yours grant.
    ///
    /// Such a client is safe, but modest: its guards are lost on the first disconnect, because
    /// the handle does not say whether the session survived it, and a handle that hangs
    /// is given up after a session timeout. The crate documentation has a table. Does not
    /// block, but the first lock is granted a third of the believed timeout later, because
    /// it takes two answers to know how long the session lasts. A handle that has been connected for a while can be used a tenth of a second
    /// later; one that was just made must not be asked anything before it is connected, or
    /// it may never answer.
    ///
    /// # Errors
    ///
    /// Fails if the system has no threads left.
    ///
    /// # Example
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zklock::embedded::Server::start()?;
    /// # let hosts = server.hosts();
    /// use std::time::Duration;
    /// use zklock::Client;
    ///
    /// let timeout = Duration::from_secs(20);
    /// let handle = zookeeper::ZooKeeper::connect(hosts, timeout, |_| {})?;
    /// let client = Client::from_zookeeper(handle, timeout)?;
    /// let _guard = client.mutex("/locks/nightly-report")?.lock()?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "zookeeper")]
    pub fn from_zookeeper(handle: zookeeper::ZooKeeper, session_timeout: Duration) -> Result<Self> {
        let safe = crate::recipe::validity::LEAST_TIMEOUT;
        Self::from_zookeeper_within(handle, session_timeout, safe)
    }

    /// As [`from_zookeeper`](Self::from_zookeeper), for servers that are known to grant up to
    /// `server_maximum`: their `maxSessionTimeout`, twenty ticks unless it is configured.
    ///
    /// The session timeout that guards go by is the smaller of the two. A maximum that some
    /// server of the ensemble does not grant breaks the promise of exclusion.
    ///
    /// # Errors
    ///
    /// As [`from_zookeeper`](Self::from_zookeeper).
    #[cfg(feature = "zookeeper")]
    pub fn from_zookeeper_within(
        handle: zookeeper::ZooKeeper,
        session_timeout: Duration,
        server_maximum: Duration,
    ) -> Result<Self> {
        let session_timeout = session_timeout.min(crate::builder::LONGEST_TIMEOUT);
        let believed = session_timeout.min(server_maximum);
        let status = Arc::new(Status::new(believed, false));
        let transport = crate::transport::zookeeper_crate::open(
            handle,
            session_timeout,
            believed,
            status.clone(),
        );
        Session::new(status, transport, Settings::default()).map(Self::over)
    }

    fn over(session: Session) -> Self {
        let locks = Arc::new(Locks::new(Arc::new(session)));
        Self { locks }
    }

    /// Returns the mutex at `path`, an absolute path such as `/locks/nightly-report`.
    ///
    /// Costs no I/O; the path is created when the mutex is locked for the first time.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::BadPath`] if the path cannot name a lock.
    pub fn mutex(&self, path: &str) -> Result<Mutex> {
        Mutex::new(&self.locks, path)
    }

    /// Returns the reentrant mutex at `path`, which excludes with the mutex there.
    ///
    /// Costs no I/O; the path is created when the mutex is locked for the first time.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::BadPath`] if the path cannot name a lock.
    pub fn reentrant_mutex(&self, path: &str) -> Result<ReentrantMutex> {
        ReentrantMutex::new(&self.locks, path)
    }

    /// Returns the read-write lock at `path`.
    ///
    /// Costs no I/O; the path is created when the lock is used for the first time.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::BadPath`] if the path cannot name a lock.
    pub fn rwlock(&self, path: &str) -> Result<RwLock> {
        RwLock::new(&self.locks, path)
    }

    /// Returns the semaphore at `path`, of which `permits` may be out at a time.
    ///
    /// Costs no I/O; the path is created when the semaphore is used for the first time.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::BadPath`] if the path cannot name a lock, and with
    /// [`Error::Unsupported`] for no permits.
    pub fn semaphore(&self, path: &str, permits: u32) -> Result<Semaphore> {
        Semaphore::new(&self.locks, path, permits)
    }

    /// Returns a lock of several mutexes at once.
    ///
    /// A path that is named twice counts once. Costs no I/O; the paths are created when
    /// the lock is used for the first time.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::BadPath`] if a path cannot name a lock, and with
    /// [`Error::Unsupported`] if there is none.
    pub fn multi_lock<'a>(&self, paths: impl IntoIterator<Item = &'a str>) -> Result<MultiLock> {
        MultiLock::new(&self.locks, paths)
    }

    /// Lists who holds the lock at `path` or waits for it, in the order of the queue.
    ///
    /// Blocks for a few round trips, 15 s each at most. A path that does not exist has no
    /// contenders; it is not created.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::BadPath`] if the path cannot name a lock, and if the server
    /// turns a request down or does not answer.
    pub fn contenders(&self, path: &str) -> Result<Vec<Contender>> {
        crate::path::check(path)?;
        self.locks.session.contenders(path)
    }

    /// Waits until other contenders are at `path` than the `known` ones, and lists them.
    ///
    /// Costs no request while nothing changes. Blocks for `limit` at most as long as
    /// nothing does, and returns them as they are then; otherwise for as long as
    /// [`contenders`](Self::contenders). The path need not exist, and is not created.
    ///
    /// # Errors
    ///
    /// As [`contenders`](Self::contenders). That the connection is lost is not an error.
    ///
    /// # Example
    ///
    /// ```no_run
    /// # fn main() -> zklock::Result<()> {
    /// # use std::time::Duration;
    /// # let client = zklock::Client::connect("zk1:2181")?;
    /// let mut present = client.contenders("/locks/deploy")?;
    /// while !present.is_empty() {
    ///     println!("{} in the queue", present.len());
    ///     present = client.contenders_changed("/locks/deploy", &present, Duration::from_secs(60))?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn contenders_changed(
        &self,
        path: &str,
        known: &[Contender],
        limit: Duration,
    ) -> Result<Vec<Contender>> {
        crate::path::check(path)?;
        self.locks
            .session
            .contenders_changed(path, known, &Limit::after(limit))
    }

    /// Returns the id of the current session, or 0 while there is none.
    pub fn session_id(&self) -> i64 {
        self.locks.session.status.snapshot().session
    }

    /// Returns the shortest session timeout that was negotiated in this session.
    ///
    /// A server that grants a longer one later does not change it: guards, pings and checks
    /// go by this one until there is another session.
    pub fn session_timeout(&self) -> Duration {
        self.locks.session.status.snapshot().timeout
    }

    /// Returns the state of the session.
    pub fn state(&self) -> SessionState {
        self.locks.session.status.snapshot().state
    }

    /// Returns a channel with everything that happens to the session from now on.
    ///
    /// It keeps the first 1,024 events that are not taken out of it.
    pub fn events(&self) -> Receiver<SessionEvent> {
        self.locks.session.status.events()
    }

    /// Returns what this client has done so far, in numbers. Costs no I/O.
    pub fn metrics(&self) -> Metrics {
        let status = &self.locks.session.status;
        let mut metrics = self.locks.session.counters.snapshot();
        metrics.reconnects = status.snapshot().connects.saturating_sub(1);
        metrics.expiries = status.expiries();
        metrics
    }

    /// Ends the session: its locks become free, and who waits gets [`Error::Closed`].
    ///
    /// Its guards fail [`check`](crate::MutexGuard::check) from then on, before the server
    /// hears of it.
    ///
    /// Blocks for one round trip, three seconds at most when the connection is lost; the
    /// locks become free when the session has timed out then.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Unconfirmed`] if the server did not confirm the end of the
    /// session in time. A connection that the server ends is taken for that, because some
    /// servers answer in no other way. To close a client twice is no error.
    pub fn close(&self) -> Result<()> {
        match self.locks.session.close() {
            true => Ok(()),
            false => Err(Error::Unconfirmed { limit: CLOSE_LIMIT }),
        }
    }
}

impl ClientBuilder {
    /// Connects to the first server that answers.
    ///
    /// Blocks until there is a session, at most for the connect timeout.
    ///
    /// # Errors
    ///
    /// As [`Client::connect`], and with [`Error::Unsupported`] for a
    /// [`max_buffer`](Self::max_buffer) out of bounds.
    pub fn connect(self) -> Result<Client> {
        let Opened {
            session,
            connect_timeout,
        } = self.open()?;
        let limit = Limit::after(connect_timeout);
        if session.caller().connected(&limit)?.is_some() {
            return Ok(Client::over(session));
        }
        let tried = session.status.trouble();
        // There is no session whose end could be waited for.
        session.transport.close(Duration::ZERO);
        Err(Error::ConnectTimeout {
            limit: connect_timeout,
            tried,
        })
    }
}
