//! Creates that were looked for and not found, and that may still be carried out.
//!
//! A server passes on to its leader what it is asked. While the two cannot reach each other, a request may stay
//! on that way, and its client looks for the node at another server. If the client comes back, the leader takes
//! the first server for the session's again as soon as it reads that, and may carry out a request that it has
//! read before that and not checked yet (`LearnerHandler`, `SessionTrackerImpl.checkSession`). The node
//! would be nobody's, and stand in the queue until the session ends, and a hold for longer than that.
//!
//! What is asked through one server keeps its order. So a look through each new connection of the session finds
//! such a node, and no look is needed while the connection lasts.

use core::time::Duration;

use super::THE_NEXT;
use super::deletion::Deletion;
use crate::name::may_be_hold;

/// A server that has not heard its leader for so many session timeouts has left it, with all that was on the way:
/// a timeout has two ticks at least, and servers are given five to ten.
const TIMEOUTS: u32 = 10;

impl Deletion {
    /// The look for what this one has not found, for the next connection.
    pub(super) fn once_more(&self, now: Duration, timeout: Duration) -> Option<Self> {
        let mut look = Self::new(self.dir(), self.session, self.missed()?.clone());
        let until = self.until.unwrap_or(now + timeout * TIMEOUTS);
        look.until = Some(until);
        (now < until).then_some(look)
    }

    /// Whether what it looks for may have come by now.
    pub(super) fn may_come(&self, now: Duration) -> bool {
        self.is_of_hold() || self.until.is_none_or(|until| now < until)
    }

    /// There is this session now. The end of another one has not deleted a hold that came before.
    pub(super) fn goes_on_in(&mut self, session: i64) {
        if self.is_of_hold() || self.session == THE_NEXT {
            self.session = session;
        }
    }

    fn is_of_hold(&self) -> bool {
        self.name().is_some_and(may_be_hold)
    }
}
