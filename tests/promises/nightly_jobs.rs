//! Three machines with wrong clocks run a job per slot, while runners, servers and links fail.
//!
//! A machine starts a process for each slot, as cron does. The processes write to one file, so its
//! order is the order of events; the test adds a line for each process that it has killed. Where
//! libfaketime is installed, it shifts the program's clock by ten minutes either way.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use zklock::{Client, Error, JobOptions, Once, Run};

use crate::support::ensemble::Ensemble;
use crate::support::faketime;
use crate::support::fresh_path;
use crate::support::proxy::Proxy;
use crate::support::raw::{Raw, assert_nothing_left};
use crate::support::worker::{self, Worker};
use crate::support::zookeeper::Folder;

const MACHINES: usize = 3;

/// How far each machine's clock is off, in seconds.
const SHIFTS: [i64; MACHINES] = [-600, 0, 600];

/// The session timeout: short, because every process waits this long behind each one that is
/// killed.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The time after which the test has failed, far longer than it takes.
const PATIENCE: Duration = Duration::from_secs(1_200);

/// The percentage of runs that fail by themselves.
const FAILS: u32 = 8;

#[test]
#[ignore = "needs real ZooKeeper servers: tests/all.sh"]
fn every_slot_is_marked_once_whatever_dies() {
    let slots = std::env::var("ZKLOCK_TEST_SLOTS");
    let slots = slots.map_or(25, |slots| slots.parse().expect("a number of slots"));
    let (ensemble, folder) = (Ensemble::start(), Folder::new());
    let path = fresh_path("nightly");
    let machines: Vec<_> = SHIFTS
        .into_iter()
        .enumerate()
        .map(|(number, shift)| Machine::new(number, shift, &ensemble, &path, &folder))
        .collect();
    let journal = machines[0].journal.clone();
    File::create(&journal).unwrap();
    let (done, evening) = (Mutex::new(0), Barrier::new(MACHINES));
    let faults = thread::scope(|scope| {
        for machine in &machines {
            let (done, evening) = (&done, &evening);
            scope.spawn(move || {
                for slot in 1..=slots {
                    // One night is over before the next one begins.
                    evening.wait();
                    machine.night(slot);
                }
                *done.lock() += 1;
            });
        }
        let begun = Instant::now();
        let mut faults = 0;
        while *done.lock() < MACHINES {
            assert!(begun.elapsed() < PATIENCE, "it does not end");
            thread::sleep(Duration::from_millis(fastrand::u64(30..300)));
            break_something(&ensemble, &machines);
            faults += 1;
        }
        faults
    });
    let summary = Summary::of(&fs::read_to_string(&journal).unwrap(), slots);
    println!("{slots} slots, {faults} faults: {summary:?}");
    for server in 0..3 {
        if !ensemble.is_running(server) {
            ensemble.restart(server);
        }
    }
    assert_nothing_left(&ensemble.hosts(), &path);
    let mut raw = Raw::connect(&ensemble.hosts());
    assert!(raw.data(&path).unwrap().len() < 4_000);
}

fn break_something(ensemble: &Ensemble, machines: &[Machine]) {
    let machine = &machines[fastrand::usize(..MACHINES)];
    match fastrand::u32(..10) {
        0..6 => machine.kill(),
        6..9 => {
            for link in &machine.links {
                link.blackhole();
            }
            thread::sleep(Duration::from_millis(fastrand::u64(200..2_500)));
            for link in &machine.links {
                link.heal();
                link.cut();
            }
        }
        _ => {
            let server = fastrand::usize(..3);
            ensemble.kill(server);
            thread::sleep(Duration::from_millis(fastrand::u64(100..1_500)));
            ensemble.restart(server);
        }
    }
}

/// A machine that starts a process for each slot.
struct Machine {
    number: usize,
    shift: i64,
    path: String,
    journal: PathBuf,
    links: Vec<Proxy>,
    runner: Mutex<Option<Worker>>,
}

impl Machine {
    fn new(number: usize, shift: i64, all: &Ensemble, path: &str, folder: &Folder) -> Self {
        Self {
            number,
            shift,
            path: path.to_owned(),
            journal: folder.path("journal"),
            links: (0..3)
                .map(|server| Proxy::start(&all.server(server).hosts()))
                .collect(),
            runner: Mutex::default(),
        }
    }

