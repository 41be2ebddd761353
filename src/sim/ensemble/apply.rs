//! How a server applies the log, and what it sends its clients then.
//!
//! The events of a change leave before the answer to the client that asked for it, and before
//! any later answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::connection::{ConnectionNo, Output};
use super::history::{Change, SessionEnd, What};
use super::message::{Ask, Deed, Transaction};
use super::server::{ServerNode, Step};
use super::state::{Ensemble, Event};
use zklock_embedded::parts::{Author, ChangeTime, Notice, TreeChange};
use zklock_jute::{ErrorCode, Reply};

impl Ensemble {
    /// Has a server do a step after its lag.
    pub(super) fn plan_step(&mut self, server: usize, step: Step) {
        let node = &mut self.servers[server];
        let last = node.steps.back().map_or(Duration::ZERO, |(due, _)| *due);
        let due = self.now.saturating_add(node.lag).max(last);
        node.steps.push_back((due, step));
        if due <= self.now {
            return self.apply_due(server);
        }
        let rest = due - self.now;
        self.plan(server, rest, |server, life| Event::Apply { server, life });
    }

    /// Does the steps that are due.
    pub(super) fn apply_due(&mut self, server: usize) {
        let now = self.now;
        while let Some((_, step)) = self.servers[server]
            .steps
            .pop_front_if(|(due, _)| *due <= now)
        {
            match step {
                Step::Apply => self.apply_next(server),
                Step::Sync(sync) => self.complete_sync(server, sync),
            }
        }
    }

    /// Applies a part of the log at once, whatever the lag.
    pub(super) fn apply_up_to(&mut self, server: usize, length: usize) {
        let node = &mut self.servers[server];
        node.committed = node.committed.max(length);
        while self.servers[server].applied < length {
            self.apply_next(server);
        }
    }

    fn apply_next(&mut self, server: usize) {
        let node = &mut self.servers[server];
        let Some(transaction) = node.log.get(node.applied).map(Arc::clone) else {
            return;
        };
        node.applied += 1;
        let (reply, mut changes) = self.carry_out(server, &transaction);
        let reply = transaction.outcome.get_or_init(|| reply).clone();
        self.record(server, &transaction, &changes);
        self.keep_ghosts(server, &mut changes);
        for change in &changes {
            for notice in self.servers[server].view.fire(change) {
                self.tell(notice);
            }
        }
        let Transaction { ask, .. } = &*transaction;
        self.renew(server, ask);
        if let Deed::End(_) = ask.deed {
            self.close_session(server, ask);
        }
        match ask.origin {
            Some(origin) if matches!(ask.deed, Deed::Begin { .. }) => {
                if origin.server == server {
                    self.finish_handshake(origin.connection, true);
                }
            }
            Some(origin) => self.complete(server, ask, origin.xid, reply),
            None => {}
        }
    }

    /// Changes the server's view; returns the answer and the changes.
    fn carry_out(
        &mut self,
        server: usize,
        transaction: &Transaction,
    ) -> (Result<Reply, ErrorCode>, Vec<TreeChange>) {
        let Transaction { zxid, ms, ask, .. } = transaction;
        let at = ChangeTime {
            zxid: *zxid,
            ms: *ms,
        };
        let node = &mut self.servers[server];
        node.view.zxid = *zxid;
        match &ask.deed {
            Deed::Write(_) if transaction.has_failed() => (Ok(Reply::Nothing), Vec::new()),
            Deed::Write(write) => {
                let by = Author {
                    session: ask.session,
                    who: &ask.who,
                };
                node.view.write(write.clone(), by, at)
            }
            Deed::Begin { timeout_ms } => {
                node.begin_session(ask.session, *timeout_ms);
                (Ok(Reply::Nothing), Vec::new())
            }
            Deed::Ping => (Ok(Reply::Nothing), Vec::new()),
            Deed::End(_) => {
                let changes = node.view.tree.end_session(ask.session, at);
                (Ok(Reply::Nothing), changes)
            }
            Deed::Reap { path } => {
                let change = node.view.tree.remove_over(path, at);
                (Ok(Reply::Nothing), change.ok().into_iter().collect())
            }
        }
    }

    /// Notes that a session's request is applied, which prolongs it on a Keeper.
    fn renew(&mut self, server: usize, ask: &Ask) {
        let Some(timeout_ms) = self.servers[server].sessions.get(&ask.session).copied() else {
            return;
        };
        if !self.config.keeper || ask.origin.is_none() {
            return;
        }
        let (clock_ms, leader_ms) = (self.clock_ms(server), self.leader_ms(server));
        let node = &mut self.servers[server];
        node.renewed.insert(ask.session, clock_ms);
        if let Some(leading) = node.leading() {
            leading.tracker.touch(ask.session, timeout_ms, leader_ms);
        }
    }

