//! A follower that lags behind its leader.
//!
//! Its clients see one older state, whatever they read, and no event of a later change.
//! When the follower catches up, it goes through the changes it has missed in their order,
//! and fires the watches on each.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::change::TreeChange;
use super::view::ServerView;
use super::watches::{ConnectionId, Notice, ServerWatches};

/// The longest lag. If it lasted forever, clients might wait forever.
const LIMIT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct LaggingFollower {
    pub(super) view: ServerView,
    pub(super) ends: Instant,
    /// The directory that is out of date.
    pub(super) directory: String,
    /// Whether a client has listed it, so that the follower catches up.
    pub(super) listed: bool,
    clients: BTreeSet<ConnectionId>,
    missed: Vec<TreeChange>,
}

impl LaggingFollower {
    pub(super) fn new(view: ServerView, directory: &str, clients: BTreeSet<ConnectionId>) -> Self {
        Self {
            view,
            ends: Instant::now() + LIMIT,
            directory: directory.to_owned(),
            listed: false,
            clients,
            missed: Vec::new(),
        }
    }

    pub(super) fn has(&self, client: ConnectionId) -> bool {
        self.clients.contains(&client)
    }

    /// Connects a client to this follower, unless it has seen a later change.
    pub(super) fn connect(&mut self, client: ConnectionId, seen: i64) {
        if seen <= self.view.zxid {
            self.clients.insert(client);
        }
    }

    pub(super) fn forget(&mut self, client: ConnectionId) {
        self.clients.remove(&client);
        self.view.watches.forget(client);
    }

    pub(super) fn miss(&mut self, change: &TreeChange) {
        self.missed.push(change.clone());
    }

    /// Returns the events of the missed changes, and the watches that are left.
    pub(super) fn catch_up(mut self) -> (Vec<Notice>, ServerWatches) {
        let fire = |change| self.view.fire(change);
        let notices = self.missed.iter().flat_map(fire).collect();
        (notices, self.view.watches)
    }
}
