//! A client process that writes under a mutex, and never checks whether it still holds it.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use zklock::{Client, Error, LockOptions, MutexGuard};

use crate::support::worker;
use crate::workload::{QUIT, STOP, Task, wait_for};

/// The outcome of a write, as far as its writer knows.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum Told {
    /// The writer was about to ask; if nothing follows, it was killed before the answer.
    Asked,
    Done,
    /// The writer was told that nothing was done.
    Refused,
    Unknown,
    /// The writer got no answer, looked for the write later, and found it.
    Found,
    /// The writer looked later, and did not find the write.
    Missing,
}

const ALL: [Told; 6] = [
    Told::Asked,
    Told::Done,
    Told::Refused,
    Told::Unknown,
    Told::Found,
    Told::Missing,
];

/// How long the writer waits for the mutex before it asks again.
const PATIENCE: Duration = Duration::from_secs(3);

/// The writes of one process, and what it was told.
struct Writer<'a> {
    task: &'a Task,
    client: &'a Client,
    /// Each write is a node below this path.
    below: &'a str,
    told: File,
    rng: Rng,
    step: usize,
    unknown: Vec<String>,
}

/// Writes below the second path under the mutex at the first one, until it is told to stop.
#[test]
#[ignore = "a worker process"]
pub(crate) fn worker_that_writes_in_transactions() {
    let Some(input) = worker::input() else { return };
    let (task, more) = Task::from_input(&input);
    let [lock, below] = &more[..] else { return };
    let client = task.connect();
    let path = task.file(&format!("{}.writes", task.who));
    let told = File::options().create(true).append(true).open(path);
    let mut writer = Writer {
        task: &task,
        client: &client,
        below,
        told: told.expect("a file"),
        rng: Rng::with_seed(task.seed),
        step: 0,
        unknown: Vec::new(),
    };
    worker::say("ready");
    let mutex = client.mutex(lock).expect("a mutex");
    while !task.file(STOP).exists() {
        if let Ok(Some(guard)) = mutex.lock_with(LockOptions::new().timeout(PATIENCE)) {
            writer.write_for_a_while(&guard);
        }
        writer.look_for_the_unknown();
        thread::sleep(Duration::from_millis(writer.rng.u64(..20)));
    }
    writer.look_for_the_unknown();
    worker::say("idle");
    wait_for(&task.file(QUIT));
    // This fails while the client is disconnected, which this run does not judge.
    drop(client.close());
    worker::say("bye");
}

impl Writer<'_> {
    fn write_for_a_while(&mut self, guard: &MutexGuard) {
        let name = guard
            .node()
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .to_owned();
        for _ in 0..self.rng.usize(1..150) {
            if self.task.file(STOP).exists() {
                return;
            }
            self.step += 1;
            let node = format!("{}/{}:{}:{name}", self.below, self.task.who, self.step);
            self.note(Told::Asked, &node);
            let transaction = guard.transaction().create(&node, b"");
            let told = match transaction.set(self.below, node.as_str()).commit() {
                Ok(()) => Told::Done,
                Err(Error::Unconfirmed { .. }) => Told::Unknown,
                Err(error) => {
                    let undone = error.is_lost() || matches!(error, Error::Suspect { .. });
                    assert!(undone, "{error:?}");
                    Told::Refused
                }
            };
            self.note(told, &node);
            if told == Told::Unknown {
                self.unknown.push(node);
            }
            thread::sleep(Duration::from_millis(self.rng.u64(..8)));
        }
    }

    fn look_for_the_unknown(&mut self) {
        let nodes = self.client.nodes().limit(PATIENCE);
        for node in std::mem::take(&mut self.unknown) {
            match nodes.exists(&node) {
                Ok(true) => self.note(Told::Found, &node),
                Ok(false) => self.note(Told::Missing, &node),
                Err(_) => self.unknown.push(node),
            }
        }
    }

    fn note(&mut self, told: Told, node: &str) {
        // The line is one write, so that a kill does not leave half of it.
        let line = format!("{told:?} {node}\n");
        self.told
            .write_all(line.as_bytes())
            .expect("writing it down");
    }
}

/// Returns the last news that the writers of a run had about each write.
pub(crate) fn told(folder: &Path) -> Vec<(String, Told)> {
    let mut all = std::collections::HashMap::new();
    for file in fs::read_dir(folder).expect("a run's folder") {
        let path = file.expect("a file").path();
        if path.extension().is_some_and(|name| name == "writes") {
            let text = fs::read_to_string(&path).expect("what a writer was told");
            for line in text.lines() {
                let (word, node) = line.split_once(' ').expect("a word and a node");
                let told = ALL.into_iter().find(|told| format!("{told:?}") == word);
                all.insert(node.to_owned(), told.expect("a known word"));
            }
        }
    }
    all.into_iter().collect()
}
