//! The settings of a client.

mod check;

use std::sync::Arc;
use std::time::Duration;

use crate::acl::Acl;
use crate::error::{Error, Result};
use crate::owner::Card;
use crate::session::{Session, Settings};
use crate::time::limit::Limit;
use crate::transport::handover::Inherited;
use crate::transport::native::{self, Credentials};
use crate::transport::status::Status;
#[cfg(feature = "zookeeper")]
use crate::transport::zookeeper_crate::{self, ZooKeeper};
use zklock_core::dialect::Dialect;
#[cfg(feature = "zookeeper")]
use zklock_core::validity::LEAST_TIMEOUT;
use zklock_jute::Secret;

/// The longest session timeout that the protocol can express.
pub(crate) const LONGEST_TIMEOUT: Duration = Duration::from_millis(i32::MAX as u64);

/// The settings of a client, before it connects; see [`Client::builder`](crate::Client::builder).
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
    /// Without the servers, TLS and SASL, which are set when the client connects.
    config: native::Config,
    /// Without the note.
    settings: Settings,
    note: Option<String>,
    create_chroot: bool,
    #[cfg(feature = "tls")]
    tls: Option<crate::tls::Tls>,
    #[cfg(feature = "sasl")]
    sasl: Option<crate::sasl::Sasl>,
}

impl ClientBuilder {
    /// Returns a builder with a default for everything but the servers.
    pub(crate) fn new(hosts: &str) -> Self {
        Self {
            hosts: hosts.to_owned(),
            config: native::Config::default(),
            settings: Settings::default(),
            note: None,
            create_chroot: false,
            #[cfg(feature = "tls")]
            tls: None,
            #[cfg(feature = "sasl")]
            sasl: None,
        }
    }

    /// Asks for a session that the server ends after this long without a message from the client.
    ///
    /// The server has limits, by default 2 to 20 of its ticks;
    /// [`Client::session_timeout`](crate::Client::session_timeout) returns what it granted. A short
    /// timeout frees the locks of a dead process soon, and leaves less time to survive a
    /// disconnect. A time longer than the protocol can express counts as the longest it can, 24
    /// days. Defaults to 20 s.
    pub fn session_timeout(mut self, asked: Duration) -> Self {
        self.config.session_timeout = asked;
        self
    }

    /// States that a server may grant this session less than another has granted it before, but no less than this:
    /// the limits of the servers (`maxSessionTimeout`) differ, or are changed while clients have sessions. A rolling
    /// restart that raises them makes them differ too.
    ///
    /// This matters when a server accepts a client's request to resume its session and disconnects without an answer,
    /// as a server does while it starts, stops or looks for a leader: it may have shortened the session to its own
    /// limit. From then on, guards trust the session for this long at most, until a server answers and commits. A
    /// server that grants less breaks the promise of exclusion. A small value lets an election end guards, because
    /// every server disconnects without an answer then. Servers with default limits grant at least 4 s, whatever a
    /// client asks for. A client that takes a lock over has this for its session timeout from the start if it is less,
    /// because other processes may try to take the lock over, too: state two ticks of the servers or more.
    ///
    /// Defaults to what the servers have granted this session before, which is right if the limits of all servers are
    /// the same. A client whose session is granted less than before logs a warning.
    #[doc(alias = "maxSessionTimeout")]
    pub fn granted_at_least(mut self, least: Duration) -> Self {
        self.config.granted_at_least = Some(least);
        self
    }

    /// Accepts servers that end sessions by a wall clock, as ClickHouse Keeper and RaftKeeper do.
    ///
    /// If the clock of such a server's leader is set forward by half a session timeout or more, a
    /// session ends while guards are still trusted, and two clients may hold one lock; a fencing
    /// token covers that. ClickHouse Keeper resumes no session either, so each reconnect costs all
    /// locks. `docs/compatibility.md` has the details. The client leaves a server that is not
    /// accepted for the next one. It recognises such a server by the password that it gives to
    /// sessions, which `Client::from_zookeeper` cannot see. Defaults to `false`.
    pub fn wall_clock_expiry(mut self, accept: bool) -> Self {
        self.config.wall_clock_expiry = accept;
        self
    }

