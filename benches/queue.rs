//! Long queues: what a hand-off costs while many more clients wait.
//!
//! ```text
//! cargo bench --bench queue
//! ZKLOCK_HOSTS=zk1:2181 ZKLOCK_QUEUES=10,100,1000,5000 cargo bench --bench queue
//! ```
//!
//! Every waiter is a client of its own, with two threads and the caller's. The system must
//! allow that many threads and connections. Defaults to queues of 10, 100 and 1000.

// The macros of older criterions generate items without documentation.
#![allow(missing_docs)]

mod subject;

use std::env;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use subject::{Subject, is_trial};
use zklock::Mutex;

criterion_group!(benches, queues);
criterion_main!(benches);

fn queues(c: &mut Criterion) {
    let mut group = c.benchmark_group("queue");
    group.sample_size(10).throughput(Throughput::Elements(1));
    group.warm_up_time(Duration::from_millis(1));
    for length in lengths() {
        let subject = Subject::new("queue");
        let mutexes: Vec<_> = (0..length).map(|_| subject.mutex()).collect();
        group.bench_function(length.to_string(), |b| {
            b.iter_custom(|grants| {
                let rounds = grants.div_ceil(length as u64);
                let took: Duration = (0..rounds).map(|_| drain(&subject, &mutexes)).sum();
                took.mul_f64(grants as f64 / (rounds * length as u64) as f64)
            });
        });
    }
    group.finish();
}

fn lengths() -> Vec<usize> {
    if is_trial() {
        return vec![10];
    }
    let lengths = env::var("ZKLOCK_QUEUES").unwrap_or_else(|_| "10,100,1000".to_owned());
    let lengths = lengths.split(',').map(|length| length.trim().parse());
    lengths
        .collect::<Result<_, _>>()
        .expect("a list of lengths")
}

/// Queues all of them behind a holder; measures from its release until the last one has had
/// the lock.
fn drain(subject: &Subject, mutexes: &[Mutex]) -> Duration {
    let watcher = subject.client();
    let gate = watcher.mutex(subject.path()).expect("a good path");
    let guard = gate.lock().expect("nobody else is here");
    let [start, over] = [(); 2].map(|()| Barrier::new(mutexes.len() + 1));
    thread::scope(|scope| {
        for mutex in mutexes {
            let (start, over) = (&start, &over);
            let wait = move || {
                start.wait();
                drop(mutex.lock().expect("the server is there"));
                // Otherwise the end of a thread would count as part of the next one's wait.
                over.wait();
            };
            let small = thread::Builder::new().stack_size(256 * 1024);
            small.spawn_scoped(scope, wait).expect("a thread");
        }
        start.wait();
        while watcher.contenders(subject.path()).expect("the queue").len() <= mutexes.len() {
            thread::sleep(Duration::from_millis(20));
        }
        // The last one has its node, and is setting its watch.
        thread::sleep(Duration::from_millis(100));
        let begun = Instant::now();
        drop(guard);
        over.wait();
        begun.elapsed()
    })
}
