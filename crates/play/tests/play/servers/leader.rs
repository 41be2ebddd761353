//! The work of a leader, which orders changes, commits those that a quorum has logged, and ends
//! sessions.

use std::cell::OnceCell;
use std::rc::Rc;

use super::{
    Ask, Deed, Member, Message, QUORUM, Role, SERVERS, Step, Time, Tracked, Transaction, pop_if,
};
use crate::world::{Happening, World};

impl World {
    /// Handles a message of another server.
    pub(crate) fn at_peer(&mut self, from: usize, to: usize, message: Message) {
        match &self.servers[to].role {
            Role::Leading(leading) if leading.members[from].is_some() => {
                self.at_leader(to, from, message);
            }
            Role::Following { leader, .. } if *leader == from => self.at_follower(to, message),
            _ => {}
        }
    }

    fn at_leader(&mut self, leader: usize, from: usize, message: Message) {
        let now = self.now;
        let length = self.servers[leader].log.len();
        let Some(leading) = self.servers[leader].leading() else {
            return;
        };
        if let Some(member) = &mut leading.members[from] {
            member.heard = now;
        }
        match message {
            Message::Ask(ask) => self.propose(leader, from, ask),
            Message::Ack(length) => {
                if let Some(member) = &mut leading.members[from] {
                    member.acked = member.acked.max(length);
                }
                self.commit(leader);
            }
            Message::Pong(sessions) => {
                for (session, timeout) in sessions {
                    self.touched(leader, session, timeout);
                }
            }
            Message::Revalidate {
                session,
                timeout,
                conn,
            } => {
                let valid = self.take_over(leader, from, session, timeout);
                self.send(leader, from, Message::Revalidated { conn, valid });
            }
            Message::Sync(conn) => {
                leading.syncs.push_back((length, from, conn));
                self.answer_syncs(leader);
            }
            Message::Reset => {
                leading.members[from] = None;
            }
            _ => {}
        }
    }

    /// Writes so many changes to the disk of a follower. A write waits for the one before.
    fn log(&mut self, server: usize, life: u32, length: usize) {
        if self.disk.is_zero() {
            return self.acknowledge(server, length);
        }
        let written = self.now + self.disk * self.chance.u32(100..200) / 100;
        let logged = Happening::Logged {
            server,
            life,
            length,
        };
        self.plan(written, logged);
    }

    /// Tells the leader that a follower has written so many changes to its disk.
    pub(crate) fn acknowledge(&mut self, server: usize, length: usize) {
        if let Role::Following { leader, .. } = self.servers[server].role {
            self.send(server, leader, Message::Ack(length));
        }
    }

    fn at_follower(&mut self, server: usize, message: Message) {
        let now = self.now;
        let node = &mut self.servers[server];
        let Role::Following {
            leader,
            heard,
            serves,
        } = &mut node.role
        else {
            return;
        };
        *heard = now;
        let leader = *leader;
        match message {
            Message::Propose(transaction) => {
                node.log.push(transaction);
                let (length, life) = (node.log.len(), node.life);
                self.log(server, life, length);
            }
            Message::Commit(length) => {
                while self.servers[server].committed < length {
                    self.servers[server].committed += 1;
                    self.plan_step(server, Step::Apply);
                }
            }
            Message::Ping => {
                let touched = std::mem::take(&mut node.touched);
                self.send(server, leader, Message::Pong(touched));
            }
            Message::Revalidated { conn, valid } => self.finish_handshake(conn, valid),
            Message::Synced(conn) => self.plan_step(server, Step::Synced(conn)),
            Message::UpToDate => *serves = true,
            Message::Reset => self.resign(server),
            _ => {}
        }
    }

    /// Lets a session move to a server, which touches it. Returns whether it is alive.
    pub(crate) fn take_over(
        &mut self,
        leader: usize,
        server: usize,
        session: i64,
        timeout: Time,
    ) -> bool {
        let Some(leading) = self.servers[leader].leading() else {
            return false;
        };
        let Some(tracked) = leading
            .sessions
            .get_mut(&session)
            .filter(|it| !it.is_closing)
        else {
            return false;
        };
        tracked.owner = Some(server);
        self.touched(leader, session, timeout);
        true
    }

    /// Lets a session last for its timeout from now, rounded up to a tick.
    pub(crate) fn touched(&mut self, leader: usize, session: i64, timeout: Time) {
        let (tick, now) = (self.plan.tick, self.now);
        let Some(leading) = self.servers[leader].leading() else {
            return;
        };
        let ends = end(now + leading.phase, timeout, tick) - leading.phase;
        if let Some(tracked) = leading
            .sessions
            .get_mut(&session)
            .filter(|it| !it.is_closing)
        {
            tracked.ends = ends;
        }
    }

