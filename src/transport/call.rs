//! The values that pass through a transport: requests, their answers, and events of watches.

use super::mailbox_sender::Slot;
use zklock_core::answer::Answered;
use zklock_jute::{EventKind, Request};

/// One request, and what to do with the answer.
pub(crate) struct Call {
    pub(crate) request: Request,
    /// Registered if the request sets a watch and succeeds.
    pub(crate) watch: Option<Watch>,
    pub(crate) answer: Answer,
}

/// Runs on the thread that reads for the transport, and may do nothing but forward.
pub(crate) type Answer = Box<dyn FnOnce(Answered) + Send>;

/// Numbers the watches of a session.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct WatchId(pub(crate) u64);

/// Where the event of a one-shot watch goes.
pub(crate) struct Watch {
    pub(crate) id: WatchId,
    pub(crate) to: Slot<Fired>,
}

impl Watch {
    pub(crate) fn new(id: WatchId, to: impl Into<Slot<Fired>>) -> Self {
        Self { id, to: to.into() }
    }
}

/// The event of a watch.
#[derive(Clone, Debug)]
pub(crate) struct Fired {
    pub(crate) id: WatchId,
    pub(crate) kind: EventKind,
}

impl Fired {
    pub(crate) fn told(id: WatchId, kind: EventKind) -> Self {
        Self { id, kind }
    }
}
