//! A client: one session with ZooKeeper, shared by any number of locks.

mod create_chroot;
mod early_news;
mod for_the_program;
mod inspect;
mod take_over;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::early_news::tell_early;
use crate::builder::{ClientBuilder, Opened};
use crate::error::{Error, Result};
use crate::job::Job;
use crate::lock::Locks;
use crate::multi_lock::MultiLock;
use crate::mutex::Mutex;
use crate::nodes::Nodes;
use crate::reentrant_mutex::ReentrantMutex;
use crate::rwlock::RwLock;
use crate::semaphore::Semaphore;
use crate::session::{CLOSE_LIMIT, Session};
use crate::shards::Shards;
use crate::standby::Standby;
use crate::system::channel::Receiver;
use crate::time::limit::Limit;
use crate::transport::session_state::{SessionEvent, SessionState};

/// A session with ZooKeeper, shared by all clones.
///
/// The client reconnects by itself, to any server of the list, and keeps its session as long as the
/// ensemble does. Dropping the last of its clones, locks and guards sends the end of the session
/// and does not wait for the answer (only for the time of
/// [`LockOptions::hold_at_least`](crate::LockOptions::hold_at_least)); [`close`](Self::close) waits
/// for it. After [`std::process::exit`] or an abort, its locks are free once the session has timed
/// out. So may be those of a process that returns from `main` right after it has dropped many guards
/// and its client, which it should close: what a server has not begun by then can be lost. A leaked
/// guard, as by [`std::mem::forget`], keeps its lock until the client is closed or the process ends.
///
/// # When the ensemble was set up anew or restored
///
/// A server disconnects a client that has seen newer data than its own. If no server serves the
/// client for longer than the session timeout, the client asks for a new session:
/// [`SessionEvent::Expired`] and [`SessionEvent::Connected`] report it, its guards are lost, and
/// its waiters queue again. Guards trust the servers to keep what they committed: a guard that was
/// confirmed just before passes [`check`](crate::MutexGuard::check) for up to half a session
/// timeout, even if the servers have forgotten its node.
///
/// # Requirements on the servers
///
/// `minSessionTimeout` must be two ticks or more, which is the default. A server counts a session's
/// time in whole ticks, and a follower tells the leader every half tick which sessions it has heard
/// of. With a shorter timeout, a lock may be granted to another client before its holder can know.
///
/// # After a fork
///
/// A session belongs to the process that opened it. A forked child must not use the clients and
/// guards of its parent: a request or a release fails with [`Error::Closed`], or hangs if another
/// thread of the parent was in the middle of one at the fork. Dropping or closing them in the child
/// releases nothing, because the locks are the parent's. A guard's `check`, which does no I/O, may
/// pass in the child for up to half a session timeout after the parent has released the lock.
/// Starting a program with [`std::process::Command`] is not such a fork.
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
#[derive(Clone)]
pub struct Client {
    pub(crate) locks: Arc<Locks>,
}

impl Client {
    /// Connects to the first server of `hosts` that answers.
    ///
    /// `hosts` is `host:port,host:port/chroot`. The port defaults to 2181, and an IPv6 address is in brackets. If
    /// there is a chroot, all paths are below it. It must exist, unless [`ClientBuilder::create_chroot`] creates it:
    /// otherwise a warning is logged, and locking fails. Blocks until there is a session, for at most 15 s.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::BadHosts`] if the list cannot be parsed, with [`Error::ConnectTimeout`],
    /// which says why each server gave no session, with [`Error::AuthFailed`] or
    /// [`Error::SaslRefused`] if the server refuses the credentials, and with [`Error::NoThread`]
    /// if the system cannot start another thread.
    pub fn connect(hosts: &str) -> Result<Self> {
        Self::builder(hosts).connect()
    }

    /// Returns a builder, for settings other than the defaults of [`connect`](Self::connect).
    pub fn builder(hosts: &str) -> ClientBuilder {
        ClientBuilder::new(hosts)
    }

