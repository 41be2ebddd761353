//! The number of allocations of a lock, on all threads of its client together.
//!
//! The number is the same on every machine: only a change of the code makes it grow.

use zklock::embedded::Server;
use zklock::{Client, Mutex};
use zklock_testkit as support;

use crate::support::fresh_path;
use crate::support::worker::{self, Worker};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const CYCLES: u64 = 200;

/// The most allocations for a free mutex that is locked and unlocked: three requests and the guard,
/// or two requests if nobody else is expected.
const MOST: [u64; 2] = [80, 70];

#[test]
fn a_cycle_of_a_free_mutex_asks_for_memory_a_few_times_only() {
    let server = Server::start().unwrap();
    let input = format!("{} {}", server.hosts(), fresh_path("allocations"));
    let worker = Worker::spawn(worker_that_locks, &input);
    for most in MOST {
        let [blocks, bytes] = worker::words(&worker.hear());
        let blocks: u64 = blocks.parse().unwrap();
        println!("{blocks} blocks and {bytes} bytes a cycle");
        assert!(blocks <= most, "{blocks} blocks a cycle");
    }
}

#[test]
#[ignore = "a worker process"]
fn worker_that_locks() {
    let Some(input) = worker::input() else { return };
    let [hosts, path] = worker::words(&input);
    let client = Client::connect(&hosts).unwrap();
    let mutex = client.mutex(&path).unwrap();
    let cycle = |mutex: &Mutex| mutex.lock().unwrap().unlock().unwrap();
    // A mutex that was never locked before expects other clients.
    count(|| cycle(&client.mutex(&path).unwrap()));
    count(|| cycle(&mutex));
}

fn count(cycle: impl Fn()) {
    // The first cycles create the directory, buffers and tables.
    (0..20).for_each(|_| cycle());
    let profiler = dhat::Profiler::builder().testing().build();
    (0..CYCLES).for_each(|_| cycle());
    let stats = dhat::HeapStats::get();
    drop(profiler);
    let (blocks, bytes) = (stats.total_blocks / CYCLES, stats.total_bytes / CYCLES);
    worker::say(&format!("{blocks} {bytes}"));
}
