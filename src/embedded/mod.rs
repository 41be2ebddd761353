//! For development, demos and tests: a ZooKeeper server inside this process. In
//! production, use a real ensemble.
//!
//! [`Server`] speaks ZooKeeper's protocol on a loopback port and keeps everything in
//! memory: one node, no ensemble, no file. zklock's own client, the `zookeeper` crate,
//! kazoo, Curator and zkCli can all talk to it. What it answers is what ZooKeeper 3.8
//! answers, error codes, versions and stats included.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::net::TcpStream;
//! use zklock::embedded::Server;
//!
//! let server = Server::start()?;
//!
//! let mut stream = TcpStream::connect(server.hosts())?;
//! stream.write_all(b"ruok")?;
//! let mut answer = String::new();
//! stream.read_to_string(&mut answer)?;
//! assert_eq!(answer, "imok");
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # What can go wrong
//!
//! A program that holds locks has to survive what networks and servers do. The server
//! can be told to do it:
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
//! No ensemble, no disk, no TLS, no SASL, no quotas, no TTL nodes, no reconfiguration.
//! Everything is gone when the [`Server`] is dropped.

// Pure: values in, values out.
mod acl;
mod node;
mod path;
mod sessions;
mod tree;
mod watches;
// Behind the one lock.
mod admin;
mod faults;
mod requests;
mod state;
// Threads and sockets.
mod connection;
#[cfg(test)]
mod differential;
mod listener;
mod outbox;
// What users see.
mod builder;
mod server;

pub use self::builder::ServerBuilder;
pub use self::faults::RequestKind;
pub use self::server::Server;