    /// Dials the servers that the ensemble itself names, in `/zookeeper/config`, and follows its changes: `reconfig`
    /// may replace all servers, one after the other, while the client runs.
    ///
    /// The servers that the user named serve to find the ensemble. The client must be able to reach the members at
    /// the addresses that the ensemble names, which may not be so behind a load balancer or in a separate network;
    /// until one of them has served, the client tries the former servers too. A connection stays with its server,
    /// unless a change has removed the server: the client then moves to another server, with its session and its
    /// locks. A client with [`tls`](Self::tls) uses only ports for TLS, which servers before ZooKeeper 3.10 do not
    /// name. A configuration that cannot be read, or that names no ports for clients, changes nothing, and a warning
    /// is logged.
    ///
    /// Costs a request for each connection and for each change. Defaults to `false`.
    #[doc(alias = "reconfig")]
    pub fn follow_reconfiguration(mut self, follow: bool) -> Self {
        self.config.follow_reconfiguration = follow;
        self
    }

    /// Sets how many pings the client sends in a session timeout while it holds nothing and waits for
    /// nothing: from 3, as many as ZooKeeper's own client sends, to 6.
    ///
    /// With ten thousand idle clients, 3 spares the servers half of their packets. In exchange, the
    /// first lock after a while begins on older news of the session: on a link whose answers take a
    /// tenth of the session timeout, its guard may be [Suspect](crate::GuardState::Suspect) for a
    /// moment. A client that holds or waits sends 6. Connecting fails with
    /// [`Error::BadArgument`](crate::Error::BadArgument) for any other number. Defaults to 6.
    pub fn idle_pings(mut self, in_a_timeout: u32) -> Self {
        self.config.idle_pings = in_a_timeout;
        self
    }

