//! Circles of clients that wait for each other: only the clients in a circle are told.

use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::bounded;
use zklock::diagnostics::Blockers;
use zklock::{Client, Error, LockOptions, Result};

use crate::support::proxy::Proxy;
use crate::support::raw::{EPHEMERAL, Raw};
use crate::support::{eventually, fresh_path};
use crate::transport::{Place, SOON, in_every_place, on_every_server};

in_every_place! {
    threads_of_one_name_are_told_apart
    whoever_was_asked_to_let_go_is_not_taken_for_another_thread
    a_lock_that_is_kept_for_a_time_is_none_that_its_thread_holds
    a_guard_that_may_change_threads_is_nobodys
    one_permit_that_comes_free_is_enough
    a_circle_elsewhere_is_not_this_threads
}

on_every_server! {
    a_circle_through_one_of_several_locks_is_seen
    threads_of_curators_that_wait_behind_each_other_are_no_deadlock
    a_writer_of_curators_that_reads_is_no_deadlock
    whoever_waits_for_what_nobody_holds_goes_on
    a_client_that_tells_no_thread_is_guessed_to_wait_for_one_lock
    the_search_ends_with_the_wait
}

/// A time longer than a look takes.
const MOMENT: Duration = Duration::from_millis(500);

/// Runs this on a thread with this name.
fn on_a_thread<'s, T: Send + 's>(
    scope: &'s thread::Scope<'s, '_>,
    name: &str,
    run: impl FnOnce() -> T + Send + 's,
) -> thread::ScopedJoinHandle<'s, T> {
    let builder = thread::Builder::new().name(name.to_owned());
    builder.spawn_scoped(scope, run).unwrap()
}

/// Waits for a mutex for a moment, and looks for a circle below `root`.
fn look(client: &Client, path: &str, root: &str) -> Result<bool> {
    look_for(MOMENT, client, path, root)
}

/// Waits for a mutex for this time, and looks for a circle below `root`. One that is there ends the wait.
fn look_for(time: Duration, client: &Client, path: &str, root: &str) -> Result<bool> {
    let options = LockOptions::new().timeout(time).detect_deadlock(root);
    let locked = client.mutex(path).unwrap().lock_with(options);
    locked.map(|guard| guard.is_some())
}

fn wait(client: &Client, path: &str) -> bool {
    let mutex = client.mutex(path).unwrap();
    mutex
        .lock_with(LockOptions::new().timeout(4 * MOMENT))
        .unwrap()
        .is_some()
}

#[track_caller]
fn someone_waits(client: &Client, path: &str, count: usize) {
    eventually("somebody waits", || {
        client.contenders(path).unwrap().len() == count
    });
}

/// One thread of a client holds `y` and works; another thread of the same name waits for `x`.
fn threads_of_one_name_are_told_apart(place: Place) {
    two_threads(place, false);
}

fn whoever_was_asked_to_let_go_is_not_taken_for_another_thread(place: Place) {
    two_threads(place, true);
}

fn two_threads(place: Place, asked_to_let_go: bool) {
    let (hosts, root) = (place.shared().hosts(), fresh_path("names"));
    let (me, pool) = (place.connect(&hosts), place.connect(&hosts));
    let [x, y] = ["x", "y"].map(|name| format!("{root}/{name}"));
    let _mine = me.mutex(&x).unwrap().lock().unwrap();
    let (done, until) = bounded::<()>(0);
    thread::scope(|scope| {
        on_a_thread(scope, "worker", || {
            let _guard = pool.mutex(&y).unwrap().lock().unwrap();
            let _ = until.recv();
        });
        someone_waits(&me, &y, 1);
        let waiter = on_a_thread(scope, "worker", || wait(&pool, &x));
        someone_waits(&me, &x, 2);
        if asked_to_let_go {
            me.contenders(&y).unwrap()[0].revoke().unwrap();
        }
        assert_eq!(look(&me, &y, &root), Ok(false));
        if !asked_to_let_go {
            assert_eq!(me.blockers(&y, &root).unwrap().deadlock(), None);
        }
        drop(done);
        assert!(!waiter.join().unwrap());
    });
}

