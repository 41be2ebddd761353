//! The lock protocol, as pure data.
//!
//! A lock is a directory of sequential ephemeral nodes, and the list of their names is all of its state. This crate
//! turns such lists into decisions:
//!
//! - [`dialect`] says how each library names its nodes, and which contenders wait for which,
//! - [`name`] says what one node name means,
//! - [`queue`] says where a contender stands, and which node it has to wait for,
//! - [`permits`] says which client's number of permits applies to a semaphore,
//! - [`places`] says where the contenders of a path have their nodes,
//! - [`skip_listing`] spares a contender the listing of a queue that nobody has joined since,
//! - [`attempt`] takes one contender into the queue and to its head, and [`acquisition`] sends the requests for
//!   that and takes in the answers,
//! - [`multi`] takes one contender into several queues at once,
//! - [`permit_attempt`] gets a contender its permits, through the queue in front of them,
//! - [`shard_owners`] divides shards among members,
//! - [`permit_number`] gives a permit a number that no other permit has,
//! - [`downgrade`] turns a writer into a reader,
//! - [`job`] runs something once, and [`journal`] says what has run,
//! - [`predecessor_mark`] tells a holder that its predecessor went without releasing,
//! - [`release_note`] tells a waiter that the holders ahead released in order, and [`seen_ahead`] records which
//!   contenders it has seen there,
//! - [`overdue_holder`] says which holder to hurry, and when,
//! - [`answer`] says what became of a request,
//! - [`validity`] says how long a proof of a lock is valid, and what state a guard is in,
//! - [`proof`] asks the quorum whether a session and its nodes exist, and says whether a lock may be granted on the
//!   answer,
//! - [`lifetime`] says which messages of a session the leader has heard of,
//! - [`renewals`] says when held locks are proven again,
//! - [`hold`] says when a pause in a queue is over,
//! - [`deletions`] deletes what attempts and guards have left behind, and retries that until it is gone,
//! - [`delete_and_create`] puts a deletion and the next create into one transaction, and splits its answer,
//! - [`guarded_write`] puts a check of a guard's nodes before what is written, and judges the answer,
//! - [`directories`] says how a lock's directory is created, and why it cannot be, and [`path`] takes paths apart,
//! - [`connection`] says which server is next, when to leave a server, and what it supports.
//!
//! Nothing in here performs I/O, reads a clock or the environment, starts a thread, keeps state outside its
//! values or draws random numbers. Without `std` there is nothing to do these with, and lints refuse what
//! `core` offers. So `tests/model` can try every order of replies, losses, lag and expiries.
//!
//! Programs use the crate `zklock`; this crate makes no promise about its names.

#![cfg_attr(not(test), no_std)]
#![deny(clippy::disallowed_types)]
#[macro_use]
extern crate alloc;

pub mod acquisition;
pub mod answer;
pub mod attempt;
pub mod connection;
pub mod delete_and_create;
pub mod deletions;
pub mod dialect;
pub mod directories;
pub mod downgrade;
pub mod guarded_write;
pub mod hold;
pub mod job;
pub mod journal;
pub mod lifetime;
pub mod mending;
pub mod multi;
pub mod name;
pub mod overdue_holder;
pub mod path;
pub mod permit_attempt;
pub mod permit_number;
pub mod permits;
pub mod places;
pub mod predecessor_mark;
pub mod proof;
pub mod queue;
pub mod release_note;
pub mod renewals;
pub mod seen_ahead;
pub mod shard_owners;
pub mod skip_listing;
pub mod validity;

pub use zklock_jute::Names;
