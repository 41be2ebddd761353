//! Wall clocks that jump, by hours and in both directions, while locks are held.
//!
//! The library `faketime` shifts what the C library returns for `CLOCK_REALTIME`, in the
//! client processes or in the servers, by files that the test changes. It leaves monotonic
//! clocks alone, as a step of NTP does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::cluster::{Run, number, wait};
use crate::history::Process;
use crate::holder::{LET_GO, worker_that_holds_mutexes};
use crate::support::faketime;
use crate::support::raw::{PERSISTENT, Raw};
use crate::support::zookeeper::{Folder, ZooKeeper};
use crate::workload::ROOT;

const CLIENTS: usize = 4;

/// The session timeout, so long that no guard is lost on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The jumps in seconds, of the clients and of the servers.
const JUMPS: [(i64, i64); 6] = [
    (3600, 0),
    (3600, 3600),
    (-3600, 3600),
    (-3600, -86_400),
    (86_400, 86_400),
    (0, 0),
];

#[test]
#[ignore = "needs a real ZooKeeper: tests/chaos.sh"]
fn wall_clocks_that_jump_lose_no_guard() {
    let Some(library) = faketime::library("libfaketimeMT.so.1") else {
        return println!("no jumps of the clock: they take libfaketime");
    };
    let (ours, theirs) = (Clocks::new(&library), Clocks::new(&library));
    let builder = ZooKeeper::builder()
        .fsync(false)
        .environment(theirs.environment());
    let mut run = Run::start_with("wall clock jumps", TIMEOUT, None, &builder);
    run.environment = ours.environment();
    run.staff(CLIENTS);
    let hosts = run.ensemble.hosts();
    let slot = CLIENTS;
    let paths: Vec<_> = (0..5).map(|i| format!("{ROOT}/held-{i}")).collect();
    let more = [&hosts].into_iter().chain(&paths).map(String::as_str);
    let more: Vec<_> = more.collect();
    run.hire(Process { slot, life: 0 }, worker_that_holds_mutexes, &more);
    run.worker(slot).expect("ready");
    run.worker(slot).expect("held");
    for _ in 0..number("ZKLOCK_CHAOS_ROUNDS").unwrap_or(1) {
        for (clients, servers) in JUMPS {
            run.fault(&format!(
                "the wall clocks jump to {clients:+} s at the clients, {servers:+} s at the servers"
            ));
            ours.jump_to(clients);
            theirs.jump_to(servers);
            is_about(ours.seconds() - now(), clients);
            is_about(seconds_of_servers(&hosts) - now(), servers);
            wait(1000);
            run.heal();
        }
    }
    run.signal(LET_GO);
    run.worker(slot).expect("released");
    let summary = run.finish();
    assert_eq!(summary.lost, 0);
}

/// Returns whether two times are nearly the same: a few minutes are nothing compared to jumps of
/// hours.
#[track_caller]
fn is_about(seen: i64, wanted: i64) {
    assert!((seen - wanted).abs() < 600, "{seen} s, not {wanted} s");
}

/// Returns the time of this process's wall clock.
fn now() -> i64 {
    seconds_of(Command::new("date"))
}

/// Returns the time of the leader's wall clock, with which it stamps nodes.
fn seconds_of_servers(hosts: &str) -> i64 {
    let mut raw = Raw::connect(hosts);
    let node = format!("/clock-{:x}", fastrand::u64(..));
    let node = raw.create(&node, b"", PERSISTENT).expect("a node");
    raw.stat(&node).expect("the node").ctime_ms / 1000
}

fn seconds_of(mut date: Command) -> i64 {
    let said = date.arg("+%s").output().expect("running date").stdout;
    let said = String::from_utf8(said).expect("a number");
    said.trim().parse().expect("a number")
}

/// Wall clocks that can be moved, for the processes with this environment.
struct Clocks {
    library: PathBuf,
    folder: Folder,
}

impl Clocks {
    fn new(library: &Path) -> Self {
        let clocks = Self {
            library: library.to_owned(),
            folder: Folder::new(),
        };
        clocks.jump_to(0);
        clocks
    }

    fn file(&self) -> PathBuf {
        self.folder.path("shift")
    }

    fn environment(&self) -> Vec<(String, String)> {
        let file = self.file();
        let variables = [
            ("LD_PRELOAD", self.library.to_str().expect("UTF-8")),
            ("FAKETIME_TIMESTAMP_FILE", file.to_str().expect("UTF-8")),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            // With this fix, Java's timed waits take far too long.
            ("FAKETIME_FORCE_MONOTONIC_FIX", "0"),
        ];
        variables
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec()
    }

    /// Replaces the file atomically, as it is read all the time.
    fn jump_to(&self, seconds: i64) {
        let new = self.folder.path("shift.new");
        fs::write(&new, format!("{seconds:+}")).expect("writing the shift");
        fs::rename(&new, self.file()).expect("replacing the shift");
    }

    /// Returns the time that these clocks show.
    fn seconds(&self) -> i64 {
        let mut date = Command::new("date");
        date.envs(self.environment());
        seconds_of(date)
    }
}
