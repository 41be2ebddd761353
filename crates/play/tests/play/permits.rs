//! Semaphores: never more permits out than there are, the queue of their clients, and what a permit must cost.
//!
//! A call has a node in the line, its place, and then one among the permits. The play knows its permit, and finds the
//! place by its session: each client has one place in a line at a time.

use std::time::Duration;

use fastrand::Rng;
use zklock_core::dialect::Role;

use crate::client::Op;
use crate::plan::Plan;
use crate::servers::Time;
use crate::told::PASSING;
use crate::world::{Life, PATHS, World};

/// The directories of the lines, and those of the permits.
pub(crate) const LINES: [&str; 2] = ["/a/locks", "/b/c/locks"];
pub(crate) const SEATS: [&str; 2] = ["/a/leases", "/b/c/leases"];

impl Plan {
    /// All threads want permits.
    pub(crate) fn add_permits(&mut self, chance: &mut Rng, hold: Duration) {
        self.permits = [(); 2].map(|()| chance.u32(1..=4));
        (self.writes, self.notes) = (false, false);
        if chance.bool() {
            self.add_wants(chance, hold);
        }
        for want in self.clients.iter_mut().flatten().flatten() {
            want.role = Role::Permit;
        }
        if chance.u8(..4) == 0 {
            self.add_refusals(chance, hold);
        }
    }

    /// Returns whether threads want permits.
    pub(crate) fn has_permits(&self) -> bool {
        self.permits[0] != 0
    }
}

impl Op {
    fn wants_permit_at(&self, path: usize) -> bool {
        self.want.role == Role::Permit && self.want.path == path
    }
}

// Was a promise broken?
impl World {
    /// Judges the grant of a permit.
    pub(crate) fn judge_permit(&mut self, op: usize) {
        if let Some(why) = self.has_jumped_the_line(op) {
            return self.fail(why);
        }
        self.seen.permits += 1;
        self.seen.shared += u64::from(1 < self.valid_permits(self.ops[op].want.path));
        let due = match self.plan.is_quiet() {
            true => Some(self.permit_due(op)),
            false => self.permit_due_after_troubles(op),
        };
        let Some((due, why)) = due else { return };
        if due < self.now {
            let late = self.now - due;
            self.fail(format!(
                "op {op} was granted a permit {late:?} late: its last wait was for {why}"
            ));
        }
    }

    /// Returns how many guards of permits of this semaphore are valid.
    pub(crate) fn valid_permits(&self, path: usize) -> usize {
        let ops = 0..self.ops.len();
        ops.filter(|op| self.ops[*op].wants_permit_at(path) && self.is_valid(*op))
            .count()
    }

    /// Returns whether more guards are valid than there are permits, none of them beyond the promise.
    pub(crate) fn are_too_many(&self, path: usize, is_beyond: impl Fn(usize) -> bool) -> bool {
        let ops = 0..self.ops.len();
        let valid = ops.filter(|op| {
            self.ops[*op].wants_permit_at(path) && self.is_valid(*op) && !is_beyond(*op)
        });
        (self.plan.permits[path] as usize) < valid.count()
    }

    /// Returns the place in the line from which this op was granted its permit.
    fn place_of(&self, op: &Op) -> Option<&Life> {
        let node = op.node.as_deref()?;
        let seat = self.lives.iter().rev().find(|life| &*life.path == node)?;
        let places = self.lives.iter().rev();
        let mut places = places.filter(|life| life.is_in(LINES[op.want.path]));
        places.find(|life| life.owner == seat.owner && life.from <= seat.from)
    }

