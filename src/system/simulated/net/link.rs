//! The servers' side of the network, and the link between them and a process.

use std::any::Any;
use std::ops::Range;
use std::time::Duration;

/// The servers: they are told what arrives and when, and return what they send.
pub trait Peer: Send {
    /// Accepts a client's connection; returns `None` if the server does not listen.
    fn accept(&mut self, now: Duration, server: usize) -> Option<u64>;
    /// Receives a client's bytes, in order, cut anywhere.
    fn receive(&mut self, now: Duration, connection: u64, bytes: &[u8]);
    /// Ends a client's side of a connection.
    fn hang_up(&mut self, now: Duration, connection: u64);
    /// Returns when the servers next have something to do by themselves.
    fn next_at(&self) -> Option<Duration>;
    /// Does everything that is due.
    fn run_until(&mut self, now: Duration);
    /// Takes the output for the clients, in order.
    fn take_output(&mut self) -> Vec<(u64, Output)>;
    /// Returns the peer itself, for tests.
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
    /// Holds up everything for the server until this is cleared, and then delivers it.
    pub holds_up: bool,
    /// Holds up everything for the client.
    pub holds_down: bool,
    /// Refuses connections.
    pub refuses: bool,
    /// How many bytes may be on their way to the server.
    pub window: usize,
    /// The most bytes that a client reads or writes at once.
    pub piece: usize,
    /// A connection is cut once this many bytes have gone up.
    pub cut_up_after: Option<u64>,
    /// A connection is cut once this many bytes have come down.
    pub cut_down_after: Option<u64>,
    /// Replaces what a server sends next.
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
