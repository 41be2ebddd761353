//! How close the locks come to a raw socket that does nothing else.
//!
//! ```text
//! cargo bench --bench floor -- HOST:PORT [SCENARIO..] [rounds=N] [hold=MS]
//!     [only=ours|floor|bare]
//! ```
//!
//! Without a server to ask, as among all benches, it says this and ends.
//!
//! Each scenario runs in rounds of half a second, ours and the floor in turn, so that both see
//! the same machine; the medians and their ratio are printed. The scenarios: `alone`,
//! `threads-4`, `threads-16` (of one client, on as many locks), `handoff-2`, `handoff-8`,
//! `handoff-32` (clients on one lock), `queue-10`, `queue-100`, `queue-1000` (clients that
//! all wait behind a holder, and then have the lock once each), `crowd-10`, `crowd-100`,
//! `crowd-1000` (the same, but they are threads of 8 clients), `swarm-64` (threads of 8 clients that
//! come back again and again). Other numbers work as well;
//! a queue also tells what a waiting client takes of this process's memory. With `hold=2`
//! each in a queue has the lock for 2 ms, which does not count.
//!
//! The floor creates a node and lists the directory in one write, looks whether it is the
//! first, watches the one before it if not, lists once more when that has gone, and does
//! not wait for the reply to its delete. It keeps no session alive, proves nothing,
//! survives nothing. Who comes back to a free lock need not list for ever: `bare` is the
//! same socket where it never does.

mod raw;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, mpsc};
use std::time::{Duration, Instant};
use std::{env, thread};

use raw::Raw;
use zklock::{Client, LockOptions, MutexGuard};

const ROUND: Duration = Duration::from_millis(500);
/// How long each in a queue has the lock.
static HOLD_MS: AtomicU64 = AtomicU64::new(0);

/// How many clients the threads of a crowd belong to.
const CROWD: usize = 8;

const SCENARIOS: [&str; 13] = [
    "alone",
    "threads-4",
    "threads-16",
    "handoff-2",
    "handoff-8",
    "handoff-32",
    "queue-10",
    "queue-100",
    "queue-1000",
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
            // What Cargo adds.
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
        "{:<12} {:>9} {:>9} {:>6} {:>9}",
        "", "ours/s", "floor/s", "ratio", "bare/s"
    );
    if wanted.is_empty() {
        wanted.extend(SCENARIOS.map(str::to_owned));
    }
    for scenario in &wanted {
        let (kind, count) = scenario.split_once('-').unwrap_or((scenario, "1"));
        let count = count.parse().expect("a number");
        compare(&hosts, scenario, kind, count, rounds, only.as_deref());
    }
}

fn compare(hosts: &str, name: &str, kind: &str, count: usize, rounds: u32, only: Option<&str>) {
    let run = |side: &str, f: fn(&str, usize, &str) -> f64, at: u32| {
        let wanted = only.is_none_or(|only| only == side);
        // An earlier run may have left nodes, until its sessions are over.
        let path = format!("/zklock-floor/{side}-{name}-{at}-{}", std::process::id());
        wanted.then(|| f(hosts, count, &path))
    };
    let [mut ours, mut floor, mut bare] = [const { Vec::new() }; 3];
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
            _ => {
                ours.extend(run("ours", our_cycles, at));
                floor.extend(run("floor", floor_cycles, at));
                bare.extend(run("bare", bare_cycles, at));
            }
        }
    }
    let [ours, floor, bare] = [ours, floor, bare].map(median);
    let ratio = ours.zip(floor).map(|(ours, floor)| ours / floor);
    println!(
        "{name:<12} {:>9} {:>9} {:>6} {:>9}",
        shown(ours, 0),
        shown(floor, 0),
        shown(ratio, 2),
        shown(bare, 0)
    );
}

fn median(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied()
}

fn shown(number: Option<f64>, decimals: usize) -> String {
    number.map_or_else(|| "-".to_owned(), |number| format!("{number:.decimals$}"))
}

