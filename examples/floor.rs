//! How close the locks come to a raw socket that does nothing else.
//!
//! ```text
//! cargo run --release --example floor -- HOST:PORT [SCENARIO..] [rounds=N] [only=ours|floor]
//! ```
//!
//! Each scenario runs in rounds of half a second, ours and the floor in turn, so that both see
//! the same machine; the medians and their ratio are printed. The scenarios: `alone`,
//! `threads-4`, `threads-16` (of one client, on as many locks), `handoff-2`, `handoff-8`,
//! `handoff-32` (clients on one lock), `queue-10`, `queue-100`, `queue-1000` (clients that
//! all wait behind a holder, and then have the lock once each). Other numbers work as well;
//! a queue also tells what a waiting client takes of this process's memory.
//!
//! The floor creates a node and lists the directory in one write, looks whether it is the
//! first, watches the one before it if not, lists once more when that has gone, and does
//! not wait for the reply to its delete. It keeps no session alive, proves nothing,
//! survives nothing.

use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{env, thread};

use zklock::{Client, LockOptions};

const ROUND: Duration = Duration::from_millis(500);
const SCENARIOS: [&str; 9] = [
    "alone",
    "threads-4",
    "threads-16",
    "handoff-2",
    "handoff-8",
    "handoff-32",
    "queue-10",
    "queue-100",
    "queue-1000",
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
            _ if hosts.is_none() => hosts = Some(arg),
            _ => wanted.push(arg),
        }
    }
    let hosts = hosts.expect("usage: floor HOST:PORT [SCENARIO..]");
    println!("{:<12} {:>9} {:>9} {:>6}", "", "ours/s", "floor/s", "ratio");
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
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for at in 0..rounds {
        match kind {
            "handoff" => {
                ours.extend(run("ours", our_hand_offs, at));
                floor.extend(run("floor", floor_hand_offs, at));
            }
            "queue" => {
                ours.extend(run("ours", our_queue, at));
                floor.extend(run("floor", floor_queue, at));
            }
            _ => {
                ours.extend(run("ours", our_cycles, at));
                floor.extend(run("floor", floor_cycles, at));
            }
        }
    }
    let (ours, floor) = (median(ours), median(floor));
    println!("{name:<12} {ours:>9.0} {floor:>9.0} {:>6.2}", ours / floor);
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
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
        while !over.load(Ordering::Relaxed) {
            drop(mutex.lock().expect("the lock"));
            done.fetch_add(1, Ordering::Relaxed);
        }
    })
}

fn our_hand_offs(hosts: &str, count: usize, path: &str) -> f64 {
    in_threads(count, |_, over, done| {
        let client = Client::connect(hosts).expect("a server");
        let mutex = client.mutex(path).expect("a path");
        while !over.load(Ordering::Relaxed) {
            drop(mutex.lock().expect("the lock"));
            done.fetch_add(1, Ordering::Relaxed);
        }
    })
}

/// One thread and one socket serve all the locks, which saves every wake-up that threads
/// would need.
fn floor_cycles(hosts: &str, count: usize, path: &str) -> f64 {
    in_threads(1, |_, over, done| {
        let mut raw = Raw::connect(hosts);
        let dirs: Vec<_> = (0..count).map(|at| format!("{path}-{at}")).collect();
        for dir in &dirs {
            raw.make(dir);
        }
        let mut due = VecDeque::new();
        let mut names = vec![String::new(); count];
        for (at, dir) in dirs.iter().enumerate() {
            raw.enter(dir);
            due.extend([(at, Due::Create), (at, Due::List)]);
        }
        raw.flush();
        while !over.load(Ordering::Relaxed) {
            let frame = raw.frame();
            let Some((at, what)) = due.pop_front() else {
                continue;
            };
            match what {
                Due::Delete => {}
                Due::Create => names[at] = frame.created(),
                Due::List => {
                    assert_eq!(frame.children().len(), 1);
                    done.fetch_add(1, Ordering::Relaxed);
                    raw.delete(&names[at]);
                    if count == 1 {
                        // Between the two there would be work.
                        raw.flush();
                    }
                    raw.enter(&dirs[at]);
                    due.extend([(at, Due::Delete), (at, Due::Create), (at, Due::List)]);
                }
            }
            // With more replies at hand there will be more to write.
            if !raw.has_frame() {
                raw.flush();
            }
        }
    })
}

