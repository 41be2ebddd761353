//! Many processes on one path; one of them is killed every second.
//!
//! Each process writes a journal entry when it is inside, and another when it leaves. The
//! journal is one file to which all of them append, so its order is the order of events. The
//! test adds an entry for each death that it has seen.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use zklock::Error;

use crate::support::fresh_path;
use crate::support::raw::assert_nothing_left;
use crate::support::worker::{self, Worker};
use crate::support::zookeeper::{Folder, ZooKeeper};
use crate::transport::{Transport, on_every_transport};

/// The session timeout: short, because every process waits this long behind each one that is
/// killed. A process that is not scheduled for half of this time loses its lock, and notices that.
const TIMEOUT: Duration = Duration::from_millis(700);

/// How long a process stays inside, so that some are killed there.
const STAY: Duration = Duration::from_millis(1);

/// The time after which the test has failed, far longer than it takes.
const PATIENCE: Duration = Duration::from_secs(600);

on_every_transport! {
    processes_that_are_killed_never_overlap_and_leave_nothing
}

fn processes_that_are_killed_never_overlap_and_leave_nothing(transport: Transport) {
    let (processes, cycles) = (16, 100);
    let server = ZooKeeper::builder()
        .tick(Duration::from_millis(100))
        .fsync(false)
        .start();
    let (folder, path) = (Folder::new(), fresh_path("killed"));
    let mut crew = Crew {
        transport,
        hosts: server.hosts(),
        path: path.clone(),
        journal: folder.path("journal"),
        cycles,
        workers: Vec::new(),
    };
    let kills = crew.run(processes);

    let journal = Journal::read(&crew.journal);
    println!(
        "{transport:?}: {processes} processes x {cycles} cycles, {kills} kills ({} of them inside), \
         {} locks lost",
        journal.killed_inside, journal.lost
    );
    assert!(kills > 0);
    for slot in 0..processes {
        assert_eq!(journal.done(slot), cycles, "process {slot}");
    }
    assert_nothing_left(&server.hosts(), &path);
}

