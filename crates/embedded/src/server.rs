//! The server, as its user sees it. `builder` configures and starts it.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use parking_lot::Mutex;

use super::config::ServerConfig;
use super::faults::RequestKind;
use super::listener::{self, Clients, Listener, reachable};
use super::shared::SharedServer;
use super::state::ServerState;

/// How long [`Server::resume`] tries to get its port back.
const REBIND_LIMIT: Duration = Duration::from_secs(5);

/// A running server; it stops when it is dropped.
///
/// The [module](super) says what it is for.
///
/// ```
/// use zklock::Client;
/// use zklock::embedded::Server;
///
/// let server = Server::start()?;
/// let client = Client::connect(server.hosts())?;
/// assert_eq!(server.sessions(), [client.session_id()]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Server {
    address: SocketAddr,
    hosts: String,
    shared: Arc<SharedServer>,
    clients: Arc<Clients>,
    listener: Mutex<Option<Listener>>,
    ticker: Option<Ticker>,
}

/// The thread that ends sessions and reaps containers.
#[derive(Debug)]
struct Ticker {
    wake: Sender<()>,
    thread: JoinHandle<()>,
}

impl Server {
    pub(super) fn start_with(mut config: ServerConfig) -> io::Result<Self> {
        let socket = listener::bind(config.listen, config.port)?;
        let address = socket.local_addr()?;
        config.port = address.port();
        let mut state = ServerState::new(config.clone());
        if let Some(folder) = &config.data {
            state.open_data(folder)?;
        }
        let shared = Arc::new(SharedServer {
            state: Mutex::new(state),
            config,
            network: Arc::default(),
        });
        let mut server = Self {
            address,
            hosts: reachable(address).to_string(),
            shared,
            clients: Arc::default(),
            listener: Mutex::default(),
            ticker: None,
        };
        server.ticker = Some(Ticker::start(Arc::clone(&server.shared))?);
        server.listen(socket)?;
        Ok(server)
    }

    /// Returns the connect string, `host:port`.
    pub fn hosts(&self) -> &str {
        &self.hosts
    }

    /// Returns the sessions that are alive.
    pub fn sessions(&self) -> Vec<i64> {
        self.shared.state.lock().sessions.ids().collect()
    }

    /// Returns the paths of all nodes, in order, without the root and ZooKeeper's own.
    pub fn nodes(&self) -> Vec<String> {
        let state = self.shared.state.lock();
        let mut paths: Vec<_> = state.view.tree.paths().map(str::to_owned).collect();
        paths.sort_unstable();
        paths
    }

    /// Returns the number of watches of all clients together.
    pub fn watch_count(&self) -> usize {
        self.shared.state.lock().view.watches.len()
    }

    /// Waits until the server serves nobody any more, because it cannot write its data folder; for the
    /// `zklock` program.
    #[doc(hidden)]
    pub fn failure(&self) -> io::Error {
        let failure = self.shared.state.lock().failure.1.clone();
        failure.recv().unwrap_or_else(io::Error::other)
    }

    /// Ends a session before its timeout: removes its nodes and cuts its connection. Returns
    /// `false` if there is no such session.
    ///
    /// The client trusts the session until it learns of the end: for a moment or, if it cannot connect, up
    /// to half of the session timeout. A real server does not end a session that its client may still
    /// trust, unless an operator forces it to.
    pub fn expire_session(&self, session: i64) -> bool {
        let found = self.shared.state.lock().expire(session);
        self.wake_ticker();
        found
    }

    /// Cuts the connection of a session, which goes on. Returns `false` if the session has none.
    pub fn disconnect(&self, session: i64) -> bool {
        self.shared
            .state
            .lock()
            .disconnect(|connection| connection.session == Some(session))
    }

    /// Cuts all connections; the sessions go on.
    pub fn disconnect_all(&self) {
        self.shared.state.lock().disconnect(|_| true);
    }

    /// Closes the port: new connections are refused until [`resume`](Self::resume).
    ///
    /// Open connections stay open. For a server that is down, call `refuse` and then
    /// [`disconnect_all`](Self::disconnect_all).
    pub fn refuse(&self) {
        if let Some(listener) = self.listener.lock().take() {
            listener.stop();
        }
    }

