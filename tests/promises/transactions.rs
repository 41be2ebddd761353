//! Writes that a lock guards, and the nodes beside the lock: over our own client, on the embedded
//! server and on a real one.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use zklock::{
    Acl, Client, Dialect, Error, LockGuard, LockOptions, LostReason, Nodes, SessionState,
};

use crate::support::proxy::Proxy;
use crate::support::raw::{Raw, op};
use crate::support::{eventually, fresh_path, timed};
use crate::transport::{Place, SOON, expire_owner, in_every_place, on_every_server};

// A handle has no transactions.
on_every_server! {
    all_is_written_while_the_lock_is_held
    every_guard_guards
    whoever_was_evicted_writes_nothing
    whoever_lost_the_session_writes_nothing
    one_step_that_is_refused_undoes_all
    a_transaction_is_one_request
    a_committed_transaction_proves_the_lock
    a_reply_that_is_lost_is_told
    a_connection_that_is_away_is_told_before_anything_is_sent
    steps_that_cannot_be_are_told
    nobody_deletes_the_node_that_guards_the_transaction
    odd_steps_are_told_and_do_no_harm
    a_reply_that_is_too_long_leaves_it_unconfirmed
    a_write_whose_answer_is_lost_tells_how_long_that_took
    many_threads_write_into_a_network_that_swallows_all
    what_is_too_large_is_told
    a_transaction_below_a_chroot_and_among_access_lists
    who_waits_is_not_current_in_any_dialect
    a_close_in_the_middle_ends_a_transaction
    a_tree_that_grows_all_the_time_is_given_up_at_the_limit
    no_holder_writes_after_the_next_one_has
    a_tree_is_deleted_with_all_that_comes_meanwhile
    a_write_whose_reply_is_lost_is_told
}

in_every_place! {
    nodes_are_read_and_written
    a_token_is_current_as_long_as_its_holder_holds
}

const SHORTLY: Duration = Duration::from_millis(300);

/// Returns a client, and a path for its data, which exists.
fn scene(place: Place) -> (Client, Nodes, String) {
    let client = place.connect(&place.shared().hosts());
    let (nodes, path) = (client.nodes(), fresh_path("data"));
    Raw::connect(&place.shared().hosts()).create_all(&path);
    (client, nodes, path)
}

fn data(nodes: &Nodes, path: &str) -> Vec<u8> {
    nodes.get(path).unwrap().expect("a node").into_data()
}

fn all_is_written_while_the_lock_is_held(place: Place) {
    let (client, nodes, path) = scene(place);
    let guard = client.mutex(&fresh_path("lock")).unwrap().lock().unwrap();
    let (a, b) = (format!("{path}/a"), format!("{path}/b"));
    let create = guard.transaction().create(&a, b"1").create(&b, "one");
    create.commit().unwrap();
    assert_eq!(
        (data(&nodes, &a), data(&nodes, &b)),
        (b"1".to_vec(), b"one".to_vec())
    );
    let version = nodes.get(&a).unwrap().unwrap().version();
    let change = guard.transaction().set(&a, b"2").version(version);
    change.delete(&b).version(0).commit().unwrap();
    assert_eq!(data(&nodes, &a), b"2");
    assert!(!nodes.exists(&b).unwrap());
    // Without a step, the transaction checks whether the lock is held.
    guard.transaction().commit().unwrap();
    guard.unlock().unwrap();
}

