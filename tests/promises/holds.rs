//! Holds: a hold takes the place of a lock without letting anybody in between. It ends when its
//! time is over, not before, or when it is released.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use zklock::diagnostics::Hold;
use zklock::{Client, Contender, Error, LockGuard, LockOptions, SendMutexGuard};

use crate::support::raw::{EPHEMERAL_SEQUENTIAL, PERSISTENT_SEQUENTIAL, Raw, assert_nothing_left};
use crate::support::{eventually, fresh_path};
use crate::transport::{Place, SOON, TIMEOUT, in_every_place, on_every_server};

// A hold is made in a transaction, which a handle does not have.
on_every_server! {
    a_hold_that_is_over_is_removed_by_who_only_tries_several
    a_hold_takes_the_place_of_its_lock_and_admits_nobody
    a_writers_hold_keeps_readers_out
    a_writers_hold_keeps_those_out_that_wait_for_the_writer
    the_token_of_a_hold_is_that_of_its_lock
    the_last_grant_of_its_client_does_not_pass_a_hold
    a_lock_that_is_lost_leaves_no_hold
    a_pause_keeps_out_who_comes_later
    a_hold_behind_one_that_is_released_is_removed_at_its_time
    a_hold_that_is_written_anew_lasts_until_its_new_end
    holds_that_are_over_are_removed_one_after_the_other_by_who_only_tries
}

in_every_place! {
    a_hold_that_is_over_is_removed_by_a_waiter_and_not_before
    a_hold_that_is_over_is_removed_by_who_only_tries
    a_hold_of_unreadable_data_stays
    a_node_of_a_session_is_no_hold_whatever_its_name
}

fn hold() -> Hold {
    Hold::new("deploy freeze", Some("ann"))
}

fn client(place: Place) -> Client {
    place.connect(&place.shared().hosts())
}

/// A thread that waits for a mutex, and the contenders ahead that it is told of.
struct Waiter {
    ahead: Receiver<(String, bool)>,
    granted: Receiver<Option<SendMutexGuard>>,
    cancel: Sender<()>,
}

impl Waiter {
    fn start(client: Client, path: &str) -> Self {
        let ((told, ahead), (to, granted)) = (unbounded(), unbounded());
        let (cancel, cancelled) = bounded(1);
        let path = path.to_owned();
        thread::spawn(move || {
            let options = LockOptions::new().cancel(cancelled).on_wait(|waiting| {
                let ahead = waiting.ahead().expect("somebody");
                let seen = (ahead.node().to_owned(), ahead.hold().is_some());
                drop(told.send(seen));
            });
            let guard = client.mutex(&path).unwrap().lock_with(options).unwrap();
            drop(to.send(guard.map(|guard| guard.into_send())));
        });
        Self {
            ahead,
            granted,
            cancel,
        }
    }

    /// Returns whether the thread comes to wait for this node.
    fn await_ahead(&self, node: &str) -> bool {
        loop {
            let (seen, holds) = self.ahead.recv_timeout(SOON).expect("it waits");
            if seen == node {
                return holds;
            }
        }
    }

    fn guard(&self) -> SendMutexGuard {
        let guard = self.granted.recv_timeout(SOON).expect("a grant");
        guard.expect("the lock")
    }
}

fn holds(client: &Client, path: &str) -> Vec<Contender> {
    let present = client.contenders(path).unwrap().into_iter();
    present.filter(|one| one.hold().is_some()).collect()
}

/// The first waiter takes the deletion of the node ahead for its turn, and the second one the deletion
/// of the first waiter's node, both without another look.
fn a_hold_takes_the_place_of_its_lock_and_admits_nobody(place: Place) {
    let path = fresh_path("hold");
    let [holder, one, other] = [(); 3].map(|()| client(place));
    let guard = holder.mutex(&path).unwrap().lock().unwrap();
    let first = Waiter::start(one, &path);
    first.await_ahead(guard.node());
    let second = Waiter::start(other, &path);
    eventually("both wait", || holder.contenders(&path).unwrap().len() == 3);
    let first_node = holder.contenders(&path).unwrap()[1].node().to_owned();
    second.await_ahead(&first_node);

    let node = guard.leave_hold(&hold()).unwrap();
    drop(guard);
    holder.close().unwrap();
    assert!(first.await_ahead(&node));
    first.cancel.send(()).unwrap();
    assert!(first.granted.recv_timeout(SOON).unwrap().is_none());
    assert!(second.await_ahead(&node));
    assert!(second.granted.is_empty());

    let look = client(place);
    let [held] = &holds(&look, &path)[..] else {
        panic!("no hold");
    };
    assert!(held.holds());
    assert_eq!(held.owner().pid, None);
    let said = held.hold().unwrap();
    assert_eq!((said.reason(), said.by()), ("deploy freeze", Some("ann")));
    assert_eq!(said.until(), None);
    held.evict().unwrap();
    second.guard().unlock().unwrap();
}

