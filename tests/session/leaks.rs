//! Thousands of waits in vain leave nothing behind.

use std::fs;
use std::thread;
use std::time::Duration;

use zklock::Client;

use super::{SOON, connect};
use crate::support::raw::children;
use crate::support::worker::{self, Worker};
use crate::support::zookeeper::ZooKeeper;
use crate::support::{eventually, fresh_path, within};

const THREADS: usize = 8;
const ATTEMPTS: usize = 10_000;
/// The number of attempts by which the allocator finds out how much memory is needed.
const WARM_UP: usize = 2_000;

/// The number of attempts after which a thread waits for the server, which would fall behind more
/// and more on a busy machine: nodes that are not deleted yet take memory.
const BREATHER: usize = 25;

/// How much more memory may be in use after that, in KiB: far less than 1 KiB per attempt.
const MEMORY: i64 = 4 * 1024;

#[test]
#[ignore = "needs a ZooKeeper server"]
fn ten_thousand_waits_that_time_out_leave_no_trace() {
    // A separate server, because its watches are counted.
    let server = ZooKeeper::builder().fsync(false).start();
    let (hosts, base) = (server.hosts(), fresh_path("leaks"));
    let holder = connect(&hosts, Duration::from_secs(10));
    let path = |i| format!("{base}-{i}");
    let locks: Vec<_> = (0..THREADS)
        .map(|i| holder.mutex(&path(i)).unwrap())
        .collect();
    let guards: Vec<_> = locks.iter().map(|lock| lock.lock().unwrap()).collect();
    let watches = || server.monitor("zk_watch_count");
    // The holder watches its own nodes, and nobody else watches anything.
    let settled = || watches() == Some(THREADS as i64);
    eventually("the holder watches", settled);

    let mut command = worker::itself();
    // All threads use one heap: which of several they would use, and thus fill, is random.
    command.env("MALLOC_ARENA_MAX", "1");
    let worker = Worker::launch(
        command,
        worker_that_waits_in_vain,
        &format!("{hosts} {base}"),
    );
    let [before, after] = [(); 2].map(|()| Figures::read(&worker.hear()));
    println!("{before:?} {after:?}");
    let back = within(SOON, settled);
    assert!(back, "{:?} watches", watches());
    for guard in &guards {
        let (dir, name) = guard.node().rsplit_once('/').unwrap();
        let alone = within(SOON, || children(&hosts, dir) == [name]);
        assert!(alone, "{:?}", children(&hosts, dir));
    }
    assert_eq!((after.threads, after.files), (before.threads, before.files));
    assert!(
        after.memory - before.memory < MEMORY,
        "{before:?} {after:?}"
    );
}

/// The resources of a process.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Figures {
    threads: i64,
    files: i64,
    memory: i64,
}

impl Figures {
    fn read(said: &str) -> Self {
        let words = worker::words::<3>(said);
        let [threads, files, memory] = words.map(|word| word.parse().expect("a number"));
        Self {
            threads,
            files,
            memory,
        }
    }

    fn of_this_process() -> Self {
        let status = fs::read_to_string("/proc/self/status").expect("a Linux system");
        let number = |name| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
            number.expect("a line of this name")
        };
        let files = fs::read_dir("/proc/self/fd")
            .expect("a Linux system")
            .count();
        Self {
            threads: number("Threads:"),
            files: i64::try_from(files).expect("few files"),
            memory: number("VmRSS:"),
        }
    }

    fn say(self) {
        worker::say(&format!("{} {} {}", self.threads, self.files, self.memory));
    }
}

#[test]
#[ignore = "a worker process"]
fn worker_that_waits_in_vain() {
    let Some(input) = worker::input() else { return };
    let [hosts, base] = worker::words(&input);
    let client = connect(&hosts, Duration::from_secs(10));
    let threads = Figures::of_this_process().threads;
    for attempts in [WARM_UP, ATTEMPTS] {
        wait_in_vain(&client, &base, attempts);
        // The threads of a scope may outlive it for a moment.
        within(SOON, || Figures::of_this_process().threads <= threads);
        Figures::of_this_process().say();
    }
    // The client lives on, so that nothing is deleted with its session.
    worker::stay();
}

fn wait_in_vain(client: &Client, base: &str, attempts: usize) {
    thread::scope(|scope| {
        for i in 0..THREADS {
            let path = format!("{base}-{i}");
            let mutex = client.mutex(&path).unwrap();
            scope.spawn(move || {
                for attempt in 0..attempts / THREADS {
                    // Some attempts end before they send a request, and some wait for a while.
                    let limit = Duration::from_micros(fastrand::u64(0..10_000));
                    assert!(!matches!(mutex.try_lock_for(limit), Ok(Some(_))));
                    if attempt % BREATHER == 0 {
                        eventually("the server has kept up", || {
                            client.contenders(&path).unwrap().len() == 1
                        });
                    }
                }
            });
        }
    });
}
