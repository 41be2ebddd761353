//! The embedded server and a real ZooKeeper 3.8, or newer, are asked the same things, and
//! are to answer the same: replies, error codes, stats, zxids up to a shift, and watch events
//! in their place between the replies.
//!
//! A script is a list of steps of three sessions, made by chance from a seed. It plays
//! in a directory of its own, so that it can be played again without one step or
//! another to find the shortest script on which the two differ.

mod client;
mod script;
mod stage;

use std::env;

use self::script::{Step, random_script};
use self::stage::{Stage, play};
use crate::support::zookeeper::ZooKeeper;

const SCRIPTS: usize = 20;

const STEPS: usize = 500;

#[test]
#[ignore = "needs a ZooKeeper server"]
fn random_scripts_end_as_with_a_real_zookeeper() {
    let real = start_real();
    let seed = env::var("ZKLOCK_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("the seed is {seed}: set ZKLOCK_SEED to play the same scripts");
    let mut chance = fastrand::Rng::with_seed(seed);
    for number in 0..SCRIPTS {
        let script = random_script(&mut chance, STEPS);
        if let Err(difference) = play_anew(&real, &script) {
            println!("script {number} of seed {seed}: {difference}");
            let script = shrink(&real, script);
            let difference = play_anew(&real, &script).expect_err("it failed a moment ago");
            panic!("seed {seed}: {difference}\nby the script {script:#?}");
        }
    }
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn the_nodes_of_a_new_server_are_those_of_a_real_zookeeper() {
    let real = start_real();
    play_anew(&real, &script::on_a_new_server()).unwrap();
}

/// Containers are not reaped meanwhile: that comes at a time of its own.
fn start_real() -> ZooKeeper {
    let never = std::time::Duration::from_secs(24 * 60 * 60);
    ZooKeeper::builder()
        .fsync(false)
        .container_check(never)
        .start()
}

fn play_anew(real: &ZooKeeper, script: &[Step]) -> Result<(), String> {
    play(Stage::new(&real.hosts(), is_newer(real)), script)
}

/// Whether the real server is a 3.9 or later.
fn is_newer(real: &ZooKeeper) -> bool {
    let report = real.four_letter("srvr").expect("a report");
    !["3.5.", "3.6.", "3.7.", "3.8."]
        .iter()
        .any(|old| report.contains(&format!("version: {old}")))
}

/// Leaves steps out, many at a time and then fewer, as long as there is a difference.
fn shrink(real: &ZooKeeper, mut script: Vec<Step>) -> Vec<Step> {
    let mut chunk = script.len() / 2;
    while chunk > 0 {
        let mut start = 0;
        while start < script.len() {
            let mut shorter = script.clone();
            shorter.drain(start..(start + chunk).min(script.len()));
            if play_anew(real, &shorter).is_err() {
                script = shorter;
            } else {
                start += chunk;
            }
        }
        chunk /= 2;
    }
    script
}
