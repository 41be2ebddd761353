//! The four questions: was a promise broken, did every ask end, was anything late without a reason, and
//! did anything cost more than it must? The last two are asked of runs in which nothing goes wrong.

use std::time::Duration;

use zklock_core::dialect::Role;
use zklock_jute::{Event, EventKind};
use zklock_play::{Loss, Outcome};

use crate::client::Op;
use crate::permits::LINES;
use crate::plan::Want;
use crate::servers::Time;
use crate::world::{BEGINNING, Life, PATHS, World};

/// The most that the rounding of durations may add up to.
const ROUNDING: Duration = Duration::from_micros(1);

impl Op {
    pub(crate) fn path(&self) -> &'static str {
        PATHS[self.want.path]
    }

    /// Returns the directory of its queue.
    fn queue(&self) -> &'static str {
        match self.want.role {
            Role::Permit => LINES[self.want.path],
            _ => self.path(),
        }
    }

    /// Returns whether both wait in one line of their client, which threads do that want to be alone.
    pub(crate) fn is_in_line_of(&self, other: &Self) -> bool {
        let same = (self.client, self.want.path) == (other.client, other.want.path);
        let alone = |op: &Self| op.want.role == Role::Exclusive;
        same && alone(self) && alone(other)
    }

    /// Returns when its thread left the line.
    pub(crate) fn left(&self) -> Option<Time> {
        let ended = self.ended.as_ref().map(|(at, _)| *at);
        self.released.or(ended)
    }

    /// Returns when it had its lock, or ended without it.
    pub(crate) fn settled(&self) -> Option<Time> {
        let ended = self.ended.as_ref().map(|(at, _)| *at);
        self.granted.or(ended)
    }
}

impl Life {
    pub(crate) fn is_in(&self, dir: &str) -> bool {
        // Nothing is below a contender.
        let name = || self.path.strip_prefix(dir);
        self.contends && name().is_some_and(|name| name.starts_with('/'))
    }

    pub(crate) fn number(&self) -> &str {
        &self.path[self.path.len().saturating_sub(10)..]
    }

    pub(crate) fn is_ahead_of(&self, dir: &str, node: &str) -> bool {
        let number = &node[node.len().saturating_sub(10)..];
        let both_read = is_reader(&self.path) && is_reader(node);
        self.contends && self.number() < number && self.is_in(dir) && !both_read
    }
}

/// Returns whether the deletion of a node may be taken for the turn of the next one.
pub(crate) fn passes_on(node: &str, next: &str) -> bool {
    match (is_reader(node), is_reader(next)) {
        (true, _) => next.contains("-__WRIT__"),
        (_, true) => node.contains("-__WRIT__"),
        _ => node.contains("-lock-") && next.contains("-lock-"),
    }
}

fn is_reader(node: &str) -> bool {
    node.contains("-__READ__")
}

// Was a promise broken?
impl World {
    /// Judges the grant of a lock to this op.
    pub(crate) fn judge_grant(&mut self, op: usize) {
        self.judge_trust(op);
        self.judge_limit(op);
        if self.ops[op].want.role == Role::Permit {
            return self.judge_permit(op);
        }
        if let Some(why) = self.is_granted_wrongly(op) {
            return self.fail(why);
        }
        self.seen.shared += u64::from(self.shares(op));
        match self.plan.is_quiet() {
            true => self.judge_time(op),
            false => self.judge_time_after_troubles(op),
        }
    }

