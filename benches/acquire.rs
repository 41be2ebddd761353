//! The time that it takes to get a lock: alone, and handed from one client to another.
//!
//! ```text
//! cargo bench --bench acquire
//! ZKLOCK_HOSTS=zk1:2181 cargo bench --bench acquire
//! ```
//!
//! Without `ZKLOCK_HOSTS` it measures the embedded server on the loopback interface, which
//! writes nothing to disk: the figures show the client's share.

// The macros of older criterions generate items without documentation.
#![allow(missing_docs)]

mod subject;

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use crossbeam_channel::bounded;
use subject::Subject;
use zklock::{LockOptions, Mutex};

criterion_group!(benches, uncontended, hand_off);
criterion_main!(benches);

fn uncontended(c: &mut Criterion) {
    let subject = Subject::new("acquire");
    let mutex = subject.mutex();
    let mut group = c.benchmark_group("uncontended");

    // One round trip: the create and the listing leave together.
    group.bench_function("acquire", |b| {
        b.iter_custom(|count| sum(count, || acquire(&mutex)));
    });
    // One round trip.
    group.bench_function("release", |b| {
        b.iter_custom(|count| sum(count, || release(&mutex)));
    });
    // One round trip: the release is sent, but not waited for.
    group.bench_function("cycle", |b| {
        b.iter(|| drop(black_box(mutex.lock().expect("nobody else is here"))));
    });
    // No I/O.
    group.bench_function("check", |b| {
        let guard = mutex.lock().expect("nobody else is here");
        b.iter(|| black_box(&guard).check());
    });
    group.finish();
}

fn sum(count: u64, once: impl FnMut() -> Duration) -> Duration {
    std::iter::repeat_with(once).take(count as usize).sum()
}

fn acquire(mutex: &Mutex) -> Duration {
    let start = Instant::now();
    let guard = mutex.lock().expect("nobody else is here");
    let took = start.elapsed();
    guard.unlock().expect("the lock was held to the end");
    took
}

fn release(mutex: &Mutex) -> Duration {
    let guard = mutex.lock().expect("nobody else is here");
    let start = Instant::now();
    guard.unlock().expect("the lock was held to the end");
    start.elapsed()
}

/// Measures from the drop of one client's guard until another client has the lock.
fn hand_off(c: &mut Criterion) {
    let subject = Subject::new("acquire");
    let (here, there) = (subject.mutex(), subject.mutex());
    c.bench_function("hand-off between two clients", |b| {
        b.iter_custom(|count| sum(count, || pass_on(&here, &there)));
    });
}

fn pass_on(here: &Mutex, there: &Mutex) -> Duration {
    let (waits, is_waiting) = bounded(1);
    let guard = here.lock().expect("nobody else is here");
    thread::scope(|scope| {
        let next = scope.spawn(move || {
            let options = LockOptions::new().on_wait(|_| {
                // If the channel is full, the waiter has reported that already.
                let _ = waits.try_send(());
            });
            let guard = there.lock_with(options).expect("the server is there");
            let since = Instant::now();
            drop(guard);
            since
        });
        is_waiting.recv().expect("there is somebody ahead");
        // The waiter reports when it has seen our node; a moment later it sleeps.
        thread::sleep(Duration::from_millis(2));
        let start = Instant::now();
        drop(guard);
        next.join().expect("the other client got the lock") - start
    })
}
