//! What a waiting thread watches, and what is to be sent when that goes.

use std::iter;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::jute::Request;
use crate::recipe::validity::Stamp;
use crate::session::caller::Reserved;
use crate::transport::CallId;
use crate::transport::status::Status;
use crate::transport::{Call, Prefetched, WatchId};

/// The watches of an attempt.
#[derive(Default)]
pub(super) struct Watched {
    /// On the nearest node, or on the directory.
    pub(super) nearest: Option<(String, WatchId)>,
    pub(super) beyond: Option<(String, WatchId)>,
    pub(super) own: Option<WatchId>,
    /// The server has said that the watch on our own node is there.
    pub(super) own_is_set: bool,
    pub(super) prefetch: Arc<Mutex<Option<Prefetch>>>,
    /// The listing that stands by to be sent in any case, or was sent and is not taken in.
    pub(super) relisting: Option<CallId>,
}

/// What is to be sent when the queue moves.
pub(super) struct Prefetch {
    pub(super) listing: Request,
    /// The queue has been looked at; to do so again is due when a proof is.
    pub(super) listed: bool,
    pub(super) proof: Vec<Request>,
    pub(super) proven: Option<Stamp>,
    pub(super) status: Arc<Status>,
    pub(super) call_ids: Reserved,
}

impl Prefetch {
    /// Makes the calls that are due; `tell` runs when they are answered.
    pub(super) fn calls(self, tell: impl FnOnce(Option<Prefetched>) + Send + 'static) -> Vec<Call> {
        let stamp = self.status.stamp();
        let proven = self.proven;
        let due = match proven.is_some_and(|proven| self.status.supports_a_grant(proven, 0)) {
            false => self.proof,
            true if self.listed => {
                tell(None);
                return Vec::new();
            }
            true => Vec::new(),
        };
        let asked = Prefetched {
            stamp,
            listing: self.call_ids.first,
            proof: due.len(),
        };
        let requests = iter::once(self.listing).chain(due).collect();
        self.call_ids.calls(requests, move || tell(Some(asked)))
    }
}