/// Runs a thread for each of `count`, until the round is over; returns events a second.
fn in_threads(count: usize, once: impl Fn(usize, &AtomicBool, &AtomicU64) + Sync) -> f64 {
    let (over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for at in 0..count {
            let (once, over, done) = (&once, &over, &done);
            scope.spawn(move || once(at, over, done));
        }
        thread::sleep(ROUND / 5);
        let (before, begun) = (done.load(Ordering::Relaxed), Instant::now());
        thread::sleep(ROUND);
        let events = done.load(Ordering::Relaxed) - before;
        let rate = events as f64 / begun.elapsed().as_secs_f64();
        over.store(true, Ordering::Relaxed);
        rate
    })
}

fn our_cycles(hosts: &str, count: usize, path: &str) -> f64 {
    let client = Client::connect(hosts).expect("a server");
    in_threads(count, |at, over, done| {
        let mutex = client.mutex(&format!("{path}-{at}")).expect("a path");
        lock_until(over, done, &mutex);
    })
}

fn our_hand_offs(hosts: &str, count: usize, path: &str) -> f64 {
    in_threads(count, |_, over, done| {
        let client = Client::connect(hosts).expect("a server");
        let mutex = client.mutex(path).expect("a path");
        lock_until(over, done, &mutex);
    })
}

/// As [`our_hand_offs`], by threads of eight clients.
fn our_swarm(hosts: &str, count: usize, path: &str) -> f64 {
    let connect = |_| Client::connect(hosts).expect("a server");
    let clients: Vec<_> = (0..CROWD).map(connect).collect();
    in_threads(count, |at, over, done| {
        let mutex = clients[at % CROWD].mutex(path).expect("a path");
        lock_until(over, done, &mutex);
    })
}

fn lock_until(over: &AtomicBool, done: &AtomicU64, mutex: &zklock::Mutex) {
    while !over.load(Ordering::Relaxed) {
        drop(mutex.lock().expect("the lock"));
        done.fetch_add(1, Ordering::Relaxed);
    }
}

fn floor_cycles(hosts: &str, count: usize, path: &str) -> f64 {
    raw_cycles(hosts, count, path, true)
}

fn bare_cycles(hosts: &str, count: usize, path: &str) -> f64 {
    raw_cycles(hosts, count, path, false)
}

/// One thread and one socket serve all the locks, which saves every wake-up that threads
/// would need.
fn raw_cycles(hosts: &str, count: usize, path: &str, lists: bool) -> f64 {
    // Which answer says that the lock is held.
    let last = if lists { Due::List } else { Due::Create };
    in_threads(1, |_, over, done| {
        let mut raw = Raw::connect(hosts);
        let dirs: Vec<_> = (0..count).map(|at| format!("{path}-{at}")).collect();
        for dir in &dirs {
            raw.make(dir);
        }
        let mut due = VecDeque::new();
        let mut names = vec![String::new(); count];
        let enter = |raw: &mut Raw, due: &mut VecDeque<_>, at: usize| {
            raw.enter(&dirs[at], lists);
            due.push_back((at, Due::Create));
            due.extend(lists.then_some((at, Due::List)));
        };
        (0..count).for_each(|at| enter(&mut raw, &mut due, at));
        raw.flush();
        while !over.load(Ordering::Relaxed) {
            let frame = raw.frame();
            let Some((at, what)) = due.pop_front() else {
                continue;
            };
            match what {
                Due::Delete => {}
                Due::Create => names[at] = frame.created(),
                Due::List => assert_eq!(frame.children().len(), 1),
            }
            if what == last {
                done.fetch_add(1, Ordering::Relaxed);
                raw.delete(&names[at]);
                if count == 1 {
                    // Between the two there would be work.
                    raw.flush();
                }
                due.push_back((at, Due::Delete));
                enter(&mut raw, &mut due, at);
            }
            // With more replies at hand there will be more to write.
            if !raw.has_frame() {
                raw.flush();
            }
        }
    })
}

#[derive(Clone, Copy, PartialEq)]
enum Due {
    Create,
    List,
    Delete,
}

fn floor_hand_offs(hosts: &str, count: usize, path: &str) -> f64 {
    in_threads(count, |_, over, done| {
        let mut raw = Raw::connect(hosts);
        raw.make(path);
        while !over.load(Ordering::Relaxed) {
            let node = raw.hold(path);
            done.fetch_add(1, Ordering::Relaxed);
            raw.delete(&node);
            raw.flush();
        }
    })
}