fn every_guard_guards(place: Place) {
    let (client, nodes, path) = scene(place);
    let [a, b] = [(); 2].map(|()| fresh_path("lock"));
    let rw = client.rwlock(&fresh_path("rw")).unwrap();
    let write = rw.write().unwrap();
    let written = AtomicUsize::new(0);
    let writes = |guard: &dyn LockGuard| {
        let number = written.fetch_add(1, Ordering::Relaxed);
        let node = format!("{path}/{number}");
        guard.transaction().create(&node, b"").commit().unwrap();
        assert!(nodes.exists(&node).unwrap());
        for path in guard.paths() {
            for contender in client.contenders(path).unwrap() {
                contender.evict().unwrap();
            }
        }
        let late = guard
            .transaction()
            .create(&format!("{path}/late"), b"")
            .commit();
        assert!(
            matches!(&late, Err(error) if error.is_lost()),
            "{guard:?}: {late:?}"
        );
        assert!(!nodes.exists(&format!("{path}/late")).unwrap());
    };
    writes(&write);
    drop(write);
    let guards: Vec<Box<dyn LockGuard>> = vec![
        Box::new(client.mutex(&a).unwrap().lock().unwrap().into_send()),
        Box::new(client.rwlock(&fresh_path("r")).unwrap().read().unwrap()),
        Box::new(
            client
                .semaphore(&fresh_path("s"), 2)
                .unwrap()
                .acquire()
                .unwrap(),
        ),
        Box::new(client.reentrant_mutex(&b).unwrap().lock().unwrap()),
        Box::new(
            client
                .multi_lock([&*fresh_path("x"), &*fresh_path("y")])
                .unwrap()
                .lock()
                .unwrap(),
        ),
    ];
    guards.iter().for_each(|guard| writes(&**guard));
    // A run that is lent to a function writes, too.
    let node = format!("{path}/job");
    let job = client.job(&fresh_path("job")).unwrap();
    let ran = job.once("a", |run| run.transaction().create(&node, b"").commit());
    assert!(matches!(ran.unwrap(), zklock::Once::Done(())));
    assert!(nodes.exists(&node).unwrap());
}

fn whoever_was_evicted_writes_nothing(place: Place) {
    let (client, nodes, path) = scene(place);
    let guard = client.mutex(&fresh_path("lock")).unwrap().lock().unwrap();
    Raw::connect(&place.shared().hosts())
        .delete(guard.node())
        .unwrap();
    let late = guard
        .transaction()
        .set(&path, b"late")
        .commit()
        .unwrap_err();
    assert!(
        matches!(
            late,
            Error::Lost {
                why: LostReason::Evicted,
                ..
            }
        ),
        "{late:?}"
    );
    assert_eq!(data(&nodes, &path), b"");
    assert!(guard.check().is_err());
}

fn whoever_lost_the_session_writes_nothing(place: Place) {
    let (client, nodes, path) = scene(place);
    let guard = client.mutex(&fresh_path("lock")).unwrap().lock().unwrap();
    expire_owner(place.shared(), guard.node());
    let late = guard
        .transaction()
        .set(&path, b"late")
        .commit()
        .unwrap_err();
    // The client may not have heard of the loss yet.
    let told = late.is_lost() || matches!(late, Error::Unconfirmed { .. });
    assert!(told, "{late:?}");
    eventually("a new session", || nodes.exists(&path).is_ok());
    assert_eq!(data(&nodes, &path), b"");
}

fn one_step_that_is_refused_undoes_all(place: Place) {
    let (client, nodes, path) = scene(place);
    let guard = client.mutex(&fresh_path("lock")).unwrap().lock().unwrap();
    let (new, none) = (format!("{path}/new"), format!("{path}/none"));
    let begin = || guard.transaction().create(&new, b"");
    for (transaction, about, code) in [
        (begin().set(&none, b""), &none, -101),
        (begin().delete(&none), &none, -101),
        (begin().set(&path, b"").version(7), &path, -103),
        (begin().delete(&path).version(7), &path, -103),
        (begin().create(&path, b""), &path, -110),
        (begin().delete(&path), &path, -111),
    ] {
        let told = transaction.commit().unwrap_err();
        let refused =
            matches!(&told, Error::Refused { path, code: of, .. } if path == about && *of == code);
        assert!(refused, "{about} {code}: {told:?}");
        assert!(!nodes.exists(&new).unwrap());
    }
    guard.verify().unwrap();
}

fn a_transaction_is_one_request(place: Place) {
    let (client, _, path) = scene(place);
    let guard = client.mutex(&fresh_path("lock")).unwrap().lock().unwrap();
    let before = client.metrics().requests;
    guard
        .transaction()
        .set(&path, b"1")
        .create(&format!("{path}/a"), b"")
        .commit()
        .unwrap();
    let now = client.metrics().requests;
    assert_eq!(
        now.creates + now.deletes + now.reads,
        before.creates + before.deletes + before.reads
    );
    assert_eq!(now.multis - before.multis, 1);
}

