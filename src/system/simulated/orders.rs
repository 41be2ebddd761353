//! Runs a piece of code in every order of its threads, for tests.

use std::collections::BTreeSet;
use std::thread;

use super::{Bounded, Choice, Options, run};

/// Runs a closure in every order with at most `most` preemptions; returns the results, and the
/// number of orders.
pub(crate) fn all_orders<T: Ord + Send + 'static>(
    most: usize,
    piece: impl Fn() -> T + Clone + Send + 'static,
) -> (BTreeSet<T>, usize) {
    let (mut bounded, mut seen, mut runs) = (Bounded::new(most), BTreeSet::new(), 0);
    loop {
        let options = Options {
            seed: 1,
            choice: Choice::Bounded(bounded),
            record: false,
        };
        let report = run(options, piece.clone()).expect("every order ends well");
        seen.insert(report.value);
        runs += 1;
        let Choice::Bounded(next) = report.choice else {
            unreachable!("it was bounded");
        };
        bounded = next;
        if !bounded.advance() {
            break;
        }
    }
    let test = thread::current();
    let name = test.name().unwrap_or("a piece");
    println!("{name}: {runs} orders, {most} preemptions at most");
    (seen, runs)
}
