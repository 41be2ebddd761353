//! The resources of their process that clients use: threads, memory, processor time.
//!
//! The clients live in a process of their own, so that nothing else is counted.

use std::fs;
use std::thread;
use std::time::Duration;

use zklock::Client;
use zklock::embedded::Server;

use crate::support::fresh_path;
use crate::support::worker::{self, Worker};

/// The memory that a client may use beside its buffers.
const KIB: u64 = 200;
/// How long idle clients are measured; in this time all of them send pings.
const IDLE: Duration = Duration::from_secs(4);
/// The share of one processor for each client: a thousandth.
const SHARE: u32 = 1000;

#[test]
fn a_thousand_clients_work_with_two_threads_and_little_memory_each() {
    let (threads, kib, _) = clients(1000, Duration::ZERO);
    println!("1000 clients: {threads} threads, {kib} KiB");
    assert!(threads <= 2 * 1000, "{threads} threads");
    assert!(kib <= KIB * 1000, "{kib} KiB");
}

#[test]
fn idle_clients_leave_the_processor_alone() {
    let (_, _, busy) = clients(50, IDLE);
    let limit = 50 * IDLE / SHARE;
    println!("50 idle clients: {busy:?} of a processor in {IDLE:?}");
    assert!(busy <= limit, "{busy:?} of at most {limit:?}");
}

#[test]
fn channels_of_events_that_were_dropped_take_little_memory() {
    let server = Server::start().unwrap();
    let worker = Worker::spawn(worker_that_drops_channels, server.hosts());
    let [kib] = worker::words(&worker.hear());
    assert!(kib.parse::<u64>().unwrap() <= 20_000, "{kib} KiB");
}

#[test]
#[ignore = "a worker process"]
fn worker_that_drops_channels() {
    let Some(hosts) = worker::input() else { return };
    let client = Client::connect(&hosts).unwrap();
    let before = status("VmRSS:");
    (0..10_000).for_each(|_| drop(client.events()));
    worker::say(&status("VmRSS:").saturating_sub(before).to_string());
}

/// Returns by how many threads and KiB a process grows with its clients, and how much processor
/// time they use while they have nothing to do.
fn clients(count: u64, idle: Duration) -> (u64, u64, Duration) {
    let server = Server::start().unwrap();
    let (hosts, path, idle) = (server.hosts(), fresh_path("footprint"), idle.as_millis());
    let input = format!("{hosts} {path} {count} {idle}");
    let worker = Worker::spawn(worker_that_has_clients, &input);
    let [threads, kib, nanos] = worker::words(&worker.hear());
    let number = |text: String| text.parse().unwrap();
    let nanos = Duration::from_nanos(number(nanos));
    (number(threads), number(kib), nanos)
}

#[test]
#[ignore = "a worker process"]
fn worker_that_has_clients() {
    let Some(input) = worker::input() else { return };
    let [hosts, path, count, idle] = worker::words(&input);
    let before = (status("Threads:"), status("VmRSS:"));
    let mut clients = Vec::new();
    for at in 0..count.parse::<u32>().unwrap() {
        let client = Client::builder(&hosts).session_timeout(Duration::from_secs(6));
        let client = client.connect().unwrap();
        drop(client.mutex(&format!("{path}/{at}")).unwrap().lock());
        clients.push(client);
    }
    for (at, client) in clients.iter().enumerate() {
        drop(client.mutex(&format!("{path}/{at}")).unwrap().lock());
    }
    let threads = status("Threads:") - before.0;
    let kib = status("VmRSS:").saturating_sub(before.1);
    let used = processor_time();
    thread::sleep(Duration::from_millis(idle.parse().unwrap()));
    let used = processor_time() - used;
    worker::say(&format!("{threads} {kib} {used}"));
}

/// Returns a number that the kernel keeps for this process.
fn status(what: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix(what)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Returns how many nanoseconds the threads of this process have run.
fn processor_time() -> u64 {
    let threads = fs::read_dir("/proc/self/task").unwrap();
    let run = |thread: fs::DirEntry| {
        let text = fs::read_to_string(thread.path().join("schedstat")).unwrap();
        text.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    threads.map(|thread| run(thread.unwrap())).sum()
}
