//! Events of every week, which cost no lock: leaders that are killed, stopped or hang for a moment,
//! rolling restarts, a follower that is cut off, a server that stays away.
//!
//! All settings except the session timeout are the defaults. With each timeout, guards of the
//! library are held, commands run under `zklock run`, a standby is active, and clients hand a mutex
//! on all the time. The scene reports what was lost, and the longest time in which nobody had that
//! mutex. Some clients reach the servers through a balancer, and some by names that are unknown
//! every other minute.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use zklock::{Client, GuardEvent, MutexGuard, SendMutexGuard};

use crate::cluster::{number, wait};
use crate::support::ensemble::Ensemble;
use crate::support::leash::Leashed;
use crate::support::relay::Relay;
use crate::support::zookeeper::ZooKeeper;
use crate::support::{fresh_path, program};

/// The session timeouts, in seconds. The second is the default.
const TIMEOUTS: [u64; 3] = [10, 20, 40];

/// How many locks of each kind are held.
const EACH: usize = 2;

/// How long a follower is cut off, in milliseconds: a third of the shortest session timeout.
const CUT_OFF: u64 = 3_300;

/// How long a leader hangs, as in a garbage collection. Nobody can commit meanwhile.
const MOMENT: u64 = 1_000;

/// How long nobody may have a mutex that is wanted: half of a session timeout, by which a holder's
/// server has been quiet for long enough for it to move on, and servers have elected.
const LONGEST: Duration = Duration::from_secs(10);

/// How long the servers' names are known, and then unknown.
const NAMED: Duration = Duration::from_secs(60);

/// Runs the rest of its arguments with this file for `/etc/hosts`.
const WITH_NAMES: &str = r#"mount --bind "$0" /etc/hosts && exec "$@""#;

/// A trouble of the servers.
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

/// Stops a server for a while: it answers nobody, and its connections stay open.
fn hang(servers: &Ensemble, server: usize, millis: u64) {
    servers.pause(server);
    wait(millis);
    servers.resume(server);
}

/// The way to the servers.
#[derive(Clone, Copy, Debug)]
enum Way<'a> {
    Directly,
    /// The balancer leads to each server in turn, even if it is down.
    ByBalancer,
    /// The names are in this file, at times.
    ByName(&'a Path),
}

/// The servers' names, which are known for some time and then unknown, in turn.
struct Names<'a> {
    file: &'a Path,
    since: Instant,
}

impl Names<'_> {
    /// Checks whether the names must be known now.
    fn look(&self) {
        let known = self.since.elapsed().as_secs() / NAMED.as_secs() % 2 == 0;
        let lines = (0..3).map(|at| format!("127.0.0.1 zk-{at}.test\n"));
        let text: String = lines.filter(|_| known).collect();
        // The file is written in place: a new file would not be the mounted one.
        fs::write(self.file, text).expect("the names");
    }
}

/// The holders with one session timeout.
struct Holders<'a> {
    way: Way<'a>,
    hosts: String,
    timeout: u64,
    guards: Vec<SendMutexGuard>,
    /// The client, which is kept until the guards are dropped.
    _client: Option<Client>,
    commands: Vec<Leashed>,
    standby: Leashed,
}

impl<'a> Holders<'a> {
    fn start(way: Way<'a>, hosts: &str, timeout: u64) -> Self {
        let root = fresh_path("availability");
        // This process does not know these names.
        let client = (!matches!(way, Way::ByName(_))).then(|| connect(hosts, timeout));
        let guard = |(i, client): (usize, &Client)| {
            let mutex = client.mutex(&format!("{root}/guard-{i}"));
            mutex.unwrap().lock().map(MutexGuard::into_send).unwrap()
        };
        let guards = (0..EACH).zip(client.iter().cycle()).map(guard).collect();
        let run = |i| started(way, hosts, timeout, &["run", &format!("{root}/run-{i}")]);
        let standby = ["standby", "--restart", "never", &format!("{root}/standby")];
        Self {
            way,
            hosts: hosts.to_owned(),
            timeout,
            guards,
            commands: (0..EACH).map(run).collect(),
            standby: started(way, hosts, timeout, &standby),
            _client: client,
        }
    }

