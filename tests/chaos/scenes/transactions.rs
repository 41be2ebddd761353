//! Four processes that write in transactions under one mutex and never check, among Curator's.
//!
//! They are killed, stopped, cut off and evicted, and so are the servers. The servers' logs
//! show which transaction came when, and which contender was first in the queue then.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use fastrand::Rng;
use zklock::{Client, Nodes};

use super::random::break_something;
use crate::cluster::{Run, SERVERS, number, row, wait};
use crate::contender::{Contender, Said};
use crate::history::Process;
use crate::libraries::Library;
use crate::peer::Peer;
use crate::support::netns::{self, Network};
use crate::support::raw::Raw;
use crate::txn_log::{Change, Log, committed};
use crate::workload::ROOT;
use crate::writer::{Told, told, worker_that_writes_in_transactions};

/// How many processes write.
const HOLDERS: usize = 4;

const TIMEOUT: Duration = Duration::from_secs(4);

#[test]
#[ignore = "needs a real ZooKeeper: tests/chaos.sh"]
fn none_but_the_first_in_the_queue_writes() {
    if netns::is_inside() {
        write_and_break("transactions", Some(Network::new(SERVERS + HOLDERS)));
    } else if netns::available() {
        netns::run_inside("scenes::transactions::none_but_the_first_in_the_queue_writes");
    } else {
        write_and_break("transactions, without links", None);
    }
}

fn write_and_break(name: &str, network: Option<Network>) {
    let mut run = Run::start(name, TIMEOUT, network);
    let (lock, below) = (format!("{ROOT}/mutex"), format!("{ROOT}/written"));
    Raw::connect(&run.ensemble.hosts()).create_all(&below);
    for slot in 0..HOLDERS {
        let (who, work) = (
            Process { slot, life: 0 },
            worker_that_writes_in_transactions,
        );
        run.hire(who, work, &[&lock, &below]);
        run.worker(slot).expect("ready");
    }
    let evictor = Client::connect(&run.ensemble.hosts()).expect("a client");
    let nodes = evictor.nodes().limit(Duration::from_secs(2));
    let mut curator = Curator::start(&run, &lock);
    let most = number("ZKLOCK_TRANSACTIONS").unwrap_or(1000) as usize;
    let mut rng = Rng::with_seed(run.seed);
    while run.faults < 40.max(most / 40) || done(&run) < most {
        wait(rng.u64(300..1500));
        break_something(&mut run, &mut rng, 0..HOLDERS);
        let until = Instant::now() + Duration::from_millis(rng.u64(100..5000));
        while Instant::now() < until {
            curator.go_on(&mut rng);
        }
        run.mend();
        // A holder whose session continues is stopped by nothing but the check in its transaction.
        for _ in 0..rng.u32(4..12) {
            evict(&mut run, &nodes, &lock);
            let until = Instant::now() + Duration::from_millis(rng.u64(20..300));
            while Instant::now() < until {
                curator.go_on(&mut rng);
            }
        }
    }
    curator.stop();
    run.end();
    let log = committed([0, 1, 2].map(|i| run.ensemble.server(i).logs()));
    judge(&run, &log, &lock, &below, curator.taken);
}

fn evict(run: &mut Run, nodes: &Nodes, lock: &str) {
    // Without a server nobody can be evicted, and the chosen contender may have left by itself.
    let mut names = nodes.children(lock).unwrap_or_default();
    names.sort_by_key(|name| sequence(name));
    let Some(first) = names.first() else { return };
    run.fault(&format!("{first} is evicted"));
    drop(nodes.delete(&format!("{lock}/{first}")));
}

/// A contender that does not know about transactions.
struct Curator {
    peer: Option<Peer>,
    contender: Option<Contender>,
    path: String,
    holds: bool,
    asked: bool,
    taken: usize,
}

impl Curator {
    fn start(run: &Run, path: &str) -> Self {
        let peer = Peer::start_with(Library::Java, &run.ensemble.hosts(), TIMEOUT);
        Self {
            contender: peer.as_ref().map(Peer::contender),
            peer,
            path: path.to_owned(),
            holds: false,
            asked: false,
            taken: 0,
        }
    }

