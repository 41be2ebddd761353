//! The news besides grants: whom a thread waits for, why a lock was lost, and the counts.

use std::cmp::Ordering;
use std::time::Duration;

use zklock_core::dialect::Role;
use zklock_play::{Ahead, Counts, Loss, Nearest, Ticket};

use crate::client::{Client, Op};
use crate::judge::passes_on;
use crate::servers::Time;
use crate::world::{BEGINNING, Life, World};

/// How long a try may wait for the nodes that its client has left.
pub(crate) const PASSING: Duration = Duration::from_secs(1);

impl Op {
    /// Returns whether its thread stands in line, or has the lock.
    fn is_open(&self) -> bool {
        self.released.is_none() && self.ended.is_none()
    }
}

impl Life {
    /// Returns whether the node existed right after this change.
    fn is_there(&self, zxid: i64) -> bool {
        let (from, to) = self.zxids;
        from <= zxid && to.is_none_or(|to| zxid < to)
    }
}

// The news of whom a thread waits for.
impl World {
    /// Returns whether the op's thread wants to know whom it waits for: three of four do.
    pub(crate) fn follows(&self, op: usize) -> bool {
        self.plan.follows && op % 4 != 0 && self.ops[op].want.role != Role::Permit
    }

    /// Judges what a thread is told about whom it waits for.
    pub(crate) fn told(&mut self, client: usize, ticket: Ticket, ahead: Ahead) {
        self.tell_story(|| format!("c{client} is told of {ticket:?}: {ahead:?}"));
        let Some(op) = self.op_of(client, ticket) else {
            return self.fail("a thread is told whom it waits for, and does not wait");
        };
        if !self.follows(op) {
            return self.fail(format!("op {op} is told what it does not want to know"));
        }
        let place = |ahead: &Ahead| {
            let nearest = ahead.nearest.as_ref().map(|nearest| nearest.node.clone());
            (ahead.count, ahead.holds, nearest)
        };
        let last = self.ops[op].news.last();
        if last.is_some_and(|(_, last)| place(last) == place(&ahead)) {
            return self.fail(format!("op {op} is told the same twice"));
        }
        self.seen.told += 1;
        let is_true = match &ahead.nearest {
            Some(nearest) => self.is_true_of_queue(op, &ahead, nearest),
            None => self.line_ahead(op) == Some((ahead.count, ahead.holds)),
        };
        if !is_true {
            self.fail(format!("op {op} is told what is not so: {ahead:?}"));
        }
        self.ops[op].news.push((self.now, ahead));
    }

    /// Returns how many threads of its client are before this op, and whether the nearest has the lock; `None` if
    /// the op has the turn.
    fn line_ahead(&self, op: usize) -> Option<(usize, bool)> {
        let one = &self.ops[op];
        let mut before = self.ops[..op]
            .iter()
            .filter(|other| other.is_in_line_of(one) && other.is_open());
        let first = before.next()?;
        let count = 1 + before.count();
        Some((count, count == 1 && first.granted.is_some()))
    }

    /// Returns whether this was true of the queue at some moment since the ask.
    fn is_true_of_queue(&self, op: usize, ahead: &Ahead, nearest: &Nearest) -> bool {
        let one = &self.ops[op];
        let lives = || self.lives.iter().filter(|life| life.is_in(one.path()));
        let Some(theirs) = lives().find(|life| *life.path == *nearest.node) else {
            return false;
        };
        let data = theirs.data.get(nearest.stat.version as usize);
        let is_read = data.is_some_and(|data| **data == *nearest.data);
        let client = one.client;
        let mine = lives().filter(|life| self.client_of(life.owner) == Some(client));
        let mut moments = mine.filter(|mine| one.asked <= mine.from).flat_map(|mine| {
            let changes = lives().flat_map(|life| [Some(life.zxids.0), life.zxids.1]);
            // The own session's end deletes its other nodes too, and they may be heard of first.
            let there = |zxid: &i64| mine.is_there(*zxid) || mine.zxids.1 == Some(*zxid);
            changes
                .flatten()
                .filter(there)
                .map(move |zxid| (mine, zxid))
        });
        let is_so = moments.any(|(mine, at)| {
            // The nodes of a session are deleted at once, and their events come one after the other.
            let is_heard = |life: &Life| life.path == theirs.path && life.zxids.1 == Some(at);
            let before: Vec<_> = lives()
                .filter(|life| life.is_ahead_of(one.path(), &mine.path))
                .filter(|life| life.is_there(at) || is_heard(life))
                .collect();
            let last = before.iter().max_by_key(|life| life.number());
            let mut first = lives()
                .filter(|life| life.is_ahead_of(one.path(), &theirs.path) && life.is_there(at));
            let holds = first.next().is_none();
            let is_nearest = last.is_some_and(|last| last.path == theirs.path);
            before.len() == ahead.count && is_nearest && ahead.holds == holds
        });
        let is_owner = theirs.owner == nearest.stat.ephemeral_owner;
        is_so && is_read && is_owner
    }