#[test]
#[ignore = "a worker process"]
fn worker_that_goes_in_and_out() {
    let Some(input) = worker::input() else { return };
    let [transport, hosts, path, journal, slot, life, cycles] = worker::words(&input);
    let mut journal = File::options().append(true).open(journal).unwrap();
    let mut note = |what: &str, token| {
        // The entry is one write, so that those of several processes do not mix.
        let entry = format!("{what} {slot} {life} {token}\n");
        journal.write_all(entry.as_bytes()).unwrap();
    };
    let connect = || {
        let client = Transport::named(&transport).connect_with(&hosts, TIMEOUT);
        client.mutex(&path).unwrap()
    };
    let mut mutex = connect();
    let mut left: usize = cycles.parse().unwrap();
    while left > 0 {
        let guard = match mutex.lock() {
            Ok(guard) => guard,
            // A handle that was not served for a session timeout is given up for good.
            Err(Error::Closed) if transport == "Handle" => {
                mutex = connect();
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let token = guard.fencing_token();
        if guard.check().is_err() {
            continue;
        }
        note("enter", token);
        thread::sleep(STAY);
        note("leave", token);
        // A holder that finds its lock valid now was alone until now.
        if guard.check().is_ok() {
            note("done", token);
            left -= 1;
        } else {
            note("lost", token);
        }
    }
}

/// The processes of one test.
struct Crew {
    transport: Transport,
    hosts: String,
    path: String,
    journal: std::path::PathBuf,
    cycles: usize,
    workers: Vec<Slot>,
}

/// A place among the processes; a process that is killed is replaced.
struct Slot {
    worker: Worker,
    life: usize,
    ended: bool,
}

impl Crew {
    /// Runs until all processes have completed their cycles; returns how many were killed.
    fn run(&mut self, processes: usize) -> usize {
        File::create(&self.journal).unwrap();
        for slot in 0..processes {
            let worker = self.spawn(slot, 0, self.cycles);
            self.workers.push(Slot {
                worker,
                life: 0,
                ended: false,
            });
        }
        let (start, mut kills) = (Instant::now(), 0);
        while !self.have_ended() {
            assert!(start.elapsed() < PATIENCE, "{}", self.tail());
            if start.elapsed() > Duration::from_secs(kills + 1) {
                self.kill_one();
                kills += 1;
            }
            thread::sleep(Duration::from_millis(20));
        }
        usize::try_from(kills).unwrap()
    }

    fn kill_one(&mut self) {
        let alive: Vec<_> = (0..self.workers.len())
            .filter(|slot| !self.workers[*slot].ended)
            .collect();
        let Some(slot) = fastrand::choice(alive) else {
            return;
        };
        self.workers[slot].worker.kill();
        let life = self.workers[slot].life;
        let mut journal = File::options().append(true).open(&self.journal).unwrap();
        // This is one write, like the entries of the processes.
        let entry = format!("killed {slot} {life} 0\n");
        journal.write_all(entry.as_bytes()).unwrap();

        let left = self.cycles - Journal::read(&self.journal).done(slot);
        self.workers[slot].life += 1;
        self.workers[slot].worker = self.spawn(slot, life + 1, left);
    }

    fn spawn(&self, slot: usize, life: usize, cycles: usize) -> Worker {
        let Self {
            transport,
            hosts,
            path,
            journal,
            ..
        } = self;
        let journal = journal.display();
        let input = format!("{transport:?} {hosts} {path} {journal} {slot} {life} {cycles}");
        Worker::spawn(worker_that_goes_in_and_out, &input)
    }

    fn have_ended(&mut self) -> bool {
        for slot in self.workers.iter_mut().filter(|slot| !slot.ended) {
            if let Some(well) = slot.worker.ended() {
                assert!(well, "a process failed");
                slot.ended = true;
            }
        }
        self.workers.iter().all(|slot| slot.ended)
    }

    fn tail(&self) -> String {
        let journal = fs::read_to_string(&self.journal).unwrap_or_default();
        let lines: Vec<_> = journal.lines().collect();
        format!(
            "too slow; the last of the journal: {:?}",
            lines.last_chunk::<20>()
        )
    }
}

/// The content of the journal, which is checked while it is read.
#[derive(Default)]
struct Journal {
    done: HashMap<usize, usize>,
    lost: usize,
    killed_inside: usize,
}

/// A stay inside.
#[derive(Clone, Copy, Debug)]
struct Stay {
    process: (usize, usize),
    token: i64,
    enter: usize,
    leave: usize,
}

impl Journal {
    #[track_caller]
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let mut journal = Self::default();
        let mut inside: HashMap<(usize, usize), Stay> = HashMap::new();
        let mut stays = Vec::new();
        for (line, entry) in text.lines().enumerate() {
            let [what, slot, life, token] = worker::words(entry);
            let process = (slot.parse().unwrap(), life.parse().unwrap());
            let stay = Stay {
                process,
                token: token.parse().unwrap(),
                enter: line,
                leave: line,
            };
            match what.as_str() {
                "enter" => drop(inside.insert(process, stay)),
                "leave" => inside.get_mut(&process).unwrap().leave = line,
                "done" => {
                    *journal.done.entry(process.0).or_default() += 1;
                    stays.extend(inside.remove(&process));
                }
                "lost" => {
                    journal.lost += 1;
                    inside.remove(&process);
                }
                _ => {
                    if let Some(mut stay) = inside.remove(&process) {
                        if stay.leave == stay.enter {
                            stay.leave = line;
                            journal.killed_inside += 1;
                        }
                        stays.push(stay);
                    }
                }
            }
        }
        assert_no_overlap(stays, &text);
        journal
    }

    fn done(&self, slot: usize) -> usize {
        self.done.get(&slot).copied().unwrap_or(0)
    }
}

/// Checks that the stays are disjoint, and that the tokens grow.
#[track_caller]
fn assert_no_overlap(mut stays: Vec<Stay>, text: &str) {
    stays.sort_by_key(|stay| stay.enter);
    for pair in stays.windows(2) {
        let context = || {
            let lines: Vec<_> = text.lines().skip(pair[0].enter).take(12).collect();
            let processes = (pair[0].process, pair[1].process);
            format!("{processes:?}\n{}", lines.join("\n"))
        };
        assert!(pair[0].leave < pair[1].enter, "{pair:?}\n{}", context());
        assert!(pair[0].token < pair[1].token, "{pair:?}\n{}", context());
    }
}
