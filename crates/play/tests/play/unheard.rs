//! Clients whose connect requests servers take, and whose answers are lost: each request extends the session. A
//! client gives its session up after a while. What the session has stays until the servers end it.

use fastrand::Rng;
use zklock_play::Core;

use crate::plan::{Plan, Trouble, What};
use crate::world::World;
use crate::{judged, number};

/// The number of seeds that every test run plays.
const SEEDS: u64 = 3_000;

impl Plan {
    fn with_unheard_clients(mut self, seed: u64) -> Self {
        let mut chance = Rng::with_seed(!seed);
        for client in 0..self.clients.len() {
            let [at, time] = [(); 2].map(|()| self.timeout * chance.u32(0..100) / 100);
            let what = What::Unheard { client };
            self.troubles.push(Trouble { at, what, time });
        }
        self
    }
}

impl World {
    /// Returns whether an answer to a connect request is lost, or comes after the session was given up.
    pub(crate) fn is_unheard(&mut self, client: usize) -> bool {
        let one = &mut self.clients[client];
        let Some(until) = one.unheard_until.filter(|_| one.core.session().0 != 0) else {
            one.unheard_until = None;
            return false;
        };
        if until <= self.now {
            one.unheard_until = None;
            one.expiries += 1;
            self.seen.given_up += 1;
            self.tell_story(|| format!("c{client} gives its session up"));
            self.turn(client, Core::expired);
            self.judge_loss(client);
        }
        self.breaks(client, true);
        true
    }
}

#[test]
fn clients_that_give_their_sessions_up_keep_every_promise() {
    let first = number("ZKLOCK_PLAY_FIRST").unwrap_or(0);
    let seeds = number("ZKLOCK_PLAY").map_or(SEEDS, |seeds| seeds / 10);
    let mut given_up = 0;
    for seed in first..first + seeds {
        let world = |tells| judged(Plan::of(seed).with_unheard_clients(seed), seed, tells);
        let played = world(false);
        given_up += played.seen.given_up;
        if let Some(why) = played.failure {
            panic!("{}seed {seed}: {why}", world(true).story());
        }
    }
    assert!(seeds <= given_up, "{given_up} of {seeds}");
}