fn a_committed_transaction_proves_the_lock(place: Place) {
    let (client, _, path) = scene(place);
    let guard = client.mutex(&fresh_path("lock")).unwrap().lock().unwrap();
    eventually("its proof is older", || {
        guard.valid_for() < client.session_timeout() / 2 - Duration::from_millis(100)
    });
    let before = guard.valid_for();
    guard.transaction().set(&path, b"1").commit().unwrap();
    assert!(before < guard.valid_for());
}

fn a_reply_that_is_lost_is_told(place: Place) {
    let (_, nodes, path) = scene(place);
    let proxy = Proxy::start(&place.shared().hosts());
    let client = place.connect(&proxy.hosts());
    let guard = client.mutex(&fresh_path("lock")).unwrap().lock().unwrap();
    let version = nodes.get(&path).unwrap().unwrap().version();
    // Proofs of the lock are transactions, too.
    guard.verify().unwrap();
    proxy.drop_next_reply_to(op::MULTI);
    let write = || {
        guard
            .transaction()
            .set(&path, b"once")
            .version(version)
            .commit()
    };
    let told = write().unwrap_err();
    assert!(matches!(told, Error::Unconfirmed { .. }), "{told:?}");
    assert!(proxy.fired());
    assert_eq!(data(&nodes, &path), b"once");
    // With a version, the write can be repeated.
    let again = write().unwrap_err();
    assert!(
        matches!(again, Error::Refused { code: -103, .. }),
        "{again:?}"
    );
}

fn a_connection_that_is_away_is_told_before_anything_is_sent(place: Place) {
    let (_, nodes, path) = scene(place);
    let proxy = Proxy::start(&place.shared().hosts());
    let client = place.connect(&proxy.hosts());
    let guard = client.mutex(&fresh_path("lock")).unwrap().lock().unwrap();
    proxy.refuse();
    eventually("it is away", || guard.state() != zklock::GuardState::Held);
    let (told, took) = timed(|| guard.transaction().set(&path, b"late").commit());
    let told = told.unwrap_err();
    assert!(
        matches!(told, Error::Lost { .. } | Error::Suspect { .. }),
        "{told:?}"
    );
    assert!(took < SOON, "{took:?}");
    proxy.accept();
    assert_eq!(data(&nodes, &path), b"");
}

fn steps_that_cannot_be_are_told(place: Place) {
    let (client, nodes, path) = scene(place);
    let guard = client.mutex(&fresh_path("lock")).unwrap().lock().unwrap();
    let begin = || guard.transaction().set(&path, b"late");
    let wrong = begin().create("relative", b"").commit().unwrap_err();
    assert!(matches!(wrong, Error::BadPath { .. }), "{wrong:?}");
    let wrong = begin()
        .create(&format!("{path}/a"), b"")
        .version(1)
        .commit()
        .unwrap_err();
    assert!(
        matches!(
            wrong,
            Error::BadArgument {
                name: "version",
                ..
            }
        ),
        "{wrong:?}"
    );
    assert_eq!(data(&nodes, &path), b"");
}

/// A transaction that was committed proves the lock, which was released with it.
fn nobody_deletes_the_node_that_guards_the_transaction(place: Place) {
    let (client, nodes, path) = scene(place);
    let [a, b] = [(); 2].map(|()| fresh_path("lock"));
    let single: Box<dyn LockGuard> =
        Box::new(client.mutex(&fresh_path("m")).unwrap().lock().unwrap());
    let both = client.multi_lock([&*a, &*b]).unwrap().lock().unwrap();
    for guard in [single, Box::new(both)] {
        for node in guard.node().split(", ") {
            let wrong = guard
                .transaction()
                .set(&path, b"late")
                .delete(node)
                .commit();
            assert!(matches!(wrong, Err(Error::BadArgument { .. })), "{wrong:?}");
            assert!(nodes.exists(node).unwrap());
        }
        guard.verify().unwrap();
    }
    assert_eq!(data(&nodes, &path), b"");
}

