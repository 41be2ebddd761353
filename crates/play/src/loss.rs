//! Why a lock was lost.

use super::ask::{GuardId, Loss};
use super::leases::{Lease, Leases};
use super::link::Link;

impl Link {
    /// Returns why nothing is left of this session, if nothing is.
    pub(super) fn ended(&self, session: i64) -> Option<Loss> {
        let is_another = session != self.session;
        self.over
            .or_else(|| is_another.then_some(Loss::SessionExpired))
    }
}

impl Lease {
    /// Notes that the lock is lost, for this reason unless an earlier one says as much.
    pub(super) fn lost(&mut self, why: Loss) {
        self.stamp = None;
        if self.loss.is_none_or(|earlier| why.explains(earlier)) {
            self.loss = Some(why);
        }
    }

    /// Returns why the lock is lost, if it is.
    pub(super) fn why(&self, link: &Link) -> Loss {
        let ended = || link.ended(self.session);
        self.loss.or_else(ended).unwrap_or(Loss::NotConfirmed)
    }
}

impl Leases {
    /// Returns why the lock of this guard is lost, if it is.
    pub(super) fn why(&self, guard: GuardId, link: &Link) -> Loss {
        self.get(guard)
            .map_or(Loss::GivenUp, |lease| lease.why(link))
    }
}
