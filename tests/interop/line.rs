//! A queue that is built up one by one, of contenders that can be killed.

use zklock::Dialect;

use super::cast::{Kind, Side, ours};
use super::peer::{Peer, server};
use super::seat::Seat;
use crate::support::raw::Raw;
use crate::support::worker::Worker;
use crate::support::{eventually, fresh_path};

/// A queue that grows one by one.
pub(crate) struct Line {
    ours: Kind,
    theirs: Kind,
    path: String,
    length: usize,
}

impl Line {
    pub(crate) fn new(dialect: Dialect, theirs: Kind) -> Self {
        let path = fresh_path("line");
        let ours = ours(dialect, "mutex");
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
        Worker::spawn("worker_that_queues", &input)
    }

    pub(crate) fn seat_ours(&mut self) -> Seat {
        self.seat(self.ours)
    }

    pub(crate) fn seat_theirs(&mut self) -> Seat {
        self.seat(self.theirs)
    }

    fn seat(&mut self, kind: Kind) -> Seat {
        self.length = self.length.max(2);
        let seat = kind.seat(&server().hosts());
        seat.lock(kind.word, &self.path);
        self.grown();
        seat
    }

    /// Waits until one more is in the queue.
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