    /// Returns a complaint if this op must not have its lock now.
    fn is_granted_wrongly(&self, op: usize) -> Option<String> {
        let one = &self.ops[op];
        let mut earlier = self.ops[..op].iter();
        let overtakes = |other: &Op| {
            other.is_in_line_of(one) && other.granted.is_none() && other.ended.is_none()
        };
        if earlier.any(overtakes) {
            return Some(format!("op {op} has overtaken a thread of its client"));
        }
        let node = one.node.as_deref().unwrap_or_default();
        let mine = self.lives.iter().rev().find(|life| &*life.path == node);
        let went = mine.and_then(|mine| mine.to);
        // A node that the client has given back may be there, if its server throws requests away.
        let throttled_until = self.clients[one.client].throttled_until;
        let given_back = |life: &Life| {
            let is_its = |it: &Op| it.client == one.client && it.node.as_ref() == Some(&life.path);
            let thrown_away = |it: &Op| it.released.is_some_and(|at| at <= throttled_until);
            self.ops.iter().any(|it| is_its(it) && thrown_away(it))
        };
        let ahead = self
            .lives
            .iter()
            .filter(|it| it.is_ahead_of(one.path(), node))
            // In a directory that was made again, the numbers begin anew.
            .filter(|it| went.is_none_or(|went| it.from <= went))
            .filter(|it| !given_back(it));
        if let Some(life) = ahead.clone().find(|life| life.to.is_none()) {
            let ahead = life.path.clone();
            return Some(format!("op {op} was granted {node} behind {ahead}"));
        }
        if one.was_handed_on && one.trust.suspect_from <= self.now {
            return Some(format!("op {op} was handed a lock in doubt"));
        }
        let last = ahead.filter_map(|life| life.to).max();
        let is_new = !one.was_handed_on;
        let went_before = went.zip(last).is_some_and(|(went, last)| went < last);
        (is_new && went_before)
            .then(|| format!("op {op} was granted {node}, which had gone before its turn"))
    }

    fn both_read(&self, op: usize, other: usize) -> bool {
        [op, other].map(|op| self.ops[op].want.role) == [Role::Read; 2]
    }

    /// Returns whether another reader holds the lock beside this op.
    fn shares(&self, op: usize) -> bool {
        let mut others = (0..self.ops.len()).filter(|other| *other != op);
        let path = self.ops[op].want.path;
        others
            .any(|it| self.ops[it].want.path == path && self.both_read(op, it) && self.is_valid(it))
    }

    /// Judges the time for which a guard was told to trust its lock: no other guard is valid now.
    pub(crate) fn judge_trust(&mut self, op: usize) {
        if !self.is_valid(op) {
            return;
        }
        let support = self.clients[self.ops[op].client].proofs.support();
        if support < self.ops[op].trust.until {
            self.fail(format!(
                "op {op} trusts its lock for longer than a proof supports"
            ));
        }
        if let Some(why) = self.is_valid_beside_others(op) {
            self.fail(why);
        }
        if self.plan.is_quiet() && self.ops[op].trust.suspect_from <= self.now {
            self.fail(format!("nothing was broken, but op {op} is suspect"));
        }
    }

    /// Returns a complaint if others have guards beside this op that must not be valid.
    fn is_valid_beside_others(&self, op: usize) -> Option<String> {
        let Want { path, role, .. } = self.ops[op].want;
        if role == Role::Permit {
            let are_many = self.are_too_many(op, |op| self.is_beyond_promise(op));
            return are_many.then(|| format!("op {op} has one permit too many"));
        }
        let mut others = (0..self.ops.len()).filter(|other| *other != op);
        let other = others.find(|it| {
            let same = self.ops[*it].want.path == path && !self.both_read(op, *it);
            same && self.is_valid(*it)
        });
        let is_beyond = |other: &usize| [op, *other].iter().any(|op| self.is_beyond_promise(*op));
        let other = other.filter(|other| !is_beyond(other))?;
        Some(format!("ops {op} and {other} both have a valid guard"))
    }

    /// Judges a client that has lost its connection: its guards are in doubt.
    pub(crate) fn judge_doubt(&mut self, client: usize) {
        let guards = self.guards(client).into_iter();
        let mut held = guards.filter(|op| self.is_valid(*op));
        if let Some(op) = held.find(|op| self.now < self.ops[*op].trust.suspect_from) {
            self.fail(format!("op {op} is held without a connection"));
        }
    }

    /// Judges a core that has had its tick: it needs no other one until time has passed.
    pub(crate) fn judge_tick(&mut self, client: usize) {
        let next = self.clients[client].core.next_tick();
        if next.is_some_and(|next| next <= self.now) {
            self.fail(format!("c{client} is ticked, and is due all the same"));
        }
    }

    /// Judges a client that was told that its session is over: all its nodes are gone.
    pub(crate) fn judge_loss(&mut self, client: usize) {
        let mut guards = self.guards(client).into_iter();
        if let Some(op) = guards.find(|op| self.is_valid(*op)) {
            return self.fail(format!("op {op} outlives its session"));
        }
        if self.unlocks(client) {
            self.fail("a release is waited for whose session is over");
        }
    }

