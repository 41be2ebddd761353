//! The values that pass through a transport: requests, their answers, and events of watches.

use std::sync::Arc;
use std::{fmt, iter};

use super::mailbox_sender::Slot;
use crate::system::sync::Mutex;
use zklock_core::answer::Answered;
use zklock_core::validity::Stamp;
use zklock_jute::{EventKind, Request};

/// One request, and what to do with the answer.
pub(crate) struct Call {
    pub(crate) request: Request,
    /// Registered if the request sets a watch and succeeds.
    pub(crate) watch: Option<Watch>,
    pub(crate) answer: Answer,
}

/// Numbers the requests of one caller.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct CallId(u64);

impl CallId {
    pub(crate) fn new(number: u64) -> Self {
        Self(number)
    }

    /// The id of the next request.
    pub(crate) fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// This id and all later ones.
    pub(crate) fn on(self) -> impl Iterator<Item = Self> {
        iter::successors(Some(self), |call_id| Some(call_id.next()))
    }
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
    /// What to request when the node is deleted. A transport may ignore it.
    pub(crate) prefetch: Option<SharedPrefetch>,
}

impl Watch {
    pub(crate) fn new(id: WatchId, to: impl Into<Slot<Fired>>) -> Self {
        Self {
            id,
            to: to.into(),
            prefetch: None,
        }
    }
}

/// The event of a watch.
#[derive(Clone, Debug)]
pub(crate) struct Fired {
    pub(crate) id: WatchId,
    pub(crate) kind: EventKind,
    /// The replies to the watch's prefetch, if the event sent it.
    pub(crate) prefetched: Option<Prefetched>,
}

impl Fired {
    /// The event without replies.
    pub(crate) fn told(id: WatchId, kind: EventKind) -> Self {
        Self {
            id,
            kind,
            prefetched: None,
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Watch");
        shown.field("id", &self.id).finish_non_exhaustive()
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("request", &self.request)
            .field("watch", &self.watch)
            .finish_non_exhaustive()
    }
}

/// A listing, and a proof of the session if one is due when the listing is.
#[derive(Debug)]
pub(crate) struct Prefetch {
    /// Numbers the prefetches of one watcher.
    pub(crate) number: u64,
    pub(crate) listing: Request,
    /// The directory has been listed: another listing is due only with a proof.
    pub(crate) listed: bool,
    pub(crate) proof: Vec<Request>,
    /// The stamp of the last proof, if any.
    pub(crate) proven: Option<Stamp>,
}

/// A prefetch that several watches share; the first one whose node is deleted takes it.
pub(crate) type SharedPrefetch = Arc<Mutex<Option<Prefetch>>>;

/// The replies to a prefetch.
#[derive(Clone, Debug)]
pub(crate) struct Prefetched {
    pub(crate) number: u64,
    /// The stamp of the proof.
    pub(crate) stamp: Stamp,
    pub(crate) listing: Answered,
    /// Empty if no proof was due.
    pub(crate) proof: Vec<Answered>,
}
