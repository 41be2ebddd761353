//! Why a lock was lost.

use super::ask::GuardId;
use super::leases::{Lease, Leases};
use super::link::Link;

/// Why a lock was lost, or a call ended without its lock.
///
/// The first reason stays that the core knew of: a holder whose machine slept finds
/// [`NotConfirmed`](Self::NotConfirmed) when it wakes, whatever is heard of its session later. Only
/// [`NodeGone`](Self::NodeGone) is made more exact.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Loss {
    /// Another client deleted the node while the session went on.
    Evicted,
    /// The session expired.
    SessionExpired,
    /// No quorum confirmed the lock in time.
    NotConfirmed,
    /// The connection broke, and its transport cannot tell whether the session survived.
    Disconnected,
    /// The node is gone, and it is not known yet whether it was deleted or went with the session. The next
    /// notice says which.
    NodeGone,
    /// The client was closed.
    Closed,
    /// The servers refused the client's credentials.
    AuthFailed,
    /// The guard was given up before.
    GivenUp,
}

impl Loss {
    /// Whether it says more than an earlier reason.
    fn explains(self, earlier: Self) -> bool {
        let explained = matches!(self, Self::Evicted | Self::SessionExpired);
        earlier == Self::NodeGone && explained
    }
}

impl Link {
    /// Why nothing is left of this session, if nothing is.
    pub(super) fn ended(&self, session: i64) -> Option<Loss> {
        let is_gone = !self.knows.resumes && self.news().connected.is_none();
        match self.over {
            Some(why) => Some(why),
            None if session != self.session => Some(Loss::SessionExpired),
            None => is_gone.then_some(Loss::Disconnected),
        }
    }

    /// Why a node is gone, if an answer says that it is: who gets one still has the session. A transport
    /// that cannot tell one session from the next cannot tell this either.
    pub(super) fn gone(&self) -> Loss {
        match self.knows.resumes {
            true => Loss::Evicted,
            false => Loss::NodeGone,
        }
    }
}

impl Lease {
    /// The lock is lost, for this reason unless there is one.
    pub(super) fn lost(&mut self, why: Loss) {
        self.belief.stamp = None;
        if self.loss.is_none_or(|earlier| why.explains(earlier)) {
            self.loss = Some(why);
        }
    }

    /// Why the lock is lost, if it is.
    pub(super) fn why(&self, link: &Link) -> Loss {
        let ended = || link.ended(self.session);
        self.loss.or_else(ended).unwrap_or(Loss::NotConfirmed)
    }
}

impl Leases {
    /// The same of a guard.
    pub(super) fn why(&self, guard: GuardId, link: &Link) -> Loss {
        self.get(guard)
            .map_or(Loss::GivenUp, |lease| lease.why(link))
    }
}
