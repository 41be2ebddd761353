//! The costs of a lock: requests, writes and round trips, counted on the way to the server.
//!
//! Counts are the same on every machine. Where time is measured, the network is made so slow
//! that nothing else matters.

mod holds;
mod jobs;
mod permits;
mod scene;
mod several;
mod shards;
mod slow;
mod takers;
mod tap;

use std::any::Any;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::bounded;
use zklock::embedded::Server;
use zklock::{Client, Dialect, LockOptions, Mutex, MutexGuard, RwLock};

use self::scene::{ENTER, LET_GO, Scene, WATCH};
use self::slow::{DELAY, ROUND_TRIP, Slow};
use self::tap::Tap;
use crate::support::proxy::Proxy;
use crate::support::raw::{Raw, op};
use crate::support::{eventually, fresh_path, program};
use crate::transport::{wait_for_line, wait_for_queue};

/// A short session, and a time after which it must be proven again.
const SHORT: Duration = Duration::from_secs(8);
const LONG: Duration = Duration::from_millis(2200);

#[test]
fn a_free_lock_costs_one_write_of_two_requests_and_its_release_another() {
    let scene = Scene::new("uncontended");
    let mutex = scene.client.mutex(&scene.path).unwrap();
    lock(&mutex);
    scene.tap.take();
    (0..10).for_each(|_| lock(&mutex));
    let expected = [ENTER.to_vec(), vec![op::DELETE]];
    assert_eq!(scene.tap.take(), vec![expected; 10].concat());
}

#[test]
fn who_comes_back_again_and_again_stops_looking_whether_others_are_there() {
    let scene = Scene::new("alone");
    let mutex = scene.client.mutex(&scene.path).unwrap();
    come_back_often(&mutex);
    scene.tap.take();
    (0..10).for_each(|_| lock(&mutex));
    let expected = [vec![op::CREATE2], vec![op::DELETE]];
    assert_eq!(scene.tap.take(), vec![expected; 10].concat());

    // Another client was there meanwhile: the number of the own node shows that, and it costs one look.
    lock(&scene.connect().mutex(&scene.path).unwrap());
    lock(&mutex);
    let expected = [vec![op::CREATE2], vec![op::GET_CHILDREN], vec![op::DELETE]];
    assert_eq!(scene.tap.take(), expected);
    // From then on other clients are expected.
    lock(&mutex);
    assert_eq!(scene.tap.take(), [ENTER.to_vec(), vec![op::DELETE]]);
}

#[test]
fn a_mutex_that_is_made_anew_each_time_looks_no_more_often() {
    let scene = Scene::new("anew");
    let anew = || lock(&scene.client.mutex(&scene.path).unwrap());
    (0..30).for_each(|_| anew());
    scene.tap.take();
    (0..10).for_each(|_| anew());
    let mutex = scene.client.reentrant_mutex(&scene.path).unwrap();
    mutex.lock().unwrap().unlock().unwrap();
    let expected = [vec![op::CREATE2], vec![op::DELETE]];
    assert_eq!(scene.tap.take(), vec![expected; 11].concat());
}

#[test]
fn who_was_wrong_to_expect_nobody_is_so_once() {
    let scene = Scene::new("wrong");
    let mutex = scene.client.mutex(&scene.path).unwrap();
    come_back_often(&mutex);
    let other = scene.connect();
    let _holder = other.mutex(&scene.path).unwrap().lock().unwrap();
    let enters = || {
        scene.tap.take();
        let limit = Duration::from_millis(200);
        assert!(mutex.try_lock_for(limit).unwrap().is_none());
        // A waiter that gives up does not wait until its node is gone.
        scene.tap.wait_for(op::DELETE);
        let mut sent = scene.tap.take().into_iter();
        sent.find(|write| write.contains(&op::CREATE2)).unwrap()
    };
    assert_eq!(enters(), [op::CREATE2]);
    assert_eq!(enters(), ENTER);
}

