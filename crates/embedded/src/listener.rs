//! The thread that accepts connections, and the clients it has accepted.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;

use super::connection::ClientThread;
use super::shared::SharedServer;

/// The ports among which a free one is looked for: below the ports that systems give to outgoing
/// connections. A client that retries a refused port of those can end up connected to itself.
const PORTS: Range<u16> = 20_000..32_000;

/// How long to wait after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct Listener {
    address: SocketAddr,
    stopped: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// The clients that are connected.
#[derive(Debug, Default)]
pub(super) struct Clients(Mutex<Vec<ClientThread>>);

impl Clients {
    /// Adds a client, and removes those that have ended.
    fn add(&self, client: Option<ClientThread>) {
        let mut clients = self.0.lock();
        clients.retain(|client| !client.has_ended());
        clients.extend(client);
    }

    pub(super) fn network_changed(&self) {
        for client in self.0.lock().iter() {
            client.outbox().network_changed();
        }
    }

    /// Ends all connections, even in a blackhole, and waits for their threads.
    pub(super) fn stop(&self) {
        let clients = std::mem::take(&mut *self.0.lock());
        clients.iter().for_each(|client| client.outbox().stop());
        clients.into_iter().for_each(ClientThread::join);
    }
}

/// Binds the port, or any free one if it is 0.
pub(super) fn bind(listen: IpAddr, port: u16) -> io::Result<TcpListener> {
    if port == 0 {
        for _ in 0..PORTS.len() {
            match TcpListener::bind((listen, fastrand::u16(PORTS))) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                bound => return bound,
            }
        }
    }
    TcpListener::bind((listen, port))
}

impl Listener {
    pub(super) fn start(
        socket: TcpListener,
        shared: Arc<SharedServer>,
        clients: Arc<Clients>,
    ) -> io::Result<Self> {
        let address = socket.local_addr()?;
        let stopped = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stopped);
        let thread = thread::Builder::new()
            .name("zk-listener".to_owned())
            .spawn(move || listen(&socket, &shared, &clients, &told))?;
        Ok(Self {
            address,
            stopped,
            thread,
        })
    }

    /// Closes the port.
    pub(super) fn stop(self) {
        self.stopped.store(true, Ordering::SeqCst);
        let woken = TcpStream::connect_timeout(&reachable(self.address), Duration::from_secs(1));
        // A thread that could not be woken is left behind rather than waited for.
        if woken.is_ok() || self.thread.is_finished() {
            let _ = self.thread.join();
        }
    }
}

fn listen(
    socket: &TcpListener,
    shared: &Arc<SharedServer>,
    clients: &Clients,
    stopped: &AtomicBool,
) {
    loop {
        let accepted = socket.accept();
        if stopped.load(Ordering::SeqCst) {
            close_everywhere(socket);
            return;
        }
        let served = accepted.and_then(|(stream, peer)| ClientThread::serve(shared, stream, peer));
        match served {
            Ok(client) => clients.add(client),
            Err(error) => {
                log::warn!("a connection could not be accepted: {error}");
                thread::sleep(PAUSE);
            }
        }
    }
}

/// Closes the port for every process. A process that was just forked has the socket too, until it runs its
/// program, and must not let anybody connect meanwhile.
fn close_everywhere(socket: &TcpListener) {
    #[cfg(unix)]
    if let Err(error) = rustix::net::shutdown(socket, rustix::net::Shutdown::Both) {
        log::debug!("a port stays open until every process has closed it: {error}");
    }
    #[cfg(not(unix))]
    let _ = socket;
}

/// Returns where a socket that listens at this address can be reached from this machine.
pub(super) fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::super::config::ServerConfig;
    use super::super::state::ServerState;
    use super::*;

    /// A process that is started beside the server has the socket from fork to exec.
    #[test]
    #[cfg_attr(not(unix), ignore = "a port is closed by the last who has it")]
    fn a_port_that_a_forked_process_has_too_is_closed_and_can_be_opened_again() {
        let config = ServerConfig::default();
        let shared = Arc::new(SharedServer {
            state: Mutex::new(ServerState::new(config.clone())),
            config,
            network: Arc::default(),
        });
        let socket = bind(Ipv4Addr::LOCALHOST.into(), 0).unwrap();
        let address = socket.local_addr().unwrap();
        let forked = socket.try_clone().unwrap();
        let listener = Listener::start(socket, shared, Arc::default()).unwrap();
        assert!(TcpStream::connect(address).is_ok());
        listener.stop();
        assert!(TcpStream::connect(address).is_err());
        assert!(TcpListener::bind(address).is_ok());
        drop(forked);
    }
}
