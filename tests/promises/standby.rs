//! Standbys: one of the processes that stand by is active, in every place.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use zklock::{Client, Error};

use crate::support::raw::assert_nothing_left;
use crate::support::{aside, eventually, fresh_path, timed};
use crate::transport::{
    Place, SOON, expire_owner, in_every_place, on_every_server, wait_for_queue,
};

in_every_place! {
    one_is_active_and_the_next_takes_over
    who_returns_stands_in_line_again
    who_returns_after_terms_of_a_while_is_in_line_at_once
    a_cancel_ends_the_wait_and_is_seen_in_a_term
    a_panic_lets_the_next_one_in
}

// A handle has been given up by then.
on_every_server! {
    a_term_that_is_lost_is_over_and_another_begins
    a_waiter_that_is_deleted_stands_in_line_again
}

/// A process that stands by, and that a test tells when its terms end.
struct Daemon {
    began: Receiver<(u64, String)>,
    end: Sender<ControlFlow<()>>,
    ended: Receiver<Result<(), Error>>,
}

fn daemon(client: &Client, path: &str) -> Daemon {
    let standby = client.standby(path).unwrap().note("a daemon");
    let (begin, began) = unbounded();
    let (end, told) = unbounded();
    let ended = aside(move || {
        standby.run(|term| {
            begin.send((term.number(), term.node().to_owned())).unwrap();
            while !term.is_over() {
                if let Ok(end) = told.recv_timeout(Duration::from_millis(10)) {
                    return end;
                }
            }
            ControlFlow::Continue(())
        })
    });
    Daemon { began, end, ended }
}

impl Daemon {
    #[track_caller]
    fn begins(&self) -> (u64, String) {
        self.began.recv_timeout(SOON).expect("a term")
    }

    #[track_caller]
    fn end(&self, end: ControlFlow<()>) {
        self.end.send(end).unwrap();
    }

    #[track_caller]
    fn returns(&self) {
        self.ended.recv_timeout(SOON).expect("it ends").unwrap();
    }
}

fn scene(place: Place) -> (Client, Client, String) {
    let hosts = place.shared().hosts();
    let path = fresh_path("standby");
    (place.connect(&hosts), place.connect(&hosts), path)
}

fn one_is_active_and_the_next_takes_over(place: Place) {
    let (one, other, path) = scene(place);
    let standby = one.standby(&path).unwrap();
    assert!(standby.leader().unwrap().is_none());
    let first = daemon(&one, &path);
    let (number, node) = first.begins();
    assert_eq!(number, 1);
    let second = daemon(&other, &path);
    wait_for_queue(&one, &path, 2);
    let leader = standby.leader().unwrap().unwrap();
    assert_eq!((leader.node(), leader.holds()), (&*node, true));
    assert_eq!(leader.owner().note.as_deref(), Some("a daemon"));
    assert!(second.began.is_empty());
    first.end(ControlFlow::Break(()));
    first.returns();
    assert_eq!(second.begins().0, 1);
    second.end(ControlFlow::Break(()));
    second.returns();
    assert_nothing_left(&place.shared().hosts(), &path);
}

fn who_returns_stands_in_line_again(place: Place) {
    let (one, other, path) = scene(place);
    let first = daemon(&one, &path);
    first.begins();
    let second = daemon(&other, &path);
    wait_for_queue(&one, &path, 2);
    for term in 1..=2 {
        first.end(ControlFlow::Continue(()));
        assert_eq!(second.begins().0, term);
        wait_for_queue(&one, &path, 2);
        // A request for the lock ends a term that checks for it.
        other.contenders(&path).unwrap()[0].revoke().unwrap();
        assert_eq!(first.begins().0, term + 1);
    }
    first.end(ControlFlow::Break(()));
    first.returns();
    second.begins();
    second.end(ControlFlow::Break(()));
    second.returns();
}

/// The pauses would add up to more than a minute if each of these terms made them longer.
fn who_returns_after_terms_of_a_while_is_in_line_at_once(place: Place) {
    const TERMS: u64 = 12;
    let (one, _other, path) = scene(place);
    let ((), took) = timed(|| {
        let terms = one.standby(&path).unwrap().run(|term| {
            thread::sleep(Duration::from_millis(150));
            match term.number() {
                TERMS => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        });
        terms.unwrap();
    });
    assert!(took < 2 * SOON, "{took:?}");
}

fn a_cancel_ends_the_wait_and_is_seen_in_a_term(place: Place) {
    let (one, other, path) = scene(place);
    let terms = AtomicUsize::new(0);
    thread::scope(|scope| {
        let run = |client: &Client, cancelled| {
            let standby = client.standby(&path).unwrap();
            let terms = &terms;
            scope.spawn(move || {
                standby.run_until(cancelled, |term| {
                    terms.fetch_add(1, Ordering::SeqCst);
                    while !term.is_cancelled() {
                        thread::sleep(Duration::from_millis(5));
                    }
                    ControlFlow::Continue(())
                })
            })
        };
        let (stop, stopped) = bounded(1);
        let first = run(&one, stopped);
        eventually("it is active", || terms.load(Ordering::SeqCst) == 1);
        let (end, ended) = bounded::<()>(0);
        let second = run(&other, ended);
        wait_for_queue(&one, &path, 2);
        // Dropping the sender cancels.
        drop(end);
        second.join().unwrap().unwrap();
        stop.send(()).unwrap();
        first.join().unwrap().unwrap();
    });
    assert_eq!(terms.into_inner(), 1);
    assert_nothing_left(&place.shared().hosts(), &path);
}

fn a_panic_lets_the_next_one_in(place: Place) {
    let (one, other, path) = scene(place);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        one.standby(&path).unwrap().run(|_| panic!("at work"))
    }));
    assert!(panicked.is_err());
    let next = daemon(&other, &path);
    next.begins();
    next.end(ControlFlow::Break(()));
    next.returns();
}

fn a_term_that_is_lost_is_over_and_another_begins(place: Place) {
    let (one, _, path) = scene(place);
    let daemon = daemon(&one, &path);
    let (_, node) = daemon.begins();
    expire_owner(place.shared(), &node);
    assert_eq!(daemon.begins().0, 2);
    daemon.end(ControlFlow::Break(()));
    daemon.returns();
}

fn a_waiter_that_is_deleted_stands_in_line_again(place: Place) {
    let (one, other, path) = scene(place);
    let guard = one.mutex(&path).unwrap().lock().unwrap();
    let waiting = daemon(&other, &path);
    wait_for_queue(&one, &path, 2);
    let waiter = one.contenders(&path).unwrap().remove(1);
    waiter.evict().unwrap();
    eventually("it stands in line again", || {
        let queue = one.contenders(&path).unwrap();
        queue.len() == 2 && queue[1].node() != waiter.node()
    });
    guard.unlock().unwrap();
    waiting.begins();
    waiting.end(ControlFlow::Break(()));
    waiting.returns();
}