#[test]
fn who_gives_up_takes_back_the_watch_on_others_only() {
    let scene = Scene::new("impatient");
    let other = scene.connect();
    let _holder = other.mutex(&scene.path).unwrap().lock().unwrap();
    let mutex = scene.client.mutex(&scene.path).unwrap();
    let (cancel, cancelled) = bounded(1);
    let options = LockOptions::new().cancel(cancelled);
    let options = options.on_wait(|_| cancel.try_send(()).unwrap_or_default());
    assert!(mutex.lock_with(options).unwrap().is_none());
    scene.tap.wait_for(op::DELETE);
    let left = scene.tap.take().concat();
    let left = left.iter().filter(|one| **one == op::REMOVE_WATCHES);
    assert_eq!(left.count(), 1);
}

#[test]
fn who_tracks_abandonment_looks_whether_its_own_last_node_has_gone() {
    let scene = Scene::new("tracking");
    let path = format!("{}-tracked", scene.path);
    let mutex = scene.client.mutex(&path).unwrap();
    (0..30).for_each(|_| tracked(&mutex).unlock().unwrap());
    scene.tap.take();
    // The client has looked whether the directory keeps marks, whichever `Mutex` asks.
    tracked(&scene.client.mutex(&path).unwrap())
        .unlock()
        .unwrap();
    // The mark is read with the queue.
    let enter = [&ENTER[..], &[op::GET_DATA]].concat();
    assert_eq!(scene.tap.take(), [enter, vec![op::MULTI], vec![op::MULTI]]);
}

#[test]
fn who_has_waited_reads_at_once_what_the_holder_before_has_left() {
    let scene = Scene::new("left");
    let path = format!("{}-tracked", scene.path);
    let other = scene.connect();
    let mutex = scene.client.mutex(&path).unwrap();
    // The client looks at the path once.
    tracked(&mutex).unlock().unwrap();
    let guard = tracked(&other.mutex(&path).unwrap());
    scene.tap.take();
    thread::scope(|scope| {
        let (tell, told) = bounded(1);
        let mutex = &mutex;
        scope.spawn(move || {
            let options = LockOptions::new().track_abandonment();
            let options = options.on_wait(move |_| tell.try_send(()).unwrap_or_default());
            mutex.lock_with(options).unwrap().unwrap().unlock().unwrap();
        });
        told.recv().unwrap();
        // The waiter watches the holder's node.
        scene.tap.wait_for(op::GET_DATA);
        scene.tap.take();
        drop(guard);
    });
    let mark = [vec![op::GET_DATA], vec![op::MULTI], vec![op::MULTI]];
    assert_eq!(scene.tap.take(), mark);
}

/// Another server than the one that reported the turn may not know of the mark yet.
#[test]
fn who_has_waited_and_moved_reads_behind_a_write_what_the_holder_before_has_left() {
    let (server, path) = (Server::start().unwrap(), fresh_path("moved"));
    let network = Proxy::start(server.hosts());
    let other = Client::connect(server.hosts()).unwrap();
    let client = Client::connect(&network.hosts()).unwrap();
    let mutex = client.mutex(&path).unwrap();
    tracked(&mutex).unlock().unwrap();
    let guard = tracked(&other.mutex(&path).unwrap());
    let (tell, told) = bounded(1);
    thread::scope(|scope| {
        scope.spawn(|| {
            let options = LockOptions::new().track_abandonment();
            let options = options.on_wait(|_| tell.try_send(()).unwrap_or_default());
            mutex.lock_with(options).unwrap().unwrap().unlock().unwrap();
        });
        told.recv().unwrap();
        network.drop_next_reply_to(op::GET_DATA);
        drop(guard);
    });
    assert!(network.fired());
    assert_eq!(network.requests(op::SET_DATA), 1);
}

fn lock(mutex: &Mutex) {
    mutex.lock().unwrap().unlock().unwrap();
}

/// Locks the mutex, with a mark of its abandonment.
fn tracked(mutex: &Mutex) -> MutexGuard {
    let options = LockOptions::new().track_abandonment();
    mutex.lock_with(options).unwrap().unwrap()
}

