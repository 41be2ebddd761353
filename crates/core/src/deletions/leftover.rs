//! What attempts leave, in contrast to the nodes of guards: of which session that is, who waits for its end, and what
//! may still come.
//!
//! A create that was looked for and not found may still be carried out. A server forwards requests to its leader. While
//! the two cannot reach each other, a request may be held up on the way, and its client looks for the node at another
//! server. If the client comes back to the first server, the leader takes that server for the session's again as soon
//! as it reads of the return, and may carry out a request that it has read before that and not checked yet
//! (`LearnerHandler`, `SessionTrackerImpl.checkSession`). Nobody would own that node: it would stand in the queue until
//! the session ends, and a hold for longer than that.
//!
//! Requests through one server keep their order. So a look through each new connection of the session finds such a
//! node, and no look is needed while the connection lasts.

use alloc::borrow::ToOwned;
use core::time::Duration;

use super::deletion::{Deletion, Turn};
use crate::attempt::Orphan;
use crate::dialect::Sharing;
use crate::name::{may_be_hold, sharing_of};
use crate::path::{name, parent};

/// Stands for the session that is served next; no server assigns this id.
pub(super) const THE_NEXT: i64 = -1;
/// How long calls wait until what an attempt has left is gone, which takes a few round trips. After that, it counts
/// like another client's node.
pub const PASSING: Duration = Duration::from_secs(1);

/// After how many session timeouts a server that has not heard its leader has left it, with all requests on
/// the way: a timeout has two ticks at least, and servers are given five to ten.
const TIMEOUTS: u32 = 10;

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
    /// don't. A reader's node is in no reader's way.
    pub(super) fn awaited_until(
        &mut self,
        (dir, sharing): (&str, Sharing),
        now: Duration,
    ) -> Option<Duration> {
        let own = self.name().map_or(Sharing::Alone, sharing_of);
        if !self.is_leftover || self.dir() != dir || !own.conflicts(sharing) {
            return None;
        }
        let until = *self.awaited_until.get_or_insert(now + PASSING);
        (now < until).then_some(until)
    }

    /// Returns a look, through the next connection, for what this deletion has not found.
    pub(super) fn once_more(&self, now: Duration, timeout: Duration) -> Option<Self> {
        let mut look = Self::new(self.dir(), self.session, self.missed()?.clone());
        let until = self.until.unwrap_or(now + timeout * TIMEOUTS);
        look.until = Some(until);
        (now < until).then_some(look)
    }

    /// Returns whether what this deletion looks for may still come.
    pub(super) fn may_come(&self, now: Duration) -> bool {
        self.is_of_hold() || self.until.is_none_or(|until| now < until)
    }

    /// Notes that this session is served now. The end of another one has not deleted a hold that came before, and one
    /// that was `given_up` may last for a while: only what its user keeps for longer goes with it.
    pub(super) fn goes_on_in(&mut self, session: i64, given_up: Option<(i64, Duration)>) {
        let is_kept = |until| matches!(self.turn, Turn::Delayed(time) if until < time);
        let may_last = given_up.is_some_and(|(one, until)| self.session == one && !is_kept(until));
        if self.is_of_hold() || self.session == THE_NEXT || may_last {
            self.session = session;
        }
    }

    fn is_of_hold(&self) -> bool {
        self.name().is_some_and(may_be_hold)
    }
}
