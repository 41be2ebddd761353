//! A queue that grows by one contender at a time; the contenders can be killed.

use zklock::{Client, Dialect, LockOptions};

use super::contender::Contender;
use super::kinds::{Kind, Side, of_ours};
use super::peer::{Peer, SESSION, server};
use crate::support::raw::Raw;
use crate::support::worker::{self, Worker};
use crate::support::{eventually, fresh_path};

/// A queue that grows by one contender at a time.
pub(crate) struct Queue {
    ours: Kind,
    theirs: Kind,
    path: String,
    length: usize,
}

impl Queue {
    pub(crate) fn new(dialect: Dialect, theirs: Kind) -> Self {
        let path = fresh_path("line");
        let ours = of_ours(dialect, "mutex");
        Self {
            ours,
            theirs,
            path,
            length: 1,
        }
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Starts a process of theirs, which can be killed.
    pub(crate) fn start_peer(&self) -> Peer {
        let Side::Theirs(library) = self.theirs.side else {
            panic!("a kind of theirs")
        };
        Peer::start(library, &server().hosts()).expect("a library at hand")
    }

    /// Starts a process of ours, which holds or is the second in the queue.
    pub(crate) fn start_worker(&mut self) -> Worker {
        let Side::Ours(dialect) = self.ours.side else {
            panic!("a kind of ours")
        };
        let input = format!("{} {dialect:?} {}", server().hosts(), self.path);
        Worker::spawn(worker_that_queues, &input)
    }

    pub(crate) fn start_ours(&mut self) -> Contender {
        self.contender(self.ours)
    }

    pub(crate) fn start_theirs(&mut self) -> Contender {
        self.contender(self.theirs)
    }

    fn contender(&mut self, kind: Kind) -> Contender {
        self.length = self.length.max(2);
        let contender = kind.contender(&server().hosts());
        contender.lock(kind.word, &self.path);
        self.grown();
        contender
    }

    /// Waits until one more contender is in the queue.
    pub(crate) fn grown(&mut self) {
        self.length += 1;
        let mut witness = Raw::connect(&server().hosts());
        eventually("one more is in the queue", || {
            witness
                .children(&self.path)
                .is_some_and(|all| all.len() == self.length)
        });
    }
}

/// Queues, and stays in the queue.
#[test]
#[ignore = "a worker process"]
pub(crate) fn worker_that_queues() {
    let Some(input) = worker::input() else { return };
    let words: Vec<_> = input.split(' ').collect();
    let dialect = match words[1] {
        "Kazoo" => Dialect::Kazoo,
        _ => Dialect::Curator,
    };
    let client = Client::builder(words[0]).dialect(dialect);
    let client = client.session_timeout(SESSION).connect().unwrap();
    let options = LockOptions::new().on_wait(|_| worker::say("waiting"));
    let _held = match words.get(3) {
        Some(_) => {
            let semaphore = client.semaphore(words[2], 1).unwrap();
            (None, semaphore.acquire_with(options).unwrap())
        }
        None => {
            let mutex = client.mutex(words[2]).unwrap();
            (mutex.lock_with(options).unwrap(), None)
        }
    };
    worker::say("held");
    worker::stay();
}
