//! Which thread is called when, and what becomes of a turn that no thread takes.

use std::time::{Duration, Instant};

use crate::system::channel::bounded;

use super::*;
use crate::time::limit::Limit;

type Plain = Turnstile<u32, u32>;

fn path() -> Arc<str> {
    "/a".into()
}

fn for_ever() -> Limit {
    Limit::new(None, None)
}

fn turn(entry: Entry<u32, u32>) -> Option<Turn<u32, u32>> {
    match entry {
        Entry::Turn(turn, _) => Some(turn),
        _ => None,
    }
}

fn waiting_in(turnstile: &Plain) -> usize {
    let lines = turnstile.lines.lock();
    lines.open.values().map(|line| line.waiting.len()).sum()
}

#[test]
fn the_same_thread_would_deadlock_until_its_turn_may_change_threads() {
    let turnstile = Plain::default();
    let first = turn(turnstile.enter(&path(), &for_ever(), || (false, ()), |_| {})).unwrap();
    let again = turnstile.enter(&path(), &for_ever(), || (false, ()), |_| {});
    assert!(matches!(again, Entry::OwnTurn));
    assert_eq!(turnstile.shared("/a"), None);
    let shared = Arc::new(7);
    first.share(&shared);
    assert_eq!(turnstile.shared("/a"), Some(shared));
    first.detach();
    let over = Limit::new(Some(Instant::now()), None);
    assert!(matches!(
        turnstile.enter(&path(), &over, || (false, ()), |_| {}),
        Entry::Taken
    ));
    drop(first);
    assert!(turn(turnstile.enter(&path(), &for_ever(), || (false, ()), |_| {})).is_some());
    assert!(turnstile.lines.lock().open.is_empty());
}

#[test]
fn a_thread_in_line_would_deadlock_too_while_it_is_told_of_its_wait() {
    let turnstile = Plain::default();
    let first = turn(turnstile.enter(&path(), &for_ever(), || (false, ()), |_| {})).unwrap();
    let (tell, told) = bounded(1);
    let waiter = {
        let turnstile = turnstile.clone();
        thread::spawn(move || {
            let over = Limit::new(Some(Instant::now()), None);
            let again = |_| {
                let again = turnstile.enter(&path(), &over, || (false, ()), |_| {});
                let tried = turnstile.try_enter(&path());
                let both = [again, tried].map(|entry| matches!(entry, Entry::OwnTurn));
                tell.send((both, turnstile.has_me("/a"))).unwrap();
            };
            turn(turnstile.enter(&path(), &for_ever(), || (false, ()), again)).is_some()
        })
    };
    assert_eq!(told.recv(), Ok(([true; 2], true)));
    drop(first);
    assert!(waiter.join().unwrap(), "the turn comes nevertheless");
}

#[test]
fn the_turn_goes_round_in_order_of_arrival_and_past_those_who_left() {
    let turnstile = Plain::default();
    let first = turn(turnstile.enter(&path(), &for_ever(), || (false, ()), |_| {})).unwrap();
    let (to, order) = bounded(8);
    // How many wait once each thread has come; the second thread leaves at once.
    let threads: Vec<_> = [1, 1, 2, 3]
        .into_iter()
        .enumerate()
        .map(|(i, waiting)| {
            let (turnstile, to) = (turnstile.clone(), to.clone());
            let limit = Limit::new((i == 1).then(Instant::now), None);
            let thread = thread::spawn(move || {
                if let Some(_turn) = turn(turnstile.enter(&path(), &limit, || (false, ()), |_| {}))
                {
                    to.send(i).unwrap();
                }
            });
            while waiting_in(&first.turnstile) != waiting || i == 1 && !thread.is_finished() {
                thread::sleep(Duration::from_millis(1));
            }
            thread
        })
        .collect();
    drop(first);
    for thread in threads {
        thread.join().unwrap();
    }
    drop(to);
    assert_eq!(order.iter().collect::<Vec<_>>(), [0, 2, 3]);
}

#[test]
fn what_an_heir_that_has_left_was_to_inherit_is_dropped_and_nothing_else_is() {
    let turnstile = Plain::default();
    let first = turn(turnstile.enter(&path(), &for_ever(), || (false, ()), |_| {})).unwrap();
    let (cancel, cancelled) = bounded(1);
    let heir = {
        let turnstile = turnstile.clone();
        let limit = Limit::new(None, Some(cancelled));
        thread::spawn(
            move || match turnstile.enter(&path(), &limit, || (true, ()), |_| {}) {
                Entry::Turn(_, handed) => handed,
                _ => None,
            },
        )
    };
    while waiting_in(&turnstile) == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    assert!(!turnstile.hand_off("/a", 0, || Some(1)), "no more in a row");
    assert!(turnstile.hand_off("/a", 1, || Some(2)));
    cancel.send(()).unwrap();
    while waiting_in(&turnstile) != 0 {
        thread::sleep(Duration::from_millis(1));
    }
    drop(first);
    assert_eq!(heir.join().unwrap(), None);
    assert!(turnstile.lines.lock().open.is_empty());
}

#[test]
fn closing_sends_away_those_who_wait_and_those_who_come() {
    let turnstile = Plain::default();
    let _first = turn(turnstile.enter(&path(), &for_ever(), || (false, ()), |_| {})).unwrap();
    let waiter = {
        let turnstile = turnstile.clone();
        thread::spawn(move || {
            let entry = turnstile.enter(&path(), &for_ever(), || (false, ()), |_| {});
            matches!(entry, Entry::Closed)
        })
    };
    while waiting_in(&turnstile) == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    turnstile.close();
    assert!(waiter.join().unwrap());
    assert!(matches!(turnstile.try_enter(&path()), Entry::Closed));
}