    /// Runs the job for a slot, at about the same time as the other machines.
    fn night(&self, slot: u32) {
        // Now and then a machine is down, or comes late.
        match fastrand::u32(..20) {
            0 => return,
            1 => thread::sleep(Duration::from_millis(fastrand::u64(..1_000))),
            _ => thread::sleep(Duration::from_millis(fastrand::u64(..60))),
        }
        let hosts: Vec<_> = self.links.iter().map(Proxy::hosts).collect();
        let (hosts, path, journal) = (hosts.join(","), &self.path, self.journal.display());
        let input = format!("{hosts} {path} {journal} {slot} {}", self.number);
        let mut command = worker::itself();
        if let Some(library) = faketime::library("libfaketimeMT.so.1") {
            command
                .env("LD_PRELOAD", library)
                .env("FAKETIME", format!("{:+}", self.shift))
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
                .env("FAKETIME_FORCE_MONOTONIC_FIX", "0");
        }
        let worker = Worker::launch(command, worker_that_runs_a_slot, &input);
        let lines = worker.lines().clone();
        *self.runner.lock() = Some(worker);
        // These threads end with the process.
        lines.iter().for_each(drop);
        let ended = self.runner.lock().take();
        if let Some(mut worker) = ended {
            while worker.ended().is_none() {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Kills the runner, if one is there.
    fn kill(&self) {
        let mut runner = self.runner.lock();
        let Some(mut worker) = runner.take() else {
            return;
        };
        let id = worker.id();
        worker.kill();
        note(&self.journal, &format!("killed {id} - -"));
    }
}

/// Adds a line in one write, so that the lines of several processes do not mix.
fn note(journal: &PathBuf, line: &str) {
    let mut file = File::options().append(true).open(journal).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

#[test]
#[ignore = "a worker process"]
fn worker_that_runs_a_slot() {
    let Some(input) = worker::input() else { return };
    let [hosts, path, journal, slot, machine] = worker::words(&input);
    let journal = PathBuf::from(journal);
    let id = std::process::id();
    let told = |what: &str, slot: &str, token: &str| {
        note(&journal, &format!("{what} {id} {slot} {token}"));
    };
    let client = Client::builder(&hosts)
        .session_timeout(TIMEOUT)
        .note(&machine)
        .connect_timeout(Duration::from_secs(60))
        .connect();
    let Ok(client) = client else {
        return told("error", &slot, "connect");
    };
    let slot = format!("{:04}", slot.parse::<u32>().unwrap());
    let mut token = String::new();
    let work = |run: &Run<'_>| {
        token = run.fencing_token().to_string();
        told("begin", &slot, &token);
        let until = Instant::now() + Duration::from_millis(fastrand::u64(..60));
        while Instant::now() < until {
            if run.check().is_err() {
                told("stop", &slot, &token);
                return Err(());
            }
            thread::sleep(Duration::from_millis(1));
        }
        match fastrand::u32(..100) < FAILS {
            true => {
                told("fail", &slot, &token);
                Err(())
            }
            false => {
                told("end", &slot, &token);
                Ok(())
            }
        }
    };
    let job = client.job(&path).unwrap();
    match job.once_with(&slot, JobOptions::new(), work) {
        Ok(Once::Done(())) => told("done", &slot, &token),
        Ok(Once::DoneBefore(record)) => {
            told("before", record.slot(), &record.token().to_string());
        }
        Ok(Once::Failed(())) => {}
        // The network may have failed before the work began.
        Err(Error::Lost { .. } | Error::Unconfirmed { .. }) if token.is_empty() => {
            told("error", &slot, "early")
        }
        Err(Error::Lost { .. }) => told("lost", &slot, &token),
        Err(Error::Unconfirmed { .. }) => told("unconfirmed", &slot, &token),
        Ok(other) => panic!("{other:?}"),
        Err(error) => panic!("{error}"),
    }
}

/// The content of the journal, which is checked while it is read.
#[derive(Debug, Default)]
struct Summary {
    begun: usize,
    done: usize,
    done_before: usize,
    killed: usize,
    failed: usize,
    lost: usize,
    unconfirmed: usize,
    skipped: Vec<String>,
}

impl Summary {
    #[track_caller]
    fn of(text: &str, slots: u32) -> Self {
        let mut summary = Self::default();
        let mut marks: BTreeMap<String, String> = BTreeMap::new();
        // The runs of each slot in order, and how each of them is known to have ended.
        let mut runs: BTreeMap<String, Vec<(String, &str)>> = BTreeMap::new();
        // The run of each process, and the runs that are at work.
        let mut latest: HashMap<String, (String, String)> = HashMap::new();
        let mut inside: HashMap<String, (String, String)> = HashMap::new();
        // The runs that had not reported their stop when another one began: a process that is
        // not scheduled cannot report it.
        let mut overtaken = Vec::new();
        for line in text.lines() {
            let [what, process, slot, token] = worker::words(line);
            let mut ends = |how| {
                let run = runs
                    .get_mut(&slot)
                    .and_then(|runs| runs.iter_mut().find(|(other, _)| *other == token));
                run.unwrap_or_else(|| panic!("it has not begun: {line}")).1 = how;
                inside.remove(&process);
            };
            match what.as_str() {
                "begin" => {
                    overtaken.extend(inside.values().cloned());
                    inside.insert(process.clone(), (slot.clone(), token.clone()));
                    latest.insert(process, (slot.clone(), token.clone()));
                    runs.entry(slot).or_default().push((token, "open"));
                    summary.begun += 1;
                }
                "stop" => ends("lost"),
                "end" => ends("open"),
                "fail" => {
                    ends("failed");
                    summary.failed += 1;
                }
                "done" => {
                    ends("done");
                    summary.done += 1;
                    let mark = marks.entry(slot).or_insert_with(|| token.clone());
                    assert_eq!(*mark, token, "two marks: {line}\n{text}");
                }
                "before" => {
                    summary.done_before += 1;
                    let mark = marks.entry(slot).or_insert_with(|| token.clone());
                    assert_eq!(*mark, token, "two marks: {line}\n{text}");
                }
                "lost" => {
                    ends("lost");
                    summary.lost += 1;
                }
                "unconfirmed" => {
                    ends("lost");
                    summary.unconfirmed += 1;
                }
                "killed" => {
                    summary.killed += 1;
                    inside.remove(&process);
                    if let Some((slot, token)) = latest.get(&process) {
                        let runs = runs.get_mut(slot).into_iter().flatten();
                        runs.filter(|run| run.0 == *token && run.1 == "open")
                            .for_each(|run| run.1 = "killed");
                    }
                }
                "error" => {}
                other => panic!("{other}?"),
            }
        }
        assert!(
            marks
                .values()
                .is_sorted_by_key(|token| token.parse::<i64>().unwrap())
        );
        for (slot, token) in overtaken {
            let run = runs[&slot].iter().find(|run| run.0 == token).unwrap();
            let stopped = ["failed", "lost", "killed"].contains(&run.1);
            assert!(
                stopped,
                "slot {slot}: {run:?} went on beside another\n{text}"
            );
        }
        for (slot, runs) in &runs {
            let (last, earlier) = runs.split_last().unwrap();
            for run in earlier {
                assert_ne!(run.1, "done", "slot {slot} was run again: {runs:?}\n{text}");
                assert_ne!(run.1, "open", "slot {slot}: {runs:?}\n{text}");
            }
            // The process that left the mark was the last to run.
            let mark = marks.get(slot);
            assert!(
                mark.is_none_or(|mark| *mark == last.0),
                "slot {slot}: {runs:?}\n{text}"
            );
        }
        let all = (1..=slots).map(|slot| format!("{slot:04}"));
        summary.skipped = all.filter(|slot| !marks.contains_key(slot)).collect();
        // All processes that came for such a slot have failed, lost it or died; nobody may have
        // read its mark.
        for slot in &summary.skipped {
            let runs = runs.get(slot).map_or(&[][..], Vec::as_slice);
            assert!(
                runs.iter().all(|run| run.1 != "open"),
                "slot {slot}: {runs:?}\n{text}"
            );
        }
        summary
    }
}
