//! What is on its way, and what is watched.

use alloc::string::String;

use crate::validity::Stamp;

/// What an answer is the answer to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Step {
    Create(Stamp),
    Parent,
    /// Of the requests after whose answers a listing is up to date.
    Sync,
    List,
    /// A listing that leaves a watch on the directory. Says whether our own node is there.
    Crowd(bool),
    /// Our own node; leaves a watch.
    Own,
    /// The nearest node ahead; leaves a watch.
    Nearest,
    /// The one beyond it; leaves a watch.
    Beyond,
    /// A watch on the directory, as the nearest node may not be read.
    Around,
    Birth,
    /// A proof that counts, or does not.
    Proof(Stamp, bool),
    /// Our own node, which is gone: whether the session is.
    Evicted,
    /// Our own node, which shows the servers' time.
    Clock,
    /// A hold ahead.
    Hold,
    /// Of a hold that is over.
    Removal,
    /// A look at the semaphore that has directories here.
    Semaphore,
    /// About the one that has held for too long.
    Head,
}

/// The nodes that are watched.
#[derive(Debug, Default)]
pub(super) struct Watches {
    pub(super) own: bool,
    pub(super) nearest: Option<String>,
    pub(super) beyond: Option<String>,
    /// The one beyond was there when its watch was set.
    pub(super) is_seen: bool,
    /// The directory.
    pub(super) around: bool,
}
