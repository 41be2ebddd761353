//! Wall clocks that jump, by hours and in both directions, while locks are held.
//!
//! The library `faketime` shifts what `CLOCK_REALTIME` says, for the servers and for the
//! clients, by a file that the test changes; it leaves monotonic clocks alone, as a step
//! of NTP does. The library under test reads the clock that counts suspend through a
//! system call of its own, so this shows that nothing in it trusts the wall clock.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::cluster::{Run, number, wait};
use crate::history::Process;
use crate::holder::{HOLDER, LET_GO};
use crate::support::zookeeper::Folder;
use crate::workload::ROOT;

/// Where Debian's package `libfaketime` puts it.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

/// Names the file with the shift, to this test in its second life.
const SHIFT: &str = "FAKETIME_TIMESTAMP_FILE";

const CLIENTS: usize = 4;
const TIMEOUT: Duration = Duration::from_secs(8);

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn wall_clocks_that_jump_lose_no_guard() {
    match env::var_os(SHIFT) {
        Some(shift) => jump(Path::new(&shift)),
        None if Path::new(FAKETIME).exists() => again(),
        None => println!("no jumps of the clock: they take libfaketime"),
    }
}

/// Runs this test again, with clocks that can be shifted.
fn again() {
    let folder = Folder::new();
    let shift = folder.path("shift");
    fs::write(&shift, "+0").expect("writing the shift");
    let binary = env::current_exe().expect("finding the test binary");
    let status = Command::new(binary)
        .args(["--exact", "clocks::wall_clocks_that_jump_lose_no_guard"])
        .args(["--ignored", "--nocapture"])
        .env("LD_PRELOAD", FAKETIME)
        .env(SHIFT, &shift)
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .status();
    assert!(status.expect("running the test again").success());
}

fn jump(shift: &Path) {
    let mut run = Run::start("wall clock jumps", TIMEOUT, None);
    run.staff(CLIENTS);
    let hosts = run.ensemble.hosts();
    let slot = CLIENTS;
    let paths: Vec<_> = (0..5).map(|i| format!("{ROOT}/held-{i}")).collect();
    let more: Vec<_> = [&hosts].into_iter().chain(&paths).map(String::as_str).collect();
    run.hire(Process { slot, life: 0 }, HOLDER, &more);
    run.worker(slot).expect("ready");
    run.worker(slot).expect("held");
    let before = SystemTime::now();
    for _ in 0..number("ZKLOCK_CHAOS_ROUNDS").unwrap_or(1) {
        for by in ["+3600", "-3600", "+86400", "+0"] {
            run.fault(&format!("all wall clocks jump to {by} s"));
            shift_to(shift, by);
            wait(1500);
            run.heal();
        }
    }
    shift_to(shift, "+3600");
    let ahead = SystemTime::now().duration_since(before).unwrap_or_default();
    assert!(Duration::from_secs(3600) < ahead, "the clock does not jump");
    run.signal(LET_GO);
    run.worker(slot).expect("released");
    let summary = run.finish();
    assert_eq!(summary.lost, 0);
}

/// Replaces the file at once, as it is read all the time.
fn shift_to(shift: &Path, by: &str) {
    let new = PathBuf::from(format!("{}.new", shift.display()));
    fs::write(&new, by).expect("writing the shift");
    fs::rename(&new, shift).expect("replacing the shift");
}
