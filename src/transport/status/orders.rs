//! Every order of a change, a subscription and a look at the status.

use super::*;
use crate::system::simulated::{JoinHandle, all_orders, spawn};

const TIMEOUT: Duration = Duration::from_secs(10);

fn status() -> Arc<Status> {
    Arc::new(Status::new(TIMEOUT, true))
}

/// Runs a closure with the status in another thread.
fn beside<T: Send + 'static>(
    status: &Arc<Status>,
    run: impl FnOnce(&Status) -> T + Send + 'static,
) -> JoinHandle<T> {
    let status = Arc::clone(status);
    spawn("beside", move || run(&status)).expect("a thread")
}

fn joined<T>(thread: JoinHandle<T>) -> T {
    thread.join().expect("no panic")
}

/// Subscribes, then looks until it sees what it waits for; returns how often it looked.
fn awaits(status: &Status, seen: impl Fn(&Snapshot) -> bool) -> usize {
    let changes = status.changes();
    let mut looks = 1;
    while !seen(&status.snapshot()) {
        changes.receiver().recv().expect("the status is there");
        looks += 1;
    }
    looks
}

#[test]
fn who_subscribes_and_then_looks_misses_no_change() {
    let (seen, _) = all_orders(3, || {
        let status = status();
        let other = beside(&status, |status| awaits(status, Snapshot::is_over));
        let changes = beside(&status, |status| {
            status.greeted(7, TIMEOUT, clock::since_boot());
            status.connected(7);
            status.closed();
        });
        let looks = awaits(&status, |snapshot| {
            snapshot.state == SessionState::Connected || snapshot.is_over()
        });
        joined(changes);
        (looks, joined(other))
    });
    // A subscriber looks once at first, and at most once for each change.
    assert!(seen.iter().all(|(one, other)| *one <= 3 && *other <= 3));
    assert!(seen.contains(&(1, 1)), "{seen:?}");
    assert!(seen.iter().any(|(_, looks)| *looks == 3), "{seen:?}");
}

#[test]
fn who_leaves_in_the_middle_of_a_change_costs_the_others_nothing() {
    let (seen, _) = all_orders(3, || {
        let status = status();
        let leaves = beside(&status, |status| drop(status.changes()));
        let changes = beside(&status, |status| status.connected(7));
        let looks = awaits(&status, |snapshot| snapshot.session == 7);
        joined(changes);
        joined(leaves);
        // Subscribers that have left are removed at the next change.
        status.disconnected();
        assert_eq!(status.inner.lock().subscribers.len(), 0);
        looks
    });
    assert_eq!(seen, [1, 2].into_iter().collect());
}

#[test]
fn who_listens_hears_every_event_from_then_on_in_order() {
    let all = [
        SessionEvent::Connected { session: 7 },
        SessionEvent::Disconnected,
        SessionEvent::Connected { session: 7 },
        SessionEvent::Closed,
    ];
    let (seen, _) = all_orders(3, move || {
        let status = status();
        let changes = beside(&status, |status| {
            status.connected(7);
            status.disconnected();
            status.connected(7);
            status.closed();
        });
        let events = status.events();
        let now = status.snapshot();
        joined(changes);
        let heard: Vec<_> = events.try_iter().collect();
        assert!(all.ends_with(&heard), "{heard:?}");
        // The snapshot shows the events from before the subscription.
        let before = &all[..all.len() - heard.len()];
        let connects = before
            .iter()
            .filter(|event| matches!(event, SessionEvent::Connected { .. }))
            .count();
        assert!(connects as u64 <= now.connects, "it saw {now:?}");
        heard.len()
    });
    assert_eq!(seen, (0..=all.len()).collect());
}

#[test]
fn nothing_changes_after_the_end() {
    let (seen, _) = all_orders(3, || {
        let status = status();
        let events = status.events();
        let connects = beside(&status, |status| status.connected(7));
        let fails = beside(&status, |status| status.refused(Error::AuthFailed));
        status.closed();
        joined(connects);
        joined(fails);
        let heard: Vec<_> = events.try_iter().collect();
        let is_end =
            |event: &SessionEvent| matches!(event, SessionEvent::Closed | SessionEvent::AuthFailed);
        assert_eq!(heard.iter().filter(|event| is_end(event)).count(), 1);
        assert!(heard.last().is_some_and(is_end), "{heard:?}");
        assert!(status.snapshot().is_over());
        heard.len()
    });
    assert_eq!(seen, [1, 2].into_iter().collect());
}
