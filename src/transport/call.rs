//! Requests, their answers, and the events of watches: what goes through a transport.

use std::sync::Arc;
use std::{fmt, iter};

use parking_lot::Mutex;

use super::slot::Slot;
use crate::error::Error;
use crate::jute::{ErrorCode, EventKind, Reply, Request};
use crate::recipe::validity::Stamp;

/// One request, and who wants to know.
pub(crate) struct Call {
    pub(crate) request: Request,
    /// Left at the server if the request sets a watch and succeeds.
    pub(crate) watch: Option<Watch>,
    pub(crate) answer: Answer,
}

/// Tells one request of a caller from another.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct CallId(u64);

impl CallId {
    pub(crate) fn new(number: u64) -> Self {
        Self(number)
    }

    /// The ticket of the request that was sent after this one's.
    pub(crate) fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// This ticket and all that follow.
    pub(crate) fn on(self) -> impl Iterator<Item = Self> {
        iter::successors(Some(self), |call_id| Some(call_id.next()))
    }
}

/// What became of a request.
pub(crate) type Answered = Result<Reply, Failure>;

/// Runs on whatever thread the transport reads with: it may forward, and nothing else.
pub(crate) type Answer = Box<dyn FnOnce(Answered) + Send>;

/// Tells one watch from another on the same path.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct WatchId(pub(crate) u64);

/// Where the event of a one-shot watch goes.
pub(crate) struct Watch {
    pub(crate) id: WatchId,
    pub(crate) to: Slot<Fired>,
    /// What to ask for when the node goes. A transport that cannot do this just tells.
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

/// A watch fired.
#[derive(Clone, Debug)]
pub(crate) struct Fired {
    pub(crate) id: WatchId,
    pub(crate) kind: EventKind,
    /// What was asked for when the node went.
    pub(crate) prefetched: Option<Prefetched>,
}

impl Fired {
    /// The event as such.
    pub(crate) fn told(id: WatchId, kind: EventKind) -> Self {
        Self {
            id,
            kind,
            prefetched: None,
        }
    }
}

/// Why a request has no reply.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Failure {
    /// There was no connection: the request did not leave, nothing happened.
    NotSent,
    /// The connection broke: the request may or may not have been carried out.
    Lost,
    /// The server turned the request down.
    Refused(ErrorCode),
    /// Nothing happened, or nothing changed: see there.
    TooLong(TooLong),
    /// The client is closed, for good.
    Closed,
}

impl Failure {
    /// Some refusals are about the connection and not about the request.
    pub(crate) fn sorted(self) -> Self {
        match self {
            Self::Refused(code) if code.is_passing() => Self::Lost,
            failure => failure,
        }
    }
}

/// A request that was not sent because of its length, or one that changes nothing and whose
/// reply was thrown away because of its.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct TooLong {
    /// Whether it is about the reply.
    pub(crate) reply: bool,
    pub(crate) bytes: usize,
    pub(crate) limit: usize,
}

impl TooLong {
    /// The error of a request about `path`.
    pub(crate) fn about(self, path: &str) -> Error {
        let Self { bytes, limit, .. } = self;
        let path = path.to_owned();
        match self.reply {
            true => Error::ReplyTooLong { path, bytes, limit },
            false => Error::RequestTooLong { path, bytes, limit },
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

/// A listing, and a proof of a session if that is due by then.
#[derive(Debug)]
pub(crate) struct Prefetch {
    /// Tells it from another of the same watcher.
    pub(crate) number: u64,
    pub(crate) listing: Request,
    /// The directory has been listed: to list it again is due when a proof is.
    pub(crate) listed: bool,
    pub(crate) proof: Vec<Request>,
    /// The last proof that there was.
    pub(crate) proven: Option<Stamp>,
}

/// A prefetch that watches share; taken by the first whose node goes.
pub(crate) type SharedPrefetch = Arc<Mutex<Option<Prefetch>>>;

/// What a prefetch brought.
#[derive(Clone, Debug)]
pub(crate) struct Prefetched {
    pub(crate) number: u64,
    /// The stamp of the proof.
    pub(crate) stamp: Stamp,
    pub(crate) listing: Answered,
    /// Empty if no proof was due.
    pub(crate) proof: Vec<Answered>,
}
