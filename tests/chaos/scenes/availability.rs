//! What operators do every week costs no lock: leaders that are killed, stopped or hang for a
//! moment, rolling restarts, a follower that is cut off, a server that stays away.
//!
//! All settings are the default ones, but for the session timeout. Of each length, guards of the
//! library are held, commands run under `zklock run`, a standby is active, and clients hand a mutex
//! on all the time: the longest time in which nobody had it is told beside what was lost.

use std::fmt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use zklock::{Client, GuardEvent, MutexGuard, SendMutexGuard};

use crate::cluster::{number, wait};
use crate::support::ensemble::Ensemble;
use crate::support::fresh_path;
use crate::support::leash::Leashed;
use crate::support::zookeeper::ZooKeeper;

/// The session timeouts, in seconds. The second is the default.
const TIMEOUTS: [u64; 3] = [10, 20, 40];

/// How many of each are held.
const EACH: usize = 2;

/// How long a follower is cut off, in milliseconds: a third of the shortest session timeout.
const CUT_OFF: u64 = 3_300;

/// How long a leader hangs, as in a garbage collection. Nobody can commit meanwhile.
const MOMENT: u64 = 1_000;

/// What is done to the servers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Trouble {
    LeaderIsKilled,
    LeaderIsAskedToGo,
    LeaderHangs,
    AllRestart,
    FollowerIsCutOff,
    FollowerStaysAway,
}

impl Trouble {
    const ALL: [Self; 6] = [
        Self::LeaderIsKilled,
        Self::LeaderIsAskedToGo,
        Self::LeaderHangs,
        Self::AllRestart,
        Self::FollowerIsCutOff,
        Self::FollowerStaysAway,
    ];

    fn befalls(self, servers: &Ensemble) {
        let leader = servers.wait_for_leader();
        let follower = (leader + 1) % 3;
        match self {
            Self::LeaderIsKilled => servers.kill(leader),
            Self::LeaderIsAskedToGo => servers.server(leader).terminate(),
            Self::LeaderHangs => hang(servers, leader, MOMENT),
            Self::AllRestart => servers.roll(|_| wait(1000)),
            Self::FollowerIsCutOff => hang(servers, follower, CUT_OFF),
            Self::FollowerStaysAway => {
                servers.kill(follower);
                wait(10_000);
            }
        }
        servers.wait_for_leader();
        wait(1000);
        for gone in (0..3).filter(|i| !servers.is_running(*i)) {
            servers.restart(gone);
        }
        servers.wait_for_leader();
        wait(2000);
    }
}

/// The server answers nobody for a while, and its connections stay open.
fn hang(servers: &Ensemble, server: usize, millis: u64) {
    servers.pause(server);
    wait(millis);
    servers.resume(server);
}

/// Whoever has something of one session timeout.
struct Holders {
    timeout: u64,
    guards: Vec<SendMutexGuard>,
    /// Held until the guards are dropped.
    _client: Client,
    commands: Vec<Leashed>,
    standby: Leashed,
}

impl Holders {
    fn start(hosts: &str, timeout: u64) -> Self {
        let root = fresh_path("availability");
        let client = connect(hosts, timeout);
        let guards = (0..EACH).map(|i| {
            let mutex = client.mutex(&format!("{root}/guard-{i}"));
            mutex.unwrap().lock().map(MutexGuard::into_send).unwrap()
        });
        let run = |i| {
            let path = format!("{root}/run-{i}");
            program(hosts, timeout, &["run", &path])
        };
        let path = format!("{root}/standby");
        Self {
            timeout,
            guards: guards.collect(),
            commands: (0..EACH).map(run).collect(),
            standby: program(hosts, timeout, &["standby", "--restart", "never", &path]),
            _client: client,
        }
    }

    /// Counts what was lost, and says of each when that is seen first.
    fn lost(&mut self) -> Lost {
        let is_lost = |guard: &SendMutexGuard| {
            let told = guard
                .events()
                .try_iter()
                .any(|event| event == GuardEvent::Lost);
            told || guard.check().is_err()
        };
        let mut lost = Lost {
            guards: self.guards.iter().filter(|guard| is_lost(guard)).count(),
            ..Lost::default()
        };
        for command in &mut self.commands {
            lost.commands += usize::from(command.ended().is_some());
        }
        lost.standbys = usize::from(self.standby.ended().is_some());
        lost
    }
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Lost {
    guards: usize,
    commands: usize,
    standbys: usize,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            guards,
            commands,
            standbys,
        } = self;
        write!(
            f,
            "lost {guards} guards, {commands} commands, {standbys} standbys"
        )
    }
}