    /// Returns a complaint if somebody else was first in the line.
    fn has_jumped_the_line(&self, op: usize) -> Option<String> {
        let one = &self.ops[op];
        let line = LINES[one.want.path];
        let Some(mine) = self.place_of(one) else {
            return Some(format!("op {op} has a permit, and never stood in the line"));
        };
        let mut ahead = self
            .lives
            .iter()
            .filter(|it| it.is_ahead_of(line, &mine.path))
            // In a directory that was made again, the numbers begin anew.
            .filter(|it| mine.to.is_none_or(|went| it.from <= went) && mine.zxids.0 > it.zxids.0);
        let other = ahead.find(|life| match (life.to, mine.to) {
            (None, _) => true,
            (Some(theirs), Some(went)) => went < theirs,
            (Some(_), None) => false,
        })?;
        Some(format!(
            "op {op} was granted {:?} from {}, behind {}",
            one.node, mine.path, other.path
        ))
    }

    /// Judges a try that is told that no permit is free, as some moment since its call must have shown; or it has waited
    /// for those in the line, or for what its client has left, for as long as it may.
    pub(crate) fn judge_try_for_permit(&mut self, op: usize) {
        let one = &self.ops[op];
        let (session, _) = self.clients[one.client].core.session();
        let had = |life: &Life| {
            self.ops
                .iter()
                .any(|op| op.node.as_ref() == Some(&life.path))
        };
        let is_its = |life: &Life| life.owner == session && one.asked <= life.from && !had(life);
        let seats = self
            .lives
            .iter()
            .filter(|life| life.is_in(SEATS[one.want.path]));
        let seats: Vec<_> = seats.filter(|life| !is_its(life)).collect();
        let out = |at: Time| {
            let is_out = |life: &&&Life| life.from <= at && life.to.is_none_or(|to| at <= to);
            seats.iter().filter(is_out).count()
        };
        let moments = seats.iter().map(|life| life.from).chain([one.asked]);
        let mut moments = moments.filter(|at| one.asked <= *at);
        let is_full = moments.any(|at| self.plan.permits[one.want.path] as usize <= out(at));
        if !is_full && self.now < one.asked + PASSING {
            self.fail(format!("op {op} finds all permits taken, and one was free"));
        }
    }
}

// Was anything late?
impl World {
    /// Returns when a permit should have been granted, and what came last before that.
    ///
    /// The steps: the place is created, and the look comes with it; the permit is created and counted. Behind others,
    /// the event of the last one's node is the turn, the look follows, and then the permit. Without room, the event of
    /// a permit that is given back is followed by a listing, with which the proof leaves.
    fn permit_due(&self, op: usize) -> (Time, &'static str) {
        let one = &self.ops[op];
        let path = one.want.path;
        let connected = self.clients[one.client].connected_at;
        // A try looks before it stands in the line.
        let mut more = 4 * u32::from(one.want.tries);
        if one.asked <= self.made_at(path) + self.trips(4, 8) {
            more += 14;
        }
        let after = |trips: u32| self.trips(trips + more, (trips + more) * 2);
        let mut due = (one.asked.max(connected) + after(6), "its call");
        for other in self.ops.iter().filter(|it| it.wants_permit_at(path)) {
            let is_before = other.client == one.client && !std::ptr::eq(other, one);
            let left = other
                .settled()
                .filter(|_| is_before)
                .map(|left| left + after(4));
            if let Some(left) = left.filter(|left| due.0 < *left) {
                due = (left, "a thread");
            }
        }
        for wait in [self.turn_due(one), self.room_due(one)] {
            due = wait.filter(|wait| due.0 < wait.0).unwrap_or(due);
        }
        due
    }

    /// Returns the time from which nothing but the servers' disks kept this permit from its op.
    pub(crate) fn permit_free_since(&self, one: &Op) -> Time {
        let path = one.want.path;
        let before = self.ops.iter().filter(|it| it.wants_permit_at(path));
        let before = before.filter(|it| it.client == one.client && !std::ptr::eq(*it, one));
        let left = before.filter_map(|it| it.settled());
        let asked = one.asked.max(self.clients[one.client].connected_at);
        let left = left.filter(|at| *at <= self.now && one.granted.is_none_or(|to| *at <= to));
        let free = left.chain(self.turn_at(one)).chain(self.room_at(one));
        free.fold(asked, Time::max)
    }