/// Waiters that have a lock once each.
struct Drain {
    count: usize,
    over: Barrier,
    /// When the last of them let go, and how long all of them held.
    last: Mutex<(Instant, Duration)>,
}

impl Drain {
    fn of(count: usize) -> Self {
        Self {
            count,
            over: Barrier::new(count + 1),
            last: Mutex::new((Instant::now(), Duration::ZERO)),
        }
    }

    /// Holds for a while and lets go; returns when all have.
    fn pass(&self, guard: MutexGuard) {
        let held = hold();
        drop(guard);
        let mut last = self.last.lock().expect("no panic");
        *last = (Instant::now(), last.1 + held);
        drop(last);
        // The end of a thread would be a part of the next one's wait.
        self.over.wait();
    }

    /// Lets them in; returns grants a second.
    fn begin(&self, gate: MutexGuard) -> f64 {
        let begun = Instant::now();
        drop(gate);
        self.over.wait();
        let (last, held) = *self.last.lock().expect("no panic");
        self.count as f64 / (last - begun - held).as_secs_f64()
    }
}

/// The clients queue one after the other, as the floor's sockets do, each with a thread of
/// its own.
fn our_queue(hosts: &str, count: usize, path: &str) -> f64 {
    let watcher = Client::connect(hosts).expect("a server");
    let gate = watcher.mutex(path).expect("a path");
    let guard = gate.lock().expect("the lock");
    let before = resident();
    let clients: Vec<_> = (0..count)
        .map(|_| Client::connect(hosts).expect("a server"))
        .collect();
    let drain = Drain::of(count);
    thread::scope(|scope| {
        for client in &clients {
            let (tell, told) = mpsc::channel();
            let drain = &drain;
            let wait = move || {
                let mutex = client.mutex(path).expect("a path");
                // Nobody listens any more when the place has changed.
                let options = LockOptions::new().on_wait(|_| {
                    let _ = tell.send(());
                });
                let guard = mutex.lock_with(options).expect("the lock");
                drain.pass(guard.expect("no limit"));
            };
            let small = thread::Builder::new().stack_size(256 * 1024);
            small.spawn_scoped(scope, wait).expect("a thread");
            told.recv().expect("a place in the queue");
        }
        let each = resident().saturating_sub(before) / count as u64;
        eprintln!("{path}: {each} KiB a waiting client");
        drain.begin(guard)
    })
}

/// As [`our_queue`], where those who wait are threads of eight clients.
fn our_crowd(hosts: &str, count: usize, path: &str) -> f64 {
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
        // The others are in line behind these, and all have set their watches.
        thread::sleep(Duration::from_millis(100));
        drain.begin(guard)
    })
}

/// One thread serves all the sockets, since only one of them has anything to do at a time.
fn floor_queue(hosts: &str, count: usize, path: &str) -> f64 {
    let mut gate = Raw::connect(hosts);
    gate.make(path);
    let mut before = gate.hold(path);
    let first = before.clone();
    let mut queue = Vec::new();
    for _ in 0..count {
        let mut raw = Raw::connect(hosts);
        let listed = raw.enter(path, true);
        let node = raw.reply_to(listed - 1).created();
        raw.reply_to(listed).children();
        let watched = raw.request(4, &before, &[1]);
        assert_eq!(raw.reply_to(watched).code(), 0);
        queue.push((raw, before, node.clone()));
        before = node;
    }
    let (begun, mut held) = (Instant::now(), Duration::ZERO);
    gate.delete(&first);
    gate.flush();
    for (raw, before, node) in &mut queue {
        raw.wait_until_gone(before);
        let listed = raw.request(8, path, &[0]);
        let names = raw.reply_to(listed).children();
        let least = names.iter().min_by_key(|name| &name[name.len() - 10..]);
        assert!(node.ends_with(least.expect("our node")));
        held += hold();
        raw.delete(node);
        raw.flush();
    }
    count as f64 / (begun.elapsed() - held).as_secs_f64()
}

/// Has the lock for a while; returns for how long.
fn hold() -> Duration {
    let begun = Instant::now();
    match HOLD_MS.load(Ordering::Relaxed) {
        0 => return Duration::ZERO,
        time => thread::sleep(Duration::from_millis(time)),
    }
    begun.elapsed()
}

/// The memory of this process, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}
