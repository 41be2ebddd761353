//! Every order in which threads join the line, leave it, and are called.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;
use crate::system::simulated::{JoinHandle, all_orders, spawn};
use crate::time::limit::Limit;

/// The line of one path, and the threads that have passed it.
#[derive(Clone, Default)]
struct Gate {
    turnstile: Turnstile<Lock, ()>,
    inside: Arc<AtomicUsize>,
    passed: Arc<AtomicUsize>,
    /// How many locks there are.
    locks: Arc<AtomicUsize>,
}

/// The lock that goes with a turn, of which there is one at a time.
struct Lock(Gate);

/// What a thread saw while it had the turn.
struct Pass {
    place: usize,
    me: ThreadId,
    /// The threads that waited, in order.
    behind: Vec<ThreadId>,
}

/// How a thread returns.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Back {
    /// It was the n-th thread to have the turn.
    Passed(usize),
    Taken,
    Closed,
}

fn path() -> Arc<str> {
    "/a".into()
}

fn for_ever() -> Limit {
    Limit::new(None, None)
}

impl Gate {
    /// Waits for the turn, and runs `with` during it.
    fn pass(&self, limit: &Limit, with: impl FnOnce(&Self)) -> Result<Pass, Back> {
        let (turn, handed) = match self.turnstile.enter(&path(), limit, || (false, ()), |_| {}) {
            Entry::Turn(turn, handed) => (turn, handed),
            Entry::Closed => return Err(Back::Closed),
            Entry::Taken | Entry::OwnTurn => return Err(Back::Taken),
        };
        assert!(handed.is_none(), "nobody hands a lock on");
        let others = self.inside.fetch_add(1, Ordering::Relaxed);
        assert_eq!(others, 0, "two have the turn");
        let place = self.passed.fetch_add(1, Ordering::Relaxed);
        let behind = self.waiting();
        let with = catch_unwind(AssertUnwindSafe(|| with(self)));
        self.inside.fetch_sub(1, Ordering::Relaxed);
        if let Err(panic) = with {
            let unwinds = AssertUnwindSafe(|| {
                let _turn = turn;
                resume_unwind(panic);
            });
            assert!(catch_unwind(unwinds).is_err());
        }
        let me = thread::current().id();
        Ok(Pass { place, me, behind })
    }

    fn waiting(&self) -> Vec<ThreadId> {
        let lines = self.turnstile.lines.lock();
        let line = lines.open.get(&path()).expect("a line, while it is used");
        line.waiting.iter().map(|waiter| waiter.thread).collect()
    }

    fn passes(&self, with: fn(&Self)) -> JoinHandle<Result<Pass, Back>> {
        let gate = self.clone();
        spawn("passes", move || gate.pass(&for_ever(), with)).expect("a thread")
    }

    /// Takes the lock from another thread or the server, and hands it on or back.
    fn hold(&self, limit: &Limit) -> Back {
        let (turn, handed) = match self.turnstile.enter(&path(), limit, || (true, ()), |_| {}) {
            Entry::Turn(turn, handed) => (turn, handed),
            Entry::Closed => return Back::Closed,
            Entry::Taken | Entry::OwnTurn => return Back::Taken,
        };
        let place = self.passed.fetch_add(1, Ordering::Relaxed);
        let mut lock = Some(handed.unwrap_or_else(|| Lock::of(self)));
        let handed_on = self.turnstile.hand_off("/a", 2, || lock.take());
        assert_eq!(handed_on, lock.is_none(), "it is handed on or it is not");
        drop(lock);
        drop(turn);
        Back::Passed(place)
    }

    fn is_as_before(&self) {
        assert!(
            self.turnstile.lines.lock().open.is_empty(),
            "a line is left"
        );
        assert_eq!(self.inside.load(Ordering::Relaxed), 0);
        assert_eq!(self.locks.load(Ordering::Relaxed), 0, "a lock is lost");
    }
}

impl Lock {
    fn of(gate: &Gate) -> Self {
        let others = gate.locks.fetch_add(1, Ordering::Relaxed);
        assert_eq!(others, 0, "two have the lock");
        Self(gate.clone())
    }
}

impl Drop for Lock {
    /// Returns the lock to the server, where the release takes other mutexes.
    fn drop(&mut self) {
        drop(self.0.turnstile.lines.lock());
        self.0.locks.fetch_sub(1, Ordering::Relaxed);
    }
}

fn joined<T>(thread: JoinHandle<T>) -> T {
    thread.join().expect("no panic but those on purpose")
}

/// Asserts that a thread seen waiting ahead of another was served first, unless it has left.
fn first_come_first_served(passes: &[Pass]) {
    let place = |thread: &ThreadId| {
        let pass = passes.iter().find(|pass| pass.me == *thread);
        pass.map(|pass| pass.place)
    };
    for pass in passes {
        let served: Vec<_> = pass.behind.iter().filter_map(place).collect();
        assert!(served.is_sorted(), "one was overtaken: {served:?}");
        let after = served.first().is_none_or(|first| pass.place + 1 == *first);
        assert!(after, "somebody came between");
    }
}

fn back(passed: &Result<Pass, Back>) -> Back {
    match passed {
        Ok(pass) => Back::Passed(pass.place),
        Err(back) => *back,
    }
}