    /// Judges a holder that is told that its node was deleted.
    pub(crate) fn judge_event(&mut self, client: usize, event: &Event) {
        let is_its = |op: &usize| self.ops[*op].node.as_deref() == Some(&*event.path);
        let mut guards = self.guards(client).into_iter().filter(is_its);
        let op = guards.find(|op| self.now < self.ops[*op].trust.until);
        if let (Some(op), EventKind::Deleted) = (op, event.kind) {
            self.fail(format!("op {op} is held, and its node is known to be gone"));
        }
    }

    /// Judges the deletion of a node at the servers: from then on others may be granted its lock.
    pub(crate) fn judge_deletion(&mut self, path: &str) {
        let mut ops = (0..self.ops.len()).rev();
        let op = ops.find(|op| self.ops[*op].node.as_deref() == Some(path) && self.is_valid(*op));
        let Some(op) = op else { return };
        let one = &self.ops[op];
        if self.is_beyond_promise(op) {
            self.seen.beyond += 1;
        } else if !self.clients[one.client].was_evicted {
            let left = one.trust.until - self.now;
            self.fail(format!(
                "op {op} trusts its lock for {left:?} after its node went"
            ));
        }
    }

    /// Returns whether a precondition of the promise is broken.
    ///
    /// - The leader's pings, and the followers' answers, are a tenth of T late at most. If a server was silent for
    ///   longer, and went on all the same, the leader may hear from it of a session that it is about to end.
    /// - All servers grant the same timeout. If one that grants less than half has not answered, it may have
    ///   shortened the session, and no client states `granted_at_least` here.
    fn is_beyond_promise(&self, op: usize) -> bool {
        let (_, longest) = self.plan.granted();
        let client = self.ops[op].client;
        let server = self.server_of(client);
        let servers = server.into_iter().chain(self.leader());
        let mut late = servers.map(|server| self.servers[server].was_late);
        late.any(|at| at != Time::ZERO && self.now < at + longest)
            || self.clients[client].asked_for < longest / 2
    }

    /// Judges an ask for a lock that ended without the lock.
    pub(crate) fn judge_refusal(&mut self, op: usize, outcome: &Outcome) {
        self.judge_limit(op);
        if self.ops[op].want.role == Role::Permit {
            self.judge_time_of_try(op);
        }
        let one = &self.ops[op];
        let limit = one.until.is_some_and(|until| until <= self.now);
        let cancelled = one.cancelled;
        let is_right = match outcome {
            Outcome::GaveUp { taken } => {
                limit || one.cancelled || (one.want.tries && (*taken || !self.plan.is_quiet()))
            }
            Outcome::Evicted(_) => self.clients[one.client].was_evicted,
            Outcome::PermitsDisagree(theirs) => self.is_disagreement(one, *theirs),
            Outcome::Over(why) => *why == Loss::Closed && self.clients[one.client].is_closed,
            _ => false,
        };
        if !is_right {
            self.fail(format!("op {op} ended by {outcome:?}, and had no reason"));
        } else if *outcome == (Outcome::GaveUp { taken: true }) && !limit && !cancelled {
            self.judge_try(op);
        }
    }

    /// Judges what a guard's holder is told: whether it held the lock to that moment.
    pub(crate) fn judge_verdict(&mut self, op: usize, outcome: &Outcome) {
        let quiet = self.plan.is_quiet();
        match outcome {
            Outcome::Verified if !self.is_valid(op) && self.evicted.is_empty() => {
                self.fail(format!("op {op} is verified, and its guard is lost"));
            }
            Outcome::Verified => {}
            Outcome::Released => {
                let node = self.ops[op].node.clone();
                let life = self
                    .lives
                    .iter()
                    .rev()
                    .find(|life| Some(&life.path) == node.as_ref());
                let is_gone = life.is_some_and(|life| life.to.is_some());
                let goes_on = self
                    .ops
                    .iter()
                    .any(|other| other.node == node && other.released.is_none());
                if !is_gone && !goes_on {
                    self.fail(format!("op {op} is released, and its node is there"));
                }
            }
            Outcome::Lost(why) if !quiet => {
                self.judge_late(op);
                self.judge_reason(op, *why);
            }
            Outcome::GaveUp { .. } if !quiet => self.judge_late(op),
            _ => self.fail(format!(
                "nothing was broken, but op {op} is told {outcome:?}"
            )),
        }
    }