    /// Starts the missing holders again.
    fn renew(&mut self) {
        *self = Self::start(self.way, &self.hosts, self.timeout);
    }

    /// Returns the losses since the holders were started.
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
fn started(way: Way<'_>, hosts: &str, timeout: u64, args: &[&str]) -> Leashed {
    let zklock = program();
    let mut command = match way {
        Way::ByName(file) => {
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh", "-c", WITH_NAMES]);
            command.arg(file).arg(zklock);
            command
        }
        _ => Command::new(zklock),
    };
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

    /// Returns the share of the time in which nobody had the mutex, and the longest such time.
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

/// Starts the holders, in each way and for each session timeout.
fn start_all<'a>(hosts: &str, balancer: &Relay, names: &Names<'a>) -> Vec<Holders<'a>> {
    let ports = hosts.split(',').map(|host| host.rsplit(':').next());
    let named = ports.flatten().enumerate();
    let named: Vec<_> = named
        .map(|(at, port)| format!("zk-{at}.test:{port}"))
        .collect();
    let (named, by_name) = (named.join(","), Way::ByName(names.file));
    names.look();
    let mut all = Vec::new();
    for timeout in TIMEOUTS {
        all.push(Holders::start(Way::Directly, hosts, timeout));
        all.push(Holders::start(Way::ByBalancer, &balancer.hosts, timeout));
        if may_mount() {
            all.push(Holders::start(by_name, &named, timeout));
        }
    }
    all
}

/// Returns whether this user may give a process a file system of its own.
fn may_mount() -> bool {
    let tried = Command::new("unshare").args(["--mount", "true"]).status();
    tried.is_ok_and(|status| status.success())
}

/// Counts and prints the losses, and starts what is missing.
fn look_after(all: &mut [Holders<'_>], what: &str, sum: &mut Lost) {
    for holders in all {
        let lost = holders.lost();
        if lost == Lost::default() {
            continue;
        }
        let Holders { way, timeout, .. } = holders;
        println!("VIOLATION: {what}, {way:?}, T = {timeout} s: {lost}");
        sum.guards += lost.guards;
        sum.commands += lost.commands;
        sum.standbys += lost.standbys;
        holders.renew();
    }
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
    let balancer = Relay::start(hosts.split(',').map(str::to_owned).collect());
    let file = std::env::temp_dir().join(format!("zklock-names-{}", std::process::id()));
    let names = Names {
        file: &file,
        since: Instant::now(),
    };
    let mut all = start_all(&hosts, &balancer, &names);
    wait(3000);
    let mut sum = Lost::default();
    let only = std::env::var("ZKLOCK_CHAOS_TROUBLE").ok();
    let is_wanted = |trouble: &Trouble| {
        only.as_ref()
            .is_none_or(|only| *only == format!("{trouble:?}"))
    };
    for trouble in Trouble::ALL.into_iter().filter(is_wanted) {
        let turns = Turns::start(&hosts);
        for round in 0..rounds {
            names.look();
            trouble.befalls(&servers);
            look_after(&mut all, &format!("{trouble:?}, round {round}"), &mut sum);
        }
        let (share, longest) = turns.end();
        println!(
            "CHAOS availability, {trouble:?}: {rounds} times; a mutex that was wanted was nobody's for {:.1} % of the time, {longest:.1?} at the longest",
            100.0 * share
        );
        assert!(longest < LONGEST, "nobody had the mutex for {longest:?}");
    }
    println!("CHAOS availability, all: {sum}");
    let _ = fs::remove_file(&file);
    assert_eq!(sum, Lost::default());
}