/// Ends a run: returns how each thread came back.
fn judge(gate: &Gate, all: Vec<Result<Pass, Back>>) -> Vec<Back> {
    let backs = all.iter().map(back).collect();
    let passes: Vec<_> = all.into_iter().flatten().collect();
    assert_eq!(passes.len(), gate.passed.load(Ordering::Relaxed));
    first_come_first_served(&passes);
    gate.is_as_before();
    backs
}

#[test]
fn three_threads_pass_one_by_one_in_order_of_arrival() {
    let (seen, _) = all_orders(3, || {
        let gate = Gate::default();
        let others = [gate.passes(|_| ()), gate.passes(|_| ())];
        let mine = gate.pass(&for_ever(), |_| ());
        let others = others.map(joined);
        judge(&gate, [mine].into_iter().chain(others).collect())
    });
    assert_eq!(seen.len(), 6, "every one can be the first: {seen:?}");
}

#[test]
fn a_panic_costs_nobody_the_turn() {
    let (seen, _) = all_orders(3, || {
        let gate = Gate::default();
        let panics: fn(&Gate) = |_| resume_unwind(Box::new("on purpose"));
        let others = [gate.passes(panics), gate.passes(|_| ())];
        let mine = gate.pass(&for_ever(), |_| ());
        let others = others.map(joined);
        judge(&gate, [mine].into_iter().chain(others).collect())
    });
    assert_eq!(seen.len(), 6, "every one can be the first: {seen:?}");
}

/// Lets the holder leave while one thread gives up at some time, and another stays.
fn one_gives_up(limit: impl FnOnce() -> Limit + Send + 'static, then: impl FnOnce()) -> Back {
    let gate = Gate::default();
    let inner = gate.clone();
    let hurried = spawn("is in a hurry", move || inner.pass(&limit(), |_| ()));
    let patient = gate.passes(|_| ());
    let mine = gate.pass(&for_ever(), |_| then());
    let (hurried, patient) = (joined(hurried.expect("a thread")), joined(patient));
    let backs = judge(&gate, vec![mine, hurried, patient]);
    assert!(matches!(backs[2], Back::Passed(_)), "it waits for ever");
    backs[1]
}

#[test]
fn a_thread_whose_time_is_up_leaves_the_turn_to_the_next() {
    // Each step of a thread takes 0.1 us.
    let (mut passed, mut taken, mut orders) = (0, 0, 0);
    for step in 0..30 {
        let limit = move || Limit::after(Duration::from_nanos(100 * step));
        let (seen, runs) = all_orders(2, move || one_gives_up(limit, || ()));
        passed += usize::from(seen.iter().any(|back| matches!(back, Back::Passed(_))));
        taken += usize::from(seen.contains(&Back::Taken));
        orders += runs;
    }
    println!("{orders} orders with a deadline");
    assert!(0 < passed && 0 < taken, "{passed}, {taken}");
}

#[test]
fn a_thread_that_is_cancelled_leaves_the_turn_to_the_next() {
    let (seen, _) = all_orders(3, || {
        let (cancel, cancelled) = bounded(1);
        let limit = move || Limit::new(None, Some(cancelled));
        one_gives_up(limit, move || {
            let _ = cancel.try_send(());
        })
    });
    assert!(seen.contains(&Back::Taken) && 1 < seen.len(), "{seen:?}");
}

#[test]
fn all_come_back_from_a_line_that_is_closed() {
    let (seen, _) = all_orders(3, || {
        let gate = Gate::default();
        let others = [gate.passes(|_| ()), gate.passes(|_| ())];
        gate.turnstile.close();
        let late = gate.turnstile.try_enter(&path());
        assert!(matches!(late, Entry::Closed), "nobody comes in");
        judge(&gate, others.map(joined).into_iter().collect())
    });
    let none = vec![Back::Closed; 2];
    assert!(seen.contains(&none) && 2 < seen.len(), "{seen:?}");
}

#[test]
fn a_close_sends_away_who_waits_while_the_turn_is_taken() {
    let (seen, _) = all_orders(3, || {
        let gate = Gate::default();
        let mut backs = Vec::new();
        let mine = gate.pass(&for_ever(), |gate| {
            let others = [gate.passes(|_| ()), gate.passes(|_| ())];
            gate.turnstile.close();
            backs.extend(others.map(joined).iter().map(back));
        });
        judge(&gate, vec![mine]);
        backs
    });
    assert_eq!(seen, [vec![Back::Closed; 2]].into_iter().collect());
}

#[test]
fn a_lock_that_is_handed_on_is_neither_lost_nor_there_twice() {
    let (seen, _) = all_orders(3, || {
        let gate = Gate::default();
        let (cancel, cancelled) = bounded(1);
        let (one, other) = (gate.clone(), gate.clone());
        let leaves = spawn("leaves", move || {
            one.hold(&Limit::new(None, Some(cancelled)))
        });
        let stays = spawn("stays", move || other.hold(&for_ever()));
        // This fails if the thread has come back already.
        let _ = cancel.try_send(());
        let mine = gate.hold(&for_ever());
        let [leaves, stays] = [leaves, stays].map(|thread| joined(thread.expect("a thread")));
        gate.is_as_before();
        [mine, leaves, stays]
    });
    assert!(seen.iter().any(|[_, leaves, _]| *leaves == Back::Taken));
    assert!(seen.iter().any(|[_, leaves, _]| *leaves != Back::Taken));
}