    /// Checks that nobody waits for a verdict for longer than the lock could be trusted.
    pub(crate) fn judge_late(&mut self, op: usize) {
        let one = &self.ops[op];
        let client = &self.clients[one.client];
        let asked = one.released.unwrap_or(self.now);
        let until = one.trust.until.max(asked).max(client.stopped_until);
        if one.released.is_some() && until + client.late_ticks.1 + ROUNDING < self.now {
            self.fail(format!("op {op} is told late that its release is in doubt"));
        }
    }

    /// Checks that an ask ended by its limit.
    fn judge_limit(&mut self, op: usize) {
        let one = &self.ops[op];
        let Some(until) = one.until else { return };
        let client = &self.clients[one.client];
        let late = client.late_ticks.1;
        let due = until.max(client.stopped_until) + late + ROUNDING;
        if due < self.now {
            self.fail(format!(
                "op {op} had its answer {:?} after its limit",
                self.now - due
            ));
        }
    }
}

// Was anything late?
impl World {
    pub(crate) fn trips(&self, trips: u32, hops: u32) -> Duration {
        (self.plan.trip + self.plan.jitter) * trips + self.plan.hop * hops + ROUNDING
    }

    fn judge_time(&mut self, op: usize) {
        self.judge_news(op);
        let (due, why) = self.due(op, &self.ops[op]);
        if due < self.now {
            let late = self.now - due;
            self.fail(format!(
                "op {op} was granted {late:?} late without a reason: its last wait was for {why}"
            ));
        }
    }

    /// Judges a grant to who has asked after the last trouble. Troubles still delay a client that has
    /// reconnected or was stopped, for as long as the leader may not have heard of its session. See "When a
    /// lock is granted late" in `docs/guarantees.md`.
    fn judge_time_after_troubles(&mut self, op: usize) {
        let one = &self.ops[op];
        let is_made = |life: &Life| *life.path == *one.path() && one.asked <= life.from;
        if one.asked <= self.calm_at || self.lives.iter().any(is_made) {
            return;
        }
        let (due, why) = self.due(op, one);
        let due = due.max(self.recovered_at(one.client));
        self.seen.recovered += 1;
        if due < self.now {
            let late = self.now - due;
            self.fail(format!(
                "op {op} was granted {late:?} late when all was well again: its last wait was for {why}"
            ));
        }
    }

    /// Returns when the leader must have heard of a client that has reconnected or was stopped, and a lock that nobody
    /// is ahead for is granted.
    pub(crate) fn recovered_at(&self, client: usize) -> Time {
        let client = &self.clients[client];
        let stopped = client.stopped_until.max(client.delayed_until);
        let (_, timeout) = self.plan.granted();
        // After a stop, the time counts from the first answer, which an idle client has by its first ping at the latest.
        let soonest = stopped + self.trips(2, 2);
        let first = client.proofs.first_answer().unwrap_or_default();
        let answered = first.clamp(soonest, soonest + timeout / 6);
        let recovers = (client.connected_at + timeout / 4).max(answered + timeout * 3 / 5);
        recovers + self.trips(3, 4)
    }

    /// Returns when a lock should have been granted, and what came last before that.
    fn due(&self, op: usize, one: &Op) -> (Time, &'static str) {
        let node = one.node.as_deref().unwrap_or_default();
        let connected = self.clients[one.client].connected_at;
        let mut turn = (one.asked.max(connected), 2, "its call");
        // The threads before it in line.
        for other in self.ops[..op].iter().filter(|it| it.is_in_line_of(one)) {
            let left = other.left();
            if let Some(left) = left.filter(|left| turn.0 <= *left) {
                // A node that was created with a release, whose answer has no stat, is looked at.
                turn = (left, 4, "a thread");
            }
        }
        if one.was_handed_on {
            return (turn.0 + ROUNDING, "a hand-over");
        }
        let (from, trips, why) = turn;
        let dir = self.lives.iter().find(|life| &*life.path == one.path());
        let is_known = dir.is_some_and(|dir| dir.from < from);
        let trips = match (is_known, one.want.tries) {
            (true, false) => trips,
            (true, true) => trips + 6,
            (false, _) => trips + 6,
        };
        // A waiter reads the holds before it waits for the queue, and removes those that are over.
        let more = 8 * self.holds_ahead_of(one) + self.trips_for_stats(one);
        let called = from + self.trips(trips + more, (trips + more) * 2);
        let lives = self.lives.iter();
        let ahead = lives.filter(|life| life.is_ahead_of(one.path(), node));
        let ahead: Vec<_> = ahead.collect();
        let gone = ahead.iter().filter_map(|life| life.to).max();
        let after = |gone| self.after_release(node, &ahead, gone) + self.trips(more, more * 2);
        match gone.map(|gone| gone + after(gone)) {
            Some(due) if called < due => (due, "a release"),
            _ => (called, why),
        }
    }

