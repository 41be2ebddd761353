//! The client that ships, in a simulation: its threads, clock, network and servers are in one
//! process, and a seed repeats a run.
//!
//! A seed makes a [`Plan`](plan::Plan), and [`play`] carries it out in the simulation. The checker
//! of the chaos runs judges the history, with the run's exact times, and so does an independent
//! [`judge`]. The library is compiled with `--cfg zklock_sim` for this; `tests/sim.sh` runs it.

#[allow(dead_code)]
#[path = "../../chaos/checker.rs"]
mod checker;
#[cfg(test)]
#[path = "../../chaos/forged.rs"]
mod forged;
#[allow(dead_code)]
#[path = "../../chaos/history.rs"]
mod history;
#[path = "../../../crates/core/tests/model/once/known_slots.rs"]
mod known_slots;
#[path = "../../chaos/ops.rs"]
mod ops;
#[allow(dead_code)]
#[path = "../../chaos/story.rs"]
mod story;

mod campaign;
mod client;
mod fenced;
mod jobs;
mod judge;
mod lives;
mod marks;
mod plan;
mod play;
mod punctual;
mod quiet;
mod shrink;
mod sight;
mod taken;
#[cfg(test)]
mod tests;
mod troubles;

use std::num::NonZero;
use std::panic;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;

use crate::campaign::{Campaign, Stop};
use crate::plan::Plan;
use crate::play::play;
use crate::shrink::shrink;

/// Runs the client in a simulation, and sees whether every promise is kept.
#[derive(Parser)]
struct Args {
    /// Play this many fresh seeds.
    #[arg(long, default_value_t = 3000)]
    seeds: u64,
    /// Play fresh seeds for this many minutes.
    #[arg(long, conflicts_with = "seeds")]
    minutes: Option<u64>,
    /// Begin with this seed rather than with a random one.
    #[arg(long)]
    first: Option<u64>,
    /// Play every nth seed: those of one remainder modulo 16 may be of one kind, see `plan`.
    #[arg(long, default_value_t = 1)]
    every: u64,
    /// Play one seed, and tell its story.
    #[arg(long)]
    seed: Option<u64>,
    /// Report a failing seed as it is, without looking for a smaller plan.
    #[arg(long)]
    unshrunk: bool,
    /// How many runs are in progress at the same time; defaults to one for each core.
    #[arg(long)]
    jobs: Option<u64>,
}

fn main() -> ExitCode {
    match keep_every_promise(&Args::parse()) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Runs the program in the binary of the tests, so that a complete run need not compile both.
#[cfg(test)]
#[test]
#[ignore = "its seeds are fresh; `tests/sim.sh --fresh` plays them"]
fn fresh_seeds_keep_every_promise() {
    assert!(keep_every_promise(&Args::parse_from(["zklock-sim"])));
}

fn keep_every_promise(args: &Args) -> bool {
    be_quiet();
    log::set_logger(&Story).expect("the only logger");
    log::set_max_level(log::LevelFilter::Debug);
    let failed = match args.seed {
        Some(seed) => tell(seed),
        None => search(args),
    };
    match failed {
        Some((seed, plan, story)) => {
            println!("seed {seed} fails:\n{plan:#?}\n{story}");
            println!("seed {seed} fails; `tests/sim.sh --seed {seed}` repeats it");
            false
        }
        None => true,
    }
}

fn tell(seed: u64) -> Option<(u64, Plan, String)> {
    let plan = Plan::from_seed(seed);
    match play(&plan, true) {
        Ok(played) => {
            println!(
                "{plan:#?}\n{}\n{:#?}",
                played.lines.join("\n"),
                played.summary
            );
            None
        }
        Err(story) => Some((seed, plan, story)),
    }
}

fn search(args: &Args) -> Option<(u64, Plan, String)> {
    let first = args.first.unwrap_or_else(|| fastrand::u64(..1 << 48));
    let stop = match args.minutes {
        Some(minutes) => Stop::At(Instant::now() + Duration::from_secs(60 * minutes)),
        None => Stop::After(args.seeds),
    };
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let campaign = Campaign::run(
        (first, args.every),
        &stop,
        args.jobs.unwrap_or(cores as u64),
    );
    println!("{}", campaign.summary(first));
    let (seed, story) = campaign.failed()?;
    let plan = Plan::from_seed(seed);
    let (plan, story) = match args.unshrunk {
        true => (plan, story),
        false => {
            let story = play(&plan, true).err().unwrap_or(story);
            shrink(&plan, story)
        }
    };
    Some((seed, plan, story))
}

/// Silences panics: a panic in a run is on purpose, or the run's failure reports it.
fn be_quiet() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !zklock::sim::is_inside() {
            usual(info);
        }
    }));
}

/// A logger that makes the client's log part of the story.
struct Story;

impl log::Log for Story {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        zklock::sim::records()
    }

    fn log(&self, record: &log::Record<'_>) {
        if zklock::sim::records() {
            zklock::sim::note(&format!("{}: {}", record.level(), record.args()));
        }
    }

    fn flush(&self) {}
}
