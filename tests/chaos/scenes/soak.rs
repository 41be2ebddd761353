//! Many faults, one a second, and the resources that have grown meanwhile.
//!
//! Every half minute everything is mended, the clients rest, and the resources that they and the
//! servers use are counted. At that time no trace of a wait or a hold may be left, and nothing may
//! grow over the whole run. One client is killed now and then; the others live from the first fault
//! to the last.

use std::time::{Duration, Instant};

use fastrand::Rng;

use super::random::{CLIENTS, TIMEOUT, break_something};
use crate::checker::Summary;
use crate::cluster::{Run, SERVERS, number, row, wait};
use crate::gauge::{HEADS, Kept, Margin, Sample, Usage, growth, summary};
use crate::sound::on_sound_servers;
use crate::support::eventually;
use crate::support::netns::{self, Network};
use crate::support::zookeeper::ZooKeeper;

/// How long things break before the resources are counted.
const STRETCH: Duration = Duration::from_secs(25);

/// The directories of all locks of a run, which come and go, and the nodes above them.
const DIRECTORIES: i64 = 10;

/// The margin for leaks: for memory, what the allocator may keep; for the servers' descriptors,
/// their connections to each other.
const MARGIN: Margin = Margin {
    memory: 1024,
    nodes: DIRECTORIES,
    descriptors: 12,
};

#[test]
#[ignore = "needs a real ZooKeeper: tests/chaos.sh"]
fn nothing_grows_under_a_fault_every_second() {
    if netns::is_inside() {
        soak(|| Some(Network::new(SERVERS + CLIENTS)));
    } else if netns::available() {
        netns::run_inside("scenes::soak::nothing_grows_under_a_fault_every_second");
    } else {
        soak(|| None);
    }
}

fn soak(network: impl Fn() -> Option<Network>) {
    // The servers delete empty lock directories soon, which is one more fault.
    let builder = ZooKeeper::builder().fsync(false);
    let builder = builder.container_check(Duration::from_secs(10));
    let start = || Run::start_with("soak", TIMEOUT, network(), &builder);
    on_sound_servers(start, soak_one);
}

fn soak_one(mut run: Run) -> Option<Summary> {
    let before = count(&run, 0);
    run.staff(CLIENTS);
    let mut rng = Rng::with_seed(run.seed);
    let limit = Duration::from_secs(number("ZKLOCK_CHAOS_SECONDS").unwrap_or(45));
    let start = Instant::now();
    let mut samples = Vec::new();
    row(&format!("soak | {HEADS}"));
    while start.elapsed() < limit {
        let left = limit.saturating_sub(start.elapsed());
        break_one_a_second(&mut run, &mut rng, STRETCH.min(left));
        let faults = run.faults;
        let sample = run.at_rest(|run| look(run, start.elapsed(), faults));
        let Some(sample) = sample else {
            return run.conclude();
        };
        row(&format!("soak | {sample}"));
        samples.push(sample);
    }
    run.end();
    let after = count(&run, 0);
    row(&format!("soak | before: {before:?}"));
    row(&format!("soak | after: {after:?}"));
    let judged = run.judge();
    row(&format!("soak: {}", summary(&samples, MARGIN)));
    let grown = growth(&samples, MARGIN);
    assert!(grown.is_empty(), "{grown:#?}");
    assert!(after.nodes <= before.nodes + DIRECTORIES, "{after:?}");
    Some(judged)
}

/// Breaks something every second; most faults are mended after one second, and some after several.
fn break_one_a_second(run: &mut Run, rng: &mut Rng, time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        let began = Instant::now();
        break_something(run, rng, CLIENTS - 1..CLIENTS);
        if rng.u32(0..4) != 0 {
            wait(rng.u64(300..900));
            run.mend();
        }
        let rest = Duration::from_secs(1).saturating_sub(began.elapsed());
        std::thread::sleep(rest);
    }
}

/// Counts the resources once the sessions and the queue nodes of killed processes are gone.
fn look(run: &Run, at: Duration, faults: usize) -> Sample {
    let kept = count(run, CLIENTS as i64);
    let clients = run.slots().into_iter().filter(|slot| *slot < CLIENTS - 1);
    Sample {
        at,
        faults,
        clients: clients
            .map(|slot| Usage::of(run.worker(slot).id()))
            .collect(),
        kept,
    }
}

/// Counts the servers' resources while nobody holds or waits, and no session is about to end.
fn count(run: &Run, sessions: i64) -> Kept {
    let mut kept = None;
    eventually(
        "the servers keep nothing but the sessions of the living",
        || {
            let servers = (0..SERVERS).map(|i| run.ensemble.server(i));
            let leader = run.ensemble.leader();
            kept = leader.and_then(|leader| Kept::of(run.ensemble.server(leader), servers));
            kept.is_some_and(|kept| kept.ephemerals == 0 && kept.watches == 0)
                && kept.is_some_and(|kept| kept.sessions == sessions)
        },
    );
    kept.expect("the servers were just asked")
}
