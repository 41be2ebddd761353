//! Random faults, from a seed that the run prints.

use std::ops::Range;
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::checker::Summary;
use crate::cluster::{Run, SERVERS, number, wait};
use crate::sound::on_sound_servers;
use crate::support::netns::{self, Network};

/// The number of client processes; each has two threads.
pub(super) const CLIENTS: usize = 6;

/// The session timeout: short, so that faults outlast it.
pub(super) const TIMEOUT: Duration = Duration::from_secs(4);

#[test]
#[ignore = "needs a real ZooKeeper: tests/chaos.sh"]
fn random_faults() {
    if netns::is_inside() {
        break_things("random, with links", || {
            Some(Network::new(SERVERS + CLIENTS))
        });
    } else if netns::available() {
        netns::run_inside("scenes::random::random_faults");
    } else {
        break_things("random, without links", || None);
    }
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/chaos.sh --minutes"]
fn random_faults_on_loopback() {
    break_things("random, on loopback", || None);
}

fn break_things(name: &str, network: impl Fn() -> Option<Network>) {
    let summary = on_sound_servers(|| Run::start(name, TIMEOUT, network()), break_for_a_while);
    assert!(0 < summary.faults && 0 < summary.grants, "{summary:?}");
}

fn break_for_a_while(mut run: Run) -> Option<Summary> {
    run.is_witnessed();
    run.staff(CLIENTS);
    let mut rng = Rng::with_seed(run.seed);
    let limit = Duration::from_secs(number("ZKLOCK_CHAOS_SECONDS").unwrap_or(45));
    let start = Instant::now();
    while start.elapsed() < limit {
        wait(rng.u64(200..1500));
        break_something(&mut run, &mut rng, 0..CLIENTS);
        // Sometimes a second fault comes before the first is mended.
        if rng.u32(0..3) == 0 {
            wait(rng.u64(0..1000));
            break_something(&mut run, &mut rng, 0..CLIENTS);
        }
        let longer_than_the_session = rng.u32(0..4) == 0;
        wait(match longer_than_the_session {
            true => rng.u64(4000..8000),
            false => rng.u64(100..2500),
        });
        run.heal();
    }
    run.conclude()
}

/// Breaks one thing, which stays broken until the run is healed; kills no clients but `mortals`.
pub(super) fn break_something(run: &mut Run, rng: &mut Rng, mortals: Range<usize>) {
    let leader = run.ensemble.leader().unwrap_or(0);
    let server = match rng.bool() {
        true => leader,
        false => rng.usize(0..SERVERS),
    };
    let other = (server + rng.usize(1..SERVERS)) % SERVERS;
    let slot = rng.choice(run.slots()).unwrap_or(0);
    let role = if server == leader {
        "the leader"
    } else {
        "a follower"
    };
    let kinds = if run.network.is_some() { 13 } else { 6 };
    match rng.u32(0..kinds) {
        0 => {
            run.fault(&format!("server {server}, {role}, is killed"));
            run.ensemble.kill(server);
        }
        1 => {
            run.fault(&format!("server {server}, {role}, is stopped"));
            run.ensemble.pause(server);
        }
        2 => {
            run.fault(&format!(
                "server {server}, {role}, is killed and started again"
            ));
            run.ensemble.restart_without_waiting(server);
        }
        3 => {
            let slot = rng.usize(mortals);
            run.fault(&format!("client {slot} is killed"));
            run.replace_client(slot);
        }
        4 => {
            run.fault(&format!("client {slot} is stopped"));
            run.pause_client(slot);
        }
        5 => {
            let limit = [2000, 4000, 8000][rng.usize(..3)];
            run.fault(&format!(
                "server {server}, {role}, is started again and grants {limit} ms at most"
            ));
            let line = format!("maxSessionTimeout={limit}");
            run.ensemble.restart_with_without_waiting(server, &line);
        }
        kind => break_a_link(run, rng, kind, (server, other, slot)),
    }
}

fn break_a_link(run: &mut Run, rng: &mut Rng, kind: u32, at: (usize, usize, usize)) {
    let (server, other, slot) = at;
    let client = run.member(slot);
    let text = match kind {
        6 => format!("servers {server} and {other} are cut off from each other"),
        7 => format!("server {server} is cut off from everybody"),
        8 => format!("server {server} is cut off from the servers"),
        9 => format!("client {slot} is cut off from server {server}"),
        10 => format!("client {slot} is cut off from everybody"),
        11 => format!("the link of server {server} is slow or loses packets"),
        _ => format!("what server {server} sends to server {other} is lost, not what comes back"),
    };
    run.fault(&text);
    let Some(network) = &run.network else { return };
    match kind {
        6 => network.cut(server, other),
        7 => network.isolate(server),
        8 => (0..SERVERS)
            .filter(|other| *other != server)
            .for_each(|other| network.cut(server, other)),
        9 => network.cut(client, server),
        10 => network.isolate(client),
        11 if rng.bool() => network.slow(server),
        11 => network.lossy(server),
        _ => network.cut_one_way(server, other),
    }
}
