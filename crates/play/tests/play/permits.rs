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
        self.disagrees = chance.u8(..4) == 0;
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

    /// Returns how many permits a semaphore has for a client.
    pub(crate) fn permits_of(&self, client: usize, path: usize) -> u32 {
        self.permits[path] + u32::from(self.disagrees && client % 2 == 1)
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
        self.judge_time_of_try(op);
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

    /// Judges a write of the number of permits: none is out that was granted under another.
    pub(crate) fn judge_number(&mut self, path: &str, data: &[u8]) {
        let path = PATHS.iter().position(|it| *it == path).unwrap_or_default();
        let number = String::from_utf8_lossy(data).parse::<usize>().ok();
        let seats = self
            .lives
            .iter()
            .filter(|life| life.is_in(SEATS[path]) && life.to.is_none());
        let was_evicted = self.was_evicted_from_line(path);
        let seats = seats.filter(|_| !was_evicted);
        let mut others = seats.filter(|life| self.number_of_seat(life, path) != number);
        if let Some(seat) = others.next() {
            let why = format!(
                "{} has {number:?} permits now, beside {}",
                PATHS[path], seat.path
            );
            self.fail(why);
        }
    }

    /// Judges the end of a try: it waits for those in the line, or for what its client has left, for a while at most.
    pub(crate) fn judge_time_of_try(&mut self, op: usize) {
        let one = &self.ops[op];
        let from = one.asked.max(self.clients[one.client].connected_at);
        let most = PASSING * 2 + self.trips(16, 32);
        if self.plan.is_quiet() && one.want.tries && from + most < self.now {
            let late = self.now - from;
            self.fail(format!("op {op} tries for {late:?}"));
        }
    }

    /// Returns how many guards of permits of this semaphore are valid.
    pub(crate) fn valid_permits(&self, path: usize) -> usize {
        let ops = 0..self.ops.len();
        ops.filter(|op| self.ops[*op].wants_permit_at(path) && self.is_valid(*op))
            .count()
    }

    /// Returns whether more guards are valid than there are permits for this op, none of them beyond the promise, or
    /// one that was granted under another number.
    pub(crate) fn are_too_many(&self, op: usize, is_beyond: impl Fn(usize) -> bool) -> bool {
        let path = self.ops[op].want.path;
        let number = self.number_of(&self.ops[op]);
        let ops = 0..self.ops.len();
        let valid = ops.filter(|op| {
            self.ops[*op].wants_permit_at(path) && self.is_valid(*op) && !is_beyond(*op)
        });
        let mut count = 0;
        for other in valid {
            if self.number_of(&self.ops[other]) != number {
                return !is_beyond(op);
            }
            count += 1;
        }
        number < count
    }

    /// Returns whether somebody was evicted from this line. If it was the first and has not heard of that, it may still
    /// create the node of a permit, which it does not get.
    fn was_evicted_from_line(&self, path: usize) -> bool {
        let mut evicted = self.evicted.iter();
        evicted.any(|node| node.starts_with(LINES[path]))
    }

    fn number_of(&self, op: &Op) -> usize {
        self.plan.permits_of(op.client, op.want.path) as usize
    }

    /// Returns how many permits there are for the client whose permit this is.
    fn number_of_seat(&self, seat: &Life, path: usize) -> Option<usize> {
        let client = self.client_of(seat.owner)?;
        Some(self.plan.permits_of(client, path) as usize)
    }

    /// Returns whether an op may be told that the permits that are out are of clients with this number: they were,
    /// since its call, and in a quiet run a moment ago; and who has a limit waits for them.
    pub(crate) fn is_disagreement(&self, one: &Op, theirs: u32) -> bool {
        let path = one.want.path;
        let seats = self.lives.iter().filter(|life| life.is_in(SEATS[path]));
        let just_now = self.now.saturating_sub(self.trips(6, 12));
        let since = match self.plan.is_quiet() {
            true => one.asked.max(just_now),
            false => one.asked,
        };
        let mut seats = seats.filter(|life| life.to.is_none_or(|to| since <= to));
        let is_out = seats.any(|it| self.number_of_seat(it, path) == Some(theirs as usize));
        let waits = one.until.is_some_and(|until| self.now < until) && !one.want.tries;
        is_out && !waits && self.number_of(one) != theirs as usize
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
        // Another thread of the client may be about to get that permit.
        let before = |other: &Op| {
            let is_other = other.client == one.client && !std::ptr::eq(other, one);
            is_other && other.settled().is_none_or(|at| one.asked <= at)
        };
        let alone = !self.ops.iter().any(before);
        let is_its =
            |life: &Life| alone && life.owner == session && one.asked <= life.from && !had(life);
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
        let is_full = moments.any(|at| self.number_of(one) <= out(at));
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
        more += self.trips_to_agree() + self.trips_for_stats(one);
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
        let gone = ahead
            .iter()
            .filter_map(|life| self.leaves_line(life))
            .max()?;
        let turn = gone + self.after_release(&place.path, &ahead, gone);
        let trips = 4 + self.trips_to_agree() + self.trips_for_stats(one);
        Some((turn + self.trips(trips, trips * 2), "its turn"))
    }

    /// Returns how many trips it takes to read who has a permit of another number, to look again when that one has gone,
    /// and to write the own number.
    fn trips_to_agree(&self) -> u32 {
        8 * u32::from(self.plan.disagrees)
    }

    /// Returns when this place was given up, or had to be: in a quiet run, as soon as its call has a permit.
    fn leaves_line(&self, place: &Life) -> Option<Time> {
        let is_its = |op: &&Op| self.place_of(op).is_some_and(|its| its.path == place.path);
        let quiet = self.plan.is_quiet();
        let op = self.ops.iter().rfind(is_its).filter(|_| quiet);
        let had = op.and_then(|op| op.granted).map(|at| at + self.trips(1, 4));
        place.to.into_iter().chain(had).min()
    }

    /// Returns when the last permit was given back before there was room for this op.
    fn room_at(&self, one: &Op) -> Option<Time> {
        let place = self.place_of(one)?;
        let node = one.node.as_deref();
        let (permits, path) = (self.number_of(one), one.want.path);
        let seats = self
            .lives
            .iter()
            .filter(|life| life.is_in(SEATS[one.want.path]));
        let seats: Vec<_> = seats.filter(|life| Some(&*life.path) != node).collect();
        let was_full = |at: Time| {
            let out = |life: &&&Life| life.from < at && life.to.is_none_or(|to| at <= to);
            let is_others = |life: &&Life| self.number_of_seat(life, path) != Some(permits);
            let mut others = seats.iter().filter(|_| self.plan.disagrees).filter(out);
            permits <= seats.iter().filter(out).count() || others.any(is_others)
        };
        let left = seats.iter().filter_map(|life| life.to);
        let left = left.filter(|at| place.from <= *at && was_full(*at));
        left.max()
    }

    fn room_due(&self, one: &Op) -> Option<(Time, &'static str)> {
        let room = self.room_at(one)?;
        // A try looks twice, the second time at a server that has caught up, before it creates a node. Who has waited for
        // those with another number looks for whoever is left, and writes its own.
        let trips = 3 + 4 * u32::from(one.want.tries) + self.trips_to_agree();
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
        let trips = 3 + self.trips_to_agree() + self.trips_for_stats(one);
        let recovers = self.recovered_at(one.client) + self.trips(trips, trips * 2);
        Some((due.max(recovers), why))
    }
}

// Did it cost more than it must?
impl World {
    /// Returns how many times an op looks at most besides its first listing, and how many permits are given back while it is first in the line,
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
        // Who has had a permit knows that the numbers agree, and need not look before it stands in the line.
        let had = |other: &Op| {
            let is_its = (other.client, other.want.path) == (op.client, op.want.path);
            is_its && other.granted.is_some_and(|at| at <= op.asked)
        };
        let is_known = self.ops.iter().any(had);
        let looks = 2 + u32::from(!is_known) + 2 * u32::from(op.want.tries);
        (looks, gone.count() as u32)
    }
}
