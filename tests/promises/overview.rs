//! The overview of all locks below a path, and of the client that keeps each from its first waiter.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use zklock::diagnostics::LockQueue;
use zklock::{Client, Dialect, Error, LockGuard, LockOptions, Role};

use crate::support::raw::{EPHEMERAL, PERSISTENT, Raw};
use crate::support::{eventually, fresh_path};
use crate::transport::{Place, SOON, Transport, in_every_place, on_every_server};

in_every_place! {
    every_lock_below_a_path_is_listed_with_its_queue
    a_directory_that_looks_like_a_contender_is_looked_into
    nobody_who_works_is_accused
    a_circle_of_two_clients_is_found
    whoever_closes_a_circle_is_told
    a_waiter_can_name_whom_it_waits_for_to_the_end
}

on_every_server! {
    jobs_and_abandoned_locks_are_told
    what_may_not_be_read_is_named
    a_list_that_is_too_long_hides_no_other_lock
    a_contender_with_too_much_data_hides_no_other_lock
    a_node_of_no_session_holds_the_queue_behind_it
    directories_that_look_like_contenders_have_their_locks_listed
}

fn every_lock_below_a_path_is_listed_with_its_queue(place: Place) {
    let hosts = place.shared().hosts();
    let (one, other, root) = (
        place.connect(&hosts),
        place.connect(&hosts),
        fresh_path("all"),
    );
    let at = |name: &str| format!("{root}/{name}");
    assert!(other.locks(&root).unwrap().is_empty());
    let _mutex = one.mutex(&at("deep/down/mutex")).unwrap().lock().unwrap();
    let third = place.connect(&hosts);
    let reads = [&one, &third].map(|client| client.rwlock(&at("rw")).unwrap().read().unwrap());
    let _permits = one
        .semaphore(&at("limit"), 3)
        .unwrap()
        .acquire_many(2)
        .unwrap();
    let _several: Vec<Box<dyn LockGuard>> = match place.transport {
        Transport::Wire => {
            let both = one.multi_lock([&*at("x"), &*at("y")]).unwrap();
            vec![Box::new(both.lock().unwrap())]
        }
        // There are no multi-locks over a handle.
        #[cfg(feature = "zookeeper")]
        Transport::Handle => {
            let each = |name| Box::new(one.mutex(&at(name)).unwrap().lock().unwrap()) as _;
            ["x", "y"].map(each).into()
        }
    };
    // A released lock is listed as nobody's.
    one.mutex(&at("idle"))
        .unwrap()
        .lock()
        .unwrap()
        .unlock()
        .unwrap();
    thread::scope(|scope| {
        let rw = other.rwlock(&at("rw")).unwrap();
        let writer = scope.spawn(move || {
            let options = LockOptions::new().timeout(SOON);
            rw.write_with(options).unwrap().is_some()
        });
        eventually("the writer waits", || {
            one.contenders(&at("rw")).unwrap().len() == 3
        });
        let found = other.locks(&root).unwrap();
        let paths: Vec<_> = found.iter().map(|queue| queue.path().to_owned()).collect();
        assert_eq!(paths, ["deep/down/mutex", "limit", "rw", "x", "y"].map(at));
        assert!(found.unreadable().is_empty());
        for queue in &found {
            let alone = one.contenders(queue.path()).unwrap();
            let nodes = |all: &[zklock::Contender]| -> Vec<_> {
                all.iter()
                    .map(|one| (one.node().to_owned(), one.holds()))
                    .collect()
            };
            assert_eq!(nodes(queue.contenders()), nodes(&alone), "{queue:?}");
            assert!(queue.numbers_used() < 0.01);
            let is_semaphore = queue.path() == at("limit");
            assert_eq!(queue.permits(), is_semaphore.then_some(3));
            assert_eq!(queue.waited_for_since().is_some(), queue.path() == at("rw"));
        }
        let rw = found.iter().find(|queue| queue.path() == at("rw")).unwrap();
        assert_eq!((rw.holders().count(), rw.waiters().count()), (2, 1));
        assert_eq!(rw.waiters().next().unwrap().role(), Role::Write);
        drop(reads);
        assert!(writer.join().unwrap());
    });
    let everywhere = other.locks("/").unwrap();
    assert!(everywhere.iter().any(|queue| queue.path() == at("limit")));
    assert!(other.locks("relative").is_err());
}

