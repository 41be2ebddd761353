//! Threads and the connection to ZooKeeper: everything that waits.

pub(crate) mod hub;
pub(crate) mod transport;
pub(crate) mod wire;
