//! The promises of the multi-lock, on the embedded server and on a real one. A handle has none.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use zklock::embedded::Server;
use zklock::{Client, Contender, Error, GuardEvent, LockOptions, MultiGuard, Waiting};

use crate::support::proxy::Proxy;
use crate::support::raw::{assert_nothing_left, children, op};
use crate::support::{aside, eventually, fresh_path, lasting};
use crate::transport::{
    Place, SOON, Transport, expire_owner, on_every_server, wait_for, wait_for_queue,
};

on_every_server! {
    all_are_locked_or_none
    when_one_is_lost_all_are
    what_is_read_is_shared_and_the_rest_is_not
    multi_lockers_of_any_order_never_wait_in_a_circle
    who_waits_for_several_hears_at_once_that_one_of_its_nodes_is_gone
    who_waits_for_several_and_loses_its_session_queues_again
}

/// Returns two clients, and two paths that nobody else uses.
fn scene(place: Place) -> (Client, Client, [String; 2]) {
    let hosts = place.shared().hosts();
    let dir = fresh_path("multi");
    let paths = [format!("{dir}/1"), format!("{dir}/2")];
    (place.connect(&hosts), place.connect(&hosts), paths)
}

/// Whether the nodes were created or not, a try is not told that its own nodes are in the way.
#[test]
fn a_try_whose_create_or_its_reply_is_lost_gets_the_locks() {
    let server = Server::start().unwrap();
    let proxy = Proxy::start(server.hosts());
    let client = Client::connect(&proxy.hosts()).unwrap();
    let dir = fresh_path("multi");
    let paths = [format!("{dir}/1"), format!("{dir}/2")];
    let all = client.multi_lock(paths.each_ref().map(String::as_str));
    let all = all.unwrap();
    all.lock().unwrap().unlock().unwrap();
    for (round, reply) in [(1, true), (2, false)] {
        match reply {
            true => proxy.drop_next_reply_to(op::MULTI),
            false => proxy.drop_next_request(op::MULTI),
        }
        let guard = all.try_lock().unwrap().expect("nobody has them");
        assert!(proxy.fired());
        for path in &paths {
            let nodes = children(server.hosts(), path);
            assert_eq!(nodes.len(), 1);
            let number = format!("-{round:010}");
            assert!(nodes[0].ends_with(&number), "created twice: {nodes:?}");
        }
        guard.unlock().unwrap();
    }
}

/// Curator's `InterProcessMultiLock` continues with the other locks when one cannot be acquired.
fn all_are_locked_or_none(place: Place) {
    let (ours, theirs, paths) = scene(place);
    let hosts = place.shared().hosts();
    let [first, second] = paths.each_ref().map(String::as_str);
    let all = ours.multi_lock([second, first]).unwrap();
    assert_eq!(all.paths().collect::<Vec<_>>(), [first, second]);

    let one = theirs.mutex(second).unwrap().lock().unwrap();
    assert!(all.try_lock().unwrap().is_none());
    let shortly = Duration::from_secs(1);
    assert!(all.try_lock_for(shortly).unwrap().is_none());
    wait_for_queue(&ours, first, 0);
    wait_for_queue(&ours, second, 1);
    one.unlock().unwrap();

    let guard = all.try_lock().unwrap().unwrap();
    guard.verify().unwrap();
    assert!(theirs.mutex(first).unwrap().try_lock().unwrap().is_none());
    assert!(theirs.mutex(second).unwrap().try_lock().unwrap().is_none());
    let would_deadlock = Error::WouldDeadlock { path: first.into() };
    assert_eq!(
        ours.mutex(first).unwrap().lock().unwrap_err(),
        would_deadlock
    );
    assert_eq!(guard.tokens().count(), 2);
    guard.unlock().unwrap();
    for path in [first, second] {
        assert_eq!(children(&hosts, path), [""; 0]);
    }
}