#[derive(Clone, Copy)]
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

/// The clients wait in the order of their nodes, each with a thread of its own.
fn our_queue(hosts: &str, count: usize, path: &str) -> f64 {
    let watcher = Client::connect(hosts).expect("a server");
    let gate = watcher.mutex(path).expect("a path");
    let guard = gate.lock().expect("the lock");
    let before = resident();
    let clients: Vec<_> = (0..count)
        .map(|_| Client::connect(hosts).expect("a server"))
        .collect();
    let queued = AtomicU64::new(0);
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for client in &clients {
            let queued = &queued;
            let wait = move || {
                let mutex = client.mutex(path).expect("a path");
                let options = LockOptions::new().on_wait(|_| {
                    queued.fetch_add(1, Ordering::Relaxed);
                });
                drop(mutex.lock_with(options).expect("the lock"));
                Instant::now()
            };
            let small = thread::Builder::new().stack_size(256 * 1024);
            threads.push(small.spawn_scoped(scope, wait).expect("a thread"));
        }
        while (queued.load(Ordering::Relaxed) as usize) < count {
            thread::sleep(ROUND / 50);
        }
        let each = resident().saturating_sub(before) / count as u64;
        let begun = Instant::now();
        drop(guard);
        let last = threads
            .into_iter()
            .map(|thread| thread.join().expect("a wait"));
        let took = last.max().expect("a thread") - begun;
        eprintln!("{path}: {each} KiB a waiting client");
        count as f64 / took.as_secs_f64()
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
        let listed = raw.enter(path);
        let node = raw.reply_to(listed - 1).created();
        raw.reply_to(listed).children();
        let watched = raw.request(4, &before, &[1]);
        assert_eq!(raw.reply_to(watched).code(), 0);
        queue.push((raw, before, node.clone()));
        before = node;
    }
    let begun = Instant::now();
    gate.delete(&first);
    gate.flush();
    for (raw, before, node) in &mut queue {
        raw.wait_until_gone(before);
        let listed = raw.request(8, path, &[0]);
        let names = raw.reply_to(listed).children();
        let least = names.iter().min_by_key(|name| &name[name.len() - 10..]);
        assert!(node.ends_with(least.expect("our node")));
        raw.delete(node);
        raw.flush();
    }
    count as f64 / begun.elapsed().as_secs_f64()
}

/// The memory of this process, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// A session on a socket.
struct Raw {
    socket: TcpStream,
    input: Vec<u8>,
    start: usize,
    out: Vec<u8>,
    xid: i32,
    /// Deleted nodes whose events came before they were waited for.
    gone: HashMap<String, ()>,
}

/// A reply or an event.
struct Frame(Vec<u8>);

impl Raw {
    fn connect(hosts: &str) -> Self {
        let socket = TcpStream::connect(hosts).expect("a server");
        socket.set_nodelay(true).expect("a socket");
        let mut raw = Self {
            socket,
            input: Vec::new(),
            start: 0,
            out: Vec::new(),
            xid: 0,
            gone: HashMap::new(),
        };
        // Version, the last zxid, the timeout, session 0, and a password of nothing.
        let head = [&[0; 12][..], &20_000i32.to_be_bytes(), &[0; 8]].concat();
        let body = [&head[..], &16i32.to_be_bytes(), &[0; 16], &[0]].concat();
        raw.put(&body);
        raw.flush();
        raw.frame();
        raw
    }

    /// Makes a directory and its parent, if they are not there.
    fn make(&mut self, dir: &str) {
        let above = &dir[..dir.rfind('/').expect("a path")];
        for path in [above, dir] {
            self.create(1, path, 0);
            self.reply();
        }
    }

    fn enter(&mut self, dir: &str) -> i32 {
        let name = format!("{dir}/_c_{}-lock-", uuid::Uuid::new_v4());
        self.create(15, &name, 3);
        self.request(8, dir, &[0])
    }