fn a_directory_that_looks_like_a_contender_is_looked_into(place: Place) {
    let hosts = place.shared().hosts();
    let client = place.connect(&hosts);
    let root = fresh_path("digests");
    let digest = format!("{root}/0123456789abcdef0123456789abcdef");
    let mut raw = Raw::connect(&hosts);
    raw.create_all(&root);
    raw.create(&digest, b"", PERSISTENT).unwrap();
    let lock = format!("{digest}/lock");
    let _held = client.mutex(&lock).unwrap().lock().unwrap();
    let kazoo = Client::builder(&hosts)
        .dialect(Dialect::Kazoo)
        .connect()
        .unwrap();
    let permits = format!("{root}/permits");
    let _permit = kazoo.semaphore(&permits, 2).unwrap().acquire().unwrap();
    let found = client.locks(&root).unwrap();
    let paths: Vec<_> = found.iter().map(LockQueue::path).collect();
    assert_eq!(paths, [&*lock, &*permits]);
}

fn nobody_who_works_is_accused(place: Place) {
    let hosts = place.shared().hosts();
    let (one, other, root) = (
        place.connect(&hosts),
        place.connect(&hosts),
        fresh_path("working"),
    );
    let at = |name: &str| format!("{root}/{name}");
    assert_eq!(one.blockers(&at("a"), &root).unwrap().iter().count(), 0);
    let a = one.mutex(&at("a")).unwrap().lock().unwrap();
    let _b = other.mutex(&at("b")).unwrap().lock().unwrap();
    let two = other.semaphore(&at("limit"), 2).unwrap();
    let (_first, _second) = (
        two.acquire().unwrap(),
        one.semaphore(&at("limit"), 2).unwrap().acquire().unwrap(),
    );
    thread::scope(|scope| {
        // This thread of `one` holds `a`; another thread waits for `b`, and blocks nobody.
        let mutex = one.mutex(&at("b")).unwrap();
        let waiter = thread::Builder::new().name("another".to_owned());
        waiter
            .spawn_scoped(scope, move || {
                mutex
                    .lock_with(LockOptions::new().timeout(SOON / 4))
                    .unwrap()
                    .is_none()
            })
            .unwrap();
        eventually("it waits", || {
            other.contenders(&at("b")).unwrap().len() == 2
        });
        let blockers = other.blockers(&at("a"), &root).unwrap();
        let all: Vec<_> = blockers.iter().collect();
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].path(), all[0].waits_for()), (&*at("a"), None));
        assert_eq!(all[0].holder().token(), a.fencing_token());
        assert_eq!(blockers.deadlock(), None);
    });
}

fn a_circle_of_two_clients_is_found(place: Place) {
    let hosts = place.shared().hosts();
    let (one, other, root) = (
        place.connect(&hosts),
        place.connect(&hosts),
        fresh_path("circle"),
    );
    let at = |name: &str| format!("{root}/{name}");
    let lock_both = |client: &Client, first: &str, second: &str| {
        let (first, second) = (
            client.mutex(&at(first)).unwrap(),
            client.mutex(&at(second)).unwrap(),
        );
        move || {
            let _first = first.lock().unwrap();
            thread::sleep(SOON / 20);
            drop(second.lock_with(LockOptions::new().timeout(SOON / 2)));
        }
    };
    thread::scope(|scope| {
        for (name, client, first, second) in [("one", &one, "a", "b"), ("other", &other, "b", "a")]
        {
            let builder = thread::Builder::new().name(name.to_owned());
            builder
                .spawn_scoped(scope, lock_both(client, first, second))
                .unwrap();
        }
        let mut circle = None;
        eventually("a circle", || {
            circle = other
                .blockers(&at("a"), &root)
                .unwrap()
                .deadlock()
                .map(<[_]>::to_vec);
            circle.is_some()
        });
        assert_eq!(circle.unwrap(), [at("a"), at("b")]);
    });
    assert_eq!(other.blockers(&at("a"), &root).unwrap().deadlock(), None);
}

