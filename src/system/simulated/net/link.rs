//! The servers' side of the network, and the link between them and a process.

use std::any::Any;
use std::ops::Range;
use std::time::Duration;

/// The servers: told what arrives and when, they say what leaves.
pub trait Peer: Send {
    /// A client connects; `None` if the server does not listen.
    fn accept(&mut self, now: Duration, server: usize) -> Option<u64>;
    /// Bytes of a client, in order, cut anywhere.
    fn receive(&mut self, now: Duration, connection: u64, bytes: &[u8]);
    /// A client's side of a connection has ended.
    fn hang_up(&mut self, now: Duration, connection: u64);
    /// When the servers next have something to do by themselves.
    fn next_at(&self) -> Option<Duration>;
    /// Does all that is due.
    fn run_until(&mut self, now: Duration);
    /// What leaves for the clients, in order.
    fn take_output(&mut self) -> Vec<(u64, Output)>;
    /// The peer itself, for tests.
    fn as_any(&mut self) -> &mut dyn Any;
}

/// What a server sends.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Output {
    /// Bytes.
    Bytes(Vec<u8>),
    /// The end of the connection; nothing follows.
    Closed,
}

/// The link between a process and a server.
#[derive(Clone, Debug)]
pub struct Link {
    /// How long a message takes.
    pub latency: Range<Duration>,
    /// Nothing arrives at the server until this ends, and then what was sent does.
    pub holds_up: bool,
    /// Nothing arrives at the client.
    pub holds_down: bool,
    /// Connections are refused.
    pub refuses: bool,
    /// How many bytes may be on their way to the server.
    pub window: usize,
    /// The most bytes that a client reads or writes at once.
    pub piece: usize,
    /// A connection is cut once this many bytes have gone up.
    pub cut_up_after: Option<u64>,
    /// A connection is cut once this many bytes have come down.
    pub cut_down_after: Option<u64>,
    /// Arrives at the client in place of what a server sends next.
    pub garbage: Option<Vec<u8>>,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            latency: Duration::from_micros(50)..Duration::from_micros(500),
            holds_up: false,
            holds_down: false,
            refuses: false,
            window: 256 * 1024,
            piece: usize::MAX,
            cut_up_after: None,
            cut_down_after: None,
            garbage: None,
        }
    }
}
