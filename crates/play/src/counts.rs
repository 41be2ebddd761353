//! The counts of a core.

use super::Core;
use super::ask::Counts;

impl Core {
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