fn a_writers_hold_keeps_readers_out(place: Place) {
    let path = fresh_path("hold");
    let (holder, reader) = (client(place), client(place));
    let guard = holder.rwlock(&path).unwrap().write().unwrap();
    guard.leave_hold(&hold()).unwrap();
    drop(guard);
    let lock = reader.rwlock(&path).unwrap();
    assert!(lock.try_read().unwrap().is_none());
    assert_eq!(
        reader.found_taken().unwrap().1.unwrap().reason(),
        "deploy freeze"
    );
    holds(&reader, &path)[0].evict().unwrap();
    lock.read().unwrap().unlock().unwrap();
    // A reader leaves no hold: only for other libraries would it be ahead of a writer.
    let guard = lock.read().unwrap();
    let refused = guard.leave_hold(&hold());
    assert!(matches!(refused, Err(Error::Unsupported { .. })));
    guard.unlock().unwrap();
}

/// The reader takes the deletion of the writer's node for its turn, without another look.
fn a_writers_hold_keeps_those_out_that_wait_for_the_writer(place: Place) {
    let path = fresh_path("hold");
    let (holder, reader) = (client(place), client(place));
    let guard = holder.rwlock(&path).unwrap().write().unwrap();
    let ((told, ahead), (to, granted)) = (unbounded(), unbounded());
    let lock = reader.rwlock(&path).unwrap();
    let waiter = thread::spawn(move || {
        let options = LockOptions::new().on_wait(|waiting| {
            let ahead = waiting.ahead().expect("somebody");
            told.send((ahead.node().to_owned(), ahead.hold().is_some()))
                .unwrap();
        });
        let guard = lock.read_with(options).unwrap().unwrap();
        to.send(()).unwrap();
        guard.unlock().unwrap();
    });
    assert_eq!(ahead.recv().unwrap(), (guard.node().to_owned(), false));
    let node = guard.leave_hold(&hold()).unwrap();
    drop(guard);
    assert_eq!(ahead.recv_timeout(SOON).unwrap(), (node, true));
    assert!(granted.is_empty());
    holds(&holder, &path)[0].evict().unwrap();
    granted.recv_timeout(SOON).unwrap();
    waiter.join().unwrap();
}

fn the_token_of_a_hold_is_that_of_its_lock(place: Place) {
    let path = fresh_path("hold");
    let (holder, other) = (client(place), client(place));
    let guard = holder.mutex(&path).unwrap().lock().unwrap();
    let waiter = Waiter::start(other, &path);
    waiter.await_ahead(guard.node());
    let token = guard.fencing_token();
    guard.leave_hold(&hold()).unwrap();
    drop(guard);
    assert!(holder.is_current(&path, token).unwrap());
    holds(&holder, &path)[0].evict().unwrap();
    let next = waiter.guard();
    assert!(token < next.fencing_token());
    assert!(!holder.is_current(&path, token).unwrap());
}

fn the_last_grant_of_its_client_does_not_pass_a_hold(place: Place) {
    let path = fresh_path("hold");
    let client = client(place);
    let mutex = client.mutex(&path).unwrap();
    // The lock is taken so often that the client expects nobody any more.
    for _ in 0..20 {
        mutex.lock().unwrap().unlock().unwrap();
    }
    let guard = mutex.lock().unwrap();
    guard.leave_hold(&hold()).unwrap();
    drop(guard);
    assert!(mutex.try_lock().unwrap().is_none());
    let limit = Duration::from_millis(200);
    assert!(mutex.try_lock_for(limit).unwrap().is_none());
    holds(&client, &path)[0].evict().unwrap();
    mutex.lock().unwrap().unlock().unwrap();
}

fn a_lock_that_is_lost_leaves_no_hold(place: Place) {
    let path = fresh_path("hold");
    let (holder, other) = (client(place), client(place));
    let guard = holder.mutex(&path).unwrap().lock().unwrap();
    other.contenders(&path).unwrap()[0].evict().unwrap();
    let refused = guard.leave_hold(&hold());
    assert!(refused.is_err_and(|error| error.is_lost()));
    drop(guard);
    assert!(other.contenders(&path).unwrap().is_empty());
}

