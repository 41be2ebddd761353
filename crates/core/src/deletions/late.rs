//! Creates that were looked for and not found, and that may still be carried out.
//!
//! A server passes on to its leader what it is asked. While the two cannot reach each other, a request may stay
//! on that way, and its client looks for the node at another server. If the client comes back, the leader takes
//! the first server for the session's again as soon as it reads that, and may carry out a request that it has
//! read before that and not checked yet (`LearnerHandler`, `SessionTrackerImpl.checkSession`). The node
//! would be nobody's, and stand in the queue until the session ends.
//!
//! What is asked through one server keeps its order. So a look through each new connection of the session finds
//! such a node, and no look is needed while the connection lasts.

use alloc::string::String;
use core::time::Duration;

use super::deletion::Deletion;
use crate::attempt::Orphan;

/// A server that has not heard its leader for so many session timeouts has left it, with all that was on the way:
/// a timeout has two ticks at least, and servers are given five to ten.
const TIMEOUTS: u32 = 10;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Late {
    dir: String,
    pub(super) session: i64,
    prefix: String,
    /// It does not come any more.
    until: Duration,
}

impl Late {
    /// What a deletion that has ended has not found.
    pub(super) fn after(of: Deletion, now: Duration, timeout: Duration) -> Option<Self> {
        let until = of.until.unwrap_or(now + timeout * TIMEOUTS);
        let prefix = of.missed().filter(|_| now < until)?;
        Some(Self {
            dir: of.dir().into(),
            session: of.session(),
            prefix: prefix.into(),
            until,
        })
    }

    /// Looks for it again, if it may still come.
    pub(super) fn looks(self, now: Duration) -> Option<Deletion> {
        let mut look = Deletion::new(&self.dir, self.session, Orphan::Prefix(self.prefix));
        look.until = Some(self.until);
        (now < self.until).then_some(look)
    }
}