/// Locks the mutex so often that the client expects nobody else any more.
fn come_back_often(mutex: &Mutex) {
    (0..30).for_each(|_| lock(mutex));
}

#[test]
fn trying_a_taken_lock_reads_again_behind_one_write_that_is_refused() {
    let scene = Scene::new("taken");
    let other = Client::connect(scene.server.hosts()).unwrap();
    let _guard = other.mutex(&scene.path).unwrap().lock().unwrap();
    let mutex = scene.client.mutex(&scene.path).unwrap();
    for _ in 0..5 {
        assert!(mutex.try_lock().unwrap().is_none());
    }
    let read = vec![op::GET_CHILDREN];
    let again = vec![op::SET_DATA, op::GET_CHILDREN];
    assert_eq!(scene.tap.take(), vec![[read, again]; 5].concat());
}

#[test]
fn a_hand_off_between_two_lists_nothing_but_what_came_with_the_create() {
    let scene = Scene::new("two");
    let other = Client::connect(scene.server.hosts()).unwrap();
    let holder = other.mutex(&scene.path).unwrap().lock().unwrap();
    scene.lock_behind(holder);
    let watch = vec![op::GET_DATA; 2];
    let expected = [ENTER.to_vec(), watch, vec![op::DELETE]];
    assert_eq!(scene.tap.take(), expected);
}

/// Only a client that asks for a look for circles, and holds another lock, pays for it.
#[test]
fn who_looks_for_circles_and_holds_nothing_asks_no_more() {
    let give_up = |looks: bool, holds: bool| {
        let scene = Scene::new("circles");
        let mine = format!("{}-mine", scene.path);
        let held = holds.then(|| scene.client.mutex(&mine).unwrap().lock().unwrap());
        let other = scene.connect();
        let holder = other.mutex(&scene.path).unwrap().lock().unwrap();
        scene.tap.take();
        let mut options = LockOptions::new().timeout(Duration::from_millis(300));
        if looks {
            options = options.detect_deadlock("/");
        }
        let mutex = scene.client.mutex(&scene.path).unwrap();
        assert!(mutex.lock_with(options).unwrap().is_none());
        drop(holder);
        scene.tap.wait_for(op::REMOVE_WATCHES);
        let asked = scene.tap.take().concat();
        drop(held);
        let until = asked.iter().position(|one| *one == op::REMOVE_WATCHES);
        asked[..until.unwrap()].to_vec()
    };
    let without = [&ENTER[..], &[op::GET_DATA; 2]].concat();
    assert_eq!(give_up(false, false), without);
    assert_eq!(give_up(true, false), without);
    // Its own node may be read meanwhile.
    assert!(give_up(false, true).len() <= without.len() + 1);
    assert!(without.len() + 3 < give_up(true, true).len());
}

#[test]
fn behind_two_others_nothing_is_listed_but_what_came_with_the_create() {
    let scene = Scene::new("three");
    scene.lock_behind_others(2, Duration::ZERO, Duration::ZERO);
    let expected = [
        ENTER.to_vec(),
        WATCH.to_vec(),
        LET_GO.to_vec(),
        vec![op::DELETE],
    ];
    assert_eq!(scene.tap.take(), expected);
}

#[test]
fn in_a_longer_queue_the_one_listing_is_sent_while_another_holds() {
    let scene = Scene::new("four");
    scene.lock_behind_others(3, Duration::ZERO, Duration::ZERO);
    let list = vec![op::GET_CHILDREN];
    let expected = [
        ENTER.to_vec(),
        WATCH.to_vec(),
        list,
        LET_GO.to_vec(),
        vec![op::DELETE],
    ];
    assert_eq!(scene.tap.take(), expected);
}