fn odd_steps_are_told_and_do_no_harm(place: Place) {
    let (client, nodes, path) = scene(place);
    let guard = client.mutex(&fresh_path("lock")).unwrap().lock().unwrap();
    let long = format!("/{}", "x".repeat(1 << 20));
    let own = guard.node().to_owned();
    let below = format!("{own}/a");
    let dir = own.rsplit_once('/').unwrap().0.to_owned();
    let begin = || guard.transaction().set(&path, b"late");
    for odd in [
        begin().create("", b""),
        begin().create("/", b""),
        begin().create("//", b""),
        begin().create("/a\0", b""),
        begin().create(&long, b""),
        begin().create(&below, b""),
        begin().create("/zookeeper/x", b""),
        begin()
            .create(&format!("{path}/\u{1f600}\u{e000}"), b"")
            .delete("/none"),
        begin().delete(&dir),
        begin().delete(&path).version(-2),
        begin().set(&path, b"").version(i32::MIN),
        begin().set(&path, b"").version(i32::MAX),
    ] {
        let shown = format!("{odd:?}");
        assert!(odd.commit().is_err(), "{shown}");
        assert_eq!(data(&nodes, &path), b"");
    }
    let mut many = guard.transaction();
    for i in 0..1_000 {
        many = many.create(&format!("{path}/{i}"), Vec::new());
    }
    many.commit().unwrap();
    assert_eq!(nodes.children(&path).unwrap().len(), 1_000);
    // A request for each of them would take a busy machine too long.
    let first = (0..900).map(|i| format!("{path}/{i}"));
    let fewer = first.fold(guard.transaction(), |all, node| all.delete(&node));
    fewer.commit().unwrap();
    assert_eq!(nodes.delete_all(&path).unwrap(), 101);
    guard.verify().unwrap();
}

/// Once, the error said that the client had waited for 15 s.
fn a_write_whose_answer_is_lost_tells_how_long_that_took(place: Place) {
    let proxy = Proxy::start(&place.shared().hosts());
    let (_client, nodes, path) = scene(place);
    let client = place.connect(&proxy.hosts());
    proxy.drop_next_reply_to(op::SET_DATA);
    let (told, took) = timed(|| client.nodes().set(&path, b"new"));
    let Err(Error::Unconfirmed { limit, .. }) = told else {
        panic!("{told:?}")
    };
    assert!(limit <= took, "{limit:?} of {took:?}");
    assert_eq!(data(&nodes, &path), b"new");
}

/// The client cannot skip the reply to a write: it would say whether the write was carried out.
fn a_reply_that_is_too_long_leaves_it_unconfirmed(place: Place) {
    let (client, nodes, path) = scene(place);
    let guard = client.mutex(&fresh_path("lock")).unwrap().lock().unwrap();
    let short = format!("/z{}", fastrand::u32(..));
    nodes.create(&short, b"").unwrap();
    let mut many = guard.transaction().set(&path, b"done");
    for _ in 0..25_000 {
        many = many.set(&short, Vec::new());
    }
    let told = many.commit();
    assert!(matches!(told, Err(Error::Unconfirmed { .. })), "{told:?}");
    assert_eq!(data(&nodes, &path), b"done");
    guard.verify().unwrap();
    nodes.delete(&short).unwrap();
}

fn many_threads_write_into_a_network_that_swallows_all(place: Place) {
    let (_, nodes, path) = scene(place);
    let proxy = Proxy::start(&place.shared().hosts());
    let client = place.connect(&proxy.hosts());
    let guard = client
        .mutex(&fresh_path("lock"))
        .unwrap()
        .lock()
        .unwrap()
        .into_send();
    proxy.blackhole();
    let until = guard.valid_for();
    thread::scope(|scope| {
        for i in 0..40 {
            let (guard, path) = (&guard, &path);
            scope.spawn(move || {
                let (told, took) = timed(|| {
                    guard
                        .transaction()
                        .set(path, vec![0; 1_000_000 - i])
                        .commit()
                });
                let told = told.unwrap_err();
                assert!(
                    took < until + Duration::from_millis(1500),
                    "{told:?} {took:?} {until:?}"
                );
                assert!(
                    matches!(
                        told,
                        Error::Unconfirmed { .. } | Error::Lost { .. } | Error::Suspect { .. }
                    ),
                    "{told:?}"
                );
            });
        }
    });
    let (_, took) = timed(|| guard.unlock());
    assert!(took < SOON, "{took:?}");
    proxy.heal();
    nodes.exists(&path).unwrap();
}

