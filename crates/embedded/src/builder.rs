//! How a server is configured and started.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::config::ServerConfig;
use super::server::Server;

/// Configures a [`Server`] before it starts.
///
/// ```
/// use std::time::Duration;
/// use zklock::embedded::Server;
///
/// let server = Server::builder()
///     .tick(Duration::from_millis(50))
///     .max_session_timeout(Duration::from_secs(10))
///     .start()?;
/// assert!(server.hosts().starts_with("127.0.0.1:"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "the server is started by `start`"]
pub struct ServerBuilder {
    config: ServerConfig,
}

impl Server {
    /// Starts a server on a free loopback port.
    ///
    /// # Errors
    ///
    /// Fails if there is no free port, or no thread can be started.
    pub fn start() -> io::Result<Self> {
        Self::builder().start()
    }

    /// Returns a builder, for settings other than those of [`start`](Self::start).
    pub fn builder() -> ServerBuilder {
        ServerBuilder::new()
    }
}

impl ServerBuilder {
    fn new() -> Self {
        Self {
            config: ServerConfig::default(),
        }
    }

    /// Sets the address to listen at. With any but a loopback address, other machines can connect.
    ///
    /// Defaults to 127.0.0.1.
    pub fn listen(mut self, address: impl Into<IpAddr>) -> Self {
        self.config.listen = address.into();
        self
    }

    /// Sets the port to listen at; 0 stands for any free port.
    ///
    /// Defaults to 0.
    pub fn port(mut self, port: u16) -> Self {
        self.config.port = port;
        self
    }

    /// Sets the unit of time: sessions end at whole ticks.
    ///
    /// Defaults to 2 s.
    ///
    /// # Panics
    ///
    /// Panics if the tick is shorter than 1 ms.
    pub fn tick(mut self, tick: Duration) -> Self {
        assert!(
            tick >= Duration::from_millis(1),
            "a tick takes at least 1 ms"
        );
        self.config.tick = tick;
        self
    }

    /// Sets the shortest session timeout that a client gets, whatever it asks for.
    ///
    /// Defaults to two ticks.
    pub fn min_session_timeout(mut self, limit: Duration) -> Self {
        self.config.min_session_timeout = Some(limit);
        self
    }

    /// Sets the longest session timeout that a client gets, whatever it asks for.
    ///
    /// Defaults to twenty ticks.
    pub fn max_session_timeout(mut self, limit: Duration) -> Self {
        self.config.max_session_timeout = Some(limit);
        self
    }

    /// Sets the longest frame, in bytes, that a client may send; a longer one ends the connection. It
    /// limits the size of a node's data, too.
    ///
    /// Defaults to 1,048,575, as `jute.maxbuffer` does.
    pub fn max_frame(mut self, bytes: usize) -> Self {
        self.config.max_frame = bytes;
        self
    }

    /// Sets how many connections there may be; further ones are closed at once.
    ///
    /// Defaults to 1000.
    pub fn max_connections(mut self, limit: usize) -> Self {
        self.config.max_connections = limit;
        self
    }

    /// Sets how often the server removes containers that have lost their last child, and nodes whose time
    /// to live is over.
    ///
    /// Defaults to 60 s.
    pub fn container_check(mut self, interval: Duration) -> Self {
        self.config.container_check = interval;
        self
    }

    /// Acts as a server before ZooKeeper 3.5, which does not know `create2`: it answers
    /// "unimplemented" and closes the connection.
    pub fn without_create2(mut self) -> Self {
        self.config.without_create2 = true;
        self
    }

    /// Acts as a server before ZooKeeper 3.5.1, which does not know containers: it answers
    /// "unimplemented" and closes the connection.
    pub fn without_containers(mut self) -> Self {
        self.config.without_containers = true;
        self
    }

    /// Keeps sessions and nodes in this folder. A later server with the same folder continues with them,
    /// and every session has its whole timeout again.
    ///
    /// A change is written to a file there before it is answered, without an fsync: it outlives the
    /// process, however that ends, but not a crash of the machine. The file only grows, and is read as a
    /// whole at the start. Clients find the later server if it has the same [`port`](Self::port).
    ///
    /// Defaults to none: everything is in memory.
    ///
    /// ```
    /// use zklock::Client;
    /// use zklock::embedded::Server;
    ///
    /// # let folder = std::env::temp_dir().join(format!("zklock-data-{}", std::process::id()));
    /// let first = Server::builder().data(&folder).start()?;
    /// let client = Client::connect(first.hosts())?;
    /// let guard = client.mutex("/locks/nightly")?.lock()?;
    /// let nodes = first.nodes();
    /// drop(first);
    ///
    /// let second = Server::builder().data(&folder).start()?;
    /// assert_eq!(second.nodes(), nodes);
    /// assert_eq!(second.sessions(), [client.session_id()]);
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn data(mut self, folder: impl Into<PathBuf>) -> Self {
        self.config.data = Some(folder.into());
        self
    }

    /// Allows nodes with a time to live, as ZooKeeper's `extendedTypesEnabled` does.
    ///
    /// Such a node is removed once it has no children and was not set for its time; the server looks for
    /// such nodes at every [`container_check`](Self::container_check). Without this setting, a request for
    /// one is refused with "unimplemented".
    pub fn extended_types(mut self) -> Self {
        self.config.extended_types = true;
        self
    }

    /// Gives every permission to the client with these credentials, as ZooKeeper's
    /// `DigestAuthenticationProvider.superDigest` does: the user and the hash of `user:password`, as an
    /// access control list has them.
    ///
    /// ```
    /// use zklock::embedded::Server;
    ///
    /// // With the password "secret".
    /// let builder = Server::builder().super_digest("super:lK75jTNcA+U9vtVEw5vB51mj/w4=");
    /// # builder.start()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn super_digest(mut self, digest: impl Into<String>) -> Self {
        self.config.super_digest = Some(digest.into());
        self
    }

    /// Starts the sequence numbers in `directory` at `number` when it is first created.
    ///
    /// A counter ends at 2,147,483,647: after that every node gets that number, as in
    /// ZooKeeper since 3.6. With a [data folder](Self::data), state the same numbers at every start.
    pub fn start_counter(mut self, directory: &str, number: i32) -> Self {
        self.config.counters.insert(directory.to_owned(), number);
        self
    }

    /// Starts the server.
    ///
    /// # Errors
    ///
    /// Fails if the address is not one of this machine, if the port is taken, or if the data folder
    /// cannot be written, is another server's or is damaged.
    pub fn start(self) -> io::Result<Server> {
        Server::start_with(self.config)
    }
}