    /// Lets nothing through in either direction until [`resume`](Self::resume). Sessions
    /// expire meanwhile.
    ///
    /// Connections stay open, and new ones are accepted by the operating system. As with
    /// TCP, what is sent meanwhile arrives in the end.
    pub fn blackhole(&self) {
        self.shared.network.set_blackhole(true);
        self.clients.network_changed();
    }

    /// Delays by this much everything that is sent to a client.
    pub fn delay(&self, delay: Duration) {
        self.shared.network.set_delay(delay);
    }

    /// Ends [`refuse`](Self::refuse), [`blackhole`](Self::blackhole) and
    /// [`delay`](Self::delay).
    ///
    /// # Panics
    ///
    /// Panics if another program has taken the port meanwhile, and keeps it.
    pub fn resume(&self) {
        self.shared.network.set_delay(Duration::ZERO);
        self.shared.network.set_blackhole(false);
        self.clients.network_changed();
        if self.listener.lock().is_some() {
            return;
        }
        if let Err(error) = self.rebind().and_then(|socket| self.listen(socket)) {
            panic!(
                "the port of {} could not be opened again: {error}",
                self.hosts
            );
        }
    }

    /// Carries out the next request, and then cuts the connection instead of answering.
    pub fn drop_next_reply(&self) {
        self.shared.state.lock().faults.drop_next_reply(None);
    }

    /// Like [`drop_next_reply`](Self::drop_next_reply), for the next request of a kind.
    pub fn drop_next_reply_to(&self, kind: RequestKind) {
        self.shared.state.lock().faults.drop_next_reply(Some(kind));
    }

    /// After the next creation of an ephemeral node, connects every client but its creator to
    /// a follower that lags behind its leader.
    ///
    /// Such a client sees the state before the creation, whatever it reads, and no event of a
    /// later change. The follower catches up once one of its clients has listed the node's
    /// directory, writes something or asks for a `sync`, or after two seconds; then its
    /// clients get the events that are due, in the order of the changes. A creator that
    /// reconnects without having got the reply can end up at the follower, too.
    pub fn hide_next_create(&self) {
        self.shared.state.lock().faults.hide_next_create();
    }

    /// Keeps the nodes of a session visible for this long after it expires: ZooKeeper tells a
    /// client of the end of its session before the nodes are gone.
    pub fn linger_expired(&self, linger: Duration) {
        self.shared.state.lock().faults.linger = linger;
    }

    fn listen(&self, socket: TcpListener) -> io::Result<()> {
        let listener =
            Listener::start(socket, Arc::clone(&self.shared), Arc::clone(&self.clients))?;
        *self.listener.lock() = Some(listener);
        Ok(())
    }

    fn rebind(&self) -> io::Result<TcpListener> {
        let give_up = Instant::now() + REBIND_LIMIT;
        loop {
            match TcpListener::bind(self.address) {
                Err(_) if Instant::now() < give_up => thread::sleep(Duration::from_millis(20)),
                bound => return bound,
            }
        }
    }

    fn wake_ticker(&self) {
        if let Some(ticker) = &self.ticker {
            // A full channel means that the ticker is about to wake.
            let _ = ticker.wake.try_send(());
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.refuse();
        if let Some(Ticker { wake, thread }) = self.ticker.take() {
            drop(wake);
            let _ = thread.join();
        }
        self.clients.stop();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}

impl Ticker {
    fn start(shared: Arc<SharedServer>) -> io::Result<Self> {
        let (wake, woken) = bounded(1);
        let thread = thread::Builder::new()
            .name("zk-ticker".to_owned())
            .spawn(move || tick(&shared, &woken))?;
        Ok(Self { wake, thread })
    }
}

fn tick(shared: &SharedServer, woken: &Receiver<()>) {
    loop {
        let wait = shared.state.lock().tick();
        if woken.recv_timeout(wait) == Err(RecvTimeoutError::Disconnected) {
            return;
        }
    }
}