fn a_transaction_below_a_chroot_and_among_access_lists(place: Place) {
    let (_, _, path) = scene(place);
    let hosts = place.shared().hosts();
    let ours = |user: &str| {
        let builder =
            Client::builder(&format!("{hosts}{path}")).auth("digest", format!("{user}:x"));
        builder.acl(Acl::creator_all()).connect().unwrap()
    };
    let (one, other) = (ours("one"), ours("other"));
    one.nodes().create("/theirs", b"1").unwrap();
    let guard = other.mutex("/lock").unwrap().lock().unwrap();
    guard.transaction().create("/new", b"1").commit().unwrap();
    assert!(other.nodes().exists("/new").unwrap());
    let told = guard
        .transaction()
        .set("/new", b"2")
        .set("/theirs", b"2")
        .commit();
    assert!(
        matches!(&told, Err(Error::NoAuth { path }) if path == "/theirs"),
        "{told:?}"
    );
    let told = guard
        .transaction()
        .set("/new", b"2")
        .create("/theirs/a", b"2")
        .commit();
    assert!(
        matches!(&told, Err(Error::NoAuth { path }) if path == "/theirs/a"),
        "{told:?}"
    );
    let told = one.nodes().get("/new").map(|_| ());
    assert!(matches!(&told, Err(Error::NoAuth { .. })), "{told:?}");
    let told = one.nodes().delete_all("/new");
    assert!(matches!(&told, Err(Error::NoAuth { .. })), "{told:?}");
    let told = one.is_current("/lock", guard.fencing_token());
    assert!(matches!(&told, Err(Error::NoAuth { .. })), "{told:?}");
    assert_eq!(other.nodes().get("/new").unwrap().unwrap().data(), b"1");
    assert!(other.is_current("/lock", guard.fencing_token()).unwrap());
    guard.verify().unwrap();
}

fn who_waits_is_not_current_in_any_dialect(place: Place) {
    let hosts = place.shared().hosts();
    for dialect in [
        Dialect::Curator,
        Dialect::Kazoo,
        Dialect::Recipe,
        Dialect::LeaderLatch,
    ] {
        let client = || Client::builder(&hosts).dialect(dialect).connect().unwrap();
        let (one, other, asks) = (client(), client(), place.connect(&hosts));
        let (mutex, permits) = (fresh_path("mutex"), fresh_path("permits"));
        let held = one.mutex(&mutex).unwrap().lock().unwrap();
        let semaphore = |client: &Client| client.semaphore(&permits, 1);
        let permit = semaphore(&one).ok().and_then(|one| one.acquire().ok());
        thread::scope(|scope| {
            scope.spawn(|| {
                other
                    .mutex(&mutex)
                    .unwrap()
                    .lock()
                    .unwrap()
                    .unlock()
                    .unwrap()
            });
            if permit.is_some() {
                scope.spawn(|| {
                    semaphore(&other)
                        .unwrap()
                        .acquire()
                        .unwrap()
                        .unlock()
                        .unwrap()
                });
            }
            for (path, there) in [(&mutex, true), (&permits, permit.is_some())] {
                let waits = || !there || asks.contenders(path).unwrap().len() == 2;
                eventually("they wait", waits);
            }
            for (path, holder) in [
                (&mutex, held.node()),
                (&permits, permit.as_ref().map_or("", |permit| permit.node())),
            ] {
                let mut all = vec![path.clone()];
                let mut at = 0;
                while let Some(node) = all.get(at).cloned() {
                    let names = asks.nodes().children(&node).unwrap_or_default();
                    all.extend(names.iter().map(|name| format!("{node}/{name}")));
                    let stat = asks.nodes().get(&node).unwrap();
                    if let Some(stat) = stat {
                        let current = asks.is_current(path, stat.czxid().into()).unwrap();
                        assert_eq!(current, node == holder, "{dialect:?} {node}");
                    }
                    at += 1;
                }
            }
            held.unlock().unwrap();
            drop(permit);
        });
    }
}

