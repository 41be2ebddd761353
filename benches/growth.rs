//! The resources that grow with the number of locks, clients and waiting threads.
//!
//! ```text
//! cargo bench --bench growth -- HOST:PORT [idle=N] [held=N] [clients=N] [waiting=N] [parked=N]
//! cargo bench --bench growth -- HOST:PORT beside=N
//! cargo bench --bench growth -- HOST:PORT reconnect=N
//! cargo bench --bench growth -- HOST:PORT wait=N PATH
//! ```
//!
//! Without a server's address, as when all benches run, it prints this and ends. `idle` are unused
//! mutexes, `held` locks of one client, `clients` those of one process, `waiting` threads of one
//! client that wait for one lock. `parked` are threads that only sleep, for comparison. Memory is
//! the growth of this process, divided by their number. Requests are counted for one session
//! timeout. If a run measures several, each reuses freed memory: run one alone to measure its
//! memory.
//!
//! `beside` prints the processor time of this process, and its requests, for one more lock beside
//! those, which is held for 60 ms: the difference between equally long times with this lock and
//! without it.
//!
//! `reconnect` prints the processor time and the requests that half a session timeout with a cut
//! connection costs beyond half a timeout without a cut, for each of those locks.
//!
//! `wait` is a process for `peers/waiting.py`: threads of one client that each get the lock once.

use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use rustix::time::{ClockId, clock_gettime};
use zklock::Client;
use zklock::diagnostics::Requests;
use zklock_testkit::relay::Relay;

const TIMEOUT: Duration = Duration::from_secs(20);

fn main() {
    let args: Vec<String> = env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let Some((hosts, wanted)) = args.split_first() else {
        println!(
            "growth: needs a server: cargo bench --bench growth -- HOST:PORT [idle=N] [held=N] [..]"
        );
        return;
    };
    if let [wait, path] = wanted
        && let Some(count) = wait.strip_prefix("wait=")
    {
        return wait_once_each(hosts, count.parse().expect("a number"), path);
    }
    let all = [
        "idle=100000",
        "held=1",
        "held=100",
        "held=10000",
        "clients=1000",
        "waiting=1000",
        "parked=1000",
    ];
    let all = all.map(str::to_owned);
    println!(
        "{:<16} {:>10} {:>9} {:>12} {:>12}",
        "", "bytes each", "threads", "descriptors", "requests a T"
    );
    for one in if wanted.is_empty() { &all } else { wanted } {
        let (kind, count) = one.split_once('=').expect("what=how many");
        let count = count.parse().expect("a number");
        match kind {
            "idle" => idle(hosts, one, count),
            "held" => held(hosts, one, count),
            "beside" => beside(hosts, one, count),
            "reconnect" => reconnect(hosts, one, count),
            "clients" => clients(hosts, one, count),
            "waiting" => waiting(hosts, one, count),
            "parked" => parked(one, count),
            _ => panic!("{kind} is not known"),
        }
    }
}

fn idle(hosts: &str, name: &str, count: usize) {
    let client = connect(hosts);
    let before = Process::now();
    let path = |at| format!("/zklock-growth/idle-{at:08}");
    let mutexes: Vec<_> = (0..count)
        .map(|at| client.mutex(&path(at)).expect("a path"))
        .collect();
    report(name, count, before, requests_in_a_timeout(&[client]));
    drop(mutexes);
}

fn held(hosts: &str, name: &str, count: usize) {
    let client = connect(hosts);
    let path = |at| format!("/zklock-growth/held-{at:08}");
    let mutexes: Vec<_> = (0..count)
        .map(|at| client.mutex(&path(at)).expect("a path"))
        .collect();
    let before = Process::now();
    let guards: Vec<_> = mutexes
        .iter()
        .map(|mutex| mutex.lock().expect("the lock"))
        .collect();
    report(name, count, before, requests_in_a_timeout(&[client]));
    drop(guards);
}

fn beside(hosts: &str, name: &str, count: usize) {
    const MORE: u32 = 100;
    const HELD: Duration = Duration::from_millis(60);
    let client = connect(hosts);
    let lock = |at: usize| {
        let mutex = client.mutex(&format!("/zklock-growth/beside-{at:08}"));
        mutex.expect("a path").lock().expect("the lock")
    };
    let guards: Vec<_> = (0..count).map(lock).collect();
    thread::sleep(Duration::from_secs(1));
    let requests = || all_requests(client.metrics().requests);
    // Both take equally long, so that equally many checks of the other locks fall into each.
    let run = |each: &dyn Fn()| {
        let (used, sent, began) = (processor_time(), requests(), Instant::now());
        for at in 1..=MORE {
            each();
            thread::sleep((began + 3 * HELD * at).saturating_duration_since(Instant::now()));
        }
        (processor_time().saturating_sub(used), requests() - sent)
    };
    let alone = run(&|| ());
    let with = run(&|| {
        let guard = lock(count);
        thread::sleep(HELD);
        drop(guard);
    });
    let each = with.0.saturating_sub(alone.0) / MORE;
    println!(
        "{name:<16} {:>10} us of processor time and {:.1} requests for one more lock",
        each.as_micros(),
        (with.1 as f64 - alone.1 as f64) / f64::from(MORE)
    );
    drop(guards);
}