/// Three clients, each with one of three locks, want the next one at the same time.
fn whoever_closes_a_circle_is_told(place: Place) {
    let (hosts, root) = (place.shared().hosts(), fresh_path("closing"));
    let all_hold = Barrier::new(3);
    let told: Vec<_> = thread::scope(|scope| {
        let wants = [("a", "b"), ("b", "c"), ("c", "a")].map(|(has, wanted)| {
            let (root, all_hold, client) = (&root, &all_hold, place.connect(&hosts));
            let wait = move || {
                let at = |name: &str| client.mutex(&format!("{root}/{name}")).unwrap();
                let _has = at(has).lock().unwrap();
                all_hold.wait();
                let options = LockOptions::new().timeout(SOON).detect_deadlock(root);
                at(wanted).lock_with(options).map(|guard| guard.is_some())
            };
            let builder = thread::Builder::new().name(format!("has-{has}"));
            builder.spawn_scoped(scope, wait).unwrap()
        });
        wants.map(|want| want.join().unwrap()).into()
    });
    let circles: Vec<_> = told.iter().filter_map(|told| told.as_ref().err()).collect();
    assert!(!circles.is_empty(), "{told:?}");
    for error in circles {
        assert!(
            matches!(error, Error::Deadlock { circle, .. } if circle.len() == 3),
            "{error:?}"
        );
    }
    // Each client that was not told has had the lock.
    assert!(
        told.iter().all(|told| !matches!(told, Ok(false))),
        "{told:?}"
    );
    let client = place.connect(&hosts);
    eventually("nobody is left", || client.locks(&root).unwrap().is_empty());
}

fn what_may_not_be_read_is_named(place: Place) {
    let hosts = place.shared().hosts();
    let root = fresh_path("private");
    let owner = Client::builder(&hosts)
        .auth("digest", "jo:secret")
        .acl(zklock::Acl::creator_all());
    let owner = owner.connect().unwrap();
    owner.nodes().create(&root, b"").unwrap();
    let _held = owner.mutex(&format!("{root}/a")).unwrap().lock().unwrap();
    let other = place.connect(&hosts);
    let found = other.locks(&root).unwrap();
    assert!(found.is_empty());
    assert_eq!(found.unreadable(), std::slice::from_ref(&root));
    assert_eq!(owner.locks(&root).unwrap().len(), 1);
}

/// Returns a client that accepts only short replies.
fn short_sighted(hosts: &str) -> Client {
    Client::builder(hosts)
        .max_buffer(256 << 10)
        .connect()
        .unwrap()
}

fn a_list_that_is_too_long_hides_no_other_lock(place: Place) {
    let (hosts, root) = (place.shared().hosts(), fresh_path("long"));
    let (long, client) = (format!("{root}/long"), short_sighted(&hosts));
    let _held = client.mutex(&format!("{root}/z")).unwrap().lock().unwrap();
    let mut raw = Raw::connect(&hosts);
    raw.create_all(&long);
    for number in 0..100 {
        let node = format!("{long}/{}{number}", "x".repeat(5_000));
        raw.create(&node, b"", PERSISTENT).unwrap();
    }
    let found = client.locks(&root).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found.unreadable(), std::slice::from_ref(&long));
    assert_eq!(
        client
            .blockers(&format!("{root}/z"), &root)
            .unwrap()
            .iter()
            .count(),
        1
    );
}

fn a_contender_with_too_much_data_hides_no_other_lock(place: Place) {
    let (hosts, root) = (place.shared().hosts(), fresh_path("heavy"));
    let (path, client) = (format!("{root}/heavy"), short_sighted(&hosts));
    let mut raw = Raw::connect(&hosts);
    raw.create_all(&path);
    raw.create(
        &format!("{path}/lock-0000000000"),
        &vec![b'x'; 400 << 10],
        EPHEMERAL,
    )
    .unwrap();
    let _held = client.mutex(&format!("{root}/z")).unwrap().lock().unwrap();
    let found = client.locks(&root).unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!(
        client.contenders(&path).unwrap()[0].session_id(),
        raw.session()
    );
}

fn a_node_of_no_session_holds_the_queue_behind_it(place: Place) {
    let (hosts, path) = (place.shared().hosts(), fresh_path("ghost"));
    let mut raw = Raw::connect(&hosts);
    raw.create_all(&path);
    raw.create(&format!("{path}/lock-0000000000"), b"", PERSISTENT)
        .unwrap();
    let client = place.connect(&hosts);
    assert!(client.locks(&path).unwrap().is_empty());
    raw.create(&format!("{path}/lock-0000000001"), b"", EPHEMERAL)
        .unwrap();
    let found = client.locks(&path).unwrap();
    let queue = found.iter().next().unwrap();
    assert_eq!((queue.holders().count(), queue.waiters().count()), (1, 1));
    assert_eq!(queue.holders().next().unwrap().session_id(), 0);
}

