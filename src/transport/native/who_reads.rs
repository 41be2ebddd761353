//! Decides which thread reads what the server sends: one at a time, the leader.
//!
//! The I/O thread leads until a calling thread waits for an answer. Then that thread reads, which
//! saves waking it. A leader that leaves calls the next follower.
//!
//! The I/O thread reclaims the lead when no other thread has led for a moment, when the connection
//! has ended, and while many threads wait: replies then arrive in batches, and it wakes all waiting
//! threads without giving up the lead. It also leads while a thread waits on a channel, for a watch
//! or for a cancellation, because that thread cannot read. A thread that waits for a lock reads
//! many times, and says so: the I/O thread then sleeps until that thread has the lock.
//!
//! The pattern is known as leader and followers (Schmidt and others, "Pattern-Oriented Software
//! Architecture", volume 2).

use std::time::{Duration, Instant};

use crate::system::clock;
use crate::system::sync::{Condvar, Mutex, MutexGuard};
use crate::system::thread::{self, Thread};
use zklock_core::connection::End;

/// How long the I/O thread waits for another leader before it reclaims the lead: longer than a
/// nearby server takes to answer, or each answer would wake it.
const LULL: Duration = Duration::from_millis(4);
/// The most followers that are not a crowd.
const FEW: usize = 2;
/// How long after the last crowd the I/O thread may give up the lead.
const CALM: Duration = Duration::from_millis(20);

/// How a connection ends whose leader panicked.
const PANICKED: &str = "the thread that read panicked";

/// A connection that is read by one thread at a time.
pub(super) trait Read: Send {
    /// Runs once, before the first turn.
    fn begin(&mut self) -> Result<(), End>;

    /// Waits for bytes, at most until `until`, and acts on them.
    fn turn(&mut self, until: Option<Instant>) -> Result<(), End>;
}

/// A task for the I/O thread.
pub(crate) type Errand = Box<dyn FnOnce() + Send>;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct LeaderFollowers {
    lead: Mutex<Lead>,
    /// The condition variable on which the I/O thread sleeps.
    io: Condvar,
}

#[derive(Default)]
struct Lead {
    /// The reader; absent while a thread reads, and without a connection.
    free: Option<Box<dyn Read>>,
    /// Why the connection ended, if it has.
    end: Option<End>,
    /// The threads that wait for another thread to read, or for the lead.
    followers: Vec<(u64, Thread)>,
    /// The number of the last follower.
    last: u64,
    /// How often a calling thread has taken the lead.
    turns: u64,
    /// Whether a thread has become a follower since the I/O thread took the lead.
    contended: bool,
    /// How many threads wait on a channel and cannot read.
    attending: usize,
    /// When there was last a crowd, or a thread that waits on a channel.
    crowded: Option<Instant>,
    /// How many threads read again soon after each read.
    returning: usize,
    /// Whether the I/O thread must take the lead.
    reclaimed: bool,
    /// Whether the I/O thread is in `make_room`, where it does not read.
    waits: bool,
    /// Whether the I/O thread sleeps until it is notified.
    asleep: bool,
    /// The errand for the I/O thread while it is in `make_room`.
    errand: Option<Errand>,
}

impl LeaderFollowers {
    /// Reads until the connection ends; runs on the I/O thread.
    pub(super) fn serve(&self, mut reader: Box<dyn Read>) -> End {
        let mut read = reader.begin();
        loop {
            if let Err(end) = read.and_then(|()| reader.turn(None)) {
                return end;
            }
            read = Ok(());
            let state = self.lead.lock();
            if state.contended && !state.is_crowded() {
                (reader, read) = self.make_room(state, reader);
            }
        }
    }

    /// Gives up the lead, and takes it back once no other thread takes it.
    fn make_room(
        &self,
        mut state: MutexGuard<'_, Lead>,
        reader: Box<dyn Read>,
    ) -> (Box<dyn Read>, Result<(), End>) {
        state.free = Some(reader);
        state.waits = true;
        self.call_next(&mut state);
        loop {
            if state.end.is_none() && !state.reclaimed {
                let seen = state.turns;
                let lull = self.io.wait_for(&mut state, LULL).timed_out();
                if lull {
                    run_errand(&mut state);
                }
                if !lull || state.turns != seen {
                    continue;
                }
            }
            if let Some(reader) = state.free.take() {
                state.contended = false;
                state.reclaimed = false;
                state.waits = false;
                let end = state.end.take();
                run_errand(&mut state);
                return (reader, end.map_or(Ok(()), Err));
            }
            if state.errand.is_some() {
                run_errand(&mut state);
                continue;
            }
            // Another thread leads, and waits for long.
            state.asleep = true;
            self.io.wait(&mut state);
            state.asleep = false;
        }
    }