/// Lets another client hold `y` and wait for `x`, while this thread looks for a circle at `y` for this time.
fn look_while_another_waits(
    time: Duration,
    other: &Client,
    own: &Client,
    root: &str,
) -> Result<bool> {
    let [x, y] = ["x", "y"].map(|name| format!("{root}/{name}"));
    let (over, until) = bounded::<()>(0);
    thread::scope(|scope| {
        on_a_thread(scope, "other", || {
            let _guard = other.mutex(&y).unwrap().lock().unwrap();
            let options = LockOptions::new().timeout(2 * SOON).cancel(until);
            drop(other.mutex(&x).unwrap().lock_with(options));
        });
        someone_waits(own, &x, 2);
        let told = look_for(time, own, &y, root);
        drop(over);
        told
    })
}

fn a_lock_that_is_kept_for_a_time_is_none_that_its_thread_holds(place: Place) {
    let (hosts, root) = (place.shared().hosts(), fresh_path("kept"));
    let [own, other] = [(); 2].map(|()| place.connect(&hosts));
    let options = LockOptions::new().hold_at_least(4 * MOMENT);
    let guard = own.mutex(&format!("{root}/x")).unwrap().lock_with(options);
    drop(guard.unwrap());
    let told = look_while_another_waits(MOMENT, &other, &own, &root);
    assert_eq!(told, Ok(false));
}

fn a_guard_that_may_change_threads_is_nobodys(place: Place) {
    let (hosts, root) = (place.shared().hosts(), fresh_path("sent"));
    let [own, other] = [(); 2].map(|()| place.connect(&hosts));
    let x = own.mutex(&format!("{root}/x")).unwrap();
    let guard = x.lock().unwrap().into_send();
    let told = look_while_another_waits(MOMENT, &other, &own, &root);
    assert_eq!(told, Ok(false));
    guard.unlock().unwrap();
    let guard = x.lock().unwrap();
    let told = look_while_another_waits(SOON, &other, &own, &root);
    assert!(
        matches!(&told, Err(Error::Deadlock { circle, .. }) if circle.len() == 2),
        "{told:?}"
    );
    guard.unlock().unwrap();
    let x = own.rwlock(&format!("{root}/x")).unwrap();
    let guard = x.write().unwrap().into_send().downgrade().unwrap();
    let told = look_while_another_waits(MOMENT, &other, &own, &root);
    assert_eq!(told, Ok(false));
    guard.unlock().unwrap();
}

/// Of the holders of two permits, one waits for this thread, and the other for a client at work.
fn one_permit_that_comes_free_is_enough(place: Place) {
    let (hosts, root) = (place.shared().hosts(), fresh_path("permits"));
    let [me, at_work, one, two, last] = [(); 5].map(|()| place.connect(&hosts));
    let [x, y, z, limit] = ["x", "y", "z", "limit"].map(|name| format!("{root}/{name}"));
    let _mine = me.mutex(&x).unwrap().lock().unwrap();
    let _work = at_work.mutex(&z).unwrap().lock().unwrap();
    thread::scope(|scope| {
        for (client, wanted, name) in [(&one, &x, "one"), (&two, &z, "two")] {
            let limit = &limit;
            on_a_thread(scope, name, move || {
                let _permit = client.semaphore(limit, 2).unwrap().acquire().unwrap();
                wait(client, wanted)
            });
        }
        someone_waits(&me, &x, 2);
        someone_waits(&me, &z, 2);
        on_a_thread(scope, "last", || {
            let _y = last.mutex(&y).unwrap().lock().unwrap();
            last.semaphore(&limit, 2)
                .unwrap()
                .try_acquire_for(MOMENT)
                .unwrap();
        });
        someone_waits(&me, &limit, 3);
        assert_eq!(me.blockers(&y, &root).unwrap().deadlock(), None);
        let told = look(&me, &y, &root);
        assert!(told.is_ok(), "{told:?}");
    });
}