fn when_one_is_lost_all_are(place: Place) {
    let (ours, theirs, paths) = scene(place);
    let [first, second] = paths.each_ref().map(String::as_str);
    let guard = ours.multi_lock([first, second]).unwrap().lock().unwrap();
    theirs.contenders(second).unwrap()[0].evict().unwrap();
    wait_for(&guard, GuardEvent::Lost);
    assert!(guard.unlock().unwrap_err().is_lost());
    for path in [first, second] {
        assert_nothing_left(&place.shared().hosts(), path);
    }
}

fn what_is_read_is_shared_and_the_rest_is_not(place: Place) {
    let (ours, theirs, paths) = scene(place);
    let [first, second] = paths.each_ref().map(String::as_str);
    let all = ours.multi_lock([first, second]).unwrap();
    let all = all.reading([second]).unwrap();
    let guard = all.lock().unwrap();
    guard.verify().unwrap();

    let catalogue = theirs.rwlock(second).unwrap();
    let reading = catalogue.try_read().unwrap().expect("shared");
    assert!(theirs.rwlock(first).unwrap().try_read().unwrap().is_none());
    drop(reading);
    assert!(theirs.mutex(second).unwrap().try_lock().unwrap().is_none());
    let other = format!("{first}-other");
    let beside = theirs.multi_lock([second, &other]).unwrap();
    assert!(beside.try_lock().unwrap().is_none());
    // Another thread of one client reads beside the lock, too.
    let beside = beside.reading([second]).unwrap();
    let also = beside.try_lock().unwrap().expect("shared");
    thread::scope(|threads| {
        let third = ours
            .multi_lock([second])
            .unwrap()
            .reading([second])
            .unwrap();
        let read = move || third.try_lock().unwrap().expect("shared").unlock();
        threads.spawn(read).join().unwrap().unwrap();
    });
    let again = ours.rwlock(second).unwrap().read().unwrap_err();
    assert!(matches!(again, Error::WouldDeadlock { .. }), "{again}");

    also.unlock().unwrap();
    guard.unlock().unwrap();
    let alone = theirs.multi_lock([first, second]).unwrap();
    drop(alone.try_lock().unwrap().expect("free"));
    let elsewhere = all.reading(["/elsewhere"]).unwrap_err();
    assert!(matches!(elsewhere, Error::BadPath { .. }), "{elsewhere}");
}

#[test]
fn bad_paths_and_no_paths_are_refused() {
    let server = Server::start().unwrap();
    let client = Client::connect(server.hosts()).unwrap();
    assert!(client.multi_lock(["/a", "b"]).unwrap_err().is_bad_input());
    assert!(client.multi_lock([]).unwrap_err().is_bad_input());
}

#[test]
fn a_path_that_is_named_twice_is_refused() {
    let server = Server::start().unwrap();
    let client = Client::connect(server.hosts()).unwrap();
    for paths in [&["/a", "/a"][..], &["/b", "/a", "/c", "/a"]] {
        let error = client.multi_lock(paths.iter().copied()).unwrap_err();
        assert!(
            matches!(&error, Error::BadPath { path, .. } if path == "/a"),
            "{error}"
        );
        assert!(error.to_string().contains("twice"), "{error}");
    }
}

