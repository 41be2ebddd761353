//! The troubles of a run, and how they end.

use std::time::Duration;

use zklock_jute::Request;

use crate::permits::{LINES, SEATS};
use crate::plan::{Trouble, What};
use crate::servers::{Role, SERVERS, Time};
use crate::world::{Happening, PATHS, World};

impl World {
    pub(crate) fn trouble(&mut self, trouble: usize) {
        let Trouble { what, time, .. } = self.plan.troubles[trouble];
        let until = self.now + time;
        self.tell_story(|| format!("TROUBLE: {what:?} for {time:?}"));
        if let What::Freeze { server } | What::Cut { server } = what {
            let node = &mut self.servers[server];
            node.silent_since = (self.now, node.life);
        }
        match what {
            What::Break { client, arrives } => self.breaks(client, arrives),
            What::LoseReply { client } => self.clients[client].loses_a_reply = true,
            What::Delay { client } => later(&mut self.clients[client].delayed_until, until),
            What::Stop { client } => later(&mut self.clients[client].stopped_until, until),
            What::LateTicks { client } => {
                let (last, late) = &mut self.clients[client].late_ticks;
                later(last, until);
                later(late, time);
            }
            What::Evict { client } => self.evict(client),
            What::Freeze { server } => later(&mut self.servers[server].frozen_until, until),
            What::Cut { server } => self.servers[server].is_cut = true,
            What::Lag { server } => self.servers[server].lag = time / 2,
            What::Crash { server } => {
                if !matches!(self.servers[server].role, Role::Looking) {
                    self.resign(server);
                }
                self.servers[server].is_down = true;
            }
            What::Revoke => self.revoke(),
            What::Write { path } => self.writes_elsewhere(PATHS[path].into(), b"127.0.0.1"),
            What::Throttle { client } => later(&mut self.clients[client].throttled_until, until),
            What::Unheard { client } => {
                let (_, lasts) = self.plan.granted();
                self.clients[client].unheard_until = Some(until + lasts);
                self.breaks(client, true);
            }
            What::Tidy { path } => {
                let of_it = [LINES[path], SEATS[path]];
                let below = of_it.into_iter().filter(|_| self.plan.has_permits());
                for dir in below.chain([PATHS[path]]).collect::<Vec<_>>() {
                    self.tells_servers(Request::delete(dir.into()));
                }
            }
            What::SlowDisks { takes } => self.disk = takes,
            What::Vanish { client } => self.vanish(client),
            What::Close { client } => self.closes(client),
            What::Resign => {
                if let Some(leader) = self.leader() {
                    self.resign(leader);
                }
            }
        }
        self.plan(until, Happening::Over(what));
    }

    pub(crate) fn trouble_ends(&mut self, what: What) {
        if let What::Freeze { server } | What::Cut { server } = what {
            self.goes_on(server);
        }
        match what {
            What::Cut { server } => {
                self.servers[server].is_cut = false;
                for other in 0..SERVERS {
                    let (from, to) = (server, other);
                    self.plan(self.now + self.plan.hop, Happening::Peer { from, to });
                    let (from, to) = (other, server);
                    self.plan(self.now + self.plan.hop, Happening::Peer { from, to });
                }
            }
            What::Lag { server } => self.servers[server].lag = Duration::ZERO,
            What::Crash { server } => self.servers[server].is_down = false,
            What::SlowDisks { .. } => self.disk = Duration::ZERO,
            _ => {}
        }
    }

    /// Notes that a server is heard again. Its reports about sessions come late.
    fn goes_on(&mut self, server: usize) {
        let (shortest, _) = self.plan.granted();
        let node = &mut self.servers[server];
        let (since, life) = node.silent_since;
        if node.life == life && since + shortest / 10 < self.now {
            node.was_late = self.now;
        }
    }

    pub(crate) fn calm(&mut self) {
        self.is_calm = true;
        self.calm_at = self.now;
        for client in &mut self.clients {
            client.loses_a_reply = false;
            client.throttled_until = client.throttled_until.min(self.now);
        }
        self.tell_story(|| "all troubles are over".into());
    }

    fn evict(&mut self, client: usize) {
        let (session, _) = self.clients[client].core.session();
        if self.leader().is_none() {
            return;
        }
        let lives = self.lives.iter();
        let nodes = lives.filter(|life| life.owner == session && life.to.is_none());
        let nodes: Vec<_> = nodes.map(|life| life.path.to_string()).collect();
        let Some(node) = self.chance.choice(nodes) else {
            return;
        };
        self.clients[client].was_evicted = true;
        self.evicted.push(node.clone());
        self.tells_servers(Request::delete(node));
    }

    fn revoke(&mut self) {
        if self.leader().is_none() {
            return;
        }
        let lives = self.lives.iter();
        let nodes = lives.filter(|life| life.owner != 0 && life.to.is_none());
        let nodes: Vec<_> = nodes.map(|life| life.path.to_string()).collect();
        let Some(path) = self.chance.choice(nodes) else {
            return;
        };
        self.writes_elsewhere(path, b"__REVOKE__");
    }
}

fn later(until: &mut Time, other: Time) {
    *until = other.max(*until);
}