fn a_close_in_the_middle_ends_a_transaction(place: Place) {
    let (_, _, path) = scene(place);
    let proxy = Proxy::start(&place.shared().hosts());
    let client = place.connect(&proxy.hosts());
    let guard = client
        .mutex(&fresh_path("lock"))
        .unwrap()
        .lock()
        .unwrap()
        .into_send();
    proxy.blackhole();
    thread::scope(|scope| {
        let writes = scope.spawn(|| timed(|| guard.transaction().set(&path, b"late").commit()));
        let reads = scope.spawn(|| timed(|| client.nodes().get(&path)));
        thread::sleep(Duration::from_millis(100));
        let (_, took) = timed(|| client.close());
        assert!(took < Duration::from_secs(4), "{took:?}");
        let (told, took) = writes.join().unwrap();
        assert!(matches!(told, Err(Error::Unconfirmed { .. })), "{told:?}");
        assert!(took < Duration::from_secs(4), "{took:?}");
        let (told, _) = reads.join().unwrap();
        assert!(matches!(told, Err(Error::Closed)), "{told:?}");
    });
    let told = guard.transaction().set(&path, b"late").commit();
    assert!(told.is_err_and(|error| error.is_lost()));
    assert!(matches!(client.nodes().set(&path, b""), Err(Error::Closed)));
}

