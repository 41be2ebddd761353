//! A network in memory: connections whose bytes take time, and the faults of connections.

// Imports go downwards.
mod connection;
mod link;
mod network;
mod socket;

pub use self::link::{Link, Output, Peer};
pub use self::network::Network;
pub(crate) use self::socket::{TcpStream, connect, resolve};
pub use self::socket::{build, network};