    /// Uses a handle of the `zookeeper` crate, for programs that own one already.
    ///
    /// `session_timeout` is the timeout that the handle was connected with. The handle reports
    /// neither this timeout nor the one that the server granted, so guards rely on at most 4 s of
    /// it, which servers with default limits grant whatever a client asks for.
    /// [`ClientBuilder::over_zookeeper`] is for servers that grant more, and for other settings.
    ///
    /// Such a client is as safe, but does less: its guards are lost on the first disconnect,
    /// because the handle does not report whether the session survived, and after a session timeout
    /// the client gives up a handle that hangs. It has no multi-locks and no jobs, which need
    /// transactions: they fail with [`Error::Unsupported`]. [The guide](crate::guide::transports) has
    /// a table.
    ///
    /// Does not block. The first lock is granted after a third of the timeout that guards rely on,
    /// because it takes two answers to know how long the session lasts. A handle that is connected
    /// can be used a tenth of a second later; a new one is not used until it is connected, because
    /// it might never answer.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::NoThread`] if the system cannot start another thread.
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
        let builder = Self::builder("").session_timeout(session_timeout);
        builder.over_zookeeper(handle)
    }

    pub(crate) fn over(session: Session) -> Self {
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

    /// Returns the reentrant mutex at `path`. It and the mutex at the same path exclude each other.
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

    /// Returns the semaphore at `path`, which has `permits` permits.
    ///
    /// Costs no I/O; the path is created when the semaphore is used for the first time.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::BadPath`] if the path cannot name a lock, and with
    /// [`Error::BadArgument`] if `permits` is 0.
    pub fn semaphore(&self, path: &str, permits: u32) -> Result<Semaphore> {
        Semaphore::new(&self.locks, path, permits)
    }

    /// Returns a lock of several mutexes at once.
    ///
    /// Costs no I/O; the paths are created when the lock is used for the first time.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::BadPath`] if a path cannot name a lock or is named twice, and with
    /// [`Error::BadArgument`] if there is no path.
    pub fn multi_lock<'a>(&self, paths: impl IntoIterator<Item = &'a str>) -> Result<MultiLock> {
        MultiLock::new(&self.locks, paths)
    }

    /// Returns a handle that reads and writes nodes next to the locks. Does no I/O.
    pub fn nodes(&self) -> Nodes {
        Nodes::new(&self.locks)
    }

    /// Returns the job at `path`, which one of any number of machines runs once per slot.
    ///
    /// Costs no I/O; the path is created when the job is run for the first time.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::BadPath`] if the path cannot name a lock.
    pub fn job(&self, path: &str) -> Result<Job> {
        Job::new(&self.locks, path)
    }

    /// Returns a place among the processes on standby at `path`, one of which is active at a time.
    ///
    /// Costs no I/O; the path is created when the first of them joins the queue.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::BadPath`] if the path cannot name a lock.
    #[doc(alias = "LeaderSelector")]
    #[doc(alias = "election")]
    pub fn standby(&self, path: &str) -> Result<Standby> {
        Standby::new(&self.locks, path)
    }

    /// Returns the work at `path` that is divided into `count` shards among the processes that are
    /// up.
    ///
    /// Costs no I/O; the path is created when the first process works on it.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::BadPath`] if the path cannot name a lock, and with [`Error::BadArgument`]
    /// if `count` is 0 or above 10,000.
    #[doc(alias = "SetPartitioner")]
    pub fn shards(&self, path: &str, count: u32) -> Result<Shards> {
        Shards::new(&self.locks, path, count)
    }

    /// Returns the id of the current session, or 0 if there is none.
    pub fn session_id(&self) -> i64 {
        self.locks.session.status.snapshot().session
    }

    /// Returns the shortest session timeout that was negotiated in this session.
    ///
    /// A longer timeout that a server grants later does not change it: guards, pings and checks
    /// rely on the shortest until there is another session.
    pub fn session_timeout(&self) -> Duration {
        self.locks.session.status.snapshot().timeout
    }

    /// Returns the state of the session.
    pub fn state(&self) -> SessionState {
        self.locks.session.status.snapshot().state
    }

    /// Returns a channel of the session's events from now on.
    ///
    /// It keeps the first 1,024 unread events and drops later ones. A channel that is dropped takes some
    /// memory until the session's next event.
    pub fn events(&self) -> Receiver<SessionEvent> {
        self.locks.session.status.events()
    }

    /// Ends the session: its locks become free, and its waiters get [`Error::Closed`].
    ///
    /// Its guards fail [`check`](crate::MutexGuard::check) before the server learns of the end.
    /// Blocks for one round trip. When the connection is lost, blocks for at most three seconds, in
    /// which the client asks any server that it reaches. If it reaches none, the locks are free
    /// once the session has timed out. A second call asks for nothing, and waits while the first one does.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Unconfirmed`] if no server confirmed the end of the session in time.
    pub fn close(&self) -> Result<()> {
        self.close_within(CLOSE_LIMIT)
    }
}