    fn create(&mut self, op: i32, path: &str, mode: i32) {
        let data = [b'.'; 100];
        let world = [
            &100i32.to_be_bytes()[..],
            &data,
            &1i32.to_be_bytes(),
            &31i32.to_be_bytes(),
            &5i32.to_be_bytes(),
            b"world",
            &6i32.to_be_bytes(),
            b"anyone",
            &mode.to_be_bytes(),
        ];
        self.request(op, path, &world.concat());
    }

    fn delete(&mut self, path: &str) {
        self.request(2, path, &(-1i32).to_be_bytes());
    }

    /// Goes through the queue; returns the node.
    fn hold(&mut self, dir: &str) -> String {
        let last = self.enter(dir);
        self.flush();
        let node = self.reply_to(last - 1).created();
        let mut names = self.reply_to(last).children();
        loop {
            names.sort_by_key(|name| name[name.len() - 10..].to_owned());
            let ours = names.iter().position(|name| node.ends_with(name));
            let Some(before) = ours.expect("our node").checked_sub(1) else {
                return node;
            };
            let before = format!("{dir}/{}", names[before]);
            let xid = self.request(4, &before, &[1]);
            self.flush();
            if self.reply_to(xid).code() == 0 {
                self.wait_until_gone(&before);
            }
            let xid = self.request(8, dir, &[0]);
            self.flush();
            names = self.reply_to(xid).children();
        }
    }

    fn wait_until_gone(&mut self, path: &str) {
        while self.gone.remove(path).is_none() {
            let frame = self.frame();
            self.note(&frame);
        }
    }

    fn note(&mut self, frame: &Frame) {
        if frame.int(0) == -1 {
            self.gone.insert(frame.string(24).to_owned(), ());
        }
    }

    fn reply(&mut self) -> Frame {
        self.reply_to(self.xid)
    }

    fn reply_to(&mut self, xid: i32) -> Frame {
        self.flush();
        loop {
            let frame = self.frame();
            if frame.int(0) == xid {
                return frame;
            }
            self.note(&frame);
        }
    }

    fn request(&mut self, op: i32, path: &str, rest: &[u8]) -> i32 {
        self.xid += 1;
        let length = path.len() as i32;
        let head = [self.xid, op, length].map(i32::to_be_bytes).concat();
        self.put(&[&head, path.as_bytes(), rest].concat());
        self.xid
    }

    fn put(&mut self, body: &[u8]) {
        self.out.extend((body.len() as i32).to_be_bytes());
        self.out.extend(body);
    }

    fn flush(&mut self) {
        if !self.out.is_empty() {
            self.socket.write_all(&self.out).expect("a connection");
            self.out.clear();
        }
    }

    fn has_frame(&self) -> bool {
        self.whole().is_some()
    }

    fn whole(&self) -> Option<&[u8]> {
        let (head, rest) = self.input[self.start..].split_first_chunk::<4>()?;
        rest.get(..u32::from_be_bytes(*head) as usize)
    }

    fn frame(&mut self) -> Frame {
        loop {
            if let Some(frame) = self.whole() {
                let frame = Frame(frame.to_vec());
                self.start += 4 + frame.0.len();
                return frame;
            }
            self.input.drain(..self.start);
            self.start = 0;
            let end = self.input.len();
            self.input.resize(end + 65536, 0);
            let read = self.socket.read(&mut self.input[end..]);
            let read = read.expect("a connection");
            assert_ne!(read, 0, "the server hung up");
            self.input.truncate(end + read);
        }
    }
}

impl Frame {
    fn int(&self, at: usize) -> i32 {
        i32::from_be_bytes(self.0[at..at + 4].try_into().expect("four bytes"))
    }

    fn code(&self) -> i32 {
        self.int(12)
    }

    fn string(&self, at: usize) -> &str {
        let length = self.int(at) as usize;
        str::from_utf8(&self.0[at + 4..at + 4 + length]).expect("a string")
    }

    fn created(&self) -> String {
        assert_eq!(self.code(), 0);
        self.string(16).to_owned()
    }

    fn children(&self) -> Vec<String> {
        assert_eq!(self.code(), 0);
        let (mut at, mut names) = (20, Vec::new());
        for _ in 0..self.int(16) {
            let name = self.string(at);
            at += 4 + name.len();
            names.push(name.to_owned());
        }
        names
    }
}
