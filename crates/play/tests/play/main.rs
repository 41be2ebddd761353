//! Plays whole runs of several cores against simulated servers, each from a seed.
//!
//! [`plan`] says what a seed stands for, [`servers`] how the ensemble behaves, [`client`] what the shell around a
//! core does, [`judge`] what must hold, and [`told`] what users must be told. Time is virtual, requests are typed,
//! and there is no thread: a seed is the same run every time, and takes a fraction of a millisecond.
//!
//! ```text
//!  plan ──► world ──► servers (leader, followers, links)     judge ◄── what guards believe,
//!            │  ▲        ▲                                            what the servers committed,
//!            ▼  │        │ requests, answers, events                  what was asked of them
//!          client: threads ──► Core ──► the shell around it
//! ```
//!
//! A third of the seeds are quiet: nothing breaks, and so nothing may be late, suspect or lost, and no request may
//! be sent in vain. In the other seeds connections break or go silent, replies are lost, processes stop, clients
//! are closed, ticks come late, nodes are deleted by others, and servers freeze, lag, crash, lose each other,
//! elect leaders and throw requests away. In a quarter of the seeds threads write under their locks, in another
//! one releases leave notes, and in a third one another program puts holds into the queues. In a seventh, threads read and
//! write, and in a tenth they want permits of semaphores.
//! [`unheard`] plays some seeds once more, with clients that give their sessions up.
//!
//! `ZKLOCK_PLAY` says how many seeds to play, `ZKLOCK_PLAY_FIRST` from which one on, `ZKLOCK_PLAY_EVERY` how far apart
//! they are, and `ZKLOCK_PLAY_SEED` repeats one and tells its story. `mutants.py` breaks the core by hand; `docs/simulation.md` has the table of
//! its results.

mod agenda;
mod client;
mod holds;
mod judge;
mod permits;
mod places;
mod plan;
mod proofs;
mod servers;
mod slow_disks;
mod told;
mod troubles;
mod unheard;
mod words;
mod world;
mod writes;

use std::env;
use std::time::Instant;

use self::plan::Plan;
use self::world::{Seen, World};

/// The number of seeds that every test run plays.
const SEEDS: u64 = 140_000;

/// One seed of this many is played once more, without threads that want to know whom they wait for.
const COMPARED: u64 = 64;

/// Plays a seed; returns what the run met, or what is wrong.
fn play(seed: u64) -> Result<Seen, String> {
    let mut world = run(Plan::of(seed), seed);
    if seed % COMPARED == 0 && world.failure.is_none() {
        let follows = false;
        let unaware = run(
            Plan {
                follows,
                ..Plan::of(seed)
            },
            seed,
        );
        // The news cost nothing: without them, the run takes the same steps.
        if unaware.seen.steps != world.seen.steps {
            world.fail("the run is another one if nobody wants to know whom it waits for");
        }
    }
    world.failure.map_or(Ok(world.seen), Err)
}

fn run(plan: Plan, seed: u64) -> World {
    judged(plan, seed, false)
}

/// Plays a plan; the world `tells` its story if asked to.
fn judged(plan: Plan, seed: u64, tells: bool) -> World {
    let mut world = World::new(plan, seed, tells);
    world.run();
    world.judge_end();
    world
}

fn story(seed: u64) -> String {
    let world = judged(Plan::of(seed), seed, true);
    format!("{}{}", Plan::of(seed), world.story())
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

#[test]
fn every_promise_is_kept_whatever_breaks() {
    if let Some(seed) = number("ZKLOCK_PLAY_SEED") {
        println!("{}", story(seed));
        return;
    }
    let first = number("ZKLOCK_PLAY_FIRST").unwrap_or(0);
    let every = number("ZKLOCK_PLAY_EVERY").unwrap_or(1);
    let seeds = number("ZKLOCK_PLAY").unwrap_or(SEEDS);
    let (began, mut all) = (Instant::now(), Seen::default());
    for seed in (0..seeds).map(|at| first + at * every) {
        match play(seed) {
            Ok(seen) => all.add(seen),
            Err(why) => panic!("{}seed {seed}: {why}", story(seed)),
        }
    }
    let each = began.elapsed().as_secs_f64() / seeds as f64;
    println!(
        "{seeds} seeds, {} steps each, {:.0} seeds a second: {all:?}",
        all.steps / seeds,
        1.0 / each,
    );
    // Seeds that never meet a case prove nothing about it.
    for count in [
        all.handed_on,
        all.joined,
        all.expired,
        all.lost,
        all.looked_for,
        all.written,
        all.doubted,
        all.noted,
        all.followed,
        all.unheld,
        all.told,
        all.explained,
        all.recovered,
        all.shared,
        all.permits,
    ] {
        assert!(
            every != 1 || seeds < 1_000 || seeds / 1_000 < count,
            "{all:?}"
        );
    }
}

#[test]
fn a_seed_is_the_same_run_every_time() {
    for seed in 0..50 {
        assert_eq!(story(seed), story(seed));
    }
}