    /// Returns when the last one ahead in the line left it.
    fn turn_at(&self, one: &Op) -> Option<Time> {
        let place = self.place_of(one)?;
        let lives = self.lives.iter();
        let ahead = lives.filter(|life| life.is_ahead_of(LINES[one.want.path], &place.path));
        ahead.filter_map(|life| life.to).max()
    }

    /// Returns when the last of the semaphore's directories was made.
    fn made_at(&self, path: usize) -> Time {
        let dirs = [PATHS[path], LINES[path], SEATS[path]];
        let made = self.lives.iter().filter(|life| dirs.contains(&&*life.path));
        made.fold(Time::ZERO, |at, life| at.max(life.from))
    }

    fn turn_due(&self, one: &Op) -> Option<(Time, &'static str)> {
        let place = self.place_of(one)?;
        let lives = self.lives.iter();
        let ahead = lives.filter(|life| life.is_ahead_of(LINES[one.want.path], &place.path));
        let ahead: Vec<_> = ahead.collect();
        let gone = ahead.iter().filter_map(|life| life.to).max()?;
        let turn = gone + self.after_release(&place.path, &ahead, gone);
        Some((turn + self.trips(4, 8), "its turn"))
    }

    /// Returns when the last permit was given back before there was room for this op.
    fn room_at(&self, one: &Op) -> Option<Time> {
        let place = self.place_of(one)?;
        let node = one.node.as_deref();
        let permits = self.plan.permits[one.want.path] as usize;
        let seats = self
            .lives
            .iter()
            .filter(|life| life.is_in(SEATS[one.want.path]));
        let seats: Vec<_> = seats.filter(|life| Some(&*life.path) != node).collect();
        let was_full = |at: Time| {
            let out = |life: &&&Life| life.from < at && life.to.is_none_or(|to| at <= to);
            permits <= seats.iter().filter(out).count()
        };
        let left = seats.iter().filter_map(|life| life.to);
        let left = left.filter(|at| place.from <= *at && was_full(*at));
        left.max()
    }

    fn room_due(&self, one: &Op) -> Option<(Time, &'static str)> {
        let room = self.room_at(one)?;
        // A try looks twice, the second time at a server that has caught up, before it creates a node.
        let trips = 3 + 4 * u32::from(one.want.tries);
        Some((room + self.trips(trips, 8 + trips), "a permit"))
    }

    /// Returns when a permit is due for who has asked after the last trouble.
    fn permit_due_after_troubles(&mut self, op: usize) -> Option<(Time, &'static str)> {
        let one = &self.ops[op];
        if one.asked <= self.calm_at || one.asked <= self.made_at(one.want.path) {
            return None;
        }
        let (due, why) = self.permit_due(op);
        self.seen.recovered += 1;
        // The place needs a proof that counts, and the permit comes after it.
        let recovers = self.recovered_at(one.client) + self.trips(3, 6);
        Some((due.max(recovers), why))
    }
}

// Did it cost more than it must?
impl World {
    /// Returns how many times an op looks at most, and how many permits are given back while it is first in the line,
    /// each of which it hears of.
    pub(crate) fn costs_of_permit(&self, op: &Op) -> (u32, u32) {
        let place = self.place_of(op);
        let lives = || self.lives.iter();
        let first = place.map_or(op.asked, |place| {
            let ahead = lives().filter(|it| it.is_ahead_of(LINES[op.want.path], &place.path));
            ahead.filter_map(|life| life.to).fold(place.from, Time::max)
        });
        let until = op.settled().unwrap_or(self.now);
        let seats = lives().filter(|life| life.is_in(SEATS[op.want.path]));
        let gone = seats.filter(|life| life.to.is_some_and(|at| first <= at && at <= until));
        (2 + u32::from(op.want.tries), gone.count() as u32)
    }
}