    /// Stops trying to connect after this long; never if it is [`Duration::MAX`]. Defaults to
    /// 15 s.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.config.connect_timeout = limit;
        self
    }

    /// Creates the chroot at the end of the servers' addresses, and its ancestors, if it does not exist.
    ///
    /// Connecting then takes another session for a moment, and fails with [`Error::NoAuth`](crate::Error::NoAuth) if
    /// this client may not create the chroot. The nodes that it creates stay, and are protected by the list of
    /// [`acl`](Self::acl). Costs nothing if the chroot exists. Defaults to `false`: without its chroot, a client
    /// connects, and cannot lock.
    pub fn create_chroot(mut self, create: bool) -> Self {
        self.create_chroot = create;
        self
    }

    /// Limits requests to this many bytes, and replies to 64 KiB more.
    ///
    /// This is the `jute.maxbuffer` of ZooKeeper's own client and servers. A server disconnects a
    /// client that sends more, so set all of them to the same value. A request or a reply that is
    /// too long fails with [`Error::RequestTooLong`](crate::Error::RequestTooLong) or
    /// [`Error::ReplyTooLong`](crate::Error::ReplyTooLong); the connection survives. Connecting
    /// fails with [`Error::BadArgument`](crate::Error::BadArgument) unless the value is from 256
    /// KiB to 512 MiB. Defaults to 1,048,575, as in ZooKeeper.
    #[doc(alias = "jute.maxbuffer")]
    pub fn max_buffer(mut self, bytes: usize) -> Self {
        self.config.frame_limit = bytes;
        self
    }

    /// Sends these credentials to each server: `digest` and `user:password`, for example.
    ///
    /// May be called several times. The credentials appear in no log and no `Debug` output.
    /// Defaults to none.
    ///
    /// The scheme `sasl` is not accepted, because `ClientBuilder::sasl` logs in without sending the
    /// password: connecting with it fails with [`Error::BadArgument`](crate::Error::BadArgument).
    pub fn auth(mut self, scheme: &str, credentials: impl Into<Vec<u8>>) -> Self {
        self.config.auth.push(Credentials {
            scheme: scheme.to_owned(),
            secret: Secret(credentials.into()),
        });
        self
    }

    /// Protects the nodes that this client creates with this list. Defaults to [`Acl::open`].
    pub fn acl(mut self, acl: Acl) -> Self {
        self.settings.acl = acl;
        self
    }

    /// Uses this dialect, which decides which other libraries' locks and this client's exclude each
    /// other. Defaults to [`Dialect::Curator`].
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.settings.dialect = dialect;
        self
    }

    /// Shows the first 512 characters of this text to clients that wait for this one. Defaults to
    /// none.
    pub fn note(mut self, text: &str) -> Self {
        self.note = Some(text.to_owned());
        self
    }

    /// Lets a mutex pass from thread to thread of this client up to `most` times in a row without
    /// the server.
    ///
    /// Such a hand-off costs no request, only a check that the lock is held. It serves the threads
    /// in order of arrival, but ahead of other processes that came earlier: those wait for up to
    /// `most` more critical sections. All guards in such a row have the node and the fencing token
    /// of the first one.
    ///
    /// The lock goes back to the server early when it is suspect, when another client asks for it
    /// ([`Contender::revoke`](crate::Contender::revoke)), and when the next thread needs a node of
    /// its own: for a note, a minimum hold time, or to track abandonment. Applies to
    /// [`Mutex`](crate::Mutex) and [`ReentrantMutex`](crate::ReentrantMutex). Defaults to 0: strict
    /// order among processes.
    pub fn local_handoffs(mut self, most: u32) -> Self {
        self.settings.local_handoffs = most;
        self
    }

    /// Also counts for each of the first `most` locks by itself; see
    /// [`Client::metrics_by_lock`](crate::Client::metrics_by_lock). Defaults to 0.
    ///
    /// With the feature `metrics`, the recorder gets these numbers with the label `lock`, the path.
    /// A client that locks other paths every day needs a small number, or its recorder grows.
    pub fn metrics_by_lock(mut self, most: usize) -> Self {
        self.settings.locks_counted = most;
        self
    }

    /// Encrypts the connection and checks the server's certificate. Defaults to no encryption.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: crate::tls::Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Logs in to each server with SASL, before any other request. Defaults to no login.
    #[cfg(feature = "sasl")]
    pub fn sasl(mut self, sasl: crate::sasl::Sasl) -> Self {
        self.sasl = Some(sasl);
        self
    }

    /// Sets how long one `try_` call waits for a missing connection, for the program. Defaults to a second.
    #[doc(hidden)]
    pub fn tries_offline_for(mut self, time: Duration) -> Self {
        self.settings.try_offline = time;
        self
    }

    /// Returns a copy of the builder if it is to create the chroot.
    pub(crate) fn of_chroot(&self) -> Option<Self> {
        self.create_chroot.then(|| self.clone())
    }

    /// Returns the builder for a session that sees all nodes, and the chroot.
    pub(crate) fn without_chroot(mut self) -> (Self, String) {
        let end = self.hosts.find('/').unwrap_or(self.hosts.len());
        let chroot = self.hosts.split_off(end);
        self.config.inherited = None;
        (self, chroot)
    }

    /// Returns the prefix of every path.
    pub(crate) fn chroot(&self) -> Result<String> {
        native::Hosts::parse(&self.hosts).map(|hosts| hosts.chroot().to_owned())
    }

    /// Returns the session timeout to ask for.
    pub(crate) fn asked_timeout(&self) -> Duration {
        self.config.session_timeout
    }

    /// Starts to connect with the session of another process, and does not wait.
    ///
    /// A shorter timeout would end the session while the process that has it still trusts it.
    pub(crate) fn open_inherited(mut self, inherited: Inherited) -> Result<(Session, Limit)> {
        self.config.session_timeout = inherited.timeout;
        self.config.inherited = Some(inherited);
        let opened = self.open()?;
        Ok((opened.session, Limit::after(opened.connect_timeout)))
    }

    /// Starts to connect, and does not wait.
    pub(crate) fn open(self) -> Result<Opened> {
        self.check()?;
        let settings = self.settings();
        let session_timeout = self.config.session_timeout.min(LONGEST_TIMEOUT);
        let status = Arc::new(Status::new(session_timeout, true));
        let config = native::Config {
            hosts: native::Hosts::parse(&self.hosts)?,
            session_timeout,
            #[cfg(feature = "tls")]
            tls: self.tls.map(|tls| tls.configure()).transpose()?,
            #[cfg(feature = "sasl")]
            sasl: self.sasl.map(|sasl| sasl.configure()).transpose()?,
            ..self.config
        };
        let has_chroot = !config.hosts.chroot().is_empty();
        let connect_timeout = config.connect_timeout;
        let transport = native::open(config, status.clone()).map_err(Error::no_thread)?;
        let session = Session::new(status, transport, settings)?;
        Ok(Opened {
            session,
            connect_timeout,
            has_chroot,
        })
    }

    /// Opens a session over a handle, which connects by itself.
    #[cfg(feature = "zookeeper")]
    pub(crate) fn open_over(self, handle: ZooKeeper) -> Result<Session> {
        let session_timeout = self.config.session_timeout.min(LONGEST_TIMEOUT);
        let granted = self.config.granted_at_least.unwrap_or(LEAST_TIMEOUT);
        let believed = session_timeout.min(granted);
        let status = Arc::new(Status::new(believed, false));
        let transport = zookeeper_crate::open(handle, session_timeout, believed, status.clone())
            .map_err(Error::no_thread)?;
        Session::new(status, transport, self.settings())
    }

    fn settings(&self) -> Settings {
        Settings {
            card: Card::new(self.note.as_deref()),
            ..self.settings.clone()
        }
    }
}

/// A session that is being opened.
pub(crate) struct Opened {
    pub(crate) session: Session,
    pub(crate) connect_timeout: Duration,
    pub(crate) has_chroot: bool,
}
