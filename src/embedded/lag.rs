//! A follower that lags behind its leader.
//!
//! Whoever is connected to it sees one and the same older state, whatever he reads, and
//! is told nothing of what comes after. When the follower catches up, it goes through
//! what it has missed in the order in which it happened, and tells of each change then.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::change::Change;
use super::node::Node;
use super::path;
use super::state::State;
use super::tree::Tree;
use super::watches::{Notice, Watcher, Watches};
use crate::jute::{CreateMode, Op};

/// How long a follower lags at most: its clients could wait for ever for what happened.
const LIMIT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Lag {
    /// Everything up to `zxid`.
    pub(super) tree: Tree,
    pub(super) zxid: i64,
    /// Of the clients of this follower.
    pub(super) watches: Watches,
    pub(super) ends: Instant,
    /// Who lists this one, which is not up to date, is the last to be shown it.
    pub(super) directory: String,
    pub(super) listed: bool,
    clients: BTreeSet<Watcher>,
    missed: Vec<Change>,
}

impl Lag {
    /// The follower stands still from here on.
    pub(super) fn new(
        tree: Tree,
        zxid: i64,
        directory: &str,
        clients: BTreeSet<Watcher>,
        watches: Watches,
    ) -> Self {
        Self {
            tree,
            zxid,
            watches,
            ends: Instant::now() + LIMIT,
            directory: directory.to_owned(),
            listed: false,
            clients,
            missed: Vec::new(),
        }
    }

    pub(super) fn has(&self, client: Watcher) -> bool {
        self.clients.contains(&client)
    }

    /// Takes a client in who has seen nothing that this follower has not, if so.
    pub(super) fn admit(&mut self, client: Watcher, seen: i64) {
        if seen <= self.zxid {
            self.clients.insert(client);
        }
    }

    pub(super) fn forget(&mut self, client: Watcher) {
        self.clients.remove(&client);
        self.watches.forget(client);
    }

    pub(super) fn miss(&mut self, change: &Change) {
        self.missed.push(change.clone());
    }

    /// Who is to be told what in the end, and the watches that are left.
    pub(super) fn catch_up(mut self) -> (Vec<Notice>, Watches) {
        let fire = |change| self.watches.fire(change);
        let notices = self.missed.iter().flat_map(fire).collect();
        (notices, self.watches)
    }
}

impl State {
    /// The tree as this client is to see it.
    pub(super) fn tree_of(&self, client: Watcher) -> &Tree {
        self.lag_of(client).map_or(&self.tree, |lag| &lag.tree)
    }

    /// Up to which change this client is told the truth.
    pub(super) fn zxid_of(&self, client: Watcher) -> i64 {
        self.lag_of(client).map_or(self.zxid, |lag| lag.zxid)
    }

    /// Where this client's watches are.
    pub(super) fn watches_of(&mut self, client: Watcher) -> &mut Watches {
        match &mut self.lag {
            Some(lag) if lag.has(client) => &mut lag.watches,
            _ => &mut self.watches,
        }
    }

    /// Takes note of a listing: of the directory that is out of date, it is the last.
    pub(super) fn note_listing(&mut self, directory: &str, client: Watcher) {
        if let Some(lag) = &mut self.lag
            && lag.has(client)
            && lag.directory == directory
        {
            lag.listed = true;
        }
    }

    /// What a follower stays at, if it is to lag from these operations on.
    pub(super) fn before_lag(&self, ops: &[Op]) -> Option<Tree> {
        let is_ephemeral = |op: &Op| {
            let modes = [CreateMode::Ephemeral, CreateMode::EphemeralSequential];
            matches!(op, Op::Create { mode, .. } if modes.contains(mode))
        };
        (self.faults.hides_next() && ops.iter().any(is_ephemeral)).then(|| self.tree.clone())
    }

    /// Has everybody but the author of the changes be with a follower that lags.
    pub(super) fn begin_lag(&mut self, before: Option<Tree>, changes: &[Change], author: Watcher) {
        let created = changes.iter().find_map(|change| match change {
            Change::Created { path, .. } => {
                let is_ephemeral = self.tree.node(path).is_ok_and(Node::is_ephemeral);
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
        let watches = self.watches.split(&others);
        self.lag = Some(Lag::new(before, self.zxid - 1, directory, others, watches));
    }

    /// Has the follower catch up if it is this client's: what he changes comes after all
    /// that it has missed.
    pub(super) fn catch_up_with(&mut self, client: Watcher) {
        if self.lag_of(client).is_some() {
            self.catch_up();
        }
    }

    /// Tells the follower's clients what they have missed.
    pub(super) fn catch_up(&mut self) {
        let Some(lag) = self.lag.take() else {
            return;
        };
        let (notices, watches) = lag.catch_up();
        self.watches.merge(watches);
        notices.into_iter().for_each(|notice| self.tell(notice));
    }

    fn lag_of(&self, client: Watcher) -> Option<&Lag> {
        self.lag.as_ref().filter(|lag| lag.has(client))
    }
}