    /// Returns how many trips it takes to look at created nodes, for a client that takes its servers for old. Two
    /// connections that broke while a create was open look like that.
    pub(crate) fn trips_for_stats(&self, one: &Op) -> u32 {
        match self.clients[one.client].core.tells_stats() {
            true => 0,
            false => 4,
        }
    }

    /// Returns how long after the deletion of the last node ahead a lock is granted: on the event alone, if the
    /// waiter had all its watches.
    pub(crate) fn after_release(&self, node: &str, ahead: &[&Life], gone: Time) -> Duration {
        let while_it_settles = self.trips(10, 12);
        let mine = self.lives.iter().find(|life| &*life.path == node);
        let is_new = mine.is_none_or(|mine| gone < mine.from + while_it_settles);
        let ahead = || ahead.iter().copied();
        let nearest = ahead().max_by_key(|life| life.number());
        let is_nearest = nearest.is_some_and(|life| life.to == Some(gone));
        // Several nodes may be deleted in the same moment; the last of them counts.
        let last = ahead().filter(|life| life.to == Some(gone));
        let last = last.map(Life::number).max();
        let just_before = |life: &&Life| {
            let at = life.to.filter(|_| Some(life.number()) != last);
            at.is_some_and(|at| gone < at + while_it_settles)
        };
        let moved: Vec<_> = ahead().filter(just_before).collect();
        // A writer may have become a reader, so whoever wants to be alone looks again. And a reader or writer that has
        // seen several ahead does not watch all of them.
        let came = mine.map_or(Time::ZERO, |mine| mine.from);
        let was_there = |life: &&Life| life.to.is_none_or(|to| came <= to);
        let saw_several = !node.contains("-lock-") && 1 < ahead().filter(was_there).count();
        let mut went = ahead().filter(|life| life.to == Some(gone));
        // Readers may be many, and prove their nodes when it is their turn.
        let looks = is_reader(node) || saw_several || went.any(|life| !passes_on(&life.path, node));
        let event = match looks {
            true => self.trips(3, 8),
            false => self.trips(1, 1),
        };
        match moved[..] {
            [] if !is_new => event,
            // The node beyond the nearest was deleted just before. Since then the waiter lists the queue, and asks
            // for the proof that the grant may need.
            [beyond] if !is_new && is_nearest => {
                let listed = beyond.to.unwrap_or(gone) + self.trips(3, 8);
                listed.saturating_sub(gone).max(event)
            }
            _ => self.trips(5, 8),
        }
    }
}

// Did it cost more than it must? And what is left?
impl World {
    pub(crate) fn judge_end(&mut self) {
        for client in 0..self.clients.len() {
            self.judge_counts(client);
            let (session, _) = self.clients[client].core.session();
            let left = self
                .standing()
                .into_iter()
                .find(|(_, owner)| *owner == session);
            if let Some(node) = left.map(|(node, _)| node.to_owned()) {
                return self.fail(format!(
                    "{node} is left, and c{client} does nothing about it"
                ));
            }
            if self.plan.is_quiet() && !self.plan.disagrees {
                self.judge_costs(client);
            }
        }
    }

