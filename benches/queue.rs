//! The time of a hand-off while many more clients wait.
//!
//! ```text
//! cargo bench --bench queue
//! ZKLOCK_HOSTS=zk1:2181 ZKLOCK_QUEUES=10,100,1000,5000 cargo bench --bench queue
//! ```
//!
//! The second group is a service's first day: 2, 10 and 100 clients that have just connected wait
//! for a while behind a holder, and then get the lock once each. T is 6 s in this group, so that 1
//! s and 3 s are a sixth and a half of it.
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

use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use subject::{Subject, is_trial};
use zklock::Mutex;

criterion_group!(benches, queues, fresh_queues);
criterion_main!(benches);

/// The last client has its node, and is setting its watch.
const SETTLED: Duration = Duration::from_millis(100);

/// The session timeout of fresh clients, and how many milliseconds they wait.
const T: Duration = Duration::from_secs(6);
const WAITS: [u64; 4] = [1, 100, 1_000, 3_000];

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
                let took: Duration = (0..rounds)
                    .map(|_| drain(&subject, &mutexes, SETTLED))
                    .sum();
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

/// Measures the time per grant of clients that have just connected, and have waited for this long.
fn fresh_queues(c: &mut Criterion) {
    let mut group = c.benchmark_group("fresh queue");
    group.sampling_mode(SamplingMode::Flat).sample_size(10);
    group.warm_up_time(Duration::from_millis(1));
    group.measurement_time(Duration::from_millis(1));
    let (lengths, waits) = if is_trial() {
        (&[2][..], &[1][..])
    } else {
        (&[2, 10, 100][..], &WAITS[..])
    };
    for &length in lengths {
        for &wait in waits {
            let id = format!("{length} that waited {wait} ms");
            group.bench_function(id, |b| {
                b.iter_custom(|rounds| {
                    let round = |_| fresh(length, Duration::from_millis(wait));
                    (0..rounds).map(round).sum::<Duration>() / length
                });
            });
        }
    }
    group.finish();
}

fn fresh(length: u32, wait: Duration) -> Duration {
    let subject = Subject::new("fresh");
    let client = |_| {
        let builder = subject.builder().session_timeout(T);
        let client = builder.connect().expect("there is a server");
        client.mutex(subject.path()).expect("a good path")
    };
    let mutexes: Vec<_> = (0..length).map(client).collect();
    drain(&subject, &mutexes, wait)
}

/// Queues all clients behind a holder for this long; measures from its release until the last
/// client has had the lock.
fn drain(subject: &Subject, mutexes: &[Mutex], wait: Duration) -> Duration {
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
                // Otherwise the end of a thread would count as part of the next thread's wait.
                over.wait();
            };
            let small = thread::Builder::new().stack_size(256 * 1024);
            small.spawn_scoped(scope, wait).expect("a thread");
        }
        start.wait();
        while watcher.contenders(subject.path()).expect("the queue").len() <= mutexes.len() {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(wait);
        let begun = Instant::now();
        drop(guard);
        over.wait();
        begun.elapsed()
    })
}
