//! Shows that the scheduler finds the bugs that it exists to find.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::sync::{Condvar, Mutex};
use super::thread::{current, park, sleep};
use super::{Choice, Options, all_orders, channel, elapsed, process, run, spawn, suspend};

fn random(seed: u64) -> Options {
    Options {
        seed,
        choice: Choice::Random {
            switch: 0.5,
            pause: 0.0,
            longest: Duration::ZERO,
        },
        record: true,
    }
}

/// Two threads each read a number, and write that number plus one.
fn lost_update() -> u32 {
    let number = Arc::new(Mutex::new(0));
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let number = Arc::clone(&number);
            let add = move || {
                let read = *number.lock();
                *number.lock() = read + 1;
            };
            spawn("adds", add).expect("a thread")
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
    let number = *number.lock();
    number
}

#[test]
fn all_orders_with_one_preemption_show_a_lost_update_and_none_without() {
    assert_eq!(all_orders(0, lost_update).0, BTreeSet::from([2]));
    let (seen, runs) = all_orders(1, lost_update);
    assert_eq!(seen, BTreeSet::from([1, 2]));
    assert!(runs > 5, "{runs} orders");
}

#[test]
fn a_seed_finds_what_another_does_not_and_repeats_it() {
    let of = |seed| run(random(seed), lost_update).expect("it ends").value;
    let seen: BTreeSet<u32> = (0..50).map(of).collect();
    assert_eq!(seen, BTreeSet::from([1, 2]));
    (0..50).for_each(|seed| assert_eq!(of(seed), of(seed)));
}

#[test]
fn threads_that_wait_for_each_other_are_a_failure_that_names_them() {
    let failure = run(random(1), || {
        let (one, other) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(())));
        let (b, a) = (Arc::clone(&one), Arc::clone(&other));
        let crossed = spawn("crossed", move || {
            let _first = a.lock();
            sleep(Duration::from_secs(1));
            let _second = b.lock();
        });
        let _first = one.lock();
        sleep(Duration::from_secs(1));
        let _second = other.lock();
        drop(crossed);
    });
    let failure = failure.expect_err("a deadlock");
    assert_eq!(failure.reason, "nobody can ever go on");
    assert!(
        failure
            .threads
            .contains("crossed: waits for a lock in memory")
    );
}

#[test]
fn time_passes_only_while_everybody_waits() {
    let report = run(random(1), || {
        let (to, from) = channel::bounded(1);
        let sender = spawn("sends", move || {
            sleep(Duration::from_secs(3600));
            to.send(7)
        });
        assert!(from.recv_timeout(Duration::from_secs(60)).is_err());
        assert!(elapsed() < Duration::from_secs(61));
        assert_eq!(from.recv(), Ok(7));
        assert!(from.recv().is_err(), "the sender has gone");
        drop(sender);
        elapsed()
    });
    let elapsed = report.expect("it ends").value;
    assert!(Duration::from_secs(3600) <= elapsed && elapsed < Duration::from_secs(3601));
}

#[test]
fn a_thread_that_never_ends_is_a_failure() {
    let failure = run(random(1), || {
        let idle = spawn("idle", || {
            loop {
                sleep(Duration::from_secs(1));
            }
        });
        drop(idle);
    });
    let failure = failure.expect_err("a thread is left");
    assert_eq!(failure.reason, "threads are left at the end");
}

#[test]
fn a_thread_that_waits_past_the_layer_is_a_failure() {
    let failure = run(random(1), || {
        let real = Arc::new(std::sync::Mutex::new(()));
        let other = Arc::clone(&real);
        let holder = spawn("holder", move || {
            let _held = other.lock();
            sleep(Duration::from_secs(2));
        });
        sleep(Duration::from_secs(1));
        drop(real.lock());
        let _ = holder.unwrap().join();
    });
    let reason = failure.expect_err("nobody has the baton").reason;
    assert!(reason.contains("outside of the simulation"), "{reason}");
}

#[test]
fn a_machine_that_sleeps_already_does_not_sleep_twice() {
    let ms = Duration::from_millis;
    let report = run(random(1), move || {
        let (number, sleeper) = process("sleeps", move || {
            sleep(ms(1000));
            elapsed()
        });
        sleep(ms(100));
        suspend(number, ms(500)); // until 600
        sleep(ms(100));
        suspend(number, ms(100)); // until 300
        sleep(ms(100));
        suspend(number, ms(400)); // until 700
        sleeper.join().unwrap()
    });
    let woke = report.unwrap().value;
    assert!(ms(1600) <= woke && woke < ms(1601), "{woke:?}");
}

#[test]
fn a_panic_of_the_test_is_its_failure() {
    let failure = run(random(1), || -> () { panic!("as told") });
    assert_eq!(failure.expect_err("a panic").reason, "as told");
}

#[test]
fn conditions_and_parked_threads_are_woken_and_not_before() {
    for seed in 0..100 {
        let report = run(random(seed), || {
            let shared = Arc::new((Mutex::new(false), Condvar::new()));
            let inner = Arc::clone(&shared);
            let main = current();
            let thread = spawn("waits", move || {
                let mut set = inner.0.lock();
                while !*set {
                    inner.1.wait(&mut set);
                }
                main.unpark();
            });
            sleep(Duration::from_millis(1));
            *shared.0.lock() = true;
            shared.1.notify_all();
            park();
            thread.expect("a thread").join().expect("no panic");
            let mut guard = shared.0.lock();
            let timed = shared.1.wait_for(&mut guard, Duration::from_secs(5));
            (timed.timed_out(), elapsed())
        });
        let (timed_out, elapsed) = report.expect("it ends").value;
        assert!(timed_out && Duration::from_secs(5) < elapsed, "seed {seed}");
    }
}