fn a_pause_keeps_out_who_comes_later(place: Place) {
    let path = fresh_path("hold");
    let [holder, early, late] = [(); 3].map(|()| client(place));
    let guard = holder.mutex(&path).unwrap().lock().unwrap();
    let early = Waiter::start(early, &path);
    early.await_ahead(guard.node());
    let node = holder.pause(&path, &hold()).unwrap();
    let late = Waiter::start(late, &path);
    assert!(late.await_ahead(&node));
    guard.unlock().unwrap();
    early.guard().unlock().unwrap();
    eventually("it is on hold", || holds(&holder, &path)[0].holds());
    assert!(late.granted.is_empty());
    holds(&holder, &path)[0].evict().unwrap();
    late.guard().unlock().unwrap();
}

/// Creates a hold as another client would; returns the earliest time of its end.
fn plant(place: Place, path: &str, lasting: Duration) -> Instant {
    let mut raw = Raw::connect(&place.shared().hosts());
    let text = format!(
        r#"{{"host":"db1","note":"freeze","hold":{{"by":"ann","for_ms":{}}}}}"#,
        lasting.as_millis()
    );
    let name = "_c_401d401d-0000-8000-8000-000000000000-lock-";
    let since = Instant::now();
    raw.create(
        &format!("{path}/{name}"),
        text.as_bytes(),
        PERSISTENT_SEQUENTIAL,
    )
    .unwrap();
    since + lasting
}

fn a_hold_that_is_over_is_removed_by_a_waiter_and_not_before(place: Place) {
    let path = fresh_path("hold");
    let clients = [(); 3].map(|()| client(place));
    let lock = clients[0].mutex(&path).unwrap().lock().unwrap();
    let end = plant(place, &path, Duration::from_secs(1));
    lock.unlock().unwrap();
    let busy = AtomicBool::new(false);
    thread::scope(|scope| {
        for client in &clients {
            scope.spawn(|| {
                let guard = client.mutex(&path).unwrap().lock().unwrap();
                // Times at the server have milliseconds.
                assert!(end < Instant::now() + Duration::from_millis(2));
                assert!(!busy.swap(true, Ordering::SeqCst));
                busy.store(false, Ordering::SeqCst);
                drop(guard);
            });
        }
    });
    assert!(end.elapsed() < 6 * TIMEOUT);
    assert_nothing_left(&place.shared().hosts(), &path);
}

fn a_hold_that_is_over_is_removed_by_who_only_tries(place: Place) {
    let path = fresh_path("hold");
    let client = client(place);
    let mutex = client.mutex(&path).unwrap();
    let lock = mutex.lock().unwrap();
    let end = plant(place, &path, Duration::from_millis(500));
    lock.unlock().unwrap();
    assert!(mutex.try_lock().unwrap().is_none() || end < Instant::now());
    is_let_in_after(end, || mutex.try_lock().unwrap());
}

fn a_hold_that_is_over_is_removed_by_who_only_tries_several(place: Place) {
    let client = client(place);
    let try_where_a_semaphore = |was: bool| {
        let (path, other) = (fresh_path("hold"), fresh_path("hold"));
        if was {
            drop(client.semaphore(&path, 1).unwrap().acquire().unwrap());
        }
        let lock = client.mutex(&path).unwrap().lock().unwrap();
        let end = plant(place, &path, Duration::from_millis(500));
        lock.unlock().unwrap();
        let both = client.multi_lock([&path[..], &other]).unwrap();
        is_let_in_after(end, || both.try_lock().unwrap());
        assert!(holds(&client, &path).is_empty());
        client.nodes().exists(&format!("{path}/leases")).unwrap()
    };
    assert!(!try_where_a_semaphore(false));
    // The server may remove what the semaphore has left.
    assert!((0..5).any(|_| try_where_a_semaphore(true)));
}

/// The waiter watches the nearest hold, and hears nothing of the hold before that.
fn a_hold_behind_one_that_is_released_is_removed_at_its_time(place: Place) {
    let path = fresh_path("hold");
    let client = client(place);
    let lock = client.mutex(&path).unwrap().lock().unwrap();
    plant(place, &path, Duration::from_secs(3600));
    plant(place, &path, Duration::from_millis(500));
    let waiter = Waiter::start(place.connect(&place.shared().hosts()), &path);
    lock.unlock().unwrap();
    eventually("the second one is over and removed", || {
        holds(&client, &path).len() == 1
    });
    holds(&client, &path)[0].evict().unwrap();
    waiter.guard().unlock().unwrap();
    assert_nothing_left(&place.shared().hosts(), &path);
}