#[test]
fn who_has_waited_for_long_lists_and_proves_the_session_in_one_write() {
    let list_and_prove = vec![op::GET_CHILDREN, op::MULTI];
    let expected = [
        ENTER.to_vec(),
        WATCH.to_vec(),
        list_and_prove,
        LET_GO.to_vec(),
        vec![op::DELETE],
    ];
    assert_eq!(after_waits(3, LONG, Duration::ZERO), expected);
}

/// A writer may have become a reader, so a writer behind it looks again. Readers behind it may be many, and prove their
/// nodes only when it is their turn.
#[test]
fn behind_a_writer_no_reader_lists_again_and_behind_a_reader_no_writer_does() {
    type Lock = fn(&RwLock, LockOptions<'_>);
    let read: Lock = |lock, options| drop(lock.read_with(options).unwrap().unwrap());
    let write: Lock = |lock, options| drop(lock.write_with(options).unwrap().unwrap());
    let (behind_a_writer, behind_a_reader) = (true, false);
    for (ahead_writes, waits, pause, then) in [
        (behind_a_writer, read, Duration::ZERO, None),
        (behind_a_writer, read, LONG, Some(op::MULTI)),
        (behind_a_reader, write, Duration::ZERO, None),
        (
            behind_a_writer,
            write,
            Duration::ZERO,
            Some(op::GET_CHILDREN),
        ),
    ] {
        let scene = Scene::with_timeout("rwlock", SHORT);
        let (lock, ahead) = [&scene.client, &scene.connect()]
            .map(|client| client.rwlock(&scene.path).unwrap())
            .into();
        let ahead: Box<dyn Any> = match ahead_writes {
            true => Box::new(ahead.write().unwrap()),
            false => Box::new(ahead.read().unwrap()),
        };
        let (told, waiting) = bounded(1);
        thread::scope(|scope| {
            scope.spawn(|| {
                waits(
                    &lock,
                    LockOptions::new().on_wait(|_| told.send(()).unwrap()),
                )
            });
            waiting.recv().unwrap();
            thread::sleep(pause);
            scene.tap.write_down(&LET_GO);
            drop(ahead);
        });
        scene.tap.wait_for(op::DELETE);
        let sent = scene.tap.take();
        let gone = sent.iter().position(|write| *write == LET_GO).unwrap();
        let then: Vec<_> = then.into_iter().chain([op::DELETE]).collect();
        assert_eq!(sent[gone + 1..].concat(), then, "{sent:?}");
    }
}

#[test]
fn who_is_next_for_long_has_its_node_confirmed_meanwhile_and_asks_nothing_when_its_turn_comes() {
    let sent = after_waits(2, Duration::ZERO, LONG);
    let (before, rest) = sent.split_at(2);
    let (proofs, turn) = rest.split_at(rest.len() - 2);
    assert_eq!(before, [ENTER.to_vec(), WATCH.to_vec()]);
    assert_eq!(turn, [LET_GO.to_vec(), vec![op::DELETE]]);
    let most = 1 + (LONG.as_millis() / (SHORT / 8).as_millis()) as usize;
    assert!((1..=most).contains(&proofs.len()), "{sent:?}");
    assert!(proofs.iter().all(|one| *one == [op::MULTI]), "{sent:?}");
}

/// Returns the requests of a waiter for this many others in a short session, if the first and the last one hold
/// for this long.
fn after_waits(others: usize, first: Duration, last: Duration) -> Vec<Vec<i32>> {
    let scene = Scene::with_timeout("proof", SHORT);
    scene.lock_behind_others(others, first, last);
    scene.tap.take()
}

#[test]
fn who_evicts_the_overdue_looks_at_a_new_head_when_the_queue_moves() {
    let scene = Scene::new("overdue");
    let [one, other] = &[scene.connect(), scene.connect()];
    let lock = &|client: &Client| client.mutex(&scene.path).unwrap().lock().unwrap();
    let first = lock(one);
    thread::scope(|scope| {
        // However this ends, the second one goes on.
        let (tell, told) = bounded::<()>(0);
        scope.spawn(move || {
            let _guard = lock(other);
            told.recv().unwrap_err();
        });
        wait_for_queue(one, &scene.path, 2);
        scope.spawn(|| {
            let minute = Duration::from_secs(60);
            let options = LockOptions::new().evict_overdue(minute, minute);
            let mutex = scene.client.mutex(&scene.path).unwrap();
            drop(mutex.lock_with(options).unwrap());
        });
        let looks_at_the_head = || {
            eventually("it looks at the head", || {
                scene.tap.log().contains(&vec![op::EXISTS])
            });
        };
        looks_at_the_head();
        scene.tap.take();
        let moved = Instant::now();
        drop(first);
        looks_at_the_head();
        // Otherwise that would take a minute.
        assert!(moved.elapsed() < Duration::from_secs(30), "{moved:?}");
        drop(tell);
    });
}

#[test]
fn who_may_evict_the_overdue_only_reads_until_a_time_is_up() {
    let scene = Scene::new("patient");
    let holder = scene.connect();
    let _guard = holder.mutex(&scene.path).unwrap().lock().unwrap();
    let (hour, soon) = (Duration::from_secs(3600), Duration::from_millis(100));
    let options = LockOptions::new().evict_overdue(hour, soon);
    let limit = Duration::from_secs(1);
    let mutex = scene.client.mutex(&scene.path).unwrap();
    let waited = mutex.lock_with(options.timeout(limit)).unwrap();
    assert!(waited.is_none());
    let sent = scene.tap.take().concat();
    let count = |wanted| sent.iter().filter(|op| **op == wanted).count();
    assert!(4 < count(op::GET_CHILDREN), "{sent:?}");
    // The waiter deletes its own node.
    assert!(count(op::DELETE) <= 1, "{sent:?}");
}

#[test]
fn a_release_wakes_nobody_but_the_next_two() {
    let scene = Scene::new("herd");
    let hosts = scene.server.hosts();
    let clients: Vec<_> = (0..3).map(|_| Client::connect(hosts).unwrap()).collect();
    let holder = clients[0].mutex(&scene.path).unwrap().lock().unwrap();
    let (to, positions) = crossbeam_channel::unbounded();
    thread::scope(|scope| {
        for (client, ahead) in clients[1..].iter().zip(1..) {
            let mutex = client.mutex(&scene.path).unwrap();
            scope.spawn(move || mutex.lock().unwrap().unlock().unwrap());
            wait_for_queue(&scene.connect(), &scene.path, ahead + 1);
        }
        scope.spawn(|| scene.lock_telling(to));
        assert_eq!(positions.recv(), Ok(3));
        drop(holder);
    });
    // However many there were before, the waiter looks once at the nearest ones.
    let sent = scene.tap.take().concat();
    let listings = sent.iter().filter(|op| **op == op::GET_CHILDREN).count();
    assert_eq!(listings, 2, "{sent:?}");
}

#[test]
fn who_waits_for_a_permit_lists_them_when_one_is_given_back_and_not_before() {
    // In kazoo's layout, no node of ours is among the permits before there is room.
    for (dialect, expected) in [(Dialect::Curator, 1), (Dialect::Kazoo, 2)] {
        let server = Server::start().unwrap();
        let tap = Tap::start(server.hosts());
        let semaphore = |hosts: &str| {
            let client = Client::builder(hosts).dialect(dialect).connect().unwrap();
            client.semaphore("/permits", 1).unwrap()
        };
        let (ours, theirs) = (semaphore(server.hosts()), semaphore(&tap.hosts));
        let permit = ours.acquire().unwrap();
        // The next client must be first in the line at once.
        let mut witness = Raw::connect(server.hosts());
        eventually("the line is empty", || {
            let mut empty = |dir: &str| witness.children(dir).is_none_or(|all| all.is_empty());
            empty("/permits/locks") && empty("/permits-__lock__")
        });
        let (told, waits) = bounded(1);
        let listings = || {
            let sent = tap.take().concat();
            sent.iter().filter(|op| **op == op::GET_CHILDREN).count()
        };
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let options = LockOptions::new().on_wait(|_| {
                    let _ = told.try_send(());
                });
                drop(theirs.acquire_with(options).unwrap().unwrap());
            });
            waits.recv().unwrap();
            listings();
            // In this time, a client that polls would be noticed.
            thread::sleep(Duration::from_millis(300));
            assert_eq!(listings(), 0, "{dialect:?}");
            drop(permit);
            waiter.join().unwrap();
        });
        assert_eq!(listings(), expected, "{dialect:?}");
    }
}