    /// Makes the I/O thread run an errand within a moment. If that thread reads, it would not run the
    /// errand before something arrives, and the calling thread does.
    pub(crate) fn soon(&self, errand: Errand) {
        let mut state = self.lead.lock();
        if !state.waits {
            drop(state);
            return errand();
        }
        state.errand = Some(errand);
        if state.asleep {
            self.io.notify_one();
        }
    }

    /// Notes that the calling thread reads again soon after each read, until it has [`returned`](Self::returned).
    pub(crate) fn returns(&self) {
        self.lead.lock().returning += 1;
    }

    /// Notes that the calling thread does something else from now on.
    pub(crate) fn returned(&self) {
        let mut state = self.lead.lock();
        state.returning -= 1;
        if state.free.is_some() {
            self.wake_io(&state);
        }
    }

    /// Wakes the I/O thread if it sleeps and no thread reads again soon, or if the connection has ended.
    fn wake_io(&self, state: &Lead) {
        if (state.asleep && state.returning == 0) || state.end.is_some() {
            self.io.notify_one();
        }
    }

    /// Blocks the calling thread until it is `awake` or the deadline passes; may return earlier.
    /// The thread leads meanwhile if no other thread does.
    pub(super) fn rest(&self, awake: &dyn Fn() -> bool, until: Option<Instant>) {
        let over = || awake() || until.is_some_and(|until| until <= clock::now());
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
        // If this thread was called, it passes the call on.
        self.call_next(&mut state);
    }

    fn read(&self, reader: Box<dyn Read>, over: impl Fn() -> bool, until: Option<Instant>) {
        let mut leader = Leader {
            lead: self,
            reader: Some(reader),
            end: Some(End::Broken(PANICKED.to_owned())),
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

    /// Notes that a thread waits on a channel and cannot read. Until it is
    /// [`attended`](Self::attended), the I/O thread leads whenever no calling thread does.
    pub(crate) fn attend(&self) {
        let mut state = self.lead.lock();
        state.attending += 1;
        self.call_io(&mut state);
    }

    /// Notes that the thread no longer waits on a channel.
    pub(crate) fn attended(&self) {
        let mut state = self.lead.lock();
        state.attending -= 1;
        state.crowded = Some(clock::now());
    }

    /// Returns the lead to the I/O thread; a calling thread that leads finishes first.
    pub(super) fn reclaim(&self) {
        let mut state = self.lead.lock();
        state.crowded = Some(clock::now());
        self.call_io(&mut state);
    }

    fn call_io(&self, state: &mut Lead) {
        if state.free.is_some() {
            state.reclaimed = true;
            self.io.notify_one();
        }
    }

    /// Calls a follower to the lead, or the I/O thread if there is a crowd.
    fn call_next(&self, state: &mut Lead) {
        if state.is_crowded() {
            self.call_io(state);
        } else if state.free.is_some() && state.end.is_none() {
            if let Some((_, thread)) = state.followers.pop() {
                thread.unpark();
            }
        }
    }
}

impl Lead {
    fn follow(&mut self) -> u64 {
        self.last += 1;
        self.contended = true;
        self.followers.push((self.last, thread::current()));
        if FEW < self.followers.len() {
            self.crowded = Some(clock::now());
        }
        self.last
    }

    /// Removes a follower; returns whether it had not been called.
    fn leave(&mut self, id: u64) -> bool {
        let before = self.followers.len();
        self.followers.retain(|(follower, _)| *follower != id);
        self.followers.len() < before
    }

    fn is_crowded(&self) -> bool {
        let lately = |since| clock::now().saturating_duration_since(since) < CALM;
        0 < self.attending || self.crowded.is_some_and(lately)
    }
}

/// A calling thread that leads; dropping this gives up the lead, even in a panic.
struct Leader<'a> {
    lead: &'a LeaderFollowers,
    reader: Option<Box<dyn Read>>,
    end: Option<End>,
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        let mut state = self.lead.lead.lock();
        state.free = self.reader.take();
        state.end = self.end.take();
        self.lead.call_next(&mut state);
        self.lead.wake_io(&state);
    }
}

/// Blocks until the thread is unparked or the deadline passes; may return earlier.
pub(crate) fn park(until: Option<Instant>) {
    match until {
        None => thread::park(),
        Some(until) => thread::park_timeout(until.saturating_duration_since(clock::now())),
    }
}

/// Runs the errand of the I/O thread with the mutex unlocked.
fn run_errand(state: &mut MutexGuard<'_, Lead>) {
    if let Some(errand) = state.errand.take() {
        MutexGuard::unlocked(state, errand);
    }
}

#[cfg(all(test, zklock_sim))]
mod orders;

#[cfg(test)]
mod tests;