/// The waiter watches the two nearest holds, and does not hear that another one is written.
fn a_hold_that_is_written_anew_lasts_until_its_new_end(place: Place) {
    const LASTS: Duration = Duration::from_secs(1);
    let (path, hosts) = (fresh_path("hold"), place.shared().hosts());
    let client = client(place);
    let lock = client.mutex(&path).unwrap().lock().unwrap();
    let old = plant(place, &path, LASTS);
    for _ in 0..2 {
        plant(place, &path, Duration::from_secs(3600));
    }
    let waiter = Waiter::start(place.connect(&hosts), &path);
    lock.unlock().unwrap();
    let [first, second, nearest] = &holds(&client, &path)[..] else {
        panic!("three holds");
    };
    waiter.await_ahead(nearest.node());
    let end = Instant::now() + 2 * LASTS;
    let text = format!(r#"{{"hold":{{"for_ms":{}}}}}"#, 2 * LASTS.as_millis());
    let mut raw = Raw::connect(&hosts);
    raw.set_data(first.node(), text.as_bytes()).unwrap();
    assert!(Instant::now() < old, "the machine is too slow");
    eventually("the first one is removed", || {
        holds(&client, &path).len() == 2
    });
    assert!(end < Instant::now() + Duration::from_millis(2));
    second.evict().unwrap();
    nearest.evict().unwrap();
    waiter.guard().unlock().unwrap();
}

fn holds_that_are_over_are_removed_one_after_the_other_by_who_only_tries(place: Place) {
    let (path, other) = (fresh_path("hold"), fresh_path("hold"));
    let client = client(place);
    let (mutex, both) = (
        client.mutex(&path).unwrap(),
        client.multi_lock([&path[..], &other]).unwrap(),
    );
    let plant_two = || {
        plant(place, &path, Duration::from_millis(200));
        plant(place, &path, Duration::from_millis(200))
    };
    let lock = mutex.lock().unwrap();
    let end = plant_two();
    lock.unlock().unwrap();
    is_let_in_after(end, || mutex.try_lock().unwrap());
    let lock = mutex.lock().unwrap();
    let end = plant_two();
    lock.unlock().unwrap();
    is_let_in_after(end, || both.try_lock().unwrap());
}

/// Tries until it gets the lock, which must not be before the hold's end.
fn is_let_in_after<G: LockGuard>(end: Instant, attempt: impl Fn() -> Option<G>) {
    eventually("it is over", || match attempt() {
        Some(guard) => {
            // Times at the server have milliseconds.
            assert!(end < Instant::now() + Duration::from_millis(2));
            guard.unlock().unwrap();
            true
        }
        None => false,
    });
}

fn a_hold_of_unreadable_data_stays(place: Place) {
    let path = fresh_path("hold");
    let client = client(place);
    let mutex = client.mutex(&path).unwrap();
    let lock = mutex.lock().unwrap();
    let mut raw = Raw::connect(&place.shared().hosts());
    let name = format!("{path}/_c_401d401d-0000-8000-8000-000000000000-lock-");
    raw.create(&name, b"__REVOKE__", PERSISTENT_SEQUENTIAL)
        .unwrap();
    lock.unlock().unwrap();
    assert!(mutex.try_lock().unwrap().is_none());
    let held = holds(&client, &path);
    assert_eq!(held[0].hold().unwrap().until(), None);
    held[0].evict().unwrap();
    mutex.lock().unwrap().unlock().unwrap();
}

fn a_node_of_a_session_is_no_hold_whatever_its_name(place: Place) {
    let path = fresh_path("hold");
    let client = client(place);
    let mutex = client.mutex(&path).unwrap();
    let lock = mutex.lock().unwrap();
    let mut raw = Raw::connect(&place.shared().hosts());
    let name = format!("{path}/_c_401d401d-0000-8000-8000-000000000000-lock-");
    let text = br#"{"note":"old","hold":{"until_ms":1}}"#;
    raw.create(&name, text, EPHEMERAL_SEQUENTIAL).unwrap();
    lock.unlock().unwrap();
    assert!(holds(&client, &path).is_empty());
    assert!(mutex.try_lock().unwrap().is_none());
    assert!(
        mutex
            .try_lock_for(Duration::from_millis(300))
            .unwrap()
            .is_none()
    );
    drop(raw);
    mutex.lock().unwrap().unlock().unwrap();
}
