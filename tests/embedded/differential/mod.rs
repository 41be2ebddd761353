//! The embedded server and a real ZooKeeper 3.8, or newer, give the same answers to the same
//! requests: replies, error codes, stats, zxids up to a shift, and watch events at the same places
//! between the replies.
//!
//! A script is a list of random steps of three sessions. Each play has its own directory, so the
//! script can be played again without some of its steps, to find the shortest one for which the
//! servers differ.

mod both_servers;
mod client;
mod script;

use std::env;

use self::both_servers::{BothServers, play};
use self::script::{ScriptStep, random_script};
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

/// Starts a server that never removes containers, because the time of a removal is not fixed.
fn start_real() -> ZooKeeper {
    let never = std::time::Duration::from_secs(24 * 60 * 60);
    ZooKeeper::builder()
        .fsync(false)
        .property("zookeeper.extendedTypesEnabled", "true")
        .container_check(never)
        .start()
}

fn play_anew(real: &ZooKeeper, script: &[ScriptStep]) -> Result<(), String> {
    play(BothServers::new(&real.hosts(), is_newer(real)), script)
}

/// Returns whether the real server is version 3.9 or later.
fn is_newer(real: &ZooKeeper) -> bool {
    let report = real.four_letter("srvr").expect("a report");
    !["3.5.", "3.6.", "3.7.", "3.8."]
        .iter()
        .any(|old| report.contains(&format!("version: {old}")))
}

/// Removes steps, many at a time and then fewer, while there is still a difference.
fn shrink(real: &ZooKeeper, mut script: Vec<ScriptStep>) -> Vec<ScriptStep> {
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
