//! What a leader does: it orders what is asked for, commits what a quorum has logged, and
//! ends sessions.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::history::SessionEnd;
use super::message::{Ask, Deed, Link, LinkNo, Message, SyncAsk, Towards, Transaction};
use super::server::{Member, Role, Step};
use super::state::{Ensemble, Event};
use super::waiting::{Pending, Shape, Work};
use zklock_embedded::parts::Write;

impl Ensemble {
    /// Takes a message of a follower.
    pub(super) fn at_leader(&mut self, leader: usize, follower: usize, message: Message) {
        let now = self.now;
        let now_ms = self.leader_ms(leader);
        let length = self.servers[leader].log.len();
        let Some(leading) = self.servers[leader].leading() else {
            return;
        };
        let Some(member) = leading.members.get_mut(&follower) else {
            return;
        };
        member.heard = now;
        let link = member.link;
        match message {
            Message::Ask(ask) => self.check_later(leader, follower, (link, ask)),
            Message::Ack(length) => {
                member.acked = member.acked.max(length);
                self.commit(leader);
            }
            Message::Pong(touched) => {
                for (session, timeout_ms) in touched {
                    leading.tracker.touch(session, timeout_ms, now_ms);
                }
            }
            Message::Revalidate {
                session,
                timeout_ms,
                connection,
            } => {
                let valid = self.take_over(leader, follower, session, timeout_ms);
                let answer = Message::Revalidated { connection, valid };
                self.send(link, Towards::Follower, answer);
            }
            Message::Sync(sync) => {
                leading.syncs.push((length, link, sync));
                self.answer_syncs(leader);
            }
            Message::Reset => {
                leading.members.remove(&follower);
                self.links.remove(&link);
            }
            // The other messages go to followers.
            _ => {}
        }
    }

    /// Orders what a follower asks for. A leader reads on before it checks what it has read: if much has
    /// arrived at once, the session may have come back to that follower.
    fn check_later(&mut self, leader: usize, follower: usize, (link, ask): (LinkNo, Ask)) {
        let (now, of) = (self.now, ask.session);
        let comes_back = |(at, message): &(Duration, Message)| {
            *at <= now && matches!(message, Message::Revalidate { session, .. } if *session == of)
        };
        let end = self.links.get_mut(&link);
        let is_back = end.is_some_and(|end| end.queue(Towards::Leader).iter().any(comes_back));
        if is_back && self.chance.bool() {
            if let Some(leading) = self.servers[leader].leading() {
                leading.tracker.set_owner(of, follower);
            }
        }
        self.propose(leader, follower, ask);
    }

    /// Lets a session move to a server, which touches it; returns whether it is alive.
    pub(super) fn take_over(
        &mut self,
        leader: usize,
        server: usize,
        session: i64,
        timeout_ms: u64,
    ) -> bool {
        let now_ms = self.leader_ms(leader);
        let leading = self.servers[leader].leading();
        leading.is_some_and(|leading| {
            leading.tracker.set_owner(session, server);
            leading.tracker.touch(session, timeout_ms, now_ms)
        })
    }

    /// Appends what is asked for to the log.
    pub(super) fn propose(&mut self, leader: usize, asker: usize, mut ask: Ask) {
        let (ms, now_ms) = (self.epoch_ms(), self.leader_ms(leader));
        let Some(leading) = self.servers[leader].leading() else {
            return;
        };
        let tracker = &mut leading.tracker;
        match &ask.deed {
            Deed::Write(_) if ask.origin.is_some() => {
                if let Err(code) = tracker.check(ask.session, asker) {
                    ask.deed = Deed::Write(Write::Refused(code));
                }
            }
            Deed::Begin { timeout_ms } => {
                tracker.track(ask.session, *timeout_ms, now_ms);
                tracker.set_owner(ask.session, asker);
            }
            Deed::End(_) => {
                tracker.close(ask.session);
            }
            Deed::Write(_) | Deed::Ping | Deed::Reap { .. } => {}
        }
        leading.zxid += 1;
        let zxid = leading.zxid;
        if asker != leader {
            self.await_too(leader, &ask);
        }
        let transaction = Arc::new(Transaction {
            zxid,
            ms,
            ask,
            outcome: OnceLock::new(),
        });
        self.servers[leader].log.push(Arc::clone(&transaction));
        for link in self.links_of(leader) {
            let message = Message::Propose(Arc::clone(&transaction));
            self.send(link, Towards::Follower, message);
        }
        self.commit(leader);
    }

