//! A client that continues the session of another process.

use crate::builder::ClientBuilder;
use crate::error::Result;
use crate::mutex::MutexGuard;
use crate::transport::handover::Handover;

use super::Client;

impl ClientBuilder {
    /// Connects with the session of another process, and takes over the mutex that it has handed
    /// over.
    ///
    /// The builder must name the same servers and chroot, and credentials that may read and write
    /// the lock's node; the session timeout is that of the hand-over. Blocks for two round trips.
    /// On another machine than the one that the hand-over comes from, which has another clock, and
    /// from about half a session timeout after the hand-over on, blocks for a quarter of the session
    /// timeout more. Waits for a server for at most the [`connect_timeout`](Self::connect_timeout).
    ///
    /// # Errors
    ///
    /// Fails with [`Error::BadArgument`](crate::Error::BadArgument) if the builder names another chroot, and with
    /// [`Error::Lost`](crate::Error::Lost) if the lock is gone:
    /// [`LostReason::SessionExpired`](crate::LostReason::SessionExpired) if it was not taken over
    /// in time, [`LostReason::HandedOver`](crate::LostReason::HandedOver) if another process has
    /// taken it over, and [`LostReason::Evicted`](crate::LostReason::Evicted) if another client has
    /// deleted its node. Otherwise fails as [`connect`](Self::connect), and the lock stays until
    /// its session times out. After [`Error::ConnectTimeout`](crate::Error::ConnectTimeout),
    /// another try may find that this one has taken it over.
    pub fn take_over(self, handover: &Handover) -> Result<(Client, MutexGuard)> {
        handover.check_chroot(&self.chroot()?)?;
        let (session, limit) = self.open_inherited(handover.inherited())?;
        let client = Client::over(session);
        let guard = client.locks.take_over(handover, &limit)?;
        Ok((client, MutexGuard::new(guard, None)))
    }
}
