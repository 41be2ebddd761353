//! What the locks need of a connection to ZooKeeper.
//!
//! Two transports stand behind [`Transport`]: `native`, our own client, and
//! `zookeeper_crate`. A transport carries requests and says what became of
//! each; it reports to the [`Status`](status::Status) when the connection comes, goes
//! or is over. It repeats nothing and decides nothing about locks.

pub(crate) mod bounds;
pub(crate) mod counted;
pub(crate) mod mailbox;
pub(crate) mod native;
pub(crate) mod session_state;
pub(crate) mod slot;
pub(crate) mod status;
#[cfg(feature = "zookeeper")]
pub(crate) mod zookeeper_crate;

use std::fmt;
use std::iter;
use std::time::{Duration, Instant};

use self::slot::Slot;
use crate::error::Error;
use crate::jute::{ErrorCode, EventKind, Reply, Request};
use crate::recipe::validity::Stamp;

/// A connection that makes itself anew when it breaks.
pub(crate) trait Transport: fmt::Debug + Send + Sync {
    /// Sends the calls in this order, in one write where that is possible.
    ///
    /// Does not wait for the network. Every call is answered exactly once, from any
    /// thread, possibly before this returns.
    fn send(&self, calls: Vec<Call>);

    /// Forgets the watch `id` on `path`, so that it costs the server nothing.
    fn unwatch(&self, path: &str, id: WatchId);

    /// What this transport and the server behind it can do.
    fn capabilities(&self) -> Capabilities;

    /// Has the calling thread sleep until it is `awake`, for which it is unparked, or the
    /// time has come; perhaps not as long. Meanwhile it may do the transport's work.
    fn rest(&self, _awake: &dyn Fn() -> bool, until: Option<Instant>) {
        slot::park(until);
    }

    /// Lets the transport know that a thread is about to wait for it in another way.
    fn attend(&self) {}

    /// Ends the session, waiting for it no longer than `limit`.
    ///
    /// Every call that is still open, and every later one, is answered with
    /// [`Failure::Closed`].
    fn close(&self, limit: Duration);

    /// As `close`, but does not wait: what is left to do is done by the transport's threads.
    fn leave(&self) {
        self.close(Duration::ZERO);
    }
}

/// What can be asked of a transport.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capabilities {
    /// `Request::Multi` works.
    pub(crate) multi: bool,
    /// `Request::Sync` works.
    pub(crate) sync: bool,
    /// A connection that breaks may come back with the same session, and says so.
    pub(crate) resumes: bool,
}

impl Capabilities {
    /// The request after whose answer a listing of `dir` is up to date.
    ///
    /// Where there is no sync, a write does it, even one that comes to nothing.
    pub(crate) fn sync(self, dir: &str) -> Request {
        match self.sync {
            true => Request::Sync {
                path: dir.to_owned(),
            },
            false => Request::delete(format!("{dir}/_sync")),
        }
    }
}

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
    /// What to send when the node goes, instead of telling so: it tells when that is answered,
    /// or at once if nothing is to be sent. A transport that cannot do this just tells.
    pub(crate) then: Option<Then>,
}

/// Runs on whatever thread the transport reads with: it may make calls, and nothing else.
pub(crate) type Then = Box<dyn FnOnce() -> Vec<Call> + Send>;

impl Watch {
    pub(crate) fn new(id: WatchId, to: impl Into<Slot<Fired>>) -> Self {
        Self {
            id,
            to: to.into(),
            then: None,
        }
    }
}

/// A watch fired.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fired {
    pub(crate) id: WatchId,
    pub(crate) kind: EventKind,
    /// What was to be sent then was sent, and is answered.
    pub(crate) asked: Option<Prefetched>,
}

/// What was sent when a watch fired: a listing and, if it was due, a proof.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prefetched {
    pub(crate) stamp: Stamp,
    pub(crate) listing: CallId,
    /// How many requests the proof was made of.
    pub(crate) proof: usize,
}

impl Fired {
    /// The event as such, with nothing asked yet.
    pub(crate) fn told(id: WatchId, kind: EventKind) -> Self {
        let asked = None;
        Self { id, kind, asked }
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