    /// Judges the lines after a turn: each thread that waits behind others of its client knows how many there are.
    pub(crate) fn judge_line(&mut self, client: usize) {
        if let Some(why) = self.is_untold(client) {
            self.fail(why);
        }
    }

    fn is_untold(&self, client: usize) -> Option<String> {
        let mut follow = self.waiting(client).filter(|op| self.follows(*op));
        follow.find_map(|op| {
            let place = self.line_ahead(op)?;
            let last = self.ops[op].news.last();
            let last = last.map(|(_, last)| (last.count, last.holds));
            let untold = last != Some(place);
            untold.then(|| format!("op {op} is not told of the threads ahead: {place:?}"))
        })
    }

    /// Judges a grant in a run without troubles: its thread was told of each node that was the nearest for longer
    /// than a look takes, and that this node holds if it was alone ahead for as long.
    pub(crate) fn judge_news(&mut self, op: usize) {
        let one = &self.ops[op];
        let node = one.node.as_deref().unwrap_or_default();
        let Some(mine) = self.lives.iter().find(|life| &*life.path == node) else {
            return;
        };
        if one.was_handed_on || !self.follows(op) || mine.from < one.asked {
            return;
        }
        let ahead = self.lives.iter();
        let ahead: Vec<_> = ahead
            .filter(|life| life.is_ahead_of(one.path(), node))
            .collect();
        // Each hold is read and removed first, and nobody is told of a hold that is over.
        let holds = ahead.iter().filter(|life| life.is_hold).count() as u32;
        let looks = self.trips(10 + 6 * holds, 12 + 6 * holds);
        let left = |life: &Life| life.to.unwrap_or(self.now).min(self.now);
        for theirs in ahead.iter().filter(|life| !life.is_hold) {
            let nearer = ahead.iter().filter(|life| theirs.number() < life.number());
            let farther = ahead.iter().filter(|life| life.number() < theirs.number());
            let since = nearer.map(|life| left(life)).fold(mine.from, Time::max);
            let alone = farther.map(|life| left(life)).fold(since, Time::max);
            let told = |holds: bool| {
                one.news.iter().any(|(_, told)| {
                    let nearest = told.nearest.as_ref();
                    (told.holds || !holds) && nearest.is_some_and(|it| *it.node == *theirs.path)
                })
            };
            let (was_nearest, was_alone) =
                (since + looks < left(theirs), alone + looks < left(theirs));
            // Only then does the thread watch whom the nearest one waits for.
            let watches = one.want.role == Role::Exclusive && passes_on(&theirs.path, node);
            if (was_nearest && !told(false)) || (watches && was_alone && !told(true)) {
                let theirs = theirs.path.clone();
                return self.fail(format!("op {op} was not told of {theirs} ahead"));
            }
        }
    }
}

// The reasons for having no lock.
impl World {
    /// Judges the reason that a holder is told for the loss of its lock.
    pub(crate) fn judge_reason(&mut self, op: usize, why: Loss) {
        let one = &self.ops[op];
        let client = &self.clients[one.client];
        let node = one.node.as_deref().unwrap_or_default();
        let life = self.lives.iter().rev().find(|life| &*life.path == node);
        let owner = life.map_or(0, |life| life.owner);
        let is_right = match why {
            Loss::NotConfirmed => one.trust.until <= self.now || !client.serves(self.now),
            Loss::Evicted => self.evicted.iter().any(|evicted| evicted == node),
            Loss::NodeGone => life.is_some_and(|life| life.to.is_some()),
            Loss::SessionExpired => client.core.session().0 != owner && !client.is_closed,
            Loss::Closed => client.is_closed,
            Loss::AuthFailed | Loss::GivenUp => false,
        };
        if !is_right {
            return self.fail(format!("op {op} is lost, and not by {why:?}"));
        }
        let may_follow = |first: Loss| {
            let explains = matches!(why, Loss::Evicted | Loss::SessionExpired);
            first == why || (first == Loss::NodeGone && explains)
        };
        if one.loss.is_some_and(|(_, first)| !may_follow(first)) {
            return self.fail(format!(
                "op {op} is lost by {:?}, then by {why:?}",
                one.loss
            ));
        }
        self.seen.explained += u64::from(one.loss.is_some_and(|(_, first)| first != why));
        let since = one.loss.map_or(self.now, |(since, _)| since);
        self.ops[op].loss = Some((since, why));
    }

