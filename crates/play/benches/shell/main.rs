//! The core without I/O behind a small shell, beside the client that ships.
//!
//! ```text
//! cargo bench -p zklock-play --bench shell -- HOST:PORT [SCENARIO..] [rounds=N] [only=ours|core]
//! cargo bench -p zklock-play --bench shell -- serve PORT
//! ```
//!
//! Without a server's address, as when all benches run, it prints this and ends.
//!
//! Scenarios: `alone`; `threads-16` (of one client, on as many locks); `handoff-4` (clients on one
//! lock); `crowd-8` (threads of one client on one lock); `swarm-4x4` (clients with as many threads
//! each, on one lock); `local-4` (threads of one client that pass one lock on among themselves).
//! Both sides run in turn, in rounds of half a second. A row has the medians: grants a second, and
//! for each grant the processor time of this process in microseconds, how often its threads slept
//! and were driven out, the numbers of requests and writes at the server, and, if `SERVER_PID`
//! names its process, its processor time and how often its threads slept. The last column says how
//! many processors other processes have used: the rates of rounds in which they used much say
//! little.

// A bench neither verifies locks nor cuts connections.
#[allow(dead_code)]
#[path = "../../tests/shell/client.rs"]
mod client;
#[path = "../../tests/shell/reader.rs"]
mod reader;
mod sides;
#[path = "../../tests/shell/sleeper.rs"]
mod sleeper;
#[path = "../../tests/shell/turns.rs"]
mod turns;
#[path = "../../tests/shell/who_reads.rs"]
mod who_reads;
mod window;

use std::env;
use std::thread;

use sides::{Cores, Ours, Side};
use window::{Row, in_threads, median};

const SCENARIOS: [&str; 6] = [
    "alone",
    "threads-16",
    "handoff-4",
    "crowd-8",
    "swarm-4x4",
    "local-4",
];
const SIDES: [&str; 2] = ["ours", "core"];

fn main() {
    let mut hosts = None;
    let mut rounds = 5;
    let mut only = None;
    let mut wanted = Vec::new();
    for arg in env::args().skip(1) {
        match arg.split_once('=') {
            Some(("rounds", number)) => rounds = number.parse().expect("a number of rounds"),
            Some(("only", side)) => only = Some(side.to_owned()),
            // Cargo adds this argument.
            _ if arg == "--bench" => {}
            _ if hosts.is_none() => hosts = Some(arg),
            _ => wanted.push(arg),
        }
    }
    let Some(hosts) = hosts else {
        println!(
            "shell: needs a server: cargo bench -p zklock-play --bench shell -- HOST:PORT [SCENARIO..]"
        );
        return;
    };
    if hosts == "serve" {
        return serve(&wanted);
    }
    if wanted.is_empty() {
        wanted.extend(SCENARIOS.map(str::to_owned));
    }
    println!("{:<22} {}", "", Row::HEAD);
    for scenario in &wanted {
        compare(&hosts, scenario, rounds, only.as_deref());
    }
}

fn compare(hosts: &str, scenario: &str, rounds: usize, only: Option<&str>) {
    let mut all = [const { Vec::new() }; 2];
    for at in 0..rounds {
        // The sides take turns in going first, as the second side may find the server at work.
        for side in [at % 2, 1 - at % 2] {
            let name = SIDES[side];
            let path = format!(
                "/zklock-shell/{name}-{scenario}-{at}-{}",
                std::process::id()
            );
            if only.is_none_or(|only| only == name) {
                all[side].push(match side {
                    0 => round::<Ours>(hosts, scenario, &path),
                    _ => round::<Cores>(hosts, scenario, &path),
                });
            }
        }
    }
    for (name, rows) in SIDES.iter().zip(&all) {
        if !rows.is_empty() {
            println!("{:<22} {}", format!("{scenario} {name}"), median(rows));
        }
    }
    let pairs = all[0].iter().zip(&all[1]);
    let won = pairs.filter(|(ours, core)| ours.rate < core.rate).count();
    if only.is_none() {
        println!("{:<22} the core had more grants in {won} of {rounds}", "");
    }
}

/// Runs a server in this process until the process is killed.
fn serve(port: &[String]) {
    let port = port.first().and_then(|port| port.parse().ok());
    let server = zklock::embedded::Server::builder().port(port.expect("a port"));
    let _server = server.start().expect("the port is free");
    loop {
        thread::park();
    }
}

fn round<S: Side>(hosts: &str, scenario: &str, path: &str) -> Row {
    let (kind, count) = scenario.split_once('-').unwrap_or((scenario, "1"));
    let number = |text: &str| text.parse::<usize>().expect("a number");
    let (clients, threads) = match count.split_once('x') {
        Some((clients, threads)) => (number(clients), number(threads)),
        None if kind == "handoff" => (number(count), 1),
        None => (1, number(count)),
    };
    let local_handoffs = if kind == "local" { u32::MAX } else { 0 };
    let connect = |_| S::connect(hosts, local_handoffs);
    let sides: Vec<_> = (0..clients).map(connect).collect();
    in_threads(hosts, clients * threads, |at, cycles| {
        let path = match kind {
            "threads" => format!("{path}-{at}"),
            _ => path.to_owned(),
        };
        sides[at % clients].cycles(&path, cycles);
    })
}
