//! What a waiting thread watches, and what it has heard of the queue.

use crate::transport::{Answered, CallId, SharedPrefetch, WatchId};

/// The watches of an attempt.
#[derive(Default)]
pub(super) struct Watched {
    /// On the nearest node, or on the directory.
    pub(super) nearest: Option<(String, WatchId)>,
    pub(super) beyond: Option<(String, WatchId)>,
    pub(super) own: Option<WatchId>,
    /// The server has confirmed the watch on our own node.
    pub(super) own_is_set: bool,
    /// What is asked for when the nearest node goes, or the one beyond it.
    pub(super) prefetch: SharedPrefetch,
    /// The number of the prefetch, if it lists the queue in any case.
    pub(super) relisting: Option<u64>,
}

/// A listing that was asked for already.
pub(super) enum Listing {
    /// In the same write as the create.
    Asked(CallId),
    /// By the prefetch of this number, which has not come yet.
    Prefetching(u64),
    Read(Answered),
}
