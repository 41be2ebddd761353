//! Sockets and names.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

pub(crate) use std::net::TcpStream;

/// Connects; waits at most `limit`.
pub(crate) fn connect(address: &SocketAddr, limit: Duration) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(address, limit)
}

/// Asks the system's resolver, which sets no limit.
pub(crate) fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok((host, port).to_socket_addrs()?.collect())
}