    /// Takes the mutex or releases it, and waits for a moment.
    fn go_on(&mut self, rng: &mut Rng) {
        let pause = Duration::from_millis(rng.u64(10..100));
        let Some(contender) = &self.contender else {
            return wait(50);
        };
        if !self.asked {
            match self.holds {
                false => contender.lock("mutex", &self.path),
                true => contender.begin_release(),
            }
            self.asked = true;
        }
        match contender.hear_within(pause) {
            Some(Said::Held(_)) => {
                (self.holds, self.asked, self.taken) = (true, false, self.taken + 1)
            }
            // The contender cannot release a lock from which it was evicted.
            Some(_) => (self.holds, self.asked) = (false, false),
            None => {}
        }
    }

    /// Ends the process and its session.
    fn stop(&mut self) {
        self.peer = None;
    }
}

/// Returns how many writes were reported as done.
fn done(run: &Run) -> usize {
    let told = told(&run.file(""));
    told.iter().filter(|(_, told)| *told == Told::Done).count()
}

fn sequence(name: &str) -> i32 {
    name.rsplit('-')
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or(i32::MAX)
}

/// Goes through the log, and checks which contender was first at each write.
fn judge(run: &Run, log: &Log, lock: &str, below: &str, curator: usize) {
    let in_log = writes_of_the_first(log, lock, below);
    let mut counts: BTreeMap<(Told, bool), usize> = BTreeMap::new();
    let told = told(&run.file(""));
    for (node, told) in &told {
        let there = in_log.contains_key(node);
        match told {
            Told::Done | Told::Found => assert!(there, "{node}: {told:?}, and not in the log"),
            Told::Refused => assert!(!there, "{node}: {told:?}, and in the log"),
            Told::Asked | Told::Unknown | Told::Missing => {}
        }
        *counts.entry((*told, there)).or_default() += 1;
    }
    assert!(in_log.len() <= told.len());
    let count =
        |told| counts.get(&(told, true)).unwrap_or(&0) + counts.get(&(told, false)).unwrap_or(&0);
    assert!(0 < count(Told::Refused), "nobody wrote too late");
    row(&format!(
        "{}: {} faults; {} transactions committed, all by the first in the queue; {counts:?}; \
         Curator held {curator} times; {} sessions ended; seed {}",
        run.name,
        run.faults,
        in_log.len(),
        log.values()
            .flatten()
            .filter(|change| matches!(change, Change::Ended { .. }))
            .count(),
        run.seed,
    ));
}

/// Returns the writes and the numbers of their transactions.
fn writes_of_the_first(log: &Log, lock: &str, below: &str) -> HashMap<String, i64> {
    let mut queue: BTreeMap<i32, (String, Option<i64>)> = BTreeMap::new();
    let mut writes = HashMap::new();
    for (number, changes) in log {
        for change in changes {
            match change {
                Change::Created { path, owner } => {
                    if let Some(name) = in_folder(path, lock) {
                        queue.insert(sequence(name), (name.to_owned(), *owner));
                    } else if let Some(write) = in_folder(path, below) {
                        let by = write.rsplit(':').next().unwrap_or_default();
                        let first = queue.values().next().map(|(name, _)| &**name);
                        assert_eq!(first, Some(by), "0x{number:x} wrote {path}: {queue:?}");
                        writes.insert(path.clone(), *number);
                    }
                }
                Change::Deleted { path } => {
                    if let Some(name) = in_folder(path, lock) {
                        queue.remove(&sequence(name));
                    }
                }
                Change::Ended { session } => queue.retain(|_, (_, owner)| *owner != Some(*session)),
            }
        }
    }
    writes
}

fn in_folder<'a>(path: &'a str, folder: &str) -> Option<&'a str> {
    path.strip_prefix(folder)?.strip_prefix('/')
}

#[test]
#[should_panic(expected = "wrote /w/c1.0:1:late-lock-0000000001")]
fn a_late_write_is_seen_in_a_log() {
    let created = |path: &str, owner| Change::Created {
        path: path.to_owned(),
        owner,
    };
    let log = BTreeMap::from([
        (1, vec![created("/l/late-lock-0000000001", Some(7))]),
        (2, vec![created("/l/next-lock-0000000002", Some(8))]),
        (3, vec![created("/w/c1.0:0:late-lock-0000000001", None)]),
        (4, vec![Change::Ended { session: 7 }]),
        (5, vec![created("/w/c1.0:1:late-lock-0000000001", None)]),
    ]);
    writes_of_the_first(&log, "/l", "/w");
}
