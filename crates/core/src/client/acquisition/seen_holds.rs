//! What a waiter knows of the holds ahead of it.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use crate::client::ask::Time;
use zklock_jute::Names;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Holds {
    pub(super) look: Option<Look>,
    /// Those that are being removed, in the order of the answers.
    pub(super) removes: VecDeque<String>,
    /// When they are to be looked at again.
    pub(super) again: Option<Time>,
    /// This client may not remove these.
    pub(super) kept: Vec<String>,
}

/// A listing with holds, whose data is being read.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) names: Names,
    /// Those that are not read yet, in the order of the answers.
    pub(super) asked: Vec<Seen>,
    pub(super) seen: Vec<Seen>,
}

#[derive(Debug)]
pub(super) struct Seen {
    pub(super) name: String,
    /// How many waiters see it before this one.
    pub(super) place: u32,
    pub(super) version: i32,
    /// When it is over at the servers, since the epoch.
    pub(super) end: Option<Duration>,
}