    /// Judges a guard that is given up. If its node was gone, and a request that was sent later was answered, or
    /// the session has ended, the reason is known, unless the server throws requests away.
    pub(crate) fn judge_explained(&mut self, op: usize) {
        let one = &self.ops[op];
        let client = &self.clients[one.client];
        if let Some((since, Loss::NodeGone)) = one.loss {
            let is_heard = client.throttled_until < since;
            let answered = is_heard && client.connected_at < since && since < client.answered;
            let has_expired = client.core.session().0 == 0 && !client.is_closed;
            if answered || has_expired {
                self.fail(format!("op {op} is never told why its node is gone"));
            }
        }
    }

    /// Judges a try that is told that its lock is taken: somebody else was there, or the nodes that its client had
    /// left were not gone in time.
    pub(crate) fn judge_try(&mut self, op: usize) {
        let one = &self.ops[op];
        if one.want.role == Role::Permit {
            return self.judge_try_for_permit(op);
        }
        let (client, path) = (one.client, one.want.path);
        let stands =
            |life: &&Life| life.is_in(one.path()) && life.to.is_none_or(|to| one.asked <= to);
        let had = |life: &&Life| {
            let mut ops = self.ops.iter();
            ops.any(|other| other.node.as_ref() == Some(&life.path))
        };
        let lives = self.lives.iter().filter(stands);
        // The nodes of a former session go with that session, and nobody here deletes them.
        let (session, _) = self.clients[client].core.session();
        let mut others = lives.filter(|life| life.owner != session || had(life));
        // Threads that read or write stand in the queue beside others of their client, even those that asked later.
        let before = (0..self.ops.len()).filter(|other| match other.cmp(&op) {
            Ordering::Less => true,
            Ordering::Equal => false,
            Ordering::Greater => !one.is_in_line_of(&self.ops[*other]),
        });
        let mut before = before.filter(|other| {
            let other = &self.ops[*other];
            let left = other.left().unwrap_or(self.now);
            (other.client, other.want.path) == (client, path) && one.asked <= left
        });
        let is_taken = others.next().is_some() || before.next().is_some();
        if !is_taken && self.now < one.asked + PASSING {
            self.fail(format!("op {op} finds taken what its own client has left"));
        }
    }
}

// The counts.
impl Client {
    /// Returns whether a server serves the client, and has served it before this moment.
    fn serves(&self, now: Time) -> bool {
        self.is_serving && self.connected_at < now
    }
}

impl World {
    /// Judges a client that was closed: all its threads are woken, and its core wants nothing.
    pub(crate) fn judge_end_of(&mut self, client: usize) {
        let next = self.clients[client].core.next_tick();
        let mut ops = self.ops.iter().filter(|op| op.client == client);
        let waits = ops.any(|op| op.granted.is_none() && op.ended.is_none());
        if waits || next.is_some() {
            self.fail(format!("c{client} is closed, and goes on until {next:?}"));
        }
        self.judge_loss(client);
    }

    pub(crate) fn judge_counts(&mut self, client: usize) {
        let one = &self.clients[client];
        let ops = || self.ops.iter().filter(|op| op.client == client);
        let is = one.core.counts();
        let count = |which: &dyn Fn(&Op) -> bool| ops().filter(|op| which(op)).count() as u64;
        let expected = Counts {
            grants: count(&|op| op.granted.is_some()),
            handed_on: count(&|op| op.was_handed_on),
            losses: one.lost_guards.len() as u64,
            reconnects: one.greetings.saturating_sub(1),
            expiries: one.expiries,
            // These three are only checked against the bounds below.
            waits: is.waits,
            suspicions: is.suspicions,
            leftovers: is.leftovers,
        };
        let asked = ops().count() as u64;
        let most = asked + one.greetings;
        let quiet = self.plan.is_quiet();
        let too_many = is.grants < is.waits + is.handed_on
            || most * 2 < is.leftovers
            || (quiet && !self.is_far() && is.suspicions != 0);
        let waited =
            count(&|op| op.granted.is_some() && op.news.iter().any(|it| it.1.nearest.is_some()));
        let too_few = is.waits < waited || is.suspicions < one.suspicions;
        if is != expected || too_many || too_few {
            self.fail(format!(
                "c{client} has counted {is:?}, and not {expected:?}, {waited} waits"
            ));
        }
    }

    /// Returns the client whose session this is or was.
    pub(crate) fn client_of(&self, session: i64) -> Option<usize> {
        let mut conns = self.conns.iter();
        let conn = conns.find(|conn| conn.session == session && BEGINNING <= self.now)?;
        Some(conn.client)
    }
}