fn connect(hosts: &str, timeout: u64) -> Client {
    let timeout = Duration::from_secs(timeout);
    let builder = Client::builder(hosts).session_timeout(timeout);
    builder.connect().expect("a client")
}

/// Starts the program, and a command that ends with it.
fn program(hosts: &str, timeout: u64, args: &[&str]) -> Leashed {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zklock"));
    command
        .env("ZKLOCK_HOSTS", hosts)
        .args(["--session-timeout", &timeout.to_string()])
        .args(args)
        .args(["--", "sleep", "100000"])
        .stdin(Stdio::null());
    Leashed::spawn(&mut command, None).expect("zklock")
}

/// Clients that take turns, and the time in which none of them had the mutex.
struct Turns {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<(Instant, Instant)>>>,
    began: Instant,
}

impl Turns {
    fn start(hosts: &str) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let taking = |_| {
            let (client, over) = (connect(hosts, 20), over.clone());
            thread::spawn(move || take_turns(&client, &over))
        };
        Self {
            threads: (0..3).map(taking).collect(),
            over,
            began: Instant::now(),
        }
    }

    /// Returns the share of the time in which nobody had it, and the longest such time.
    fn end(self) -> (f64, Duration) {
        self.over.store(true, Ordering::Relaxed);
        let holds = self.threads.into_iter().map(|thread| thread.join());
        let mut holds: Vec<_> = holds.flat_map(|holds| holds.expect("its holds")).collect();
        holds.sort_unstable();
        let (mut free, mut longest, mut since) = (Duration::ZERO, Duration::ZERO, self.began);
        for (from, until) in holds {
            let gap = from.saturating_duration_since(since);
            (free, longest, since) = (free + gap, longest.max(gap), until);
        }
        (
            free.as_secs_f64() / self.began.elapsed().as_secs_f64(),
            longest,
        )
    }
}

fn take_turns(client: &Client, over: &AtomicBool) -> Vec<(Instant, Instant)> {
    let mutex = client.mutex("/availability/turns").expect("a mutex");
    let mut holds = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let guard = mutex.lock().expect("the mutex");
        let from = Instant::now();
        thread::sleep(Duration::from_millis(100));
        holds.push((from, Instant::now()));
        drop(guard);
    }
    holds
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/chaos.sh"]
fn what_operators_do_every_week_costs_no_lock() {
    let rounds = number("ZKLOCK_CHAOS_AVAILABILITY").unwrap_or(1);
    let builder = ZooKeeper::builder()
        .fsync(false)
        .tick(Duration::from_secs(2))
        .line("syncLimit=5");
    let servers = Ensemble::start_with(&builder);
    let hosts = servers.hosts();
    let mut all: Vec<_> = TIMEOUTS
        .map(|timeout| Holders::start(&hosts, timeout))
        .into();
    wait(3000);
    let mut sum = Lost::default();
    for trouble in Trouble::ALL {
        let turns = Turns::start(&hosts);
        for round in 0..rounds {
            trouble.befalls(&servers);
            for holders in &mut all {
                let lost = holders.lost();
                if lost != Lost::default() {
                    println!(
                        "VIOLATION: {trouble:?}, round {round}, T = {} s: {lost}",
                        holders.timeout
                    );
                    sum.guards += lost.guards;
                    sum.commands += lost.commands;
                    sum.standbys += lost.standbys;
                    *holders = Holders::start(&hosts, holders.timeout);
                }
            }
        }
        let (share, longest) = turns.end();
        println!(
            "CHAOS availability, {trouble:?}: {rounds} times; a mutex that was wanted was nobody's for {:.1} % of the time, {longest:.1?} at the longest",
            100.0 * share
        );
    }
    println!("CHAOS availability, all: {sum}");
    assert_eq!(sum, Lost::default());
}