fn a_tree_that_grows_all_the_time_is_given_up_at_the_limit(place: Place) {
    let (_, nodes, path) = scene(place);
    let other = place.connect(&place.shared().hosts());
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for by in 0..4 {
            let (nodes, path, over) = (other.nodes(), &path, &over);
            scope.spawn(move || {
                for i in 0.. {
                    let deep = format!("{path}/{by}");
                    drop(nodes.create(path, b""));
                    drop(nodes.create(&deep, b""));
                    drop(nodes.create(&format!("{deep}/{i}"), b""));
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        for limit in [Duration::ZERO, Duration::from_millis(700)] {
            let (told, took) = timed(|| nodes.clone().limit(limit).delete_all(&path));
            assert!(
                matches!(told, Ok(_) | Err(Error::Unconfirmed { .. })),
                "{told:?}"
            );
            assert!(took < limit + Duration::from_millis(500), "{took:?}");
        }
        over.store(true, Ordering::Relaxed);
    });
    nodes.limit(Duration::MAX).delete_all(&path).unwrap();
}

fn what_is_too_large_is_told(place: Place) {
    let (client, nodes, path) = scene(place);
    let guard = client.mutex(&fresh_path("lock")).unwrap().lock().unwrap();
    let large = vec![0; 2 << 20];
    let told = guard
        .transaction()
        .set(&path, large.clone())
        .commit()
        .unwrap_err();
    // The error names this path, not the lock's own.
    assert!(
        matches!(&told, Error::RequestTooLong { path: about, .. } if *about == path),
        "{told:?}"
    );
    let told = nodes.set(&path, large).unwrap_err();
    assert!(matches!(told, Error::RequestTooLong { .. }), "{told:?}");
    guard
        .transaction()
        .set(&path, vec![0; 1 << 19])
        .commit()
        .unwrap();
}

/// Returns the total number of transactions: `ZKLOCK_TRANSACTIONS`, or a few.
fn transactions() -> usize {
    let said = std::env::var("ZKLOCK_TRANSACTIONS").ok();
    said.and_then(|said| said.parse().ok()).unwrap_or(300)
}

/// Each write is a node with the token of its writer, and the servers' numbers for the writes
/// show in which order they were carried out.
fn no_holder_writes_after_the_next_one_has(place: Place) {
    let (client, nodes, path) = scene(place);
    let lock = fresh_path("contended");
    let hosts = place.shared().hosts();
    let (written, refused, unknown) = Default::default();
    let (written, refused, unknown): (AtomicUsize, AtomicUsize, AtomicUsize) =
        (written, refused, unknown);
    let most = transactions();
    thread::scope(|scope| {
        for name in 0..4 {
            let proxy = Proxy::start(&hosts);
            let client = place.connect(&proxy.hosts());
            let (path, lock, written, refused, unknown) =
                (&path, &lock, &written, &refused, &unknown);
            scope.spawn(move || {
                let mut step = 0;
                while written.load(Ordering::Relaxed) < most {
                    let short = LockOptions::new().timeout(SOON);
                    let Ok(Some(guard)) = client.mutex(lock).unwrap().lock_with(short) else {
                        continue;
                    };
                    let token = guard.fencing_token();
                    // The holder never checks, and continues for as long as it is allowed to.
                    for _ in 0..fastrand::usize(1..40) {
                        step += 1;
                        match fastrand::u8(..60) {
                            0 if proxy.fired() => proxy.drop_next_reply_to(op::MULTI),
                            1 => proxy.cut(),
                            _ => {}
                        }
                        let node = format!("{path}/{token:020}-{name}-{step}", token = token.get());
                        let both = guard
                            .transaction()
                            .create(&node, b"")
                            .set(path, node.clone());
                        match both.commit() {
                            Ok(()) => drop(written.fetch_add(1, Ordering::Relaxed)),
                            Err(Error::Unconfirmed { .. }) => {
                                unknown.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(error) => {
                                assert!(
                                    error.is_lost() || matches!(error, Error::Suspect { .. }),
                                    "{error:?}"
                                );
                                refused.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                }
            });
        }
        let (lock, written) = (&lock, &written);
        let (evictor, hosts) = (client.clone(), hosts.clone());
        scope.spawn(move || {
            while written.load(Ordering::Relaxed) < most {
                thread::sleep(Duration::from_millis(fastrand::u64(1..60)));
                let holder = evictor
                    .contenders(lock)
                    .unwrap()
                    .into_iter()
                    .find(|one| one.holds());
                match holder {
                    Some(holder) if fastrand::bool() => holder.evict().unwrap(),
                    Some(holder) => crate::support::raw::expire(&hosts, holder.session_id()),
                    None => {}
                }
            }
        });
    });
    let names = nodes.children(&path).unwrap();
    let mut order: Vec<_> = names
        .iter()
        .map(|name| {
            let node = nodes.get(&format!("{path}/{name}")).unwrap().unwrap();
            (node.czxid(), name[..20].parse::<i64>().unwrap())
        })
        .collect();
    order.sort_unstable();
    let tokens: Vec<_> = order.iter().map(|(_, token)| *token).collect();
    assert!(
        tokens.is_sorted(),
        "a holder wrote after the next one had: {order:?}"
    );
    let (written, unknown) = (written.into_inner(), unknown.into_inner());
    assert!(written <= order.len() && order.len() <= written + unknown);
    let refused = refused.into_inner();
    assert!(0 < refused, "nobody wrote too late");
    println!(
        "{written} written, {refused} refused, {unknown} unknown, {} there",
        order.len()
    );
    nodes.limit(6 * SOON).delete_all(&path).unwrap();
}

fn a_tree_is_deleted_with_all_that_comes_meanwhile(place: Place) {
    let (client, nodes, path) = scene(place);
    for first in 0..30 {
        nodes.create(&format!("{path}/{first}"), b"").unwrap();
        nodes.create(&format!("{path}/{first}/a"), b"").unwrap();
    }
    thread::scope(|scope| {
        scope.spawn(|| {
            for more in 0..50 {
                // This is refused once its parent is gone.
                let _ = client.nodes().create(&format!("{path}/7/more-{more}"), b"");
            }
        });
        assert!(61 <= nodes.delete_all(&path).unwrap());
    });
    assert!(!nodes.exists(&path).unwrap());
    assert_eq!(nodes.delete_all(&path).unwrap(), 0);
    assert!(matches!(nodes.delete_all("/"), Err(Error::BadPath { .. })));
}

fn a_write_whose_reply_is_lost_is_told(place: Place) {
    let (_, nodes, path) = scene(place);
    let proxy = Proxy::start(&place.shared().hosts());
    let client = place.connect(&proxy.hosts());
    for (kind, what) in [(op::SET_DATA, "set"), (op::DELETE, "delete")] {
        proxy.drop_next_reply_to(kind);
        let told = match what {
            "set" => client.nodes().set(&path, b"1").unwrap_err(),
            _ => client.nodes().delete(&path).map(|_| ()).unwrap_err(),
        };
        assert!(
            matches!(told, Error::Unconfirmed { .. }),
            "{what}: {told:?}"
        );
    }
    assert!(!nodes.exists(&path).unwrap());
    // A transaction that was never sent is not in doubt.
    proxy.refuse();
    eventually("it is away", || client.state() == SessionState::Connecting);
    let told = client.nodes().limit(SHORTLY).create(&path, b"");
    assert!(
        matches!(told, Err(Error::ConnectTimeout { .. })),
        "{told:?}"
    );
    proxy.accept();
    client.nodes().create(&path, b"").unwrap();
}

fn nodes_are_read_and_written(place: Place) {
    let (_, nodes, path) = scene(place);
    let child = |name: &str| format!("{path}/{name}");
    for name in ["b", "a"] {
        nodes.create(&child(name), name).unwrap();
    }
    assert_eq!(nodes.children(&path).unwrap(), ["a", "b"]);
    let before = nodes.get(&child("a")).unwrap().unwrap();
    nodes.set(&child("a"), "new").unwrap();
    let now = nodes.get(&child("a")).unwrap().unwrap();
    assert_eq!((before.data(), now.data()), (&b"a"[..], &b"new"[..]));
    assert_eq!((before.version(), now.version()), (0, 1));
    assert_eq!(before.czxid(), now.czxid());
    assert!(before.modified() <= now.modified());
    assert_eq!(nodes.get(&child("none")).unwrap(), None);
    assert!(nodes.delete(&child("b")).unwrap());
    assert!(!nodes.delete(&child("b")).unwrap());
    for (told, code) in [
        (nodes.create(&child("a"), b""), -110),
        (nodes.create(&child("x/y"), b""), -101),
        (nodes.set(&child("none"), b""), -101),
        (nodes.delete(&path).map(drop), -111),
        (nodes.children(&child("none")).map(drop), -101),
    ] {
        assert!(
            matches!(&told, Err(Error::Refused { code: of, .. }) if *of == code),
            "{told:?}"
        );
    }
    assert!(matches!(nodes.get("a"), Err(Error::BadPath { .. })));
    let top = path[1..].split('/').next().unwrap().to_owned();
    assert!(nodes.children("/").unwrap().contains(&top));
    assert_eq!(nodes.delete_all(&path).unwrap(), 2);
}

fn a_token_is_current_as_long_as_its_holder_holds(place: Place) {
    let hosts = place.shared().hosts();
    let (one, other, path) = (
        place.connect(&hosts),
        place.connect(&hosts),
        fresh_path("current"),
    );
    let guard = one.mutex(&path).unwrap().lock().unwrap();
    let token = guard.fencing_token();
    assert!(other.is_current(&path, token).unwrap());
    guard.unlock().unwrap();
    assert!(!other.is_current(&path, token).unwrap());
    let next = one.mutex(&path).unwrap().lock().unwrap();
    assert!(!other.is_current(&path, token).unwrap());
    assert!(other.is_current(&path, next.fencing_token()).unwrap());
    let readers = fresh_path("readers");
    let lock = one.rwlock(&readers).unwrap();
    let read = lock.read().unwrap();
    assert!(other.is_current(&readers, read.fencing_token()).unwrap());
    read.unlock().unwrap();
    // A writer that has become a reader keeps its token.
    let write = lock.write().unwrap();
    let token = write.fencing_token();
    let read = write.downgrade().unwrap();
    assert_eq!(read.fencing_token(), token);
    assert!(other.is_current(&readers, token).unwrap());
    read.unlock().unwrap();
    // This also holds while the writer's node is being deleted.
    for _ in 0..20 {
        let write = lock.write().unwrap();
        let token = write.fencing_token();
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        assert!(other.is_current(&readers, token).unwrap());
                    }
                });
            }
            thread::sleep(Duration::from_millis(5));
            let read = write.downgrade().unwrap();
            thread::sleep(Duration::from_millis(20));
            over.store(true, Ordering::Relaxed);
            read
        })
        .unlock()
        .unwrap();
    }
    let read = lock.write().unwrap().downgrade().unwrap();
    let token = read.fencing_token();
    let waiter = other.rwlock(&readers).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| drop(waiter.write().unwrap()));
        eventually("it waits", || one.contenders(&readers).unwrap().len() == 2);
        let behind = one.contenders(&readers).unwrap()[1].token();
        assert!(!one.is_current(&readers, behind).unwrap());
        read.unlock().unwrap();
    });
    assert!(!other.is_current(&readers, token).unwrap());
    for none in [i64::MIN, -1, 0, i64::MAX] {
        assert!(!other.is_current(&path, none.into()).unwrap());
    }
}
