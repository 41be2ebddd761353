//! What a waiter knows of the holds ahead of it.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use zklock_jute::{Data, Names, Stat};

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Holds {
    /// One was ahead.
    pub(super) met: bool,
    pub(super) look: Option<Look>,
    /// Those that are being removed, in the order of the answers.
    pub(super) removes: VecDeque<String>,
    /// When they are to be looked at again.
    pub(super) again: Option<Duration>,
    /// Those that end while it waits, if no other waiter is to remove them before.
    pub(super) ours: Vec<Seen>,
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
    /// The data and stat of the first one.
    pub(super) first: Option<(Data, Stat)>,
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
