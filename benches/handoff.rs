//! Clients that take one lock in turn, and threads that pass it on among themselves.
//!
//! ```text
//! cargo bench --bench handoff
//! ZKLOCK_HOSTS=zk1:2181 cargo bench --bench handoff
//! ```

// The macros of older criterions generate items without documentation.
#![allow(missing_docs)]

mod subject;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use subject::{Subject, cycles};

criterion_group!(benches, clients, threads);
criterion_main!(benches);

/// Measures the time per grant while 2, 8 and 32 clients want the lock all the time.
fn clients(c: &mut Criterion) {
    let mut group = c.benchmark_group("hand-off among clients");
    group.sample_size(10).throughput(Throughput::Elements(1));
    for count in [2, 8, 32] {
        let subject = Subject::new("handoff");
        let mutexes: Vec<_> = (0..count).map(|_| subject.mutex()).collect();
        group.bench_function(count.to_string(), |b| {
            b.iter_custom(|grants| cycles(&mutexes, grants));
        });
    }
    group.finish();
}

/// Measures the time per grant while threads of one client want the lock, which may stay among
/// them.
fn threads(c: &mut Criterion) {
    let mut group = c.benchmark_group("hand-off among threads");
    group.sample_size(10).throughput(Throughput::Elements(1));
    for count in [2, 4, 16] {
        let subject = Subject::new("local");
        let client = subject.builder().local_handoffs(u32::MAX).connect();
        let client = client.expect("there is a server");
        let mutex = client.mutex(subject.path()).expect("a good path");
        let mutexes = vec![mutex; count];
        group.bench_function(count.to_string(), |b| {
            b.iter_custom(|grants| cycles(&mutexes, grants));
        });
    }
    group.finish();
}
