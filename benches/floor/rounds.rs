//! A round: threads that take a lock until the round is over, or waiters that each get it once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use zklock::MutexGuard;

const ROUND: Duration = Duration::from_millis(500);
/// How long the last client in a queue of fresh clients has waited before the first is let in.
pub(crate) const FRESH_WAIT: Duration = Duration::from_millis(700);

/// How long each client in a queue holds the lock.
pub(crate) static HOLD_MS: AtomicU64 = AtomicU64::new(0);

/// Runs `count` threads until the round is over; returns events a second.
pub(crate) fn in_threads(
    count: usize,
    once: impl Fn(usize, &AtomicBool, &AtomicU64) + Sync,
) -> f64 {
    let (over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for at in 0..count {
            let (once, over, done) = (&once, &over, &done);
            scope.spawn(move || once(at, over, done));
        }
        thread::sleep(ROUND / 5);
        let (before, begun) = (done.load(Ordering::Relaxed), Instant::now());
        thread::sleep(ROUND);
        let events = done.load(Ordering::Relaxed) - before;
        let rate = events as f64 / begun.elapsed().as_secs_f64();
        over.store(true, Ordering::Relaxed);
        rate
    })
}

/// A queue of waiters that each get a lock once.
pub(crate) struct Drain {
    count: usize,
    over: Barrier,
    /// When the last waiter released the lock, and how long all of them held it.
    last: Mutex<(Instant, Duration)>,
}

impl Drain {
    pub(crate) fn of(count: usize) -> Self {
        Self {
            count,
            over: Barrier::new(count + 1),
            last: Mutex::new((Instant::now(), Duration::ZERO)),
        }
    }

    /// Holds the lock for a while and releases it; returns when all waiters have done so.
    pub(crate) fn pass(&self, guard: MutexGuard) {
        let held = hold();
        drop(guard);
        let mut last = self.last.lock().expect("no panic");
        *last = (Instant::now(), last.1 + held);
        drop(last);
        // Otherwise the end of a thread would count as part of the next thread's wait.
        self.over.wait();
    }

    /// Lets the waiters in; returns grants a second.
    pub(crate) fn begin(&self, gate: MutexGuard) -> f64 {
        let begun = Instant::now();
        drop(gate);
        self.over.wait();
        let (last, held) = *self.last.lock().expect("no panic");
        self.count as f64 / (last - begun - held).as_secs_f64()
    }
}

/// Holds the lock for a while; returns how long that was.
pub(crate) fn hold() -> Duration {
    let begun = Instant::now();
    match HOLD_MS.load(Ordering::Relaxed) {
        0 => return Duration::ZERO,
        time => thread::sleep(Duration::from_millis(time)),
    }
    begun.elapsed()
}