fn multi_lockers_of_any_order_never_wait_in_a_circle(place: Place) {
    let (hosts, dir) = (place.shared().hosts(), fresh_path("circle"));
    let paths: Vec<_> = (0..5).map(|i| format!("{dir}/{i}")).collect();
    let busy: Vec<_> = paths.iter().map(|_| AtomicBool::new(false)).collect();
    let rounds = AtomicUsize::new(0);
    let end = Instant::now() + lasting(2);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let client = place.connect(&hosts);
                while Instant::now() < end {
                    let mut mine: Vec<usize> = (0..paths.len()).collect();
                    fastrand::shuffle(&mut mine);
                    mine.truncate(fastrand::usize(1..=paths.len()));
                    let names = mine.iter().map(|at| &*paths[*at]);
                    let lock = client.multi_lock(names).unwrap();
                    let guard = lock.try_lock_for(Duration::from_secs(30)).unwrap();
                    let guard = guard.expect("nobody waits for long");
                    for at in &mine {
                        assert!(
                            !busy[*at].swap(true, Ordering::SeqCst),
                            "{at} is held twice"
                        );
                    }
                    for at in &mine {
                        busy[*at].store(false, Ordering::SeqCst);
                    }
                    drop(guard);
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    println!("{} rounds", rounds.load(Ordering::Relaxed));
    for path in &paths {
        assert_nothing_left(&hosts, path);
    }
}

/// The wait in the other queue may last for long, and is in vain.
fn who_waits_for_several_hears_at_once_that_one_of_its_nodes_is_gone(place: Place) {
    let hosts = place.shared().hosts();
    let dir = fresh_path("multi");
    let paths = [1, 2, 3].map(|i| format!("{dir}/{i}"));
    let theirs = place.connect(&hosts);
    let held = theirs.mutex(&paths[1]).unwrap().lock().unwrap();
    // It waits in the second queue, and is the first one in the others.
    for (at, broken) in [(0, false), (1, false), (2, false), (0, true), (2, true)] {
        let proxy = Proxy::start(&hosts);
        let (wait, waits) = mpsc::channel();
        let told = aside({
            let (client, paths) = (place.connect(&proxy.hosts()), paths.clone());
            move || {
                let all = client.multi_lock(paths.iter().map(String::as_str));
                let on_wait = |_: &Waiting| wait.send(()).unwrap_or_default();
                let options = LockOptions::new().on_wait(on_wait);
                all.unwrap().lock_with(options).map(drop)
            }
        });
        waits.recv_timeout(SOON).unwrap();
        let before = proxy.connections();
        if broken {
            proxy.refuse();
        }
        let mine = theirs.contenders(&paths[at]).unwrap().pop().unwrap();
        mine.evict().unwrap();
        proxy.accept();
        let node = mine.node().to_owned();
        assert_eq!(told.recv_timeout(SOON), Ok(Err(Error::Evicted { node })));
        assert_eq!(before < proxy.connections(), broken);
        for path in &paths {
            wait_for_queue(&theirs, path, usize::from(*path == paths[1]));
        }
    }
    held.unlock().unwrap();
}

/// Its nodes have gone with its session.
fn who_waits_for_several_and_loses_its_session_queues_again(place: Place) {
    let (server, dir) = (place.shared(), fresh_path("multi"));
    let paths = [1, 2].map(|i| format!("{dir}/{i}"));
    let (ours, theirs) = (
        place.connect(&server.hosts()),
        place.connect(&server.hosts()),
    );
    let held = theirs.mutex(&paths[1]).unwrap().lock().unwrap();
    let told = aside({
        let paths = paths.clone();
        move || {
            let all = ours.multi_lock(paths.iter().map(String::as_str)).unwrap();
            all.lock().and_then(MultiGuard::unlock)
        }
    });
    for _ in 0..3 {
        wait_for_queue(&theirs, &paths[1], 2);
        let mine = theirs.contenders(&paths[0]).unwrap().remove(0);
        expire_owner(server, mine.node());
        eventually("it queues again", || {
            let now = theirs.contenders(&paths[1]).unwrap();
            let other = |one: &Contender| one.session_id() != mine.session_id();
            now.len() == 2 && other(&now[1])
        });
    }
    held.unlock().unwrap();
    assert_eq!(told.recv_timeout(SOON), Ok(Ok(())));
    for path in &paths {
        assert_nothing_left(&server.hosts(), path);
    }
}

/// Without transactions it would wait in circles with others, who have a place in every queue.
#[cfg(feature = "zookeeper")]
#[test]
fn a_handle_has_no_multi_locks_and_leaves_nothing() {
    let server = Server::start().unwrap();
    let client = Transport::Handle.connect(server.hosts());
    let path = fresh_path("multi");
    let all = client.multi_lock([path.as_str()]).unwrap();
    let limit = Duration::from_secs(1);
    let refused = [
        all.lock().err(),
        all.try_lock().err(),
        all.try_lock_for(limit).err(),
    ];
    let what = "several locks at once";
    assert_eq!(refused, [(); 3].map(|()| Some(Error::Unsupported { what })));
    assert_eq!(children(server.hosts(), &path), [""; 0]);
    client
        .mutex(&path)
        .unwrap()
        .lock()
        .unwrap()
        .unlock()
        .unwrap();
}