impl ClientBuilder {
    /// Connects to the first server that answers.
    ///
    /// Blocks until there is a session, at most for the
    /// [`connect_timeout`](Self::connect_timeout). If that takes two seconds, or no name can be
    /// resolved, a warning in the log says why.
    ///
    /// # Errors
    ///
    /// As [`Client::connect`], and with [`Error::BadArgument`] for a
    /// [`max_buffer`](Self::max_buffer) out of bounds, or for an [`acl`](Self::acl) that names the
    /// creator's credentials if there are none.
    pub fn connect(self) -> Result<Client> {
        let (client, lacks_chroot) = self.connect_and_look(|trouble| {
            log::warn!(
                "no server has answered yet, trying on: {}",
                trouble.join("; ")
            );
        })?;
        if lacks_chroot {
            log::warn!(
                "the chroot at the end of the servers' addresses does not exist: create it, or set ClientBuilder::create_chroot"
            );
        }
        Ok(client)
    }

    /// Uses a handle of the `zookeeper` crate instead of connecting; see [`Client::from_zookeeper`].
    ///
    /// [`session_timeout`](Self::session_timeout) is the timeout that the handle was connected
    /// with. Guards rely on it as far as [`granted_at_least`](Self::granted_at_least) says that
    /// every server grants it, which defaults to 4 s here. The dialect, the access control list,
    /// the note and the hand-offs among threads apply too. The servers, the credentials, the
    /// encryption and the limits are the handle's own: those of this builder are ignored.
    ///
    /// Does not block.
    ///
    /// # Errors
    ///
    /// As [`Client::from_zookeeper`].
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
    /// let client = Client::builder(hosts)
    ///     .session_timeout(timeout)
    ///     .granted_at_least(timeout) // the servers' maxSessionTimeout is longer
    ///     .over_zookeeper(handle)?;
    /// assert_eq!(client.session_timeout(), timeout);
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "zookeeper")]
    pub fn over_zookeeper(self, handle: zookeeper::ZooKeeper) -> Result<Client> {
        self.open_over(handle).map(Client::over)
    }

    /// As [`connect`](Self::connect); also reports early why no server has given a session yet, and
    /// returns whether the chroot is missing, for the program.
    #[doc(hidden)]
    pub fn connect_and_look(self, told: impl FnOnce(&[String])) -> Result<(Client, bool)> {
        let of_chroot = self.of_chroot();
        let Opened {
            session,
            connect_timeout,
            has_chroot,
        } = self.open()?;
        let limit = Limit::after(connect_timeout);
        let mut caller = session.caller();
        tell_early(&session, &mut caller, &limit, told)?;
        if caller.connected(&limit)?.is_some() {
            let lacks_chroot = has_chroot && session.lacks_root(&limit)?;
            let lacks_chroot = match of_chroot.filter(|_| lacks_chroot) {
                Some(builder) => builder.make_chroot_for(&session, &limit).map(|()| false)?,
                None => lacks_chroot,
            };
            return Ok((Client::over(session), lacks_chroot));
        }
        let tried = session.status.trouble();
        // The session's threads end by themselves; no caller waits for them.
        drop(session);
        Err(Error::ConnectTimeout {
            limit: connect_timeout,
            tried,
            round_trip: None,
            held_back: None,
        })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.locks, f)
    }
}