#[test]
fn an_idle_client_sends_nothing_but_pings() {
    let server = Server::start().unwrap();
    let tap = Tap::start(server.hosts());
    let timeout = Duration::from_millis(1000);
    let client = Client::builder(&tap.hosts).session_timeout(timeout);
    let client = client.connect().unwrap();
    let path = fresh_path("idle");
    lock(&client.mutex(&path).unwrap());
    tap.take();
    let pings = || {
        tap.log()
            .iter()
            .flatten()
            .filter(|op| **op == op::PING)
            .count()
    };
    eventually("three pings", || pings() >= 3);
    assert_eq!(tap.take(), Vec::<Vec<i32>>::new());
}

#[test]
fn a_free_lock_and_its_release_wait_for_one_round_trip() {
    let slow = Slow::new("slow");
    let mutex = slow.client.mutex(&slow.path).unwrap();
    mutex.lock().unwrap().unlock().unwrap();
    slow.proxy.delay(DELAY);
    slow.within(ROUND_TRIP * 7 / 4, || {
        let begun = Instant::now();
        drop(mutex.lock().unwrap());
        begun.elapsed()
    });
}

#[test]
fn the_first_lock_of_a_process_and_its_end_wait_for_four_round_trips() {
    let slow = Slow::new("slow-first");
    let mutex = slow.client.mutex(&slow.path).unwrap();
    mutex.lock().unwrap().unlock().unwrap();
    slow.proxy.delay(DELAY);
    // These are a session, the lock, its release, and the end of the session.
    slow.within(ROUND_TRIP * 19 / 4, || {
        let begun = Instant::now();
        let client = Client::connect(&slow.proxy.hosts()).unwrap();
        let mutex = client.mutex(&slow.path).unwrap();
        mutex.lock().unwrap().unlock().unwrap();
        client.close().unwrap();
        begun.elapsed()
    });
}

