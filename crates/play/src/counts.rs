//! The counts of a core.

use super::Core;
use super::ask::Counts;

impl Core {
    /// Returns whether the servers tell the stat of a created node, as far as this core knows.
    pub fn tells_stats(&self) -> bool {
        self.link.tells_stats()
    }

    /// Returns what this core has done so far.
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