    /// Keeps a follower's request in its place among those of the leader's own clients.
    fn await_too(&mut self, leader: usize, ask: &Ask) {
        let Some(origin) = ask.origin else {
            return;
        };
        let pending = Pending {
            connection: origin.connection,
            xid: origin.xid,
            kind: None,
            work: Work::Ordered(Shape::of(&ask.deed)),
        };
        if !matches!(ask.deed, Deed::Begin { .. }) {
            self.servers[leader].waiting.push(ask.session, pending);
        }
    }

    /// Commits what a quorum has logged.
    pub(super) fn commit(&mut self, leader: usize) {
        while self.servers[leader].committed < self.logged_by_quorum(leader) {
            let node = &mut self.servers[leader];
            node.committed += 1;
            let length = node.committed;
            for link in self.links_of(leader) {
                self.send(link, Towards::Follower, Message::Commit(length));
            }
            self.answer_syncs(leader);
            // This may put more into the log, and commit it.
            self.plan_step(leader, Step::Apply);
        }
    }

    /// Returns how much of a leader's log a quorum has.
    fn logged_by_quorum(&self, leader: usize) -> usize {
        let node = &self.servers[leader];
        let Role::Leading(leading) = &node.role else {
            return 0;
        };
        let own = node.log.len();
        let members = leading.members.values();
        let mut lengths: Vec<_> = members.map(|member| member.acked.min(own)).collect();
        lengths.push(own);
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        lengths.get(self.config.quorum() - 1).copied().unwrap_or(0)
    }

    fn links_of(&self, leader: usize) -> Vec<LinkNo> {
        match &self.servers[leader].role {
            Role::Leading(leading) => leading.members.values().map(|each| each.link).collect(),
            _ => Vec::new(),
        }
    }

    /// Answers the syncs for which everything before them is committed.
    fn answer_syncs(&mut self, leader: usize) {
        let committed = self.servers[leader].committed;
        let Some(leading) = self.servers[leader].leading() else {
            return;
        };
        let is_due = |sync: &mut (usize, LinkNo, SyncAsk)| sync.0 <= committed;
        let due: Vec<_> = leading.syncs.extract_if(.., is_due).collect();
        for (_, link, sync) in due {
            self.send(link, Towards::Follower, Message::Synced(sync));
        }
    }
}

// What a leader does by its clock.
impl Ensemble {
    /// A half tick: every second time, the leader makes sure that it has a quorum.
    pub(super) fn round(&mut self, leader: usize) {
        let (now, patience) = (self.now, self.config.patience());
        let Some(leading) = self.servers[leader].leading() else {
            return;
        };
        leading.rounds += 1;
        if leading.rounds.is_multiple_of(2) {
            let is_silent = |member: &Member| patience < now - member.heard;
            let silent = leading.members.extract_if(.., |_, each| is_silent(each));
            let silent: Vec<_> = silent.map(|(_, member)| member.link).collect();
            let count = 1 + leading.members.len();
            for link in silent {
                self.send(link, Towards::Follower, Message::Reset);
            }
            if count < self.config.quorum() {
                return self.resign(leader);
            }
        }
        self.ping_all(leader);
        let half = self.config.tick / 2;
        self.plan(leader, half, |server, life| Event::Round { server, life });
    }