fn directories_that_look_like_contenders_have_their_locks_listed(place: Place) {
    let (hosts, root) = (place.shared().hosts(), fresh_path("blocks"));
    let client = place.connect(&hosts);
    // The end of the name is that of a contender.
    let lock = format!("{root}/block-0000000001/deep/lock-0000000002/a");
    Raw::connect(&hosts).create_all(&lock);
    let _held = client.mutex(&lock).unwrap().lock().unwrap();
    let found = client.locks(&root).unwrap();
    let paths: Vec<_> = found.iter().map(LockQueue::path).collect();
    assert_eq!(paths, [&*lock]);
}

fn jobs_and_abandoned_locks_are_told(place: Place) {
    let hosts = place.shared().hosts();
    let (client, root) = (place.connect(&hosts), fresh_path("kept"));
    let at = |name: &str| format!("{root}/{name}");
    let told = |name: &str| {
        let found = client.locks(&root).unwrap();
        let queue = found.iter().find(|queue| queue.path() == at(name));
        queue.map(|queue| (queue.is_job(), queue.abandoned()))
    };
    let job = client.job(&at("job")).unwrap();
    let run = job.once("a", |_| {
        assert_eq!(told("job"), Some((true, None)));
        Ok::<_, Error>(())
    });
    drop(run.unwrap());
    let plain = client.mutex(&at("plain")).unwrap().lock().unwrap();
    assert_eq!(told("plain"), Some((false, None)));
    plain.unlock().unwrap();
    let tracked = |client: &Client| {
        let mutex = client.mutex(&at("tracked")).unwrap();
        let tracking = LockOptions::new().track_abandonment();
        mutex.lock_with(tracking).unwrap().unwrap()
    };
    let gone = place.connect(&hosts);
    let guard = tracked(&gone);
    let left = guard.fencing_token();
    assert_eq!(told("tracked"), Some((false, None)));
    gone.close().unwrap();
    drop(guard);
    // The client waits a little, as its predecessor may be at work, and is in the queue meanwhile.
    let patient = place.connect(&hosts);
    thread::scope(|scope| {
        let mutex = patient.mutex(&at("tracked")).unwrap();
        let next = scope.spawn(move || {
            let options = LockOptions::new().successor_delay(Duration::from_secs(2));
            mutex.lock_with(options).unwrap().unwrap().abandoned()
        });
        eventually("the next one is there", || {
            told("tracked") == Some((false, Some(left)))
        });
        assert_eq!(next.join().unwrap(), Some(left));
    });
}

fn a_waiter_can_name_whom_it_waits_for_to_the_end(place: Place) {
    let (hosts, root) = (place.shared().hosts(), fresh_path("chain"));
    let [one, other, last] = [(); 3].map(|()| place.connect(&hosts));
    let at = |name: &str| format!("{root}/{name}");
    let _works = one.mutex(&at("b")).unwrap().lock().unwrap();
    let (held, holds) = (&Barrier::new(2), &at("a"));
    thread::scope(|scope| {
        let middle = scope.spawn({
            let (a, b) = (other.mutex(holds).unwrap(), other.mutex(&at("b")).unwrap());
            move || {
                let _a = a.lock().unwrap();
                held.wait();
                let waited = b.lock_with(LockOptions::new().timeout(SOON)).unwrap();
                assert!(waited.is_none());
            }
        });
        held.wait();
        eventually("it waits", || last.contenders(&at("b")).unwrap().len() == 2);
        let mut chain = Vec::new();
        let options = LockOptions::new().timeout(SOON).on_wait(|_| {
            let blockers = last.blockers(holds, &root).unwrap();
            chain = blockers.iter().map(|one| one.path().to_owned()).collect();
        });
        drop(last.mutex(holds).unwrap().lock_with(options).unwrap());
        assert_eq!(chain, [at("a"), at("b")]);
        middle.join().unwrap();
    });
}