    /// Puts back the nodes that this server is not to delete.
    fn keep_ghosts(&mut self, server: usize, changes: &mut Vec<TreeChange>) {
        let ServerNode { ghosts, view, .. } = &mut self.servers[server];
        let is_kept = |change: &mut TreeChange| match change {
            TreeChange::Deleted { path, .. } => ghosts.contains(path),
            _ => false,
        };
        for change in changes.extract_if(.., is_kept) {
            if let TreeChange::Deleted { path, node, .. } = change {
                view.tree.insert(&path, node);
            }
        }
    }

    /// Ends the connection of a session that has ended, unless the client asked and gets an answer.
    fn close_session(&mut self, server: usize, ask: &Ask) {
        let node = &mut self.servers[server];
        node.end_session(ask.session);
        let Some(connection) = node.clients.get(&ask.session).copied() else {
            return;
        };
        if ask
            .origin
            .is_none_or(|origin| origin.connection != connection)
        {
            self.close(connection);
        }
    }

    pub(super) fn tell(&mut self, notice: Notice) {
        let watcher = notice.watcher;
        let Some(connection) = self.connections.get(&watcher) else {
            return;
        };
        if let Some(frame) = notice.frame_for(&connection.who) {
            self.put(watcher, frame);
        }
    }

    pub(super) fn put(&mut self, connection: ConnectionNo, frame: Vec<u8>) {
        self.output.push((connection, Output::Bytes(frame)));
    }
}

// The history.
impl Ensemble {
    /// Notes what was committed, once for all servers.
    fn record(&mut self, server: usize, transaction: &Transaction, changes: &[TreeChange]) {
        let node = &self.servers[server];
        if node.applied <= self.recorded {
            return;
        }
        self.recorded = node.applied;
        let (at, zxid) = (self.now, transaction.zxid);
        let (session, tree) = (transaction.ask.session, &node.view.tree);
        let of_node = |change: &TreeChange| match change {
            TreeChange::Created { path, .. } => {
                let node = tree.node(path).ok();
                let owner = node.map_or(0, |node| node.stat().ephemeral_owner);
                let stays = node.filter(|_| owner == 0);
                What::Created {
                    path: path.clone(),
                    owner,
                    data: stays.map_or(Vec::new(), |node| node.data.to_vec()),
                }
            }
            TreeChange::Deleted { path, node, .. } => What::Deleted {
                path: path.clone(),
                owner: node.stat().ephemeral_owner,
                by: session,
            },
            TreeChange::Set { path, .. } => What::Set {
                path: path.clone(),
                data: tree
                    .node(path)
                    .map_or(Vec::new(), |node| node.data.to_vec()),
            },
        };
        let mut all: Vec<_> = changes.iter().map(of_node).collect();
        all.extend(self.of_session(server, &transaction.ask));
        let changes = all.into_iter().map(|what| Change { at, zxid, what });
        self.history.extend(changes);
    }

    /// Notes the end of nodes that existed only because the leader's data were wrong: it created
    /// them in a transaction that deleted a node a second time, and that fails on right data.
    pub(super) fn record_losses(&mut self, server: usize) {
        let node = &self.servers[server];
        if node.applied < self.recorded {
            return;
        }
        let mut there = BTreeMap::new();
        for change in &self.history {
            match &change.what {
                What::Created { path, owner, .. } => drop(there.insert(path.clone(), *owner)),
                What::Deleted { path, .. } => drop(there.remove(path)),
                _ => {}
            }
        }
        there.retain(|path, _| node.view.tree.node(path).is_err());
        let (at, zxid) = (self.now, node.view.zxid);
        let lost = there.into_iter().map(|(path, owner)| Change {
            at,
            zxid,
            what: What::Deleted { path, owner, by: 0 },
        });
        self.history.extend(lost);
    }

    fn of_session(&self, server: usize, ask: &Ask) -> Option<What> {
        let session = ask.session;
        let is_known = self.servers[server].sessions.contains_key(&session);
        match ask.deed {
            Deed::Begin { timeout_ms } => Some(What::SessionBegan {
                session,
                timeout: Duration::from_millis(timeout_ms),
            }),
            Deed::End(why) => is_known.then_some(What::SessionEnded {
                session,
                why: why as SessionEnd,
            }),
            _ => None,
        }
    }
}
