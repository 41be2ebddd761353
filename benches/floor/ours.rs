//! The library in each scenario.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use zklock::Client;

use crate::rounds::{Drain, FRESH_WAIT, in_threads};

/// How many clients share the threads of a crowd.
const CROWD: usize = 8;

pub(crate) fn our_cycles(hosts: &str, count: usize, path: &str) -> f64 {
    let client = Client::connect(hosts).expect("a server");
    in_threads(count, |at, over, done| {
        let mutex = client.mutex(&format!("{path}-{at}")).expect("a path");
        lock_until(over, done, &mutex);
    })
}

pub(crate) fn our_hand_offs(hosts: &str, count: usize, path: &str) -> f64 {
    in_threads(count, |_, over, done| {
        let client = Client::connect(hosts).expect("a server");
        let mutex = client.mutex(path).expect("a path");
        lock_until(over, done, &mutex);
    })
}

/// Like [`our_hand_offs`], with the threads of eight clients.
pub(crate) fn our_swarm(hosts: &str, count: usize, path: &str) -> f64 {
    let connect = |_| Client::connect(hosts).expect("a server");
    let clients: Vec<_> = (0..CROWD).map(connect).collect();
    in_threads(count, |at, over, done| {
        let mutex = clients[at % CROWD].mutex(path).expect("a path");
        lock_until(over, done, &mutex);
    })
}

pub(crate) fn lock_until(over: &AtomicBool, done: &AtomicU64, mutex: &zklock::Mutex) {
    while !over.load(Ordering::Relaxed) {
        drop(mutex.lock().expect("the lock"));
        done.fetch_add(1, Ordering::Relaxed);
    }
}

/// The clients queue one after the other, as the floor's sockets do, each with a thread of
/// its own.
pub(crate) fn our_queue(hosts: &str, count: usize, path: &str) -> f64 {
    queue(hosts, count, path, Duration::ZERO)
}

/// Like [`our_queue`], but the last client has waited for as long as the peers' last ones do.
pub(crate) fn our_fresh_queue(hosts: &str, count: usize, path: &str) -> f64 {
    queue(hosts, count, path, FRESH_WAIT)
}

fn queue(hosts: &str, count: usize, path: &str, waited: Duration) -> f64 {
    let watcher = Client::connect(hosts).expect("a server");
    let gate = watcher.mutex(path).expect("a path");
    let guard = gate.lock().expect("the lock");
    let before = resident();
    let clients: Vec<_> = (0..count)
        .map(|_| Client::connect(hosts).expect("a server"))
        .collect();
    let drain = Drain::of(count);
    thread::scope(|scope| {
        for (ahead, client) in clients.iter().enumerate() {
            let drain = &drain;
            let wait = move || {
                let mutex = client.mutex(path).expect("a path");
                drain.pass(mutex.lock().expect("the lock"));
            };
            let small = thread::Builder::new().stack_size(256 * 1024);
            small.spawn_scoped(scope, wait).expect("a thread");
            // The nodes of the gate, of these clients and of this one.
            while watcher.contenders(path).expect("the queue").len() < ahead + 2 {}
        }
        let each = resident().saturating_sub(before) / count as u64;
        eprintln!("{path}: {each} KiB a waiting client");
        // By then the last client has set its watch.
        thread::sleep(waited.max(Duration::from_millis(100)));
        drain.begin(guard)
    })
}

/// Like [`our_queue`], but the waiters are threads of eight clients.
pub(crate) fn our_crowd(hosts: &str, count: usize, path: &str) -> f64 {
    let watcher = Client::connect(hosts).expect("a server");
    let gate = watcher.mutex(path).expect("a path");
    let guard = gate.lock().expect("the lock");
    let connect = |_| Client::connect(hosts).expect("a server");
    let clients: Vec<_> = (0..CROWD).map(connect).collect();
    let locks = clients.iter().map(|client| client.mutex(path));
    let mutexes: Vec<_> = locks.map(|mutex| mutex.expect("a path")).collect();
    let (start, drain) = (Barrier::new(count + 1), Drain::of(count));
    thread::scope(|scope| {
        for at in 0..count {
            let (mutex, start, drain) = (&mutexes[at % CROWD], &start, &drain);
            let wait = move || {
                start.wait();
                let guard = mutex.lock().expect("the lock");
                drain.pass(guard);
            };
            let small = thread::Builder::new().stack_size(256 * 1024);
            small.spawn_scoped(scope, wait).expect("a thread");
        }
        start.wait();
        let contenders = || watcher.contenders(path).expect("the queue").len();
        while contenders() <= CROWD.min(count) {
            thread::sleep(Duration::from_millis(20));
        }
        // By then the other threads are in line behind these, and all clients have set their
        // watches.
        thread::sleep(Duration::from_millis(100));
        drain.begin(guard)
    })
}

/// Returns the memory of this process, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}
