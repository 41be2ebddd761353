//! Servers whose disks are slow: every commit takes long, and reads and pings do not. Another server is no faster, and
//! whoever leaves its own waits for the disks once more. Where a commit takes nearly as long as a guard is valid, a grant
//! that waits for more proofs is kept, and comes later: both are judged.

use std::ops::Range;
use std::time::Duration;

use fastrand::Rng;

use zklock_core::dialect::Role;

use crate::client::Op;
use crate::plan::{Plan, Trouble, What};
use crate::servers::Time;
use crate::world::World;
use crate::{judged, number};

/// The number of seeds that every test run plays.
const SEEDS: u64 = 2_000;

impl Plan {
    /// Lets nothing happen but that all disks are slow: a commit takes up to `part` of the session timeout, and half of
    /// that at least.
    fn with_slow_disks(mut self, seed: u64, part: u32) -> Self {
        let mut chance = Rng::with_seed(!seed);
        self.trip = self.trip.min(Duration::from_millis(5));
        self.grants = self.grants.map(|_| self.timeout);
        let takes = self.timeout / part / 2;
        self.troubles = vec![Trouble {
            at: self.timeout * chance.u32(0..100) / 100,
            what: What::SlowDisks { takes },
            time: self.timeout * 4,
        }];
        self
    }
}

impl World {
    /// Returns the time from which nothing but the servers' disks kept this lock from its op.
    fn free_since(&self, op: usize) -> Time {
        let one = &self.ops[op];
        if one.want.role == Role::Permit {
            return self.permit_free_since(one);
        }
        let node = one.node.as_deref().unwrap_or_default();
        let line = self.ops[..op].iter();
        let line = line.filter(|it| (it.client, it.want.path) == (one.client, one.want.path));
        let ahead = self.lives.iter();
        let ahead = ahead.filter(|life| life.is_ahead_of(one.path(), node));
        let asked = one.asked.max(self.clients[one.client].connected_at);
        let left = line.filter_map(Op::left);
        left.chain(ahead.filter_map(|life| life.to))
            .fold(asked, Time::max)
    }

    /// Returns whether an op that asked the servers has lost its lock within a quarter of the session timeout, which is
    /// how long one commit takes, although its connection lasted.
    fn is_lost_soon(&self, op: &Op) -> bool {
        let (Some(granted), Some((lost, _))) = (op.granted, op.loss) else {
            return false;
        };
        let asked = !op.was_handed_on;
        let is_held = op.released.is_none_or(|released| lost <= released);
        let lasts = self.clients[op.client].broke_at < granted;
        asked && is_held && lasts && lost < granted + self.plan.timeout / 4
    }

    /// Returns how long each op that asked the servers waited for a lock that was free, while its connection lasted.
    fn waits(&self) -> impl Iterator<Item = (usize, Duration)> {
        let ops = self.ops.iter().enumerate();
        let ops =
            ops.filter(|(_, op)| !op.was_handed_on && self.clients[op.client].broke_at < op.asked);
        ops.filter_map(|(at, op)| Some((at, op.granted?.saturating_sub(self.free_since(at)))))
    }
}

/// Returns the seeds to play.
fn seeds() -> Range<u64> {
    let first = number("ZKLOCK_PLAY_FIRST").unwrap_or(0);
    first..first + number("ZKLOCK_PLAY").map_or(SEEDS, |seeds| seeds / 20)
}

/// Plays many seeds; none of them may be `wrong`.
fn play(part: u32, wrong: &str, is_wrong: fn(&World) -> bool) {
    let seeds = seeds();
    let (mut grants, count) = (0, seeds.end - seeds.start);
    for seed in seeds {
        let world = |tells| judged(Plan::of(seed).with_slow_disks(seed, part), seed, tells);
        let mut played = world(false);
        grants += played.seen.grants;
        if played.failure.is_none() && is_wrong(&played) {
            played.fail(wrong);
        }
        if let Some(why) = played.failure {
            panic!("{}seed {seed}: {why}", world(true).story());
        }
    }
    assert!(count <= grants, "{grants} of {count}");
}

#[test]
fn every_lock_and_server_is_kept_although_disks_are_slow() {
    play(7, "a client leaves a server whose disk is slow", |world| {
        0 < world.seen.broken + world.seen.lost
    });
}

#[test]
fn every_client_leaves_one_server_at_most_because_disks_are_very_slow() {
    play(
        5,
        "a client leaves two servers whose disks are slow",
        |world| world.clients.len() < world.seen.broken as usize,
    );
}

/// Three commits bring a node into a directory that is missing, and three proofs are enough for a grant. Here most
/// locks are granted on one commit. Whether a guard outlasts its first check is luck where that takes longer than the
/// last proof, so losses are counted.
#[test]
fn every_lock_is_granted_soon_and_hardly_one_is_lost_at_once_although_disks_are_very_slow() {
    let Range { start, end } = seeds();
    let (mut waits, mut lost) = (Vec::new(), Vec::new());
    for seed in start..end.max(start + SEEDS * 4) {
        let mut played = judged(Plan::of(seed).with_slow_disks(seed, 4), seed, false);
        let timeout = played.plan.timeout;
        // A permit takes another node, in a directory of its own.
        let takes = |op: usize| match played.ops[op].want.role {
            Role::Permit => timeout * 3,
            _ => timeout * 3 / 2,
        };
        let late = played.waits().find(|(op, wait)| takes(*op) < *wait);
        if let Some((op, wait)) = late {
            played.fail(format!("op {op} waits {wait:?} for a lock that is free"));
        }
        if let Some(why) = played.failure {
            panic!("seed {seed}: {why}");
        }
        let parts = played.waits();
        let parts = parts.filter(|(op, _)| played.ops[*op].want.role != Role::Permit);
        waits.extend(parts.map(|(_, wait)| wait.as_secs_f64() / timeout.as_secs_f64()));
        let soon = played.ops.iter().filter(|op| played.is_lost_soon(op));
        lost.extend(soon.map(|_| seed));
    }
    let (grants, losses) = (waits.len(), lost.len());
    let mean = waits.iter().sum::<f64>() / grants as f64;
    let seed = lost.first().unwrap_or(&start);
    assert!(
        mean < 1.0 / 33.0 && losses * 1_000 < grants,
        "seed {seed}: {losses} of {grants} locks are lost soon after their grants, which take {mean:.4} T on average"
    );
}
