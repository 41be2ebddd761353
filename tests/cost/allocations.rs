//! The number of allocations of a lock, on all threads of its client together, and what is left of them.
//!
//! The number is the same on every machine: only a change of the code makes it grow.

use std::alloc::System;
use std::time::Duration;

use crossbeam_channel::bounded;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use zklock::embedded::Server;
use zklock::{Client, LockOptions, Mutex};
use zklock_testkit as support;

#[path = "../support/transport.rs"]
mod transport;

use crate::support::worker::{self, Worker};
use crate::support::{eventually, fresh_path};
use crate::transport::Transport;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const CYCLES: usize = 200;

/// The most allocations for a free mutex that is locked and unlocked: three requests and the guard,
/// or two requests if nobody else is expected.
const MOST: [u64; 2] = [80, 70];

/// How often each kind of event is repeated.
const EVENTS: u64 = 600;

/// The most blocks that may be left then: some tables let go of what has ended later, and of much at a time.
const LEFT: i64 = 400;

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
    let region = Region::new(ALLOCATOR);
    (0..CYCLES).for_each(|_| cycle());
    let stats = region.change();
    let blocks = (stats.allocations + stats.reallocations) / CYCLES;
    worker::say(&format!("{blocks} {}", stats.bytes_allocated / CYCLES));
}

#[test]
fn what_has_ended_leaves_nothing_behind_in_the_client_and_at_the_server() {
    let server = Server::builder().container_check(Duration::from_millis(100));
    let server = server.start().unwrap();
    let (base, holder) = (fresh_path("left"), Client::connect(server.hosts()).unwrap());
    let guard = holder.mutex(&format!("{base}/held")).unwrap().lock();
    let guard = guard.unwrap();
    // The holder watches its node.
    eventually("a watch", || server.watch_count() == 1);
    leaves_nothing(Transport::Wire, server.hosts(), &base, 0);
    let parts: Vec<_> = guard.node().match_indices('/').skip(1).collect();
    let above = parts.iter().map(|(at, _)| guard.node()[..*at].to_owned());
    let nodes: Vec<_> = above.chain([guard.node().to_owned()]).collect();
    eventually("no other node", || server.nodes() == nodes);
    eventually("no other watch", || server.watch_count() == 1);
}

/// The crate keeps each watcher until its node changes.
#[cfg(feature = "zookeeper")]
#[test]
fn what_has_ended_leaves_nothing_behind_in_a_handle() {
    let server = Server::start().unwrap();
    let (base, holder) = (fresh_path("left"), Client::connect(server.hosts()).unwrap());
    let guard = holder.mutex(&format!("{base}/held")).unwrap().lock();
    leaves_nothing(Transport::Handle, server.hosts(), &base, GRANTED);
    drop(guard);
}

/// Repeats each kind of event from the one at `first` on, while others hold `base`/held.
fn leaves_nothing(transport: Transport, hosts: &str, base: &str, first: usize) {
    let input = format!("{transport:?} {hosts} {base} {first}");
    let worker = Worker::spawn(worker_that_repeats, &input);
    for _ in first..KINDS {
        let [kind, blocks] = worker::words(&worker.hear());
        println!("{transport:?}: {blocks} blocks are left of {EVENTS} times {kind}");
        assert!(blocks.parse::<i64>().unwrap() <= LEFT, "{kind}: {blocks}");
    }
}

const KINDS: usize = 8;

/// The first kinds, which get locks. That takes long over a handle, and leaves no watcher.
#[cfg(feature = "zookeeper")]
const GRANTED: usize = 3;

#[test]
#[ignore = "a worker process"]
fn worker_that_repeats() {
    let Some(input) = worker::input() else { return };
    let [transport, hosts, base, first] = worker::words(&input);
    let client = Transport::named(&transport).connect(&hosts);
    let known = client.contenders(&format!("{base}/held")).unwrap();
    let held = client.mutex(&format!("{base}/held")).unwrap();
    let shared = client.rwlock(&format!("{base}/held")).unwrap();
    let path = |at| format!("{base}/{at}");
    let kinds: [(&str, &dyn Fn(u64)); KINDS] = [
        ("mutexes", &|at| {
            drop(client.mutex(&path(at)).unwrap().lock());
        }),
        ("readers", &|at| {
            drop(client.rwlock(&path(at)).unwrap().read());
        }),
        ("permits", &|at| {
            drop(client.semaphore(&path(at), 2).unwrap().acquire());
        }),
        ("tries", &|_| assert!(held.try_lock().unwrap().is_none())),
        ("waits", &|_| {
            until_it_waits(|until| drop(held.lock_with(until)))
        }),
        ("reading-waits", &|_| {
            until_it_waits(|until| drop(shared.read_with(until)));
        }),
        ("looks", &|_| drop(client.contenders(held.path()))),
        ("changes", &|_| {
            let moment = Duration::from_millis(1);
            drop(client.wait_for_change(held.path(), &known, moment));
        }),
    ];
    for (kind, event) in &kinds[first.parse().unwrap()..] {
        let blocks = left(event);
        worker::say(&format!("{kind} {blocks}"));
    }
    worker::stay();
}

/// Makes a call that is cancelled when it waits: its node stands then, so that nothing is looked for later.
fn until_it_waits(call: impl FnOnce(LockOptions<'_>)) {
    let (cancel, cancelled) = bounded(1);
    let options = LockOptions::new().cancel(cancelled);
    call(options.on_wait(|_| cancel.try_send(()).unwrap_or_default()));
}

/// Returns how many blocks are left of many such events.
fn left(event: &dyn Fn(u64)) -> i64 {
    (0..100).for_each(event);
    let region = Region::new(ALLOCATOR);
    (0..EVENTS).for_each(event);
    let blocks = || {
        let stats = region.change();
        stats.allocations as i64 - stats.deallocations as i64
    };
    // What is left at the server is still being deleted.
    support::within(Duration::from_secs(10), || blocks() <= LEFT);
    blocks()
}
