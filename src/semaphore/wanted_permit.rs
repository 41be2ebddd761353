//! The semaphore to acquire a permit from, and its directories.

use std::sync::atomic::AtomicBool;

use crate::lock::Locks;
use crate::session::queries::Lasting;
use zklock_core::dialect::Dialect;

/// The semaphore to acquire a permit from.
pub(super) struct Wanted<'a> {
    pub(super) locks: &'a Locks,
    pub(super) path: &'a str,
    /// How many permits there are for this client.
    pub(super) permits: u32,
    /// How many permits to acquire.
    pub(super) count: u32,
    /// Whether the numbers agreed the last time.
    pub(super) agreed: &'a AtomicBool,
}

impl Wanted<'_> {
    /// Returns the directory of the queue.
    pub(super) fn locks(&self) -> String {
        match self.speaks_kazoo() {
            true => format!("{}-__lock__", self.path),
            false => format!("{}/locks", self.path),
        }
    }

    /// Returns the directory of the permits that are held.
    pub(super) fn leases(&self) -> String {
        match self.speaks_kazoo() {
            true => self.path.to_owned(),
            false => format!("{}/leases", self.path),
        }
    }

    /// Returns what becomes of that directory, if the semaphore has this number of permits.
    pub(super) fn lasting<'n>(&self, number: &'n str) -> Lasting<'n> {
        match self.speaks_kazoo() {
            true => Lasting::Always(number.as_bytes()),
            false => Lasting::WhileUsedIn(number.as_bytes()),
        }
    }

    pub(super) fn speaks_kazoo(&self) -> bool {
        self.locks.session.settings.dialect == Dialect::Kazoo
    }
}