#[test]
fn a_hand_off_between_two_waits_for_two_one_way_trips() {
    let slow = Slow::new("slow-two");
    let other = Client::connect(&slow.proxy.hosts()).unwrap();
    let (mine, theirs) = (
        slow.client.mutex(&slow.path).unwrap(),
        other.mutex(&slow.path).unwrap(),
    );
    slow.proxy.delay(DELAY);
    slow.within(ROUND_TRIP * 7 / 4, || {
        let holder = mine.lock().unwrap();
        slow.hand_off(&[&theirs], holder)
    });
}

#[test]
fn a_hand_off_in_a_queue_waits_for_two_one_way_trips_too() {
    let slow = Slow::new("slow-three");
    let hosts = slow.proxy.hosts();
    let (one, two) = (
        Client::connect(&hosts).unwrap(),
        Client::connect(&hosts).unwrap(),
    );
    let mine = slow.client.mutex(&slow.path).unwrap();
    let (one, two) = (
        one.mutex(&slow.path).unwrap(),
        two.mutex(&slow.path).unwrap(),
    );
    slow.proxy.delay(DELAY);
    // The limit counts twice, because there are two hand-offs.
    slow.within(2 * ROUND_TRIP * 5 / 4, || {
        let holder = mine.lock().unwrap();
        slow.hand_off(&[&one, &two], holder)
    });
}

