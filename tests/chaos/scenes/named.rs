//! Named schedules, each under the workload of many clients.

use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::checker::Summary;
use crate::cluster::{Run, SERVERS, number, wait};
use crate::history::Process;
use crate::holder::{LET_GO, worker_that_holds_mutexes};
use crate::sound::on_sound_servers;
use crate::support::netns::{self, Network};
use crate::support::zookeeper::ZooKeeper;
use crate::workload::ROOT;

const CLIENTS: usize = 4;

const TIMEOUT: Duration = Duration::from_secs(4);

/// Returns how often a schedule is run.
fn rounds() -> u64 {
    number("ZKLOCK_CHAOS_ROUNDS").unwrap_or(1)
}

/// Runs a schedule under the workload, on loopback.
fn under_load(name: &str, timeout: Duration, schedule: impl Fn(&mut Run)) -> Summary {
    let start = || Run::start(name, timeout, None);
    let summary = on_sound_servers(start, |mut run| {
        run.staff(CLIENTS);
        wait(1000);
        for _ in 0..rounds() {
            schedule(&mut run);
            run.make_whole();
            wait(1500);
        }
        run.conclude()
    });
    assert!(0 < summary.grants);
    summary
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/chaos.sh"]
fn a_rolling_restart_loses_no_guard() {
    const HOLDERS: usize = 4;
    let timeout = Duration::from_secs(20);
    let builder = ZooKeeper::builder()
        .fsync(false)
        .tick(Duration::from_secs(1));
    let mut run = Run::start_with("rolling restart", timeout, None, &builder);
    run.staff(CLIENTS);
    let hosts = run.ensemble.hosts();
    let holders = (0..HOLDERS).map(|i| CLIENTS + i);
    for slot in holders.clone() {
        let paths: Vec<_> = (0..5).map(|i| format!("{ROOT}/held-{slot}-{i}")).collect();
        let more = [&hosts].into_iter().chain(&paths).map(String::as_str);
        let more: Vec<_> = more.collect();
        run.hire(Process { slot, life: 0 }, worker_that_holds_mutexes, &more);
    }
    for slot in holders.clone() {
        run.worker(slot).expect("ready");
        run.worker(slot).expect("held");
    }
    for _ in 0..rounds() {
        roll(&mut run);
    }
    wait(1000);
    run.signal(LET_GO);
    for slot in holders {
        // `lost` would come before this.
        run.worker(slot).expect("released");
    }
    let summary = run.finish();
    assert_eq!(summary.lost, 0);
}

fn roll(run: &mut Run) {
    let leader = run.ensemble.wait_for_leader();
    for i in (0..SERVERS).filter(|i| *i != leader).chain([leader]) {
        run.fault(&format!("server {i} is restarted"));
        run.ensemble.restart(i);
        run.ensemble.wait_for_leader();
        run.heal();
        wait(1000);
    }
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/chaos.sh"]
fn a_leader_that_is_stopped_for_longer_than_a_session_harms_nobody() {
    under_load("leader stopped for 2 T", TIMEOUT, |run| {
        let leader = run.ensemble.wait_for_leader();
        run.fault(&format!("leader {leader} is stopped for 8 s"));
        run.ensemble.pause(leader);
        wait(8000);
    });
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/chaos.sh"]
fn outages_shorter_and_longer_than_a_session_harm_nobody() {
    under_load(
        "all servers stopped for T/4, then for 2 T",
        TIMEOUT,
        |run| {
            for millis in [1000, 8000] {
                run.fault(&format!("all servers are stopped for {} s", millis / 1000));
                (0..SERVERS).for_each(|i| run.ensemble.pause(i));
                wait(millis);
                run.make_whole();
                wait(500);
            }
        },
    );
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/chaos.sh"]
fn a_restart_of_all_servers_at_once_harms_nobody() {
    under_load("all servers killed for 2 T", TIMEOUT, |run| {
        run.fault("all servers are killed and stay away for 8 s");
        (0..SERVERS).for_each(|i| run.ensemble.kill(i));
        wait(8000);
    });
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/chaos.sh"]
fn clients_that_are_stopped_for_longer_than_their_session_harm_nobody() {
    under_load("clients stopped for 2 T", TIMEOUT, |run| {
        for slot in 0..CLIENTS / 2 {
            run.fault(&format!("client {slot} is stopped for 8 s"));
            run.pause_client(slot);
        }
        wait(8000);
    });
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/chaos.sh"]
fn links_that_come_and_go_harm_nobody() {
    netns::inside(|| {
        let summary = on_sound_servers(
            || {
                let network = Network::new(SERVERS + CLIENTS);
                Run::start("flapping links", TIMEOUT, Some(network))
            },
            flap,
        );
        assert!(0 < summary.grants);
    });
}

fn flap(mut run: Run) -> Option<Summary> {
    run.staff(CLIENTS);
    let mut rng = Rng::with_seed(run.seed);
    for _ in 0..rounds() {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(8) {
            let (a, b) = (rng.usize(0..SERVERS), rng.usize(0..SERVERS + CLIENTS));
            if a == b {
                continue;
            }
            run.fault(&format!("the link between members {a} and {b} goes"));
            let network = run.network.as_ref().expect("a network");
            network.cut(a, b);
            wait(rng.u64(50..700));
            network.heal();
            wait(rng.u64(50..400));
        }
        run.heal();
        wait(1000);
    }
    run.conclude()
}
