//! Servers whose disks are slow: every commit takes long, and reads and pings do not. Another server is no faster, and
//! whoever leaves its own waits for the disks once more.

use std::time::Duration;

use fastrand::Rng;

use crate::plan::{Plan, Trouble, What};
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

/// Plays many seeds; none of them may be `wrong`.
fn play(part: u32, wrong: &str, is_wrong: fn(&World) -> bool) {
    let first = number("ZKLOCK_PLAY_FIRST").unwrap_or(0);
    let seeds = number("ZKLOCK_PLAY").map_or(SEEDS, |seeds| seeds / 20);
    let mut grants = 0;
    for seed in first..first + seeds {
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
    assert!(seeds <= grants, "{grants} of {seeds}");
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
