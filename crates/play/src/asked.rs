//! The asks of threads that are not answered yet, and the alarms.

use super::ask::{GuardId, Ticket, Time};
use super::line::LineId;

/// An ask that is not answered yet.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) wants: Wants,
    pub(super) until: Option<Time>,
}

#[derive(Debug)]
pub(super) enum Wants {
    Lock(LineId),
    Permit,
    Verify(GuardId),
    Commit(GuardId),
    Unlock,
}

/// A task that is due at some time.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Alarm {
    /// The limit of an ask.
    Limit(Ticket),
    /// A step that an acquisition puts off.
    Step(Ticket),
    /// The requests of threads that the server has thrown away.
    Unsent,
}
