//! What attempts leave, in contrast to the nodes of guards: of which session that is, and who waits for its end.

use alloc::borrow::ToOwned;
use core::time::Duration;

use super::deletion::Deletion;
use crate::attempt::Orphan;
use crate::path::{name, parent};

/// Stands for the session that is served next; no server assigns this id.
pub(super) const THE_NEXT: i64 = -1;
/// How long calls wait until what an attempt has left is gone, which takes a few round trips. After that, it counts
/// like another client's node.
pub const PASSING: Duration = Duration::from_secs(1);

impl Deletion {
    /// Creates the deletion of what an attempt left in a directory. It is of `session`, or of the `current` one, if
    /// any, if the session changed unnoticed. The later one is assumed, because the nodes of the earlier one are gone.
    /// A create may be carried out in the next session just before the client knows of that.
    pub fn of_attempt(dir: &str, (session, current): (i64, i64), orphan: Orphan) -> Self {
        let session = match (current, &orphan) {
            (0, Orphan::Node(_)) => session,
            (0, _) => THE_NEXT,
            (current, _) => current,
        };
        Self::new(dir, session, orphan)
    }

    /// Creates the deletion of a guard's node.
    pub fn of_guard(node: &str, session: i64) -> Self {
        let orphan = Orphan::Node(name(node).to_owned());
        let mut deletion = Self::new(parent(node), session, orphan);
        deletion.is_leftover = false;
        deletion
    }

    /// Returns whether an attempt left it, not a guard.
    pub fn is_leftover(&self) -> bool {
        self.is_leftover
    }

    /// Returns whether the client was refused this for lack of rights.
    pub fn is_forbidden(&self) -> bool {
        self.is_forbidden
    }

    /// Returns until when tries in this directory wait for it, which looks like another client's node; `None` if they
    /// don't.
    pub(super) fn awaited_until(&mut self, dir: &str, now: Duration) -> Option<Duration> {
        if !self.is_leftover || self.dir() != dir {
            return None;
        }
        let until = *self.awaited_until.get_or_insert(now + PASSING);
        (now < until).then_some(until)
    }
}
