//! How servers find a leader, and lose it.
//!
//! The votes themselves are not simulated. Servers that look for a leader and can reach each
//! other follow one that leads already, or elect the one whose log goes furthest.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::history::{Change, What};
use super::message::{Message, Towards};
use super::server::{Following, Leading, Member, Role};
use super::state::{Ensemble, Event};
use super::tracker::SessionTracker;

impl Ensemble {
    /// Elects the first leader, with everything in order at once.
    pub(super) fn begin(&mut self) {
        self.favourite = Some(self.chance.usize(..self.servers.len()));
        self.elect((0..self.servers.len()).collect());
        for server in &mut self.servers {
            if let Some(following) = server.following() {
                following.is_serving = true;
            }
        }
    }

    /// Has a server look for a leader.
    pub(super) fn seek(&mut self, server: usize) {
        self.servers[server].change_role(Role::Looking);
        self.look_later(server);
    }

    fn look_later(&mut self, server: usize) {
        let time = self.draw(self.config.election.clone());
        self.plan(server, time, |server, life| Event::Look { server, life });
    }

    pub(super) fn look(&mut self, server: usize) {
        if self.servers[server].is_cut && 1 < self.config.servers {
            return self.look_later(server);
        }
        if let Some(leader) = self.leader() {
            return self.follow(server, leader);
        }
        let may_vote = |other: &usize| {
            let node = &self.servers[*other];
            let is_reached = *other == server || !node.is_cut;
            is_reached && node.is_looking() && !self.is_paused(*other)
        };
        let voters: Vec<_> = (0..self.servers.len()).filter(may_vote).collect();
        if voters.len() < self.config.quorum() {
            return self.look_later(server);
        }
        self.elect(voters);
    }

    /// Whether the server leads, and others can reach it and would follow it.
    pub(super) fn may_lead(&self, server: usize) -> bool {
        let node = &self.servers[server];
        let is_latest = match &node.role {
            // A leader of an earlier epoch does not know yet that another was elected.
            Role::Leading(leading) => leading.zxid >> 32 == self.epoch,
            _ => false,
        };
        let is_alone = self.config.servers == 1;
        is_latest && (is_alone || !node.is_cut) && !self.is_paused(server)
    }

    fn elect(&mut self, voters: Vec<usize>) {
        let favourite = self.favourite.take();
        let rank = |server: &&usize| {
            let server = **server;
            let node = &self.servers[server];
            let is_favourite = Some(server) == favourite;
            (node.epoch, node.last_logged(), is_favourite, server)
        };
        let Some(winner) = voters.iter().max_by_key(rank).copied() else {
            return;
        };
        self.epoch += 1;
        self.lead(winner);
        for voter in voters {
            if voter != winner {
                self.follow(voter, winner);
            }
        }
    }

    fn lead(&mut self, winner: usize) {
        let zxid = self.epoch << 32;
        let tick_ms = self.settings.timeouts().tick_ms;
        let phase_ms = self.chance.u64(0..tick_ms.max(1));
        if !self.servers[winner].ghosts.is_empty() {
            self.rebuild(winner);
        }
        // Everything in its log counts, whether a quorum had it or not.
        self.apply_up_to(winner, self.servers[winner].log.len());
        let now_ms = self.clock_ms(winner) + phase_ms;
        let node = &mut self.servers[winner];
        node.view.zxid = zxid;
        node.epoch = self.epoch;
        let mut tracker = SessionTracker::new(self.settings.timeouts(), &node.sessions, now_ms);
        for (session, at_ms) in &node.renewed {
            if let Some(timeout_ms) = node.sessions.get(session) {
                tracker.touch(*session, *timeout_ms, at_ms + phase_ms);
            }
        }
        node.change_role(Role::Leading(Leading {
            zxid,
            tracker,
            members: BTreeMap::new(),
            syncs: Vec::new(),
            phase_ms,
            rounds: 0,
        }));
        self.number_sessions(winner);
        let what = What::LeaderElected { server: winner };
        let at = self.now;
        self.history.push(Change { at, zxid, what });
        self.plan_tick(winner);
        // At first, the time until the first ping is anything up to half a tick.
        let round = self.draw(Duration::ZERO..=self.config.tick / 2);
        self.plan(winner, round, |server, life| Event::Round { server, life });
        let check = self.config.container_check;
        self.plan(winner, check, |server, life| Event::CheckContainers {
            server,
            life,
        });
    }

