//! How faults take effect.

use std::time::Duration;

use super::fault::Fault;
use super::history::SessionEnd;
use super::message::{Ask, Deed};
use super::server::Role;
use super::state::Ensemble;
use zklock_embedded::parts::{Faults, Identity, ServerView, Write};
use zklock_jute::Request;

/// What Curator writes into the node of a holder that is to release its lock.
const REVOKE: &[u8] = b"__REVOKE__";

impl Ensemble {
    /// Causes a fault, or ends it.
    ///
    /// # Panics
    ///
    /// Panics if there is no server of that number.
    pub fn fault(&mut self, now: Duration, fault: Fault) {
        self.run_until(now);
        match fault {
            Fault::Cut { server } => self.servers[server].is_cut = true,
            Fault::Heal { server } => self.heal(server),
            Fault::Lag { server, by } => self.servers[server].lag = by,
            Fault::CatchUp { server } => self.catch_up(server),
            Fault::Crash { server } => {
                self.leave(server);
                self.servers[server].change_role(Role::Down);
                self.servers[server].paused_until = Duration::ZERO;
            }
            Fault::Restart { server } => self.restart(server),
            Fault::Pause { server, time } => {
                let until = self.now.saturating_add(time);
                let node = &mut self.servers[server];
                node.paused_until = node.paused_until.max(until);
            }
            Fault::ChangeLeader { to } => {
                self.favourite = Some(to);
                if let Some(leader) = self.leader() {
                    self.resign(leader);
                }
            }
            Fault::SetClock { server, by } => {
                let by_ms = u64::try_from(by.as_millis()).unwrap_or(0);
                self.servers[server].set_forward_ms += by_ms;
            }
            Fault::Ghost { server, path } => {
                self.servers[server].ghosts.insert(path);
            }
            Fault::Rebuild { server } => {
                self.leave(server);
                self.servers[server].change_role(Role::Down);
                self.rebuild(server);
                self.restart(server);
            }
            Fault::LoseNextReply { kind } => self.faults.drop_next_reply(kind),
            Fault::Refuse { server, on } => self.servers[server].refuses = on,
            Fault::Disconnect { server } => self.disconnect(server),
            Fault::LatePings { by } => self.late_pings = by,
            Fault::Calm => self.calm(),
            Fault::Expire { .. } | Fault::Evict { .. } | Fault::Revoke { .. } => {
                self.interfere(fault);
            }
        }
    }

    fn heal(&mut self, server: usize) {
        self.servers[server].is_cut = false;
        self.release_later(server);
    }

    fn restart(&mut self, server: usize) {
        if matches!(self.servers[server].role, Role::Down) {
            self.seek(server);
        }
    }

    /// Has a server apply its log from the beginning.
    pub(super) fn rebuild(&mut self, server: usize) {
        let (config, node) = (self.config.of_server(), &mut self.servers[server]);
        node.ghosts.clear();
        node.sessions.clear();
        node.view = ServerView::new(0, config.counters);
        node.applied = 0;
        let committed = node.committed;
        self.apply_up_to(server, committed);
        self.record_losses(server);
    }

    fn calm(&mut self) {
        self.faults = Faults::default();
        self.late_pings = Duration::ZERO;
        for server in 0..self.servers.len() {
            self.servers[server].refuses = false;
            self.heal(server);
            self.restart(server);
            self.catch_up(server);
        }
    }

    fn catch_up(&mut self, server: usize) {
        let now = self.now;
        let node = &mut self.servers[server];
        node.lag = Duration::ZERO;
        node.steps.iter_mut().for_each(|(due, _)| *due = now);
        self.apply_due(server);
    }

    fn disconnect(&mut self, server: Option<usize>) {
        match server {
            Some(server) => self.disconnect_server(server),
            None => (0..self.servers.len()).for_each(|server| self.disconnect_server(server)),
        }
    }

    /// Has the leader do what an administrator asks for.
    fn interfere(&mut self, fault: Fault) {
        let Some(leader) = self.leader() else {
            return;
        };
        let op = match fault {
            Fault::Expire { session } => {
                return self.end_session(leader, session, SessionEnd::ByHand);
            }
            Fault::Evict { path } => Request::Delete { path, version: -1 },
            Fault::Revoke { path } => Request::SetData {
                path,
                data: REVOKE.to_vec().into(),
                version: -1,
            },
            _ => return,
        };
        let ask = Ask {
            origin: None,
            session: 0,
            who: vec![Identity::administrator()],
            deed: Deed::Write(Write::One(op)),
        };
        self.propose(leader, leader, ask);
    }
}
