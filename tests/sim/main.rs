//! The client that ships, under a seed: threads, clock, network and servers in one process
//! that a seed repeats.
//!
//! A [`Plan`](plan::Plan) is made from a seed, [`play`] carries it out in the simulation, and
//! the checker of the chaos runs judges the history, with the run's exact times. It is
//! compiled with `--cfg zklock_sim` only: `tests/sim.sh` does that.
#![cfg(zklock_sim)]

#[path = "../chaos/checker.rs"]
#[allow(dead_code)]
mod checker;
#[path = "../chaos/history.rs"]
#[allow(dead_code)]
mod history;
#[path = "../chaos/ops.rs"]
mod ops;
#[path = "../chaos/story.rs"]
#[allow(dead_code)]
mod story;

mod client;
mod plan;
mod play;
mod seeds;
mod shrink;
mod troubles;
