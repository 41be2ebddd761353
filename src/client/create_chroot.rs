//! Creates the chroot of a client that needs one.

use std::time::Duration;

use crate::builder::ClientBuilder;
use crate::error::Result;
use crate::session::Session;
use crate::system::clock;
use crate::time::limit::Limit;
use zklock_core::directories::Lasting;

impl ClientBuilder {
    /// Creates the chroot through another session without one, because every request of the client
    /// goes below the chroot.
    pub(super) fn make_chroot_for(self, session: &Session, limit: &Limit) -> Result<()> {
        let left = limit.deadline().map_or(Duration::MAX, |deadline| {
            deadline.saturating_duration_since(clock::now())
        });
        let (builder, chroot) = self.connect_timeout(left).without_chroot();
        let client = builder.connect()?;
        let above = &client.locks.session;
        let (dirs, lasting) = ([chroot], Lasting::Always(&[]));
        let made = above.make_directories(&dirs, lasting, limit)?;
        // The end of that session is not waited for.
        drop(client);
        match made {
            // The client's own server may lag behind the one that has answered.
            Ok(()) => session.catch_up("/", limit),
            Err(_) => Err(session.unanswered_within(limit.spent())),
        }
    }
}