    fn judge_costs(&mut self, client: usize) {
        let asked = self.clients[client].asked;
        let mixes = self.plan.mixes_roles();
        let (mut lists, mut reads, mut checks, mut count, mut commits) = (4, 4, 2, 0, 0);
        if self.plan.has_permits() {
            // The look that comes with a place comes again once each directory exists.
            lists += 5 * PATHS.len() as u32;
            reads += 2 * PATHS.len() as u32;
        }
        for op in self.ops.iter().filter(|op| op.client == client) {
            let gone = self.gone_during(op);
            let holds = self.holds_ahead_of(op);
            count += 1;
            // Behind another kind of contender, the queue is listed again.
            lists += 3 * holds + 1 + gone + u32::from(op.want.tries) + u32::from(mixes);
            reads += 8 * holds * (1 + gone) + 3 * gone + 4 + u32::from(self.plan.notes);
            if op.want.role == Role::Permit {
                let (looks, changes) = self.costs_of_permit(op);
                count += 1;
                lists += 2 * looks + 1 + changes;
                reads += looks;
                checks += 1 + changes;
            }
            commits += u32::from(op.want.commits);
            // A reader has its node confirmed only when it is its turn.
            let from = match op.want.role {
                Role::Read => op.granted.unwrap_or(self.now),
                _ => op.asked.max(BEGINNING),
            };
            let time = op.released.unwrap_or(self.now).saturating_sub(from);
            checks +=
                2 * holds + 1 + (time.as_nanos() / self.proof_every().as_nanos()) as u32 + gone;
        }
        // The first client creates the directory, and then its node again; in front of a semaphore, both of its
        // directories, in turn.
        let threads = self.clients[client].threads.len() as u32;
        let creates = match self.plan.has_permits() {
            false => count + 2 * PATHS.len() as u32 * (1 + threads),
            true => count + 7 * PATHS.len() as u32,
        };
        let nodes = self
            .lives
            .iter()
            .filter(|life| life.owner == self.clients[client].core.session().0);
        let deletes = nodes.count() as u32 + 2 * self.plan.pauses.len() as u32;
        for (what, is, most) in [
            ("creates", asked.creates + asked.both, creates),
            ("deletions", asked.deletes + asked.both, deletes),
            ("listings", asked.lists, lists),
            ("reads", asked.reads, reads),
            ("checks", asked.checks, checks),
            ("transactions", asked.commits, commits),
            (
                "releases without the next create",
                self.clients[client].joins,
                asked.both,
            ),
        ] {
            if most < is {
                return self.fail(format!("c{client} sent {is} {what}, and {most} are enough"));
            }
        }
    }

    /// Returns how often the next in line has its node confirmed at most.
    fn proof_every(&self) -> Duration {
        match self.is_far() {
            true => self.plan.timeout / 12,
            false => self.plan.timeout / 8,
        }
    }

    /// Returns whether round trips take so long that the next in line asks earlier, and that a guard may be suspect for
    /// a moment before its check is answered.
    pub(crate) fn is_far(&self) -> bool {
        self.plan.timeout / 30 < self.trips(2, 2)
    }

    /// Returns whether a release must take the next thread's create along: its op has seen others ahead.
    pub(crate) fn is_to_join(&self, op: usize) -> bool {
        let one = &self.ops[op];
        let node = one.node.as_deref().unwrap_or_default();
        let mine = self.lives.iter().find(|life| &*life.path == node);
        let has_waited = mine.is_some_and(|mine| {
            let ahead = self
                .lives
                .iter()
                .filter(|life| life.is_ahead_of(one.path(), node));
            let settles = self.trips(2, 4);
            ahead
                .filter_map(|life| life.to)
                .any(|gone| mine.from + settles < gone)
        });
        let waits = |other: &Op| {
            other.is_in_line_of(one) && other.granted.is_none() && other.ended.is_none()
        };
        let is_followed = self.ops.iter().any(waits);
        let quiet = self.plan.is_quiet() && self.plan.local_handoffs == 0;
        // Behind a hold that is over, the op may never have waited for others.
        quiet && has_waited && is_followed && self.holds_ahead_of(one) == 0
    }

    /// Returns how many nodes of its queue were deleted while the op was in line and waited.
    fn gone_during(&self, op: &Op) -> u32 {
        let (from, to) = (op.asked, op.settled().unwrap_or(self.now));
        let gone = self.lives.iter().filter(|life| life.is_in(op.queue()));
        let gone = gone.filter(|life| life.to.is_some_and(|at| from <= at && at <= to));
        gone.count() as u32
    }
}
