//! What a core counts.

use super::Core;

/// What a core has done so far, in plain numbers. Requests and times are for the shell to count, which sees
/// all of them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Locks that were granted.
    pub grants: u64,
    /// Those among them that waited behind other clients.
    pub waits: u64,
    /// Those among them that came from another thread, without a server.
    pub handed_on: u64,
    /// Locks that were lost while they were held.
    pub losses: u64,
    /// How many times a lock that was held became suspect.
    pub suspicions: u64,
    /// Connections after the first one.
    pub reconnects: u64,
    /// Sessions that expired.
    pub expiries: u64,
    /// Nodes that were deleted which no guard has had.
    pub leftovers: u64,
}

impl Core {
    /// What this core has done so far.
    pub fn counts(&self) -> Counts {
        Counts {
            reconnects: self.link.connects.saturating_sub(1),
            expiries: self.link.expiries,
            losses: self.leases.losses,
            suspicions: self.leases.suspicions,
            leftovers: self.releases.leftovers,
            ..self.counts
        }
    }
}
