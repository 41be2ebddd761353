//! A client: one session with ZooKeeper, shared by any number of locks.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver;

use crate::acl::Acl;
use crate::contender::Contender;
use crate::error::{Error, Result};
use crate::metrics::Metrics;
use crate::multi_lock::MultiLock;
use crate::mutex::Mutex;
use crate::owner::Card;
use crate::proto::Secret;
use crate::protocol::dialect::Dialect;
use crate::reentrant_mutex::ReentrantMutex;
use crate::rwlock::RwLock;
use crate::semaphore::Semaphore;
use crate::session::hub::{Hub, SessionEvent, SessionState};
use crate::session::limit::Limit;
use crate::session::transport::Transport;
use crate::session::wire::{self, Credentials};
use crate::session::{CLOSE_LIMIT, Session, Settings};

/// A session with ZooKeeper, shared by all clones.
///
/// It connects again by itself, to any server of the list, and keeps its session as long
/// as the ensemble does. When the last clone, lock and guard of it is dropped, the
/// session is closed, for which the drop waits one second at most; after
/// [`std::process::exit`] or an abort its locks become free only when the session has
/// timed out.
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
    session: Arc<Session>,
}

/// How to connect; see [`Client::builder`].
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// use std::time::Duration;
/// use zklock::{Acl, Client};
///
/// # let hosts = server.hosts();
/// let client = Client::builder(hosts)
///     .session_timeout(Duration::from_secs(10))
///     .auth("digest", "report:secret")
///     .acl(Acl::creator_all())
///     .note("nightly report, ask Jo")
///     .connect()?;
/// let _guard = client.mutex("/locks/nightly-report")?.lock()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it connects"]
pub struct ClientBuilder {
    hosts: String,
    session_timeout: Duration,
    connect_timeout: Duration,
    auth: Vec<Credentials>,
    acl: Acl,
    dialect: Dialect,
    note: Option<String>,
    local_handoffs: u32,
    #[cfg(feature = "tls")]
    tls: Option<crate::Tls>,
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
        ClientBuilder {
            hosts: hosts.to_owned(),
            session_timeout: Duration::from_secs(20),
            connect_timeout: Duration::from_secs(15),
            auth: Vec::new(),
            acl: Acl::open(),
            dialect: Dialect::default(),
            note: None,
            local_handoffs: 0,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Uses a handle of the `zookeeper` crate, for programs that own one already.
    ///
    /// `session_timeout` is what the handle was connected with: it does not tell. Such a
    /// client is safe, but modest: its guards are lost on the first disconnect, because
    /// the handle does not say whether the session survived it, and a handle that hangs
    /// is given up after a session timeout. The crate documentation has a table. Does not
    /// block.
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
        let hub = Arc::new(Hub::new(session_timeout, false));
        let transport = crate::session::handle::open(handle, session_timeout, hub.clone());
        let settings = Settings {
            dialect: Dialect::default(),
            acl: Acl::open(),
            card: Card::new(None),
            local_handoffs: 0,
        };
        Self::new(hub, transport, settings)
    }

    fn new(hub: Arc<Hub>, transport: Arc<dyn Transport>, settings: Settings) -> Result<Self> {
        let session = Arc::new(Session::new(hub, transport, settings)?);
        Ok(Self { session })
    }

    /// Returns the mutex at `path`, an absolute path such as `/locks/nightly-report`.
    ///
    /// Costs no I/O; the path is created when the mutex is locked for the first time.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::BadPath`] if the path cannot name a lock.
    pub fn mutex(&self, path: &str) -> Result<Mutex> {
        Mutex::new(&self.session, path)
    }

    /// Returns the reentrant mutex at `path`, which excludes with the mutex there.
    ///
    /// Costs no I/O; the path is created when the mutex is locked for the first time.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::BadPath`] if the path cannot name a lock.
    pub fn reentrant_mutex(&self, path: &str) -> Result<ReentrantMutex> {
        ReentrantMutex::new(&self.session, path)
    }

    /// Returns the read-write lock at `path`.
    ///
    /// Costs no I/O; the path is created when the lock is used for the first time.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::BadPath`] if the path cannot name a lock.
    pub fn rwlock(&self, path: &str) -> Result<RwLock> {
        RwLock::new(&self.session, path)
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
        Semaphore::new(&self.session, path, permits)
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
        MultiLock::new(&self.session, paths)
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
        self.session.contenders(path)
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
        self.session
            .contenders_changed(path, known, &Limit::after(limit))
    }

    /// Returns the id of the current session, or 0 while there is none.
    pub fn session_id(&self) -> i64 {
        self.session.hub.link().session
    }

    /// Returns the session timeout as negotiated with the server.
    pub fn session_timeout(&self) -> Duration {
        self.session.hub.link().timeout
    }

    /// Returns the state of the session.
    pub fn state(&self) -> SessionState {
        self.session.hub.link().state
    }

