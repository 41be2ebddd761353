//! A ZooKeeper server inside this process, for development, demos and tests. In production,
//! use a real ensemble.
//!
//! [`Server`] speaks ZooKeeper's protocol on a loopback port and keeps everything in memory: one node, no
//! ensemble, and no file unless [`data`](ServerBuilder::data) names a folder. zklock's own client, the
//! `zookeeper` crate, kazoo, Curator and zkCli can all talk to it. It answers what ZooKeeper 3.8 answers,
//! error codes, versions and stats included; other libraries' own test suites run against it.
//!
//! ```
//! use zklock::Client;
//! use zklock::embedded::Server;
//!
//! let server = Server::start()?;
//! let client = Client::connect(server.hosts())?;
//!
//! let guard = client.mutex("/locks/nightly-report")?.lock()?;
//! assert_eq!(server.nodes().len(), 3); // the lock's directory, its parent, and our node
//! guard.unlock()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Testing a program that holds a lock
//!
//! What matters is what the program does when it loses the lock. That is hard to cause with a
//! real ensemble, and takes one call here:
//!
//! ```
//! use zklock::Client;
//! use zklock::embedded::Server;
//!
//! /// The program under test: it stops once the lock is lost.
//! fn write_report(client: &Client, mut write_row: impl FnMut(u32)) -> zklock::Result<()> {
//!     let guard = client.mutex("/locks/report")?.lock()?;
//!     for row in 0.. {
//!         guard.check()?;
//!         write_row(row);
//!     }
//!     Ok(())
//! }
//!
//! let server = Server::start()?;
//! let client = Client::connect(server.hosts())?;
//! let session = client.session_id();
//!
//! let report = write_report(&client, |row| {
//!     if row == 7 {
//!         server.expire_session(session);
//!     }
//!     std::thread::sleep(std::time::Duration::from_millis(1));
//! });
//! assert!(report.unwrap_err().is_lost());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A short [`tick`](ServerBuilder::tick) makes short session timeouts possible, for tests
//! that wait for the end of a session.
//!
//! # What can go wrong
//!
//! A program that holds locks has to survive the faults of networks and servers. The server
//! can produce them:
//!
//! | Fault | Method |
//! |---|---|
//! | a session expires | [`expire_session`](Server::expire_session) |
//! | a connection breaks | [`disconnect`](Server::disconnect), [`disconnect_all`](Server::disconnect_all) |
//! | the server is down | [`refuse`](Server::refuse), with `disconnect_all` |
//! | the network swallows everything | [`blackhole`](Server::blackhole) |
//! | the network is slow | [`delay`](Server::delay) |
//! | a request is carried out and its reply lost | [`drop_next_reply`](Server::drop_next_reply), [`drop_next_reply_to`](Server::drop_next_reply_to) |
//! | a follower lags | [`hide_next_create`](Server::hide_next_create) |
//! | nodes outlive their session | [`linger_expired`](Server::linger_expired) |
//! | the server is old | [`without_create2`](ServerBuilder::without_create2), [`without_containers`](ServerBuilder::without_containers) |
//! | sequence numbers run out | [`start_counter`](ServerBuilder::start_counter) |
//!
//! # What it is not
//!
//! No ensemble, no TLS, no SASL, no quotas, no reconfiguration, no read-only mode. Without a data
//! folder everything is gone when the [`Server`] is dropped. A later server at the same port tells
//! the clients that their sessions have ended, because its transaction ids and session ids
//! start from the current time; if the clock was set back, it refuses them.
//!
//! A node with a time to live is refused with "unimplemented", as by a ZooKeeper of the default
//! configuration, unless [`extended_types`](ServerBuilder::extended_types) allows them.
//!
//! The four-letter words are `conf`, `cons`, `dump`, `envi`, `isro`, `mntr`, `ruok`,
//! `srvr`, `stat` and `wchs`. Latencies in them are 0, `envi` says nothing of Java, and `mntr`
//! has a dozen of ZooKeeper's hundreds of metrics.
//!
//! [`expire_session`](Server::expire_session) ends a session that its client still trusts. A
//! real server does that only if an operator forces it to.

// Most public items are public for `parts` only.
#![allow(missing_docs)]

// Pure: values in, values out. The lint keeps these modules so.
#[deny(clippy::disallowed_methods, clippy::disallowed_types)]
mod acl;
#[deny(clippy::disallowed_methods, clippy::disallowed_types)]
mod change;
#[deny(clippy::disallowed_methods, clippy::disallowed_types)]
mod date;
#[deny(clippy::disallowed_methods, clippy::disallowed_types)]
mod entry;
#[deny(clippy::disallowed_methods, clippy::disallowed_types)]
mod node;
#[deny(clippy::disallowed_methods, clippy::disallowed_types)]
mod path;
#[deny(clippy::disallowed_methods, clippy::disallowed_types)]
mod reads;
#[deny(clippy::disallowed_methods, clippy::disallowed_types)]
mod requester;
#[deny(clippy::disallowed_methods, clippy::disallowed_types)]
mod sessions;
#[deny(clippy::disallowed_methods, clippy::disallowed_types)]
mod tree;
#[deny(clippy::disallowed_methods, clippy::disallowed_types)]
mod view;
#[deny(clippy::disallowed_methods, clippy::disallowed_types)]
mod watches;
#[deny(clippy::disallowed_methods, clippy::disallowed_types)]
mod write;
// Behind the one lock.
mod clients;
mod data;
mod expiry;
#[warn(missing_docs)]
mod faults;
mod follower;
mod four_letter_words;
mod lag;
mod requests;
mod state;
// Threads, sockets and a file.
mod connection;
mod journal;
mod listener;
mod outbox;
mod shared;
// What users see.
#[warn(missing_docs)]
mod builder;
mod config;
#[warn(missing_docs)]
mod server;
#[cfg(test)]
mod tests;

/// What a simulated ensemble has in common with the server; no part of the API.
#[doc(hidden)]
pub mod parts {
    pub use crate::acl::Identity;
    pub use crate::change::TreeChange;
    pub use crate::config::ServerConfig;
    pub use crate::faults::Faults;
    pub use crate::node::ChangeTime;
    pub use crate::requester::{RequestAnswer, Requester, decode};
    pub use crate::sessions::{Password, Timeouts};
    pub use crate::tree::Author;
    pub use crate::view::ServerView;
    pub use crate::watches::Notice;
    pub use crate::write::Write;
}

pub use self::builder::ServerBuilder;
pub use self::faults::RequestKind;
pub use self::server::Server;
