//! The rates of the locks beside those of a raw socket that does only what a lock needs.
//!
//! ```text
//! cargo bench --bench floor -- HOST:PORT [SCENARIO..] [rounds=N] [hold=MS]
//!     [only=ours|floor|bare|joined|told]
//! ```
//!
//! Without a server's address, as when all benches run, it prints this and ends.
//!
//! Each scenario runs in rounds of half a second, ours and the floor in turn, so that both see the
//! same machine. The bench prints the medians and their ratio. The scenarios: `alone`, `threads-4`,
//! `threads-16` (of one client, on as many locks), `handoff-2`, `handoff-8`, `handoff-32` (clients
//! on one lock), `queue-10`, `queue-100`, `queue-1000` (clients that all wait behind a holder, and
//! then get the lock once each), `fresh-10`, `fresh-100`, `fresh-1000` (the same, 0.7 s after the
//! last client has connected), `crowd-10`, `crowd-100`, `crowd-1000` (the same, but they are
//! threads of 8 clients), `swarm-64` (threads of 8 clients that come again and again), `tail` (a
//! free lock, taken 20,000 times: no rates, but the median cycle in microseconds, and the longest
//! of 99 % and of 99.9 % of them). Other numbers work as well; a queue also prints how much memory
//! of this process a waiting client takes. With `hold=2` each client in a queue holds the lock for
//! 2 ms, which does not count.
//!
//! The floor creates a node and lists the directory in one write, and checks whether its node is
//! the first. If not, it watches the node before and lists once more when that node is gone. It
//! does not wait for the reply to its delete. It keeps no session alive, proves nothing and
//! survives nothing. A client that returns to a free lock need not list for ever: `bare` is the
//! same socket without any listing. In `joined`, half of the locks are released and taken again in
//! one transaction. `told` also looks at each node that is created so, for the fencing token.

mod ours;
mod raw;
mod rounds;
mod sockets;

use std::env;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ours::{our_crowd, our_cycles, our_fresh_queue, our_hand_offs, our_queue, our_swarm};
use raw::Raw;
use rounds::HOLD_MS;
use sockets::{
    bare_cycles, floor_cycles, floor_fresh_queue, floor_hand_offs, floor_queue, joined_cycles,
    told_cycles,
};
use zklock::Client;

/// The number of cycles over which the tail is measured.
const TAIL: usize = 20_000;

const SCENARIOS: [&str; 16] = [
    "alone",
    "threads-4",
    "threads-16",
    "handoff-2",
    "handoff-8",
    "handoff-32",
    "queue-10",
    "queue-100",
    "queue-1000",
    "fresh-10",
    "fresh-100",
    "fresh-1000",
    "swarm-64",
    "crowd-10",
    "crowd-100",
    "crowd-1000",
];

fn main() {
    let mut hosts = None;
    let mut rounds = 5;
    let mut only = None;
    let mut wanted = Vec::new();
    for arg in env::args().skip(1) {
        match arg.split_once('=') {
            Some(("rounds", number)) => rounds = number.parse().expect("a number of rounds"),
            Some(("only", side)) => only = Some(side.to_owned()),
            Some(("hold", time)) => {
                HOLD_MS.store(time.parse().expect("milliseconds"), Ordering::Relaxed);
            }
            // Cargo adds this argument.
            _ if arg == "--bench" => {}
            _ if hosts.is_none() => hosts = Some(arg),
            _ => wanted.push(arg),
        }
    }
    let Some(hosts) = hosts else {
        println!("floor: needs a server: cargo bench --bench floor -- HOST:PORT [SCENARIO..]");
        return;
    };
    println!(
        "{:<12} {:>9} {:>9} {:>6} {:>9} {:>9} {:>9}",
        "", "ours/s", "floor/s", "ratio", "bare/s", "joined/s", "told/s"
    );
    if wanted.is_empty() {
        wanted.extend(SCENARIOS.map(str::to_owned));
    }
    for scenario in &wanted {
        let (kind, count) = scenario.split_once('-').unwrap_or((scenario, "1"));
        let count = count.parse().expect("a number");
        match kind {
            "tail" => tails(&hosts, rounds),
            _ => compare(&hosts, scenario, kind, count, rounds, only.as_deref()),
        }
    }
}