fn a_circle_through_one_of_several_locks_is_seen(place: Place) {
    let (hosts, root) = (place.shared().hosts(), fresh_path("several"));
    let [me, at_work, other] = [(); 3].map(|()| place.connect(&hosts));
    let [a, x, y] = ["a", "x", "y"].map(|name| format!("{root}/{name}"));
    let _mine = me.mutex(&y).unwrap().lock().unwrap();
    let _work = at_work.mutex(&x).unwrap().lock().unwrap();
    thread::scope(|scope| {
        let (over, until) = bounded::<()>(0);
        on_a_thread(scope, "other", || {
            let _a = other.mutex(&a).unwrap().lock().unwrap();
            let both = other.multi_lock([&*x, &*y]).unwrap();
            let options = LockOptions::new().timeout(2 * SOON).cancel(until);
            drop(both.lock_with(options));
        });
        eventually("somebody waits", || {
            let waits = |path: &str| me.contenders(path).unwrap().len() == 2;
            waits(&x) && waits(&y)
        });
        let told = look_for(SOON, &me, &a, &root);
        drop(over);
        assert!(
            matches!(&told, Err(Error::Deadlock { circle, .. }) if *circle == [a.clone(), y.clone()]),
            "{told:?}"
        );
    });
}

/// The holder of the lock that this thread waits for is in a circle with another client.
fn a_circle_elsewhere_is_not_this_threads(place: Place) {
    let (hosts, root) = (place.shared().hosts(), fresh_path("elsewhere"));
    let [me, one, two] = [(); 3].map(|()| place.connect(&hosts));
    let [p, q, mine] = ["p", "q", "mine"].map(|name| format!("{root}/{name}"));
    let _mine = me.mutex(&mine).unwrap().lock().unwrap();
    thread::scope(|scope| {
        on_a_thread(scope, "one", || {
            let _p = one.mutex(&p).unwrap().lock().unwrap();
            someone_waits(&one, &q, 1);
            wait(&one, &q)
        });
        on_a_thread(scope, "two", || {
            let _q = two.mutex(&q).unwrap().lock().unwrap();
            someone_waits(&two, &p, 1);
            wait(&two, &p)
        });
        someone_waits(&me, &p, 2);
        someone_waits(&me, &q, 2);
        assert!(me.blockers(&p, &root).unwrap().deadlock().is_some());
        let told = look(&me, &p, &root);
        assert!(told.is_ok(), "{told:?}");
    });
}

/// Curator has a node for each thread, and none of the nodes names its thread.
fn threads_of_curators_that_wait_behind_each_other_are_no_deadlock(place: Place) {
    let blockers = blockers_of_curators(
        place,
        [
            "_c_6f9c1c9e-5a0b-4b57-9a3e-012345678900-lock-0000000000",
            "_c_6f9c1c9e-5a0b-4b57-9a3e-012345678901-lock-0000000001",
        ],
    );
    assert_eq!(blockers.deadlock(), None, "{blockers:?}");
    assert_eq!(blockers.iter().count(), 1);
}

/// This is Curator's way of turning a writer into a reader.
fn a_writer_of_curators_that_reads_is_no_deadlock(place: Place) {
    let blockers = blockers_of_curators(
        place,
        [
            "_c_6f9c1c9e-5a0b-4b57-9a3e-0123456789ab-__WRIT__0000000000",
            "_c_6f9c1c9e-5a0b-4b57-9a3e-0123456789ab-__READ__0000000001",
        ],
    );
    assert_eq!(blockers.deadlock(), None, "{blockers:?}");
}

/// Queues these nodes in one session, as Curator does, and asks which clients keep the lock.
fn blockers_of_curators(place: Place, nodes: [&str; 2]) -> Blockers {
    let (hosts, path) = (place.shared().hosts(), fresh_path("curator"));
    let mut raw = Raw::connect(&hosts);
    raw.create_all(&path);
    for node in nodes {
        let node = format!("{path}/{node}");
        raw.create(&node, b"10.0.0.1", EPHEMERAL).unwrap();
    }
    place.connect(&hosts).blockers(&path, "/").unwrap()
}

