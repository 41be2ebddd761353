//! An ensemble of ZooKeeper servers as one deterministic machine.
//!
//! There are no threads, sockets or clocks in here. The caller says what time it is and hands
//! over what the clients send; what the servers send is handed back. The times of all messages
//! inside the ensemble come from one seeded generator, so the same seed and the same calls
//! give the same bytes.
//!
//! The trees, the watches, the access control lists and the answers are those of the embedded
//! server. What an ensemble adds to one server is here, as ZooKeeper's source has it:
//!
//! - A leader orders the changes, and a quorum of the servers logs each before it is committed.
//!   Every server applies the log at its own pace; its clients see what it has applied.
//! - The leader alone expires sessions, at a tick of its clock. A follower notes what its
//!   clients send, and tells the leader in its answer to the leader's ping, every half tick.
//! - A session that moves is touched by the handshake, and its old connection ends with its
//!   next change.
//! - A server answers a request when it has applied the next transaction of the request's session and
//!   number, whoever asked for that one.
//! - A server that has lost its leader, or a leader that has lost its quorum, goes on for
//!   `sync_limit` ticks. Then it ends all connections until it has found a leader.
//!
//! There is no disk that fails, no snapshot, no observer, no reconfiguration, no read-only mode
//! and no four-letter word.

// Imports go downwards.
mod config;
mod connection;
mod fault;
mod history;
mod message;
mod server;
mod state;
mod tracker;
mod waiting;
// More methods of the state.
mod apply;
mod clients;
mod election;
mod faults;
mod follower;
mod leader;
mod requests;
mod schedule;
#[cfg(test)]
mod tests;

pub use self::config::EnsembleConfig;
pub use self::connection::{Arrival, ConnectionNo, Output};
pub use self::fault::Fault;
pub use self::history::{Asked, Change, SessionEnd, What};
pub use self::state::Ensemble;
pub use zklock_embedded::RequestKind;
