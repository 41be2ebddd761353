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
//! - [`skip_listing`] says who comes back to a queue that nobody has joined since,
//! - [`attempt`] takes one contender into the queue,
//! - [`multi`] takes one into several queues at once,
//! - [`permit_attempt`] gets one a permit, through the line in front of them,
//! - [`downgrade`] makes a reader of a writer,
//! - [`job`] runs something once, and [`journal`] says what was run,
//! - [`abandonment`] tells a holder that its predecessor went without releasing,
//! - [`overdue_holder`] says whom to hurry, and when,
//! - [`validity`] says how long a proof of a lock is good,
//! - [`guard_state`] what its holder is, from the last proof and what happened since,
//! - [`cleanup`] takes what it left behind out of it.
//!
//! Nothing in here performs I/O, reads a clock or the environment, starts a thread, keeps
//! anything outside of its values or throws dice. The lint below fails if that changes, and
//! `tests/model` reads the sources for what the lint cannot see. That is what lets
//! `tests/model` try every order of replies, losses, lag and expiries.

#![deny(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types
)]

pub mod abandonment;
pub mod attempt;
pub mod cleanup;
pub mod dialect;
pub mod downgrade;
pub mod guard_state;
pub mod job;
pub mod journal;
pub mod multi;
pub mod name;
pub mod overdue_holder;
pub mod permit_attempt;
pub mod permits;
pub mod places;
pub mod queue;
pub mod skip_listing;
pub mod validity;

pub use crate::jute::Names;