/// The server falls silent when the wait begins.
fn the_search_ends_with_the_wait(place: Place) {
    let (hosts, root) = (place.shared().hosts(), fresh_path("silent"));
    let path = format!("{root}/a");
    let holder = place.connect(&hosts);
    let _held = holder.mutex(&path).unwrap().lock().unwrap();
    for cancels in [false, true] {
        let proxy = Proxy::start(&hosts);
        let client = place.connect(&proxy.hosts());
        let (cancel, cancelled) = bounded(1);
        let mut options = LockOptions::new().detect_deadlock(&root);
        options = match cancels {
            true => options.cancel(cancelled),
            false => options.timeout(MOMENT),
        };
        let options = options.on_wait(|_| {
            proxy.blackhole();
            let cancel = cancel.clone();
            thread::spawn(move || {
                thread::sleep(MOMENT);
                let _ = cancel.send(());
            });
        });
        let begun = Instant::now();
        let locked = client.mutex(&path).unwrap().lock_with(options);
        assert!(matches!(locked, Ok(None)), "{locked:?}");
        assert!(begun.elapsed() < SOON / 4, "{:?}", begun.elapsed());
    }
}

/// One thread of another library's client waits for this one, and a holder at work seems to do so,
/// too, until another thread of its waits elsewhere.
fn a_client_that_tells_no_thread_is_guessed_to_wait_for_one_lock(place: Place) {
    let (hosts, root) = (place.shared().hosts(), fresh_path("guess"));
    let [x, y, z] = ["x", "y", "z"].map(|name| format!("{root}/{name}"));
    let [me, other] = [(); 2].map(|()| place.connect(&hosts));
    let _guards =
        [(&me, &x), (&other, &z)].map(|(of, path)| of.mutex(path).unwrap().lock().unwrap());
    let mut raw = Raw::connect(&hosts);
    raw.create_all(&y);
    let id = "_c_6f9c1c9e-5a0b-4b57-9a3e-0123456789ab";
    let mut stand = |path: &str, number: u32| {
        let node = format!("{path}/{id}-lock-{number:010}");
        raw.create(&node, b"10.0.0.1", EPHEMERAL).unwrap();
    };
    stand(&y, 0);
    stand(&x, 999);
    let told = look_for(SOON, &me, &y, &root);
    assert!(matches!(told, Err(Error::Deadlock { .. })), "{told:?}");
    stand(&z, 999);
    assert_eq!(look(&me, &y, &root), Ok(false));
    let waits: Vec<_> = me
        .blockers(&y, &root)
        .unwrap()
        .iter()
        .map(|one| one.waits_for().map(str::to_owned))
        .collect();
    assert_eq!(waits, [Some(x), None]);
}

/// Of the holders of two permits, one waits for this thread, and the other is next for a free
/// permit.
fn whoever_waits_for_what_nobody_holds_goes_on(place: Place) {
    let (hosts, root) = (place.shared().hosts(), fresh_path("free"));
    let [x, y, limit, free] = ["x", "y", "limit", "free"].map(|name| format!("{root}/{name}"));
    let me = place.connect(&hosts);
    let _mine = me.mutex(&x).unwrap().lock().unwrap();
    let [mut one, mut two, mut three] = [(); 3].map(|()| Raw::connect(&hosts));
    for path in [&limit, &free] {
        one.create_all(&format!("{path}/leases"));
        one.create_all(&format!("{path}/locks"));
    }
    one.create_all(&y);
    let stand = |raw: &mut Raw, path: &str, kind: &str, number: u32| {
        let node = format!("{path}/_c_6f9c1c9e-5a0b-4b57-9a3e-0123456789ab-{kind}-{number:010}");
        raw.create(&node, b"10.0.0.1", EPHEMERAL).unwrap();
    };
    stand(&mut one, &format!("{limit}/leases"), "lease", 0);
    stand(&mut one, &x, "lock", 999);
    stand(&mut two, &format!("{limit}/leases"), "lease", 1);
    stand(&mut two, &format!("{free}/locks"), "lock", 0);
    stand(&mut three, &y, "lock", 0);
    stand(&mut three, &format!("{limit}/locks"), "lock", 0);
    assert_eq!(look(&me, &y, &root), Ok(false));
    assert_eq!(me.blockers(&y, &root).unwrap().deadlock(), None);
}
