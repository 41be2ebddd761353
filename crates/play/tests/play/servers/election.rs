//! How servers find a leader, and lose it. Their votes are not played.

use std::rc::Rc;
use std::time::Duration;

use super::{Leading, Member, Message, QUORUM, Role, SERVERS, Time, Tracked};
use crate::world::{Happening, World};

impl World {
    /// Elects the first leader, with all servers ready at once.
    pub(crate) fn begin_servers(&mut self) {
        let first = self.chance.usize(..SERVERS);
        self.elect(first, &[0, 1, 2]);
        for server in &mut self.servers {
            if let Role::Following { serves, .. } = &mut server.role {
                *serves = true;
            }
        }
    }

    fn look_later(&mut self, server: usize) {
        let life = self.servers[server].life;
        let time = Duration::from_millis(self.chance.u64(200..1000));
        self.plan(self.now + time, Happening::Look { server, life });
    }

    pub(crate) fn look(&mut self, server: usize) {
        if self.servers[server].is_cut || self.servers[server].is_down {
            return self.look_later(server);
        }
        if let Some(leader) = self.leader() {
            return self.follow(server, leader);
        }
        let may_vote = |other: &usize| {
            let node = &self.servers[*other];
            let is_looking = matches!(node.role, Role::Looking);
            !node.is_cut && !node.is_down && is_looking && node.frozen_until <= self.now
        };
        let voters: Vec<_> = (0..SERVERS).filter(may_vote).collect();
        if voters.len() < QUORUM {
            return self.look_later(server);
        }
        let rank = |server: &&usize| {
            let node = &self.servers[**server];
            (
                node.epoch,
                node.log.last().map_or(0, |last| last.zxid),
                **server,
            )
        };
        if let Some(winner) = voters.iter().max_by_key(rank).copied() {
            self.elect(winner, &voters);
        }
    }

    fn elect(&mut self, winner: usize, voters: &[usize]) {
        self.epoch += 1;
        self.tell_story(|| format!("server {winner} leads"));
        let tick = self.plan.tick;
        let phase = Duration::from_nanos(self.chance.u64(0..tick.as_nanos() as u64));
        // All of its log counts, whether a quorum had it or not.
        let length = self.servers[winner].log.len();
        self.apply_up_to(winner, length);
        let epoch = self.epoch;
        let node = &mut self.servers[winner];
        node.zxid = node.zxid.max(epoch << 32);
        node.epoch = epoch;
        let known: Vec<_> = node
            .sessions
            .iter()
            .map(|(id, timeout)| (*id, *timeout))
            .collect();
        node.change_role(Role::Leading(Leading {
            zxid: epoch << 32,
            phase,
            ..Leading::default()
        }));
        for (session, timeout) in known {
            if let Some(leading) = self.servers[winner].leading() {
                let tracked = Tracked {
                    ends: Time::MAX,
                    owner: None,
                    is_due: false,
                    is_closing: false,
                };
                leading.sessions.insert(session, tracked);
            }
            self.touched(winner, session, timeout);
        }
        let life = self.servers[winner].life;
        self.plan_expiry(winner);
        let round = Duration::from_nanos(self.chance.u64(0..tick.as_nanos() as u64 / 2));
        let server = winner;
        self.plan(self.now + round, Happening::Round { server, life });
        for voter in voters {
            if *voter != winner {
                self.follow(*voter, winner);
            }
        }
    }

    /// Brings a server to the state of its leader, and connects the two.
    fn follow(&mut self, server: usize, leader: usize) {
        let (log, committed) = {
            let node = &self.servers[leader];
            (node.log.clone(), node.committed)
        };
        let node = &mut self.servers[server];
        // The changes that it has applied are committed, so the leader has them, too.
        let same = |at: &usize| {
            let pair = node.log.get(*at).zip(log.get(*at));
            pair.is_some_and(|(own, other)| Rc::ptr_eq(own, other))
        };
        let common = (node.applied..)
            .find(|at| !same(at))
            .unwrap_or(node.applied);
        node.log.truncate(common);
        node.log.extend_from_slice(&log[common.min(log.len())..]);
        node.epoch = self.epoch;
        self.apply_up_to(server, committed);
        let node = &mut self.servers[server];
        node.change_role(Role::Following {
            leader,
            heard: self.now,
            serves: false,
        });
        let (acked, life, now) = (node.log.len(), node.life, self.now);
        if let Some(leading) = self.servers[leader].leading() {
            leading.members[server] = Some(Member { acked, heard: now });
        }
        self.send(leader, server, Message::UpToDate);
        // Its log may complete a quorum for changes that were not committed before.
        self.commit(leader);
        let patience = self.plan.patience();
        self.plan(now + patience, Happening::Limit { server, life });
    }

    fn apply_up_to(&mut self, server: usize, length: usize) {
        let node = &mut self.servers[server];
        node.committed = node.committed.max(length);
        while self.servers[server].applied < length {
            self.apply_next(server);
        }
    }

    /// Lets a follower resign if its leader has been silent for too long.
    pub(crate) fn lose_leader(&mut self, server: usize, life: u32) {
        let Role::Following { heard, .. } = self.servers[server].role else {
            return;
        };
        let end = heard + self.plan.patience();
        match end <= self.now {
            true => self.resign(server),
            false => self.plan(end, Happening::Limit { server, life }),
        }
    }

    /// Ends the service of a server, which then looks for a leader.
    pub(crate) fn resign(&mut self, server: usize) {
        self.tell_story(|| format!("server {server} has no leader"));
        self.disconnect_clients(server);
        match &self.servers[server].role {
            Role::Looking => {}
            Role::Following { leader, .. } => {
                let leader = *leader;
                self.send(server, leader, Message::Reset);
            }
            Role::Leading(leading) => {
                for member in leading.followers() {
                    self.send(server, member, Message::Reset);
                }
            }
        }
        self.servers[server].change_role(Role::Looking);
        self.look_later(server);
    }

    pub(crate) fn disconnect_clients(&mut self, server: usize) {
        self.close_all(|_, conn| conn.server == server);
    }
}
