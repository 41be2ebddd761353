//! Hands a mutex to another process.

use super::{MutexGuard, SendMutexGuard};
use crate::error::Result;
use crate::transport::handover::Handover;

impl MutexGuard {
    /// Hands the mutex over to another process, and the client's session with it.
    ///
    /// The guard is Lost when this returns
    /// ([`LostReason::HandedOver`](crate::LostReason::HandedOver)), and the client is closed,
    /// although its session goes on: dropping them sends nothing. End what runs under the guard
    /// before. On failure, the guard stays as it was.
    ///
    /// Blocks for one committed round trip, at most until the guard's deadline. A thread of this
    /// client that waits for a lock meanwhile gets [`Error::Closed`](crate::Error::Closed).
    ///
    /// # Errors
    ///
    /// Fails with [`Error::Lost`](crate::Error::Lost) if the mutex was lost before, and with
    /// [`Error::Suspect`](crate::Error::Suspect) if no quorum answered in time. Fails with
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the client has other locks, also those of its shards,
    /// or is still releasing some, over a handle of the `zookeeper` crate, for
    /// [`Dialect::LeaderLatch`](crate::Dialect::LeaderLatch), for a guard of
    /// [`LockOptions::track_abandonment`](crate::LockOptions::track_abandonment) or
    /// [`LockOptions::hold_at_least`](crate::LockOptions::hold_at_least), after a transaction whose
    /// outcome is not known, and with ClickHouse Keeper, which resumes no session.
    pub fn hand_over(&self) -> Result<Handover> {
        self.grant.raw.to_process()
    }
}

impl SendMutexGuard {
    /// As [`MutexGuard::hand_over`]. A transaction of another thread that is in progress may be
    /// carried out or not.
    ///
    /// # Errors
    ///
    /// As [`MutexGuard::hand_over`].
    pub fn hand_over(&self) -> Result<Handover> {
        self.grant.raw.to_process()
    }
}