    fn ping_all(&mut self, leader: usize) {
        let Role::Leading(leading) = &self.servers[leader].role else {
            return;
        };
        let members: Vec<_> = leading.members.keys().copied().collect();
        for member in members {
            let is_late = !self.late_pings.is_zero() && self.chance.u8(..5) == 0;
            let late = match is_late {
                true => self.draw(Duration::ZERO..=self.late_pings),
                false => Duration::ZERO,
            };
            self.ping_later(leader, member, late);
        }
    }

    /// Pings a follower, but not before an earlier ping has left.
    fn ping_later(&mut self, leader: usize, member: usize, late: Duration) {
        let now = self.now;
        let leading = self.servers[leader].leading();
        let Some(member) = leading.and_then(|leading| leading.members.get_mut(&member)) else {
            return;
        };
        member.pinged = member.pinged.max(now + late);
        let (link, leaves) = (member.link, member.pinged);
        if leaves <= now {
            return self.ping(leader, link);
        }
        let server = leader;
        self.agenda.add(leaves, Event::Ping { server, link });
    }

    pub(super) fn ping(&mut self, leader: usize, link: LinkNo) {
        let is_of = |end: &Link| end.leader == leader;
        if self.links.get(&link).is_some_and(is_of) {
            self.send(link, Towards::Follower, Message::Ping);
        }
    }

    /// Ends the sessions whose end has come, some of them later: there may be many others.
    pub(super) fn tick(&mut self, leader: usize) {
        let now_ms = self.leader_ms(leader);
        let Some(leading) = self.servers[leader].leading() else {
            return;
        };
        for session in leading.tracker.poll(now_ms) {
            let others = match self.chance.bool() {
                true => self.config.expiry.mul_f64(self.chance.f64()),
                false => Duration::ZERO,
            };
            if others.is_zero() {
                self.expire(leader, session);
                continue;
            }
            self.plan(leader, others, |server, life| Event::Expire {
                server,
                life,
                session,
            });
        }
        self.plan_tick(leader);
    }

    /// Ends a session that was taken out, if this server still leads.
    pub(super) fn expire(&mut self, leader: usize, session: i64) {
        let leading = self.servers[leader].leading();
        if leading.is_some_and(|leading| leading.tracker.is_due(session)) {
            self.end_session(leader, session, SessionEnd::Expired);
        }
    }

    pub(super) fn plan_tick(&mut self, leader: usize) {
        let tick_ms = self.settings.timeouts().tick_ms.max(1);
        let Some(leading) = self.servers[leader].leading() else {
            return;
        };
        let phase_ms = leading.phase_ms;
        let next_ms = (self.now_ms() + phase_ms) / tick_ms * tick_ms + tick_ms - phase_ms;
        let rest = Duration::from_millis(next_ms).saturating_sub(self.now);
        self.plan(leader, rest, |server, life| Event::Tick { server, life });
    }

    pub(super) fn end_session(&mut self, leader: usize, session: i64, why: SessionEnd) {
        self.propose(leader, leader, of_nobody(session, Deed::End(why)));
    }

    pub(super) fn check_containers(&mut self, leader: usize) {
        for path in self.servers[leader].view.tree.over(0) {
            self.propose(leader, leader, of_nobody(0, Deed::Reap { path }));
        }
        let check = self.config.container_check;
        self.plan(leader, check, |server, life| Event::CheckContainers {
            server,
            life,
        });
    }

    /// Returns the time of a leader's own clock.
    pub(super) fn leader_ms(&mut self, leader: usize) -> u64 {
        let clock_ms = self.clock_ms(leader);
        let leading = self.servers[leader].leading();
        leading.map_or(0, |leading| clock_ms + leading.phase_ms)
    }

    /// Returns the time that a server counts sessions by.
    pub(super) fn clock_ms(&self, server: usize) -> u64 {
        match self.config.keeper {
            true => self.now_ms() + self.servers[server].set_forward_ms,
            false => self.now_ms(),
        }
    }
}

fn of_nobody(session: i64, deed: Deed) -> Ask {
    Ask {
        origin: None,
        session,
        who: Vec::new(),
        deed,
    }
}