#[test]
fn who_has_asked_already_does_not_ask_again_when_the_queue_moves_on() {
    let slow = Slow::new("slow-third");
    let [zero, one, two] = [(); 3].map(|()| Client::connect(slow.server.hosts()).unwrap());
    let holder = zero.mutex(&slow.path).unwrap().lock().unwrap();
    let (one, two) = (
        one.mutex(&slow.path).unwrap(),
        two.mutex(&slow.path).unwrap(),
    );
    let third = slow.client.mutex(&slow.path).unwrap();
    let listings = || slow.proxy.requests(op::GET_CHILDREN);
    thread::scope(|scope| {
        scope.spawn(|| drop(one.lock().unwrap()));
        wait_for_queue(&slow.client, &slow.path, 2);
        let next = scope.spawn(|| drop(two.lock().unwrap()));
        wait_for_queue(&slow.client, &slow.path, 3);
        let watches = slow.proxy.requests(op::GET_DATA);
        let last = scope.spawn(|| drop(third.lock().unwrap()));
        eventually("the third watches both, and its own node", || {
            slow.proxy.requests(op::GET_DATA) == watches + 3
        });
        let before = listings();
        // Both nodes are gone before the server receives the third client's request about the first.
        slow.proxy.delay(DELAY);
        drop(holder);
        next.join().unwrap();
        last.join().unwrap();
        assert_eq!(listings(), before + 1);
    });
}

#[test]
fn the_program_asks_at_most_half_more_than_the_calls_it_stands_for() {
    /// A session timeout so long that no lock is proven again because the machine is busy.
    const LASTS: Duration = Duration::from_secs(40);

    let scene = Scene::new("program");
    let requests_of = |act: &dyn Fn(&str)| {
        let tap = Tap::start(scene.server.hosts());
        act(&tap.hosts);
        tap.log().concat()
    };
    let spawn = |command: &mut Command| assert!(command.status().unwrap().success());
    let naked = requests_of(&|hosts| {
        let client = Client::builder(hosts).session_timeout(LASTS);
        let client = client.connect().unwrap();
        let guard = client.mutex(&scene.path).unwrap().lock().unwrap();
        spawn(&mut Command::new("true"));
        guard.unlock().unwrap();
        client.close().unwrap();
    });
    let program = requests_of(&|hosts| {
        let mut zklock = Command::new(program());
        zklock.args(["--hosts", hosts, "--session-timeout", "40", "run"]);
        spawn(zklock.args([&scene.path, "--", "true"]));
    });
    let (few, many) = (naked.len(), program.len());
    // One read is for the note by which the next command begins at once.
    assert!(2 * many <= 3 * few, "{program:?} and {naked:?}");
}

#[test]
fn a_thread_in_line_is_queued_by_the_release_of_the_one_before_it() {
    let scene = Scene::new("line");
    let [ahead, one, other] = [(); 3].map(|()| scene.connect());
    let lock = |client: &Client| client.mutex(&scene.path).unwrap().lock().unwrap();
    let mut ahead = Some(lock(&ahead));
    let options = LockOptions::new().on_wait(|_| drop(ahead.take()));
    let mutex = scene.client.mutex(&scene.path).unwrap();
    let guard = mutex.lock_with(options).unwrap();
    let (to, positions) = crossbeam_channel::unbounded();
    thread::scope(|scope| {
        scope.spawn(|| {
            let guard = lock(&one);
            // Before that, it stands behind a thread of its client.
            while positions.recv() != Ok(2) {}
            drop(guard);
        });
        wait_for_queue(&scene.connect(), &scene.path, 2);
        scope.spawn(|| drop(lock(&other)));
        wait_for_queue(&scene.connect(), &scene.path, 3);
        let next = scope.spawn(|| scene.lock_telling(to));
        wait_for_line(&scene.client, 1);
        scene.tap.take();
        drop(guard);
        next.join().unwrap();
    });
    // These are a look at its own node and at the two ahead, as if it had been created alone.
    let expected = [
        vec![op::MULTI, op::GET_CHILDREN],
        WATCH.to_vec(),
        vec![op::DELETE],
    ];
    assert_eq!(scene.tap.take(), expected);
}
