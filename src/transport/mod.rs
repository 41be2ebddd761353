//! What the locks need of a connection to ZooKeeper.
//!
//! Two transports stand behind [`Transport`]: `native`, our own client, and
//! `zookeeper_crate`. A transport carries requests and says what became of
//! each; it reports to the [`Status`](status::Status) when the connection comes, goes
//! or is over. It repeats nothing and decides nothing about locks.

pub(crate) mod bounds;
mod call;
pub(crate) mod counted;
pub(crate) mod gather;
pub(crate) mod mailbox;
pub(crate) mod native;
mod prefetch;
pub(crate) mod session_state;
pub(crate) mod slot;
pub(crate) mod status;
#[cfg(feature = "zookeeper")]
pub(crate) mod zookeeper_crate;

use std::fmt;
use std::time::{Duration, Instant};

pub(crate) use self::call::{
    Answer, Answered, Call, CallId, Failure, Fired, Prefetch, Prefetched, SharedPrefetch, TooLong,
    Watch, WatchId,
};
use crate::jute::Request;

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