/// Measures cycles of a lock and its release: the median, and the longest of 99 % and of 99.9 % of
/// them.
fn tails(hosts: &str, rounds: u32) {
    let [mut ours, mut floor] = [const { [const { Vec::new() }; 3] }; 2];
    for at in 0..rounds {
        let path = |side| format!("/zklock-floor/{side}-tail-{at}-{}", std::process::id());
        let keep = |into: &mut [Vec<f64>; 3], times: Vec<Duration>| {
            into.iter_mut()
                .zip(quantiles(times))
                .for_each(|(all, one)| all.push(one));
        };
        let client = Client::connect(hosts).expect("a server");
        let mutex = client.mutex(&path("ours")).expect("a path");
        keep(&mut ours, timed(|| drop(mutex.lock().expect("the lock"))));
        let (mut raw, dir) = (Raw::connect(hosts), path("floor"));
        raw.make(&dir);
        keep(
            &mut floor,
            timed(|| {
                let node = raw.hold(&dir);
                raw.delete(&node);
                raw.flush();
            }),
        );
    }
    for ((name, ours), floor) in ["50 %", "99 %", "99.9 %"].iter().zip(ours).zip(floor) {
        let (ours, floor) = (median(ours), median(floor));
        let ratio = ours.zip(floor).map(|(ours, floor)| ours / floor);
        let name = format!("{name}, us");
        println!(
            "{name:<12} {:>9} {:>9} {:>6}",
            shown(ours, 0),
            shown(floor, 0),
            shown(ratio, 2)
        );
    }
}

fn timed(mut cycle: impl FnMut()) -> Vec<Duration> {
    for _ in 0..TAIL / 20 {
        cycle();
    }
    let time = |_| {
        let begun = Instant::now();
        cycle();
        begun.elapsed()
    };
    (0..TAIL).map(time).collect()
}

fn quantiles(mut times: Vec<Duration>) -> [f64; 3] {
    times.sort();
    [0.5, 0.99, 0.999].map(|part| times[(times.len() as f64 * part) as usize].as_secs_f64() * 1e6)
}

fn compare(hosts: &str, name: &str, kind: &str, count: usize, rounds: u32, only: Option<&str>) {
    let run = |side: &str, f: fn(&str, usize, &str) -> f64, at: u32| {
        let wanted = only.is_none_or(|only| only == side);
        // An earlier run may have left nodes until its sessions end.
        let path = format!("/zklock-floor/{side}-{name}-{at}-{}", std::process::id());
        wanted.then(|| f(hosts, count, &path))
    };
    let [mut ours, mut floor, mut bare, mut joined, mut told] = [const { Vec::new() }; 5];
    for at in 0..rounds {
        match kind {
            "handoff" => {
                ours.extend(run("ours", our_hand_offs, at));
                floor.extend(run("floor", floor_hand_offs, at));
            }
            "swarm" => {
                ours.extend(run("ours", our_swarm, at));
                floor.extend(run("floor", floor_hand_offs, at));
            }
            "crowd" => {
                ours.extend(run("ours", our_crowd, at));
                floor.extend(run("floor", floor_queue, at));
            }
            "queue" => {
                ours.extend(run("ours", our_queue, at));
                floor.extend(run("floor", floor_queue, at));
            }
            "fresh" => {
                ours.extend(run("ours", our_fresh_queue, at));
                floor.extend(run("floor", floor_fresh_queue, at));
            }
            _ => {
                ours.extend(run("ours", our_cycles, at));
                floor.extend(run("floor", floor_cycles, at));
                bare.extend(run("bare", bare_cycles, at));
                joined.extend(run("joined", joined_cycles, at));
                told.extend(run("told", told_cycles, at));
            }
        }
    }
    let [ours, floor, bare, joined, told] = [ours, floor, bare, joined, told].map(median);
    let ratio = ours.zip(floor).map(|(ours, floor)| ours / floor);
    println!(
        "{name:<12} {:>9} {:>9} {:>6} {:>9} {:>9} {:>9}",
        shown(ours, 0),
        shown(floor, 0),
        shown(ratio, 2),
        shown(bare, 0),
        shown(joined, 0),
        shown(told, 0)
    );
}

fn median(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied()
}

fn shown(number: Option<f64>, decimals: usize) -> String {
    number.map_or_else(|| "-".to_owned(), |number| format!("{number:.decimals$}"))
}
