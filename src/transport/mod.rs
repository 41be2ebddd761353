//! The connection to ZooKeeper, as the session sees it.
//!
//! ```text
//!   send(calls) ──► Transport ──► the answer of each Call, the event of each Watch
//!                    │     │
//!               native     zookeeper_crate
//!                    │     │
//!                    └──┬──┘
//!                       ▼
//!                    Status ──► Snapshot, Changes, SessionEvent
//! ```
//!
//! `native` is our own client; `zookeeper_crate` wraps a handle of that crate. A transport
//! carries requests and reports what became of each. It reports to the
//! [`Status`](status::Status) when the connection is made, breaks or ends. It repeats no
//! request and decides nothing about locks.

mod call;
pub(crate) mod counted;
pub(crate) mod gather;
pub(crate) mod mailbox;
pub(crate) mod mailbox_sender;
pub(crate) mod native;
mod prefetch_on_deletion;
pub(crate) mod session_key;
pub(crate) mod session_state;
pub(crate) mod session_validity;
pub(crate) mod status;
#[cfg(feature = "zookeeper")]
pub(crate) mod zookeeper_crate;

use std::fmt;
use std::time::{Duration, Instant};

pub(crate) use self::call::{
    Answer, Answered, Call, CallId, Failure, Fired, Prefetch, Prefetched, SharedPrefetch, TooLong,
    Watch, WatchId,
};
use self::session_key::SessionKey;
use crate::jute::Request;

/// A connection that is made again when it breaks.
pub(crate) trait Transport: fmt::Debug + Send + Sync {
    /// Sends the calls in this order, in one write where possible.
    ///
    /// Does not wait for the network. Every call is answered exactly once, from any
    /// thread, possibly before this returns.
    fn send(&self, calls: Vec<Call>);

    /// Forgets the watch `id` on `path`, at the server too where possible.
    fn unwatch(&self, path: &str, id: WatchId);

    /// What this transport and the server behind it can do.
    fn capabilities(&self) -> Capabilities;

    /// Blocks the calling thread until it is `awake`, for which it is unparked, or until the
    /// deadline; may return earlier. The thread may do the transport's work meanwhile.
    fn rest(&self, _awake: &dyn Fn() -> bool, until: Option<Instant>) {
        mailbox_sender::park(until);
    }

    /// Announces that the calling thread is about to wait for an answer without `rest`.
    fn attend(&self) {}

    /// What it takes to use the session, if there is one and the transport tells.
    fn key(&self) -> Option<SessionKey> {
        None
    }

    /// Ends the session; waits for it at most `limit`.
    ///
    /// Every open call and every later one is answered with [`Failure::Closed`].
    fn close(&self, limit: Duration);

    /// As `close`, but does not wait: the transport's threads do what is left.
    fn leave(&self) {
        self.close(Duration::ZERO);
    }
}

/// No node has this version: a write that names it fails, whoever made a node of the name.
pub(crate) const NO_VERSION: i32 = i32::MIN;

/// What a transport can do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capabilities {
    /// `Request::Multi` works.
    pub(crate) multi: bool,
    /// `Request::Sync` waits for all that the session has asked for, and is a refused write.
    pub(crate) sync: bool,
    /// After a break the same session may go on, and the transport says whether it does.
    pub(crate) resumes: bool,
}

impl Capabilities {
    /// The request behind whose answer a read in `dir` is up to date: a write that is refused.
    ///
    /// A refusal comes through the quorum, too. ZooKeeper's own sync is answered by a leader that
    /// has been deposed and does not know it.
    pub(crate) fn sync(self, dir: &str) -> Request {
        match self.sync {
            true => Request::Sync {
                path: dir.to_owned(),
            },
            false => Request::Delete {
                path: format!("{dir}/_sync"),
                version: NO_VERSION,
            },
        }
    }
}
