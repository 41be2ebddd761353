//! The measurements of a round.

use std::env;
use std::fmt;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

const ROUND: Duration = Duration::from_millis(500);

/// The work that the threads of a round do until the round is over.
#[derive(Default)]
pub(crate) struct Cycles {
    over: AtomicBool,
    done: AtomicU64,
}

impl Cycles {
    pub(crate) fn go_on(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }

    pub(crate) fn done(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }
}

/// The result of a round.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) rate: f64,
    each: [f64; 8],
}

impl Row {
    pub(crate) const HEAD: &str =
        "    rate  us each   sleeps   driven requests   writes  srv us  srv sw   others";
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>8.0} {:>8.1}", self.rate, self.each[0])?;
        self.each[1..]
            .iter()
            .try_for_each(|each| write!(f, " {each:>8.2}"))
    }
}

pub(crate) fn median(rows: &[Row]) -> Row {
    let of = |value: &dyn Fn(&Row) -> f64| {
        let mut values: Vec<_> = rows.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    Row {
        rate: of(&|row| row.rate),
        each: std::array::from_fn(|at| of(&|row| row.each[at])),
    }
}

/// The resources used so far: microseconds of the processor, sleeps, expulsions, requests, writes,
/// the same of the server, and the microseconds of all other processes.
fn used(hosts: &str) -> [f64; 8] {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let micros = time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3;
    let [_, sleeps, driven] = threads("self");
    let [requests, writes] = counted(hosts);
    let server = env::var("SERVER_PID").ok();
    let [server, slept, _] = server.map_or([0.0; 3], |pid| threads(&pid));
    let others = busy() - micros - server;
    [
        micros, sleeps, driven, requests, writes, server, slept, others,
    ]
}

/// Returns the microseconds, sleeps and expulsions of a process, summed over its threads that are
/// alive.
fn threads(pid: &str) -> [f64; 3] {
    let mut all = [0.0; 3];
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    for task in tasks.into_iter().flatten().flatten() {
        let read = |name| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let (times, status) = (read("schedstat"), read("status"));
        let of = |name| {
            status
                .lines()
                .find_map(|line: &str| line.strip_prefix(name))
        };
        let fields = [
            times.split(' ').next(),
            of("voluntary_ctxt_switches:"),
            of("nonvoluntary_ctxt_switches:"),
        ];
        for (sum, field) in all.iter_mut().zip(fields) {
            *sum += field.map_or(0.0, number);
        }
    }
    all[0] /= 1e3;
    all
}

fn number(text: &str) -> f64 {
    text.trim().parse().unwrap_or(0.0)
}

/// Returns the microseconds of all processors.
fn busy() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let all = text.lines().next().unwrap_or_default();
    let ticks = all.split_whitespace().skip(1).map(number);
    // All fields except the idle times, which are the fourth and fifth, and those that are counted
    // twice.
    let ticks = ticks
        .enumerate()
        .filter(|(at, _)| !matches!(at, 3 | 4 | 8..));
    ticks.map(|(_, ticks)| ticks * 1e4).sum()
}

/// Returns how many requests a server has received, and how many writes it has seen.
fn counted(hosts: &str) -> [f64; 2] {
    let host = hosts.split(',').next().unwrap_or_default();
    let mut text = String::new();
    let mut ask = || {
        let mut stream = TcpStream::connect(host)?;
        stream.write_all(b"srvr")?;
        stream.read_to_string(&mut text)
    };
    let _ = ask();
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let received = field("Received: ").map_or(0.0, number);
    let zxid = field("Zxid: 0x").and_then(|text| i64::from_str_radix(text.trim(), 16).ok());
    [
        received,
        zxid.map_or(0.0, |zxid| (zxid & 0xffff_ffff) as f64),
    ]
}

/// Runs this many threads until the round is over.
pub(crate) fn in_threads(hosts: &str, count: usize, once: impl Fn(usize, &Cycles) + Sync) -> Row {
    let cycles = Cycles::default();
    thread::scope(|scope| {
        for at in 0..count {
            let (once, cycles) = (&once, &cycles);
            scope.spawn(move || once(at, cycles));
        }
        thread::sleep(ROUND / 5);
        let before = used(hosts);
        let (done, begun) = (cycles.done.load(Ordering::Relaxed), Instant::now());
        thread::sleep(ROUND);
        let grants = (cycles.done.load(Ordering::Relaxed) - done) as f64;
        let took = begun.elapsed().as_secs_f64();
        let rate = grants / took;
        let after = used(hosts);
        cycles.over.store(true, Ordering::Relaxed);
        Row {
            rate,
            each: std::array::from_fn(|at| {
                (after[at] - before[at]) / if at == 7 { took * 1e6 } else { grants }
            }),
        }
    })
}
