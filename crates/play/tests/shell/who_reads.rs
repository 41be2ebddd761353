//! Decides which thread reads the server's bytes: one at a time, the leader.
//!
//! A copy of the module in the client that ships, so that the two clients differ in nothing else.

use std::fmt;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

/// How long the I/O thread waits for another leader before it reclaims the lead: longer than
/// a nearby server takes to answer, or each answer would wake it.
const LULL: Duration = Duration::from_millis(4);
/// The most followers that are not a crowd.
const FEW: usize = 2;
/// How long ago the last crowd must be for the I/O thread to give up the lead.
const CALM: Duration = Duration::from_millis(20);

/// A connection that one thread at a time reads.
pub(super) trait Read {
    /// The reason why the connection ended.
    type End: fmt::Debug;

    /// Runs before the first turn.
    fn begin(&mut self) -> Result<(), Self::End>;

    /// Waits for bytes, at most until `until`, and acts on them.
    fn turn(&mut self, until: Option<Instant>) -> Result<(), Self::End>;

    /// Returns the end of a connection whose leader panicked.
    fn panicked() -> Self::End;
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct LeaderFollowers<R: Read> {
    lead: Mutex<Lead<R>>,
    /// The condition for which the I/O thread sleeps.
    io: Condvar,
}

#[derive(Debug)]
struct Lead<R: Read> {
    /// The reader; absent while a thread reads, and without a connection.
    free: Option<Box<R>>,
    /// The reason why the connection ended, if it has.
    end: Option<R::End>,
    /// The threads that wait for another one to read, or for the lead.
    followers: Vec<(u64, Thread)>,
    /// The number of the last follower.
    last: u64,
    /// How often a calling thread took the lead.
    turns: u64,
    /// Whether a thread came to follow since the I/O thread took the lead.
    contended: bool,
    /// How many threads wait without being allowed to read.
    attending: usize,
    /// When there last was a crowd, or such a thread.
    crowded: Option<Instant>,
    /// Whether the I/O thread must take the lead.
    reclaimed: bool,
    /// Whether the I/O thread sleeps until it is notified.
    asleep: bool,
}

impl<R: Read> Default for LeaderFollowers<R> {
    fn default() -> Self {
        let lead = Lead {
            free: None,
            end: None,
            followers: Vec::new(),
            last: 0,
            turns: 0,
            contended: false,
            attending: 0,
            crowded: None,
            reclaimed: false,
            asleep: false,
        };
        Self {
            lead: Mutex::new(lead),
            io: Condvar::new(),
        }
    }
}

impl<R: Read> LeaderFollowers<R> {
    /// Reads until the connection ends; runs on the I/O thread.
    pub(super) fn serve(&self, mut reader: Box<R>) -> (Box<R>, R::End) {
        if let Err(end) = reader.begin() {
            return (reader, end);
        }
        loop {
            if let Err(end) = reader.turn(None) {
                return (reader, end);
            }
            let state = self.lead.lock();
            if state.contended && !state.is_crowded() {
                let (back, end) = self.make_room(state, reader);
                reader = back;
                if let Some(end) = end {
                    return (reader, end);
                }
            }
        }
    }

    /// Gives up the lead until no other thread takes it.
    fn make_room(
        &self,
        mut state: MutexGuard<'_, Lead<R>>,
        reader: Box<R>,
    ) -> (Box<R>, Option<R::End>) {
        state.free = Some(reader);
        self.call_next(&mut state);
        loop {
            if state.end.is_none() && !state.reclaimed {
                let seen = state.turns;
                let lull = self.io.wait_for(&mut state, LULL).timed_out();
                if !lull || state.turns != seen {
                    continue;
                }
            }
            if let Some(reader) = state.free.take() {
                state.contended = false;
                state.reclaimed = false;
                return (reader, state.end.take());
            }
            // Another thread leads, and waits for long.
            state.asleep = true;
            self.io.wait(&mut state);
            state.asleep = false;
        }
    }

    /// Blocks the calling thread until it is `awake` or the deadline comes; may return
    /// earlier. The thread leads meanwhile if no other does.
    pub(super) fn rest(&self, awake: &dyn Fn() -> bool, until: Option<Instant>) {
        let over = || awake() || until.is_some_and(|until| until <= Instant::now());
        let mut state = self.lead.lock();
        while !over() {
            if state.end.is_none() {
                if let Some(reader) = state.free.take() {
                    state.turns += 1;
                    drop(state);
                    return self.read(reader, over, until);
                }
            }
            let id = state.follow();
            MutexGuard::unlocked(&mut state, || park(until));
            if state.leave(id) {
                return;
            }
        }
        // If this thread was called, the call passes on to the next.
        self.call_next(&mut state);
    }

    fn read(&self, reader: Box<R>, over: impl Fn() -> bool, until: Option<Instant>) {
        let mut leader = Leader {
            lead: self,
            reader: Some(reader),
            end: Some(R::panicked()),
        };
        leader.end = leader.reader.as_mut().and_then(|reader| {
            while !over() {
                if let Err(end) = reader.turn(until) {
                    return Some(end);
                }
            }
            None
        });
    }

    /// Blocks the calling thread like [`rest`](Self::rest), but it may not lead: the I/O thread does as
    /// soon as no calling thread leads.
    pub(super) fn attend(&self, awake: &dyn Fn() -> bool, until: Option<Instant>) {
        let mut state = self.lead.lock();
        state.attending += 1;
        self.call_io(&mut state);
        if !awake() {
            MutexGuard::unlocked(&mut state, || park(until));
        }
        state.attending -= 1;
        state.crowded = Some(Instant::now());
    }

    fn call_io(&self, state: &mut Lead<R>) {
        if state.free.is_some() {
            state.reclaimed = true;
            self.io.notify_one();
        }
    }

    /// Calls a follower to the lead, or the I/O thread if there is a crowd.
    fn call_next(&self, state: &mut Lead<R>) {
        if state.is_crowded() {
            self.call_io(state);
        } else if state.free.is_some() && state.end.is_none() {
            if let Some((_, thread)) = state.followers.pop() {
                thread.unpark();
            }
        }
    }
}

impl<R: Read> Lead<R> {
    fn follow(&mut self) -> u64 {
        self.last += 1;
        self.contended = true;
        self.followers.push((self.last, thread::current()));
        if FEW < self.followers.len() {
            self.crowded = Some(Instant::now());
        }
        self.last
    }

    /// Returns whether the thread leaves without having been called.
    fn leave(&mut self, id: u64) -> bool {
        let before = self.followers.len();
        self.followers.retain(|(follower, _)| *follower != id);
        self.followers.len() < before
    }

    fn is_crowded(&self) -> bool {
        let lately = |since| Instant::now().saturating_duration_since(since) < CALM;
        0 < self.attending || self.crowded.is_some_and(lately)
    }
}

fn park(until: Option<Instant>) {
    match until {
        None => thread::park(),
        Some(until) => thread::park_timeout(until.saturating_duration_since(Instant::now())),
    }
}

/// A calling thread that leads; it gives up the lead even in a panic.
struct Leader<'a, R: Read> {
    lead: &'a LeaderFollowers<R>,
    reader: Option<Box<R>>,
    end: Option<R::End>,
}

impl<R: Read> Drop for Leader<'_, R> {
    fn drop(&mut self) {
        let mut state = self.lead.lead.lock();
        state.free = self.reader.take();
        state.end = self.end.take();
        self.lead.call_next(&mut state);
        if state.asleep || state.end.is_some() {
            self.lead.io.notify_one();
        }
    }
}
