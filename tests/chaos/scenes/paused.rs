//! Clients that are stopped in the critical section for longer than their session lasts.
//!
//! No lock service can keep such a client from acting late: it has just checked, and held the lock
//! then. Only the token can, if the storage checks it.

use std::time::Duration;

use crate::cluster::{Run, row, wait};
use crate::history::{Entry, Process, What};
use crate::holder::{LET_GO, WRITE, worker_that_holds_mutexes, worker_that_writes_late};
use crate::workload::ROOT;

const TIMEOUT: Duration = Duration::from_secs(4);

const LATE_ONE: Process = Process { slot: 0, life: 0 };
const NEXT: Process = Process { slot: 1, life: 0 };
const WRITER: Process = Process { slot: 2, life: 0 };

#[test]
#[ignore = "needs a real ZooKeeper: tests/chaos.sh"]
fn a_client_stopped_between_check_and_write_is_turned_away_by_its_token() {
    let mut run = Run::start("paused in the critical section", TIMEOUT, None);
    let path = format!("{ROOT}/paused");
    run.hire(LATE_ONE, worker_that_writes_late, &[&path]);
    run.worker(LATE_ONE.slot).expect("held");
    let hosts = run.ensemble.hosts();
    run.hire(NEXT, worker_that_holds_mutexes, &[&hosts, &path]);
    run.worker(NEXT.slot).expect("ready");
    wait(500);

    run.fault("the holder is stopped after its check and before its write");
    run.pause_client(LATE_ONE.slot);
    run.worker(NEXT.slot).expect("held");
    // The next holder releases, and a third one writes.
    run.signal(LET_GO);
    run.worker(NEXT.slot).expect("released");
    run.hire(WRITER, worker_that_writes_late, &[&path]);
    run.worker(WRITER.slot).expect("held");
    run.signal(WRITE);
    run.worker(WRITER.slot).expect("accepted");
    run.resume_client(LATE_ONE.slot);
    run.worker(LATE_ONE.slot).expect("stale");
    show(&run.history());
    let summary = run.finish();
    assert_eq!(summary.refused_writes, 1);
    assert_eq!(summary.lost, 1);
}

/// Prints the history without the checks between the first and the last of each holder.
fn show(entries: &[Entry]) {
    let start = entries.first().map_or(0, |entry| entry.at);
    let is_check = |entry: &Entry| entry.what == What::Valid;
    for (i, entry) in entries.iter().enumerate() {
        let mut others = entries[..i].iter();
        let first = !others.any(|other| other.who == entry.who && is_check(other));
        let last = !entries[i + 1..]
            .iter()
            .any(|other| other.who == entry.who && is_check(other));
        if is_check(entry) && !first && !last {
            continue;
        }
        let at = (entry.at - start) as f64 / 1e9;
        row(&format!(
            "paused | {at:9.4} s  {:<5} {}",
            entry.who.to_string(),
            entry.what
        ));
    }
}