    /// Brings a server to the state of its leader, and connects the two.
    fn follow(&mut self, server: usize, leader: usize) {
        self.copy_log(server, leader);
        let link = self.connect_servers(leader, server);
        let node = &mut self.servers[server];
        let acked = node.log.len();
        node.change_role(Role::Following(Following {
            link,
            is_serving: false,
            heard: self.now,
        }));
        self.number_sessions(server);
        let member = Member {
            link,
            acked,
            heard: self.now,
            pinged: self.now,
        };
        let leading = self.servers[leader].leading();
        let former = leading.and_then(|leading| leading.members.insert(server, member));
        if let Some(former) = former {
            self.links.remove(&former.link);
        }
        self.send(link, Towards::Follower, Message::UpToDate);
        // Its log may complete a quorum for what was not committed before.
        self.commit(leader);
        let patience = self.config.patience();
        self.plan(server, patience, |server, life| Event::Limit {
            server,
            life,
        });
    }

    fn copy_log(&mut self, server: usize, leader: usize) {
        let node = &self.servers[leader];
        let (log, committed) = (node.log.clone(), node.committed);
        let node = &mut self.servers[server];
        // What it has applied is committed, so the leader has it, too.
        let differs = |place: &usize| {
            let pair = node.log.get(*place).zip(log.get(*place));
            pair.is_none_or(|(own, other)| !Arc::ptr_eq(own, other))
        };
        let common = (node.applied..).find(differs).unwrap_or(node.applied);
        node.log.truncate(common);
        node.log
            .extend_from_slice(log.get(common..).unwrap_or_default());
        self.apply_up_to(server, committed);
        let node = &mut self.servers[server];
        let last = committed.checked_sub(1).and_then(|last| log.get(last));
        node.view.zxid = last.map_or(0, |last| last.zxid);
        node.epoch = self.epoch;
    }

    /// Puts the numbers of a server's new sessions above those of all earlier ones.
    fn number_sessions(&mut self, server: usize) {
        let number = i64::try_from(server + 1).unwrap_or(0) << 56;
        // The time takes seven bytes, as in ZooKeeper.
        let time = (self.epoch_ms() as u64) << 24 >> 8;
        let first = number | time as i64;
        let node = &mut self.servers[server];
        node.latest_session = node.latest_session.max(first);
    }
}

// How a leader is lost.
impl Ensemble {
    /// Has a follower resign if its patience has ended, or looks again when it would end.
    pub(super) fn lose_leader(&mut self, server: usize) {
        let Some(following) = self.servers[server].following() else {
            return;
        };
        let end = following.heard + self.config.patience();
        if end <= self.now {
            return self.resign(server);
        }
        let rest = end - self.now;
        self.plan(server, rest, |server, life| Event::Limit { server, life });
    }

    /// Ends the service of a server, which then looks for a leader.
    pub(super) fn resign(&mut self, server: usize) {
        self.leave(server);
        self.seek(server);
    }

    /// Ends the connections of a server, to its clients and to the other servers.
    pub(super) fn leave(&mut self, server: usize) {
        self.disconnect_server(server);
        match &self.servers[server].role {
            Role::Down | Role::Looking => {}
            Role::Following(following) => {
                let link = following.link;
                self.send(link, Towards::Leader, Message::Reset);
            }
            Role::Leading(leading) => {
                let links: Vec<_> = leading.members.values().map(|each| each.link).collect();
                for link in links {
                    self.send(link, Towards::Follower, Message::Reset);
                }
            }
        }
    }

    pub(super) fn disconnect_server(&mut self, server: usize) {
        let here = self.connections.iter();
        let here = here.filter(|(_, connection)| connection.server == server);
        let here: Vec<_> = here.map(|(number, _)| *number).collect();
        here.into_iter().for_each(|number| self.close(number));
    }
}
