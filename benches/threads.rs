//! Threads of one client, each with a lock of its own.
//!
//! ```text
//! cargo bench --bench threads
//! ZKLOCK_HOSTS=zk1:2181 cargo bench --bench threads
//! ```

// The macros of older criterions generate items without documentation.
#![allow(missing_docs)]

mod subject;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use subject::{Subject, cycles};

criterion_group!(benches, threads);
criterion_main!(benches);

fn threads(c: &mut Criterion) {
    let mut group = c.benchmark_group("locks of one client");
    group.sample_size(10).throughput(Throughput::Elements(1));
    for count in [1, 4, 16] {
        let subject = Subject::new("threads");
        let client = subject.client();
        let path = |at| format!("{}-{at}", subject.path());
        let mutex = |at| client.mutex(&path(at)).expect("a good path");
        let mutexes: Vec<_> = (0..count).map(mutex).collect();
        group.bench_function(count.to_string(), |b| {
            b.iter_custom(|grants| cycles(&mutexes, grants));
        });
    }
    group.finish();
}
