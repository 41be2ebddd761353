//! What goes into a look, and what comes of it.

use alloc::vec::Vec;
use core::time::Duration;

use crate::validity::Stamp;

/// What is known at a look.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// The present moment.
    pub now: Duration,
    /// The session timeout.
    pub timeout: Duration,
    /// There is a connection.
    pub connected: bool,
    /// So many leases had begun when this was known of the connection: it is no news for others.
    pub begun: u64,
}

/// What a guard may be trusted with at a look, if its lock is not lost.
#[derive(Clone, Copy, Debug)]
pub struct Trust {
    /// The number of its lease.
    pub id: u64,
    /// Its last proof.
    pub stamp: Option<Stamp>,
    /// When a check can have a better stamp, if that is known.
    pub better_at: Option<Duration>,
    /// When its state changes if nothing more arrives.
    pub changes_at: Option<Duration>,
}

/// What is due after a look.
#[derive(Debug)]
pub struct Due<L> {
    /// The quorum is to be asked about these.
    pub checks: Vec<(u64, L)>,
    /// These are to be read, each with the watch of this number.
    pub watches: Vec<(u64, L, u64)>,
}
