//! Three daemons that stand by, while they are killed and stopped and their links are cut.
//!
//! The active daemon writes to a file that all share, so the order of the file is the order of
//! events. Before each check of its term the daemon writes `try`, and if the term was valid, `ok`
//! afterwards. An `ok` proves that the term was valid at some moment after its `try`, even for a
//! process that was stopped in between.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use zklock::Client;

use crate::support::ensemble::Ensemble;
use crate::support::eventually;
use crate::support::fresh_path;
use crate::support::proxy::Proxy;
use crate::support::worker::{self, Worker};
use crate::support::zookeeper::Folder;

const DAEMONS: usize = 3;

const TIMEOUT: Duration = Duration::from_secs(2);

/// The pause between two writes of the active daemon.
const BEAT: Duration = Duration::from_millis(5);

/// The longest accepted time without an active daemon, far longer than a change takes.
const GAP: Duration = Duration::from_secs(30);

#[test]
#[ignore = "needs real ZooKeeper servers: tests/all.sh"]
fn one_daemon_is_active_whatever_dies_and_never_two() {
    let faults = std::env::var("ZKLOCK_TEST_FAULTS");
    let faults = faults.map_or(12, |faults| faults.parse().expect("a number of faults"));
    let (ensemble, folder) = (Ensemble::start(), Folder::new());
    let journal = folder.path("journal");
    File::create(&journal).unwrap();
    let path = fresh_path("daemons");
    let mut daemons: Vec<_> = (0..DAEMONS)
        .map(|_| Daemon::new(&ensemble, &path, &journal))
        .collect();
    let onlooker = Client::connect(&ensemble.hosts()).unwrap().standby(&path);
    let onlooker = onlooker.unwrap();
    for _ in 0..faults {
        // Most of the faults hit the active daemon.
        let active = onlooker
            .leader()
            .ok()
            .flatten()
            .and_then(|leader| leader.owner().pid);
        let is_active = |daemon: &Daemon| Some(daemon.worker.id()) == active;
        let place = daemons
            .iter()
            .position(is_active)
            .filter(|_| fastrand::u32(..3) < 2);
        let daemon = &mut daemons[place.unwrap_or_else(|| fastrand::usize(..DAEMONS))];
        match fastrand::u32(..10) {
            0..4 => daemon.restart(),
            4..6 => {
                daemon.worker.pause();
                thread::sleep(Duration::from_millis(fastrand::u64(100..3_000)));
                daemon.worker.resume();
            }
            6..9 => {
                daemon.links.iter().for_each(Proxy::blackhole);
                thread::sleep(Duration::from_millis(fastrand::u64(200..3_000)));
                for link in &daemon.links {
                    link.heal();
                    link.cut();
                }
            }
            _ => {
                let server = fastrand::usize(..3);
                ensemble.kill(server);
                ensemble.restart(server);
            }
        }
        let now = Journal::read(&journal).beats;
        eventually("one is active", || now < Journal::read(&journal).beats);
    }
    let journal = Journal::read(&journal);
    println!("{faults} faults: {journal:?}");
    assert!(journal.longest_gap < GAP, "{journal:?}");
}

/// A process that stands by.
struct Daemon {
    links: Vec<Proxy>,
    input: String,
    worker: Worker,
}

impl Daemon {
    fn new(ensemble: &Ensemble, path: &str, journal: &Path) -> Self {
        let links: Vec<_> = (0..3)
            .map(|server| Proxy::start(&ensemble.server(server).hosts()))
            .collect();
        let hosts: Vec<_> = links.iter().map(Proxy::hosts).collect();
        let input = format!("{} {path} {}", hosts.join(","), journal.display());
        let worker = Worker::spawn(worker_that_stands_by, &input);
        Self {
            links,
            input,
            worker,
        }
    }

    fn restart(&mut self) {
        self.worker.kill();
        self.worker = Worker::spawn(worker_that_stands_by, &self.input);
    }
}

#[test]
#[ignore = "a worker process"]
fn worker_that_stands_by() {
    let Some(input) = worker::input() else { return };
    let [hosts, path, journal] = worker::words(&input);
    let mut journal = File::options().append(true).open(journal).unwrap();
    let client = Client::builder(&hosts)
        .session_timeout(TIMEOUT)
        .connect_timeout(Duration::from_secs(60))
        .connect()
        .unwrap();
    let standby = client.standby(&path).unwrap();
    let ended = standby.run(|term| {
        let mut note = |what: &str| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            let token = term.fencing_token();
            // The entry is one write, so that those of several processes do not mix.
            let entry = format!("{what} {token} {}\n", now.as_millis());
            journal.write_all(entry.as_bytes()).unwrap();
        };
        loop {
            note("try");
            if !term.is_valid() {
                return ControlFlow::Continue(());
            }
            note("ok");
            thread::sleep(BEAT);
        }
    });
    ended.unwrap();
}

/// The content of the journal, which is checked while it is read.
#[derive(Debug, Default)]
struct Journal {
    beats: usize,
    terms: usize,
    longest_gap: Duration,
}

impl Journal {
    #[track_caller]
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let mut journal = Self::default();
        let mut terms = BTreeSet::new();
        let (mut newest, mut last) = (0, None);
        // Whether a `try` of a term came after one of a newer term.
        let mut late = BTreeSet::new();
        for line in text.lines() {
            // The last line may be incomplete.
            let Ok([what, token, at]) = <[_; 3]>::try_from(line.split(' ').collect::<Vec<_>>())
            else {
                continue;
            };
            let (Ok(token), Ok(at)) = (token.parse::<i64>(), at.parse::<u64>()) else {
                continue;
            };
            match what {
                "try" if token < newest => {
                    late.insert(token);
                }
                "try" => newest = token,
                _ => {
                    assert!(!late.contains(&token), "{line}: after a term with {newest}");
                    journal.beats += 1;
                    terms.insert(token);
                    let gap = last.map_or(0, |last| at.saturating_sub(last));
                    journal.longest_gap = journal.longest_gap.max(Duration::from_millis(gap));
                    last = Some(at);
                }
            }
        }
        journal.terms = terms.len();
        journal
    }
}
