//! A semaphore that nobody uses any more is no obstacle for another kind of lock.
//!
//! The directories of its permits and its queue stay until the server removes them. While nobody is
//! in them, the path may become a mutex or a read-write lock. Neither can overlook the other: each
//! creates its own node before it looks for the other's, so of two that come at the same time at
//! least the later one sees the earlier one.

use super::{Driver, Step};
use crate::error::Result;
use crate::lock::semaphore_use::without_permits;
use zklock_core::attempt::Event;
use zklock_core::dialect::Role;
use zklock_jute::Names;

impl Driver<'_, '_> {
    /// Reports a listing, without the permits' directory if nobody uses the semaphore.
    pub(super) fn without_idle_semaphore(&mut self, names: Names) -> Result<Step> {
        if self.queue.role == Role::Permit || !names.contains("leases") {
            return Ok(Step::Report(Event::Children(names)));
        }
        let (dir, limit) = (self.queue.dir, &self.request.limit);
        let stood = self.semaphore == Some(true);
        let idle = match self
            .session
            .is_idle_semaphore(self.caller, dir, stood, limit)
        {
            Ok(idle) => idle,
            Err(error) => return error.or(dir, Step::Report(Event::Cancel)),
        };
        self.semaphore = Some(idle && self.attempt.node().is_some());
        Ok(Step::Report(Event::Children(match idle {
            true => without_permits(&names),
            false => names,
        })))
    }
}