    /// Appends a server's request to the log.
    pub(crate) fn propose(&mut self, leader: usize, asker: usize, mut ask: Ask) {
        let (tick, now) = (self.plan.tick, self.now);
        let Some(leading) = self.servers[leader].leading() else {
            return;
        };
        let known = leading.sessions.get_mut(&ask.session);
        match &ask.deed {
            Deed::Begin { timeout } => {
                let tracked = Tracked {
                    ends: end(now + leading.phase, *timeout, tick) - leading.phase,
                    owner: Some(asker),
                    is_due: false,
                    is_closing: false,
                };
                leading.sessions.insert(ask.session, tracked);
            }
            Deed::Write(_) if ask.session != 0 => {
                let alive = known.filter(|tracked| !tracked.is_closing);
                let owns = alive.is_some_and(|it| *it.owner.get_or_insert(asker) == asker);
                if !owns {
                    ask.deed = Deed::Moved;
                }
            }
            Deed::End => {
                if let Some(tracked) = known {
                    tracked.is_closing = true;
                }
            }
            Deed::Write(_) | Deed::Moved => {}
        }
        leading.zxid += 1;
        let zxid = leading.zxid;
        let followers = leading.followers();
        let transaction = Rc::new(Transaction {
            zxid,
            time: self.now,
            ask,
            done: OnceCell::new(),
        });
        self.servers[leader].log.push(transaction.clone());
        for member in followers {
            self.send(leader, member, Message::Propose(transaction.clone()));
        }
        self.commit(leader);
    }

    /// Commits the changes that a quorum has logged.
    pub(crate) fn commit(&mut self, leader: usize) {
        loop {
            let node = &mut self.servers[leader];
            let (own, committed) = (node.log.len(), node.committed);
            let Some(leading) = node.leading() else {
                return;
            };
            let members = leading.members.iter().flatten();
            let acked = members.filter(|it| committed < it.acked);
            if own <= committed || 1 + acked.count() < QUORUM {
                return;
            }
            let followers = leading.followers();
            node.committed += 1;
            let length = node.committed;
            for member in followers {
                self.send(leader, member, Message::Commit(length));
            }
            self.answer_syncs(leader);
            self.plan_step(leader, Step::Apply);
        }
    }

    fn answer_syncs(&mut self, leader: usize) {
        let committed = self.servers[leader].committed;
        while let Some(leading) = self.servers[leader].leading() {
            let due = pop_if(&mut leading.syncs, |(length, ..)| *length <= committed);
            let Some((_, member, conn)) = due else {
                return;
            };
            self.send(leader, member, Message::Synced(conn));
        }
    }

    /// Pings the followers, every half tick, and makes sure that the leader has a quorum.
    pub(crate) fn round(&mut self, leader: usize, life: u32) {
        let (now, patience) = (self.now, self.plan.patience());
        let Some(leading) = self.servers[leader].leading() else {
            return;
        };
        leading.rounds += 1;
        if leading.rounds % 2 == 0 {
            let is_silent = |member: &Member| member.heard + patience < now;
            let mut silent = leading.members;
            for (member, silent) in leading.members.iter_mut().zip(&mut silent) {
                match member.as_ref().is_some_and(is_silent) {
                    true => *member = None,
                    false => *silent = None,
                }
            }
            let count = 1 + leading.followers().count();
            for member in (0..SERVERS).filter(|at| silent[*at].is_some()) {
                self.send(leader, member, Message::Reset);
            }
            if count < QUORUM {
                return self.resign(leader);
            }
        }
        let followers = self.servers[leader].leading().map(|it| it.followers());
        for member in followers.into_iter().flatten() {
            self.send(leader, member, Message::Ping);
        }
        let server = leader;
        self.plan(now + self.plan.tick / 2, Happening::Round { server, life });
    }

    /// Ends the sessions whose time is over, some of them later: there may be many others.
    pub(crate) fn expiry_tick(&mut self, server: usize, life: u32) {
        let now = self.now;
        let Some(leading) = self.servers[server].leading() else {
            return;
        };
        let mut due = Vec::new();
        for (session, tracked) in &mut leading.sessions {
            if !tracked.is_closing && !tracked.is_due && tracked.ends <= now {
                tracked.is_due = true;
                due.push(*session);
            }
        }
        for session in due {
            let later = self.plan.expiry.mul_f64(self.chance.f64());
            let expire = Happening::Expire {
                server,
                life,
                session,
            };
            self.plan(now + later, expire);
        }
        self.plan_expiry(server);
    }

    pub(crate) fn plan_expiry(&mut self, server: usize) {
        let (tick, now, life) = (self.plan.tick, self.now, self.servers[server].life);
        if let Some(leading) = self.servers[server].leading() {
            let next = end(now + leading.phase, Time::ZERO, tick) - leading.phase;
            self.plan(next, Happening::Expiry { server, life });
        }
    }

    /// Ends a session that the tick has taken out.
    pub(crate) fn expire(&mut self, leader: usize, session: i64) {
        let known = self.servers[leader].leading();
        let known = known.and_then(|leading| leading.sessions.get(&session).copied());
        if known.is_some_and(|tracked| tracked.is_due && !tracked.is_closing) {
            self.tell_story(|| format!("the leader ends session {session}"));
            if self.plan.is_quiet() {
                self.fail(format!(
                    "nothing was broken, but session {session} has ended"
                ));
            }
            let ask = Ask {
                origin: None,
                session,
                deed: Deed::End,
            };
            self.propose(leader, leader, ask);
        }
    }

    /// Returns the server that leads, and that others would follow.
    pub(crate) fn leader(&self) -> Option<usize> {
        (0..SERVERS).find(|server| {
            let node = &self.servers[*server];
            let Role::Leading(leading) = &node.role else {
                return false;
            };
            leading.zxid >> 32 == self.epoch
                && !node.is_cut
                && !node.is_down
                && node.frozen_until <= self.now
        })
    }
}

/// Returns the end of a session as `SessionTrackerImpl` rounds it: up to the next tick.
fn end(now: Time, timeout: Time, tick: Time) -> Time {
    let ticks = (now + timeout).as_nanos() / tick.as_nanos() + 1;
    tick * ticks as u32
}
