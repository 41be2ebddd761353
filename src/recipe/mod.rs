//! The lock protocol, as pure data.
//!
//! A lock is a directory of sequential ephemeral nodes, and its state is nothing but
//! the list of their names. This folder turns such lists into decisions:
//!
//! - [`dialect`] is the table of who names nodes how, and who waits for whom,
//! - [`name`] says what one node name means,
//! - [`queue`] says who is ahead of whom, and who has to wait for which node,
//! - [`permits`] says whose number of a semaphore's permits stands,
//! - [`places`] says where those are whom a path's lock has,
//! - [`last_grant`] says who comes back to a queue that nobody has joined since,
//! - [`attempt`] takes one contender into the queue,
//! - [`validity`] says how long a holder may trust its lock,
//! - [`cleanup`] takes what it left behind out of it.
//!
//! Nothing in here performs I/O, reads a clock, starts a thread or throws dice; the
//! lint below fails if that changes. That is what lets `tests/model.rs` try every order
//! of replies, losses, lag and expiries.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod attempt;
pub mod cleanup;
pub mod dialect;
pub mod last_grant;
pub mod name;
pub mod overdue;
pub mod permits;
pub mod places;
pub mod queue;
pub mod validity;

pub use crate::jute::Names;
