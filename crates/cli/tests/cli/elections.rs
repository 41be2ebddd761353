//! The way of a waiter, where a command or a wait ahead ends while the leader goes away.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::program::{Log, Zklock};
use crate::support::ensemble::Ensemble;
use crate::support::raw::children;
use crate::support::zookeeper::{Folder, ZooKeeper};
use crate::support::{eventually, fresh_path};

const TIMEOUT: Duration = Duration::from_secs(20);
/// Half of the time for which a command that gives up asks for the end of its session.
const QUICK: Duration = Duration::from_secs(1);

/// A lock with a holder, a waiter that gives up or has just got the lock, and a waiter that stays
/// behind both.
struct Line {
    log: Log,
    waiters: [Zklock; 3],
}

impl Line {
    /// Starts the line. The holder ends this long after the file appears.
    fn new(hosts: &str, i: usize, end: &str) -> Self {
        let (path, log) = (fresh_path("line"), Log::new());
        let args = format!("run {path}");
        let until = format!(
            "until [ -e {end} ]; do sleep 0.01; done; sleep 0.{:02}",
            2 * i
        );
        let holder = Zklock::start(hosts, &args, &format!("{}; {until}", log.write("in")));
        log.await_word("in");
        let queued = |n| eventually("it waits", || children(hosts, &path).len() == n);
        let leaves = Zklock::start(hosts, &args, &log.write("got"));
        queued(2);
        let next = Zklock::start(hosts, &args, &log.write("next"));
        queued(3);
        let waiters = [holder, leaves, next];
        Self { log, waiters }
    }
}

/// Returns whether nothing was in the way when the leader went; `None` if the election took longer
/// than a command that gives up asks for the end of its session.
fn is_free_where_the_leader_goes(ensemble: &Ensemble, is_asked: bool) -> Option<bool> {
    let folder = Folder::new();
    let end = folder.path("end");
    let hosts = ensemble.hosts();
    let lines = (0..6).map(|i| Line::new(&hosts, i, &end.display().to_string()));
    let lines: Vec<_> = lines.collect();
    let leader = ensemble.wait_for_leader();
    fs::write(&end, "").expect("writing");
    // Some commands end before the leader goes, some meanwhile, and some after that.
    thread::sleep(Duration::from_millis(60));
    let begun = Instant::now();
    match is_asked {
        true => ensemble.server(leader).terminate(),
        false => ensemble.kill(leader),
    }
    for line in &lines {
        line.waiters[1].signal("TERM");
    }
    eventually("another one leads", || {
        ensemble.leader().is_some_and(|other| other != leader)
    });
    let is_quick = begun.elapsed() < QUICK;
    if is_quick {
        for line in lines {
            line.log.await_word("next");
            let ended = line.waiters.map(Zklock::end);
            assert_eq!(ended[0].code, Some(0), "{ended:?}");
        }
    }
    let is_free = begun.elapsed() < TIMEOUT / 2;
    ensemble.restart(leader);
    is_quick.then_some(is_free)
}

#[test]
#[ignore = "needs ZooKeeper servers"]
fn who_ends_or_gives_up_while_the_leader_goes_leaves_nothing_in_the_way() {
    let builder = ZooKeeper::builder().fsync(false).tick(TIMEOUT / 10);
    let ensemble = Ensemble::start_with(&builder);
    for is_asked in [true, false] {
        // A busy machine takes long to elect.
        let is_free = (0..4).find_map(|_| is_free_where_the_leader_goes(&ensemble, is_asked));
        assert_ne!(is_free, Some(false), "asked to go: {is_asked}");
    }
}