    /// Returns a channel with everything that happens to the session from now on.
    ///
    /// It keeps the first 1,024 events that are not taken out of it.
    pub fn events(&self) -> Receiver<SessionEvent> {
        self.session.hub.events()
    }

    /// Returns what this client has done so far, in numbers. Costs no I/O.
    pub fn metrics(&self) -> Metrics {
        let hub = &self.session.hub;
        let mut metrics = self.session.counters.snapshot();
        metrics.reconnects = hub.link().connects.saturating_sub(1);
        metrics.expiries = hub.expiries();
        metrics
    }

    /// Ends the session: its locks become free, and who waits gets [`Error::Closed`].
    ///
    /// Blocks for one round trip, three seconds at most when the connection is lost; the
    /// locks become free when the session has timed out then.
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Unconfirmed`] if the server did not confirm the end of the
    /// session in time. To close a client twice is no error.
    pub fn close(&self) -> Result<()> {
        match self.session.close() {
            true => Ok(()),
            false => Err(Error::Unconfirmed { limit: CLOSE_LIMIT }),
        }
    }
}

impl ClientBuilder {
    /// Asks for a session that the server ends when it has not heard of us for this long.
    ///
    /// The server has limits, 2 to 20 of its ticks unless it says otherwise;
    /// [`Client::session_timeout`] tells what became of it. A short timeout frees the
    /// locks of a dead process soon, and leaves less time to survive a disconnect.
    /// Defaults to 20 s.
    pub fn session_timeout(mut self, asked: Duration) -> Self {
        self.session_timeout = asked;
        self
    }

    /// Gives up connecting after this long. Defaults to 15 s.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// Tells each server who we are: `digest` and `user:password`, for example.
    ///
    /// May be called several times. The credentials are in no log and no `Debug` output.
    /// Defaults to nobody.
    pub fn auth(mut self, scheme: &str, credentials: impl Into<Vec<u8>>) -> Self {
        self.auth.push(Credentials {
            scheme: scheme.to_owned(),
            secret: Secret(credentials.into()),
        });
        self
    }

    /// Protects the nodes that this client creates. Defaults to [`Acl::open`].
    pub fn acl(mut self, acl: Acl) -> Self {
        self.acl = acl;
        self
    }

    /// Speaks this dialect, which decides with whose locks ours exclude. Defaults to
    /// [`Dialect::Curator`].
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// Shows this text to others who wait for us, its first 512 characters. Defaults to
    /// none.
    pub fn note(mut self, text: &str) -> Self {
        self.note = Some(text.to_owned());
        self
    }

    /// Lets a mutex go from thread to thread of this client so many times in a row before
    /// the server hears of it.
    ///
    /// Such a hand-off costs no request, only a look at whether the lock is still held,
    /// beyond doubt. It serves the threads in the order in which they came, but before
    /// other processes that have come earlier: those wait for up to so many critical
    /// sections more. All guards of such a row have the node and the fencing token of the
    /// first one. A lock goes back to the server early when the connection is in doubt, when
    /// somebody asks for it ([`Contender::revoke`]), and when the thread that is next wants
    /// what needs a node of its own: a note, a minimum time to hold, to track abandonment.
    /// Counts for [`Mutex`] and [`ReentrantMutex`]. Defaults to 0: strict order among
    /// processes.
    pub fn local_handoffs(mut self, most: u32) -> Self {
        self.local_handoffs = most;
        self
    }

    /// Encrypts the connection and checks who the server is. Defaults to no encryption.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: crate::Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Connects to the first server that answers.
    ///
    /// Blocks until there is a session, at most for the connect timeout.
    ///
    /// # Errors
    ///
    /// As [`Client::connect`].
    pub fn connect(self) -> Result<Client> {
        let hub = Arc::new(Hub::new(self.session_timeout, true));
        let config = wire::Config {
            hosts: wire::Hosts::parse(&self.hosts)?,
            session_timeout: self.session_timeout,
            auth: self.auth,
            frame_limit: wire::FRAME_LIMIT,
            #[cfg(feature = "tls")]
            tls: self.tls.map(|tls| tls.configure()).transpose()?,
            #[cfg(not(feature = "tls"))]
            tls: None,
        };
        let transport = wire::open(config, hub.clone());
        let settings = Settings {
            dialect: self.dialect,
            acl: self.acl,
            card: Card::new(self.note.as_deref()),
            local_handoffs: self.local_handoffs,
        };
        let client = Client::new(hub, transport, settings)?;
        let limit = Limit::after(self.connect_timeout);
        match client.session.asker().connected(&limit)? {
            Ok(_) => Ok(client),
            Err(_) => {
                let tried = client.session.hub.trouble();
                // There is no session whose end could be waited for.
                client.session.transport.close(Duration::ZERO);
                Err(Error::ConnectTimeout {
                    limit: self.connect_timeout,
                    tried,
                })
            }
        }
    }
}
