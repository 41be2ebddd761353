//! Wall clocks that jump, by hours and in both directions, while locks are held.
//!
//! The library `faketime` shifts what the C library says of `CLOCK_REALTIME`, in the client
//! processes, by a file that the test changes; it leaves monotonic clocks alone, as a step
//! of NTP does. The servers keep their clocks: Java hardly runs like that.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::cluster::{Run, number, wait};
use crate::history::Process;
use crate::holder::{HOLDER, LET_GO};
use crate::workload::ROOT;

/// Where Debian's package `libfaketime` puts it.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

const CLIENTS: usize = 4;
/// So long that no guard is lost to a machine that is busy.
const TIMEOUT: Duration = Duration::from_secs(10);

#[test]
#[ignore = "needs a real ZooKeeper: tests/chaos.sh"]
fn wall_clocks_that_jump_lose_no_guard() {
    if !Path::new(FAKETIME).exists() {
        return println!("no jumps of the clock: they take libfaketime");
    }
    let mut run = Run::start("wall clock jumps", TIMEOUT, None);
    let shift = run.file("shift");
    shift_to(&shift, "+0");
    run.environment = environment(&shift);
    run.staff(CLIENTS);
    let hosts = run.ensemble.hosts();
    let slot = CLIENTS;
    let paths: Vec<_> = (0..5).map(|i| format!("{ROOT}/held-{i}")).collect();
    let more = [&hosts].into_iter().chain(&paths).map(String::as_str);
    let more: Vec<_> = more.collect();
    run.hire(Process { slot, life: 0 }, HOLDER, &more);
    run.worker(slot).expect("ready");
    run.worker(slot).expect("held");
    for _ in 0..number("ZKLOCK_CHAOS_ROUNDS").unwrap_or(1) {
        for by in [3600, -3600, 86_400, 0] {
            run.fault(&format!("the wall clocks of all clients jump to {by:+} s"));
            let before = seconds(&run);
            shift_to(&shift, &format!("{by:+}"));
            let moved = (seconds(&run) - before).abs();
            assert!(3000 < moved, "the clock moved by {moved} s only");
            wait(1500);
            run.heal();
        }
    }
    run.signal(LET_GO);
    run.worker(slot).expect("released");
    let summary = run.finish();
    assert_eq!(summary.lost, 0);
}

fn environment(shift: &Path) -> Vec<(String, String)> {
    let shift = shift.to_str().expect("a name in UTF-8");
    let variables = [
        ("LD_PRELOAD", FAKETIME),
        ("FAKETIME_TIMESTAMP_FILE", shift),
        ("FAKETIME_NO_CACHE", "1"),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
    ];
    variables
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec()
}

/// What a client's wall clock says.
fn seconds(run: &Run) -> i64 {
    let mut date = Command::new("date");
    let date = date.arg("+%s").envs(run.environment.iter().cloned());
    let said = date.output().expect("running date").stdout;
    let said = String::from_utf8(said).expect("a number");
    said.trim().parse().expect("a number")
}

/// Replaces the file at once, as it is read all the time.
fn shift_to(shift: &Path, by: &str) {
    let new = PathBuf::from(format!("{}.new", shift.display()));
    fs::write(&new, by).expect("writing the shift");
    fs::rename(&new, shift).expect("replacing the shift");
}
