//! The view of each client while a follower lags.

use super::change::TreeChange;
use super::follower::LaggingFollower;
use super::node::Node;
use super::path;
use super::state::ServerState;
use super::tree::Tree;
use super::view::ServerView;
use super::watches::ConnectionId;
use zklock_jute::{CreateMode, Request};

impl ServerState {
    /// Returns what this client sees.
    pub(super) fn view_of(&mut self, client: ConnectionId) -> &mut ServerView {
        match &mut self.lag {
            Some(lag) if lag.has(client) => &mut lag.view,
            _ => &mut self.view,
        }
    }

    /// Returns the last change that this client sees.
    pub(super) fn zxid_of(&self, client: ConnectionId) -> i64 {
        self.lag_of(client)
            .map_or(self.view.zxid, |lag| lag.view.zxid)
    }

    /// Notes that a client has listed a directory, which may be the outdated one.
    pub(super) fn note_listing(&mut self, directory: &str, client: ConnectionId) {
        if let Some(lag) = &mut self.lag {
            lag.listed |= lag.has(client) && lag.directory == directory;
        }
    }

    /// Returns the tree that a follower stays at, if it begins to lag with these operations.
    pub(super) fn before_lag(&self, ops: &[Request]) -> Option<Tree> {
        let is_ephemeral = |op: &Request| {
            let modes = [CreateMode::Ephemeral, CreateMode::EphemeralSequential];
            matches!(op, Request::Create { mode, .. } if modes.contains(mode))
        };
        (self.faults.hides_next() && ops.iter().any(is_ephemeral)).then(|| self.view.tree.clone())
    }

    /// Connects all clients but the author of the changes to a follower that lags.
    pub(super) fn begin_lag(
        &mut self,
        before: Option<Tree>,
        changes: &[TreeChange],
        author: ConnectionId,
    ) {
        let created = changes.iter().find_map(|change| match change {
            TreeChange::Created { path, .. } => {
                let is_ephemeral = self.view.tree.node(path).is_ok_and(Node::is_ephemeral);
                is_ephemeral.then(|| path::parent(path).ok()).flatten()
            }
            _ => None,
        });
        let (Some(before), Some(directory)) = (before, created) else {
            return;
        };
        self.faults.hide_none();
        self.catch_up();
        let others = self.connections.keys().copied();
        let others = others.filter(|client| *client != author).collect();
        let watches = self.view.watches.split(&others);
        let past = ServerView::of_the_past(before, self.view.zxid - 1, watches);
        self.lag = Some(LaggingFollower::new(past, directory, others));
    }

    /// Lets the follower catch up if this client is connected to it; runs before the client
    /// changes anything.
    pub(super) fn catch_up_with(&mut self, client: ConnectionId) {
        if self.lag_of(client).is_some() {
            self.catch_up();
        }
    }

    /// Ends the lag: the follower's clients get the events they have missed.
    pub(super) fn catch_up(&mut self) {
        let Some(lag) = self.lag.take() else {
            return;
        };
        let (notices, watches) = lag.catch_up();
        self.view.watches.merge(watches);
        notices.into_iter().for_each(|notice| self.tell(notice));
    }

    fn lag_of(&self, client: ConnectionId) -> Option<&LaggingFollower> {
        self.lag.as_ref().filter(|lag| lag.has(client))
    }
}