fn reconnect(hosts: &str, name: &str, count: usize) {
    let relay = Relay::start(vec![hosts.to_owned()]);
    let client = connect(&relay.hosts);
    let lock = |at: usize| {
        let mutex = client.mutex(&format!("/zklock-growth/reconnect-{at:08}"));
        mutex.expect("a path").lock().expect("the lock")
    };
    let guards: Vec<_> = (0..count).map(lock).collect();
    thread::sleep(TIMEOUT / 4);
    let run = |begin: &dyn Fn()| {
        let (used, sent) = (processor_time(), all_requests(client.metrics().requests));
        begin();
        thread::sleep(TIMEOUT / 2);
        let sent = all_requests(client.metrics().requests) - sent;
        (processor_time().saturating_sub(used), sent)
    };
    let (alone, with) = (run(&|| ()), run(&|| relay.cut()));
    assert_eq!(client.metrics().reconnects, 1);
    assert!(guards.iter().all(|guard| guard.is_valid()));
    let each = with.0.saturating_sub(alone.0).as_nanos() as f64 / 1000.0 / count as f64;
    let requests = with.1.saturating_sub(alone.1);
    println!(
        "{name:<16} {each:>10.1} us of processor time for each lock, and {requests} requests for all"
    );
    drop(guards);
}

/// Returns the processor time of all threads of this process, including those that have ended.
fn processor_time() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(used).expect("no negative time")
}

fn clients(hosts: &str, name: &str, count: usize) {
    let before = Process::now();
    let clients: Vec<_> = (0..count).map(|_| connect(hosts)).collect();
    report(name, count, before, requests_in_a_timeout(&clients));
}

fn waiting(hosts: &str, name: &str, count: usize) {
    let (holder, client) = (connect(hosts), connect(hosts));
    let path = format!("/zklock-growth/waiting-{}", std::process::id());
    let guard = holder
        .mutex(&path)
        .expect("a path")
        .lock()
        .expect("the lock");
    let mutex = client.mutex(&path).expect("a path");
    thread::scope(|scope| {
        let before = Process::now();
        for _ in 0..count {
            scope.spawn(|| drop(mutex.lock().expect("the lock")));
        }
        // One thread is in the queue, and the others are in line behind it.
        while holder.contenders(&path).expect("the queue").len() < 2 {
            thread::sleep(Duration::from_millis(20));
        }
        thread::sleep(Duration::from_secs(2));
        report(
            name,
            count,
            before,
            requests_in_a_timeout(std::slice::from_ref(&client)),
        );
        drop(guard);
    });
}

fn parked(name: &str, count: usize) {
    let before = Process::now();
    let threads: Vec<_> = (0..count)
        .map(|_| {
            let (over, told) = mpsc::channel::<()>();
            (over, thread::spawn(move || told.recv().is_ok()))
        })
        .collect();
    thread::sleep(Duration::from_secs(1));
    report(name, count, before, 0);
    for (over, thread) in threads {
        drop(over);
        thread.join().expect("no panic");
    }
}

/// Prints nothing: the caller counts the nodes to see that the threads wait.
fn wait_once_each(hosts: &str, count: usize, path: &str) {
    let client = connect(hosts);
    let mutex = client.mutex(path).expect("a path");
    thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| drop(mutex.lock().expect("the lock")));
        }
    });
}

fn connect(hosts: &str) -> Client {
    let builder = Client::builder(hosts).session_timeout(TIMEOUT);
    builder.connect().expect("a server")
}

/// Counts the requests that are sent while nothing happens.
fn requests_in_a_timeout(clients: &[Client]) -> u64 {
    let sent = || {
        let each = clients.iter();
        each.map(|client| all_requests(client.metrics().requests))
            .sum::<u64>()
    };
    // The requests that a lock sends once, after it has been held for a moment, do not count.
    thread::sleep(Duration::from_secs(1));
    let before = sent();
    thread::sleep(TIMEOUT);
    sent() - before
}

fn all_requests(sent: Requests) -> u64 {
    sent.creates + sent.deletes + sent.listings + sent.reads + sent.multis + sent.others
}

/// The numbers that the system reports about this process.
#[derive(Clone, Copy)]
struct Process {
    resident_kib: u64,
    threads: u64,
    descriptors: u64,
}

impl Process {
    fn now() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.split_whitespace().next());
            number.and_then(|number| number.parse().ok()).unwrap_or(0)
        };
        Self {
            resident_kib: number("VmRSS:"),
            threads: number("Threads:"),
            descriptors: fs::read_dir("/proc/self/fd").map_or(0, |all| all.count() as u64),
        }
    }
}

fn report(name: &str, count: usize, before: Process, requests: u64) {
    let now = Process::now();
    let each = 1024 * now.resident_kib.saturating_sub(before.resident_kib) / count as u64;
    let threads = now.threads.saturating_sub(before.threads);
    let descriptors = now.descriptors.saturating_sub(before.descriptors);
    println!("{name:<16} {each:>10} {threads:>9} {descriptors:>12} {requests:>12}");
}
