//! What a lock costs: requests, writes and round trips, counted on the way to the server.
//!
//! Counts are the same on every machine. Where time is the question, the network is made
//! so slow that nothing else matters.

mod support;

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use support::proxy::Proxy;
use support::raw::{Raw, op};
use support::{eventually, fresh_path};
use zklock::embedded::Server;
use zklock::{Client, Dialect, LockOptions, MutexGuard};

/// What a free lock is taken with, in one write.
const ENTER: [i32; 2] = [op::CREATE2, op::GET_CHILDREN];

/// What who has several ahead watches, in one write: its own node, and those of the two
/// that are nearest.
const WATCH: [i32; 3] = [op::EXISTS, op::GET_DATA, op::GET_DATA];

/// Stands for the moment when the one that is nearest lets go.
const LET_GO: [i32; 0] = [];

/// A short session, and a time after which it has to be proven again.
const SHORT: Duration = Duration::from_secs(8);
const LONG: Duration = Duration::from_millis(2200);

/// Each way; nothing else in a lock takes nearly as long.
const DELAY: Duration = Duration::from_millis(100);
const ROUND_TRIP: Duration = Duration::from_millis(200);

#[test]
fn a_free_lock_costs_one_write_of_two_requests_and_its_release_another() {
    let scene = Scene::new("uncontended");
    let mutex = scene.client.mutex(&scene.path).unwrap();
    drop(mutex.lock().unwrap());
    scene.tap.settle(3);
    scene.tap.take();
    for _ in 0..20 {
        mutex.lock().unwrap().unlock().unwrap();
    }
    let expected: Vec<Vec<i32>> = (0..20)
        .flat_map(|_| [ENTER.to_vec(), vec![op::DELETE]])
        .collect();
    assert_eq!(scene.tap.take(), expected);
}

#[test]
fn trying_a_taken_lock_reads_once_and_writes_nothing() {
    let scene = Scene::new("taken");
    let other = Client::connect(scene.server.hosts()).unwrap();
    let _guard = other.mutex(&scene.path).unwrap().lock().unwrap();
    let mutex = scene.client.mutex(&scene.path).unwrap();
    for _ in 0..5 {
        assert!(mutex.try_lock().unwrap().is_none());
    }
    assert_eq!(scene.tap.take(), vec![vec![op::GET_CHILDREN]; 5]);
}

#[test]
fn a_hand_off_between_two_lists_nothing_but_what_came_with_the_create() {
    let scene = Scene::new("two");
    let other = Client::connect(scene.server.hosts()).unwrap();
    let holder = other.mutex(&scene.path).unwrap().lock().unwrap();
    scene.lock_behind(holder);
    let watch = vec![op::EXISTS, op::GET_DATA];
    let expected = [ENTER.to_vec(), watch, vec![op::DELETE]];
    assert_eq!(scene.tap.take(), expected);
}

#[test]
fn in_a_longer_queue_the_one_listing_is_sent_while_another_holds() {
    let scene = Scene::new("three");
    scene.lock_behind_two(Duration::ZERO, Duration::ZERO);
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
    assert_eq!(after_waits(LONG, Duration::ZERO), expected);
}

#[test]
fn who_was_the_next_for_long_does_both_once_more() {
    let expected = [
        ENTER.to_vec(),
        WATCH.to_vec(),
        vec![op::GET_CHILDREN],
        LET_GO.to_vec(),
        vec![op::GET_CHILDREN, op::MULTI],
        vec![op::DELETE],
    ];
    assert_eq!(after_waits(Duration::ZERO, LONG), expected);
}

/// What is sent in a short session by who waits for two others, for so long each.
fn after_waits(first: Duration, second: Duration) -> Vec<Vec<i32>> {
    let scene = Scene::with_timeout("proof", SHORT);
    scene.lock_behind_two(first, second);
    scene.tap.take()
}

#[test]
fn a_release_wakes_nobody_but_the_next_two() {
    let scene = Scene::new("herd");
    let hosts = scene.server.hosts();
    let clients: Vec<_> = (0..3).map(|_| Client::connect(hosts).unwrap()).collect();
    let holder = clients[0].mutex(&scene.path).unwrap().lock().unwrap();
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (client, ahead) in clients[1..].iter().chain([&scene.client]).zip(1..) {
            let mutex = client.mutex(&scene.path).unwrap();
            threads.push(scope.spawn(move || mutex.lock().unwrap().unlock().unwrap()));
            scene.wait_for_contenders(ahead + 1);
        }
        scene.tap.settle(ENTER.len() + WATCH.len());
        drop(holder);
        for thread in threads {
            thread.join().unwrap();
        }
    });
    // However many there were before: one look at those that are near.
    let sent = scene.tap.take().concat();
    let listings = sent.iter().filter(|op| **op == op::GET_CHILDREN).count();
    assert_eq!(listings, 2, "{sent:?}");
}

#[test]
fn who_waits_for_a_permit_lists_them_when_one_is_given_back_and_not_before() {
    // In kazoo's layout nothing of ours is among the permits before there is room.
    for (dialect, expected) in [(Dialect::Curator, 1), (Dialect::Kazoo, 2)] {
        let server = Server::start().unwrap();
        let tap = Tap::start(server.hosts());
        let semaphore = |hosts: &str| {
            let client = Client::builder(hosts).dialect(dialect).connect().unwrap();
            client.semaphore("/permits", 1).unwrap()
        };
        let (ours, theirs) = (semaphore(server.hosts()), semaphore(&tap.hosts));
        let permit = ours.acquire().unwrap();
        // Who comes is to be the first in the line at once.
        let mut witness = Raw::connect(server.hosts());
        eventually("the line is empty", || {
            let mut empty = |dir: &str| witness.children(dir).is_none_or(|all| all.is_empty());
            empty("/permits/locks") && empty("/permits-__lock__")
        });
        let (told, waits) = crossbeam_channel::bounded(1);
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
            // Long enough for who polls to be seen.
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
    client
        .mutex(&path)
        .unwrap()
        .lock()
        .unwrap()
        .unlock()
        .unwrap();
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
    // Twice: there are two hand-offs.
    slow.within(2 * ROUND_TRIP * 5 / 4, || {
        let holder = mine.lock().unwrap();
        slow.hand_off(&[&one, &two], holder)
    });
}

#[test]
fn who_has_asked_already_does_not_ask_again_when_the_queue_moves_on() {
    let slow = Slow::new("slow-third");
    let [one, two] = [(); 2].map(|()| Client::connect(slow.server.hosts()).unwrap());
    let (one, two) = (
        one.mutex(&slow.path).unwrap(),
        two.mutex(&slow.path).unwrap(),
    );
    let third = slow.client.mutex(&slow.path).unwrap();
    let listings = || slow.proxy.requests(op::GET_CHILDREN);
    let holder = one.lock().unwrap();
    thread::scope(|scope| {
        let next = scope.spawn(|| drop(two.lock().unwrap()));
        slow.wait_for_contenders(2);
        let watches = slow.proxy.requests(op::GET_DATA);
        let last = scope.spawn(|| drop(third.lock().unwrap()));
        eventually("the third watches both", || {
            slow.proxy.requests(op::GET_DATA) == watches + 2
        });
        let before = listings();
        // Both have gone before the server hears what the third asks of the first.
        slow.proxy.delay(DELAY);
        drop(holder);
        next.join().unwrap();
        last.join().unwrap();
        assert_eq!(listings(), before + 1);
    });
}

/// A server, and a client whose way to it is tapped.
struct Scene {
    server: Server,
    tap: Tap,
    client: Client,
    path: String,
}

impl Scene {
    /// The session is so long that nothing is proven again because the machine is busy.
    fn new(name: &str) -> Self {
        Self::with_timeout(name, Duration::from_secs(40))
    }

    fn with_timeout(name: &str, timeout: Duration) -> Self {
        let server = Server::start().unwrap();
        let tap = Tap::start(server.hosts());
        let client = Client::builder(&tap.hosts).session_timeout(timeout);
        let client = client.connect().unwrap();
        let path = fresh_path(name);
        // The directory is there, and the first cycle over.
        let warm = Client::connect(server.hosts()).unwrap();
        warm.mutex(&path).unwrap().lock().unwrap().unlock().unwrap();
        Self {
            server,
            tap,
            client,
            path,
        }
    }

    /// Queues the tapped client behind two others, which hold for so long each, and the
    /// second until the tapped one has looked at the queue.
    fn lock_behind_two(&self, first: Duration, second: Duration) {
        let (one, other) = (self.connect(), self.connect());
        let holder = one.mutex(&self.path).unwrap().lock().unwrap();
        thread::scope(|scope| {
            let mutex = other.mutex(&self.path).unwrap();
            let next = scope.spawn(move || {
                let guard = mutex.lock().unwrap();
                self.tap.settle(ENTER.len() + WATCH.len() + 1);
                thread::sleep(second);
                self.tap.write_down(&LET_GO);
                guard.unlock().unwrap();
            });
            self.wait_for_contenders(2);
            let mutex = self.client.mutex(&self.path).unwrap();
            let last = scope.spawn(move || mutex.lock().unwrap().unlock().unwrap());
            self.wait_for_contenders(3);
            self.tap.settle(ENTER.len() + WATCH.len());
            thread::sleep(first);
            drop(holder);
            next.join().unwrap();
            last.join().unwrap();
        });
    }

    fn connect(&self) -> Client {
        Client::connect(self.server.hosts()).unwrap()
    }

    /// Queues the tapped client behind `holder`, which goes then, and lets it through.
    fn lock_behind(&self, holder: MutexGuard) {
        let mutex = self.client.mutex(&self.path).unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| mutex.lock().unwrap().unlock().unwrap());
            self.wait_for_contenders(2);
            self.tap.settle(4);
            drop(holder);
            waiter.join().unwrap();
        });
    }

    fn wait_for_contenders(&self, count: usize) {
        let client = Client::connect(self.server.hosts()).unwrap();
        eventually("the queue is as long", || {
            client.contenders(&self.path).unwrap().len() >= count
        });
    }
}

/// A client whose way to the server is long.
struct Slow {
    proxy: Proxy,
    client: Client,
    path: String,
    server: Server,
}

impl Slow {
    fn new(name: &str) -> Self {
        let server = Server::start().unwrap();
        let proxy = Proxy::start(server.hosts());
        let client = Client::connect(&proxy.hosts()).unwrap();
        let path = fresh_path(name);
        Self {
            proxy,
            client,
            path,
            server,
        }
    }

    /// The best of a few tries, so that a busy machine does not matter.
    #[track_caller]
    fn within(&self, limit: Duration, mut attempt: impl FnMut() -> Duration) {
        let mut best = Duration::MAX;
        for _ in 0..5 {
            best = best.min(attempt());
            if best < limit {
                return;
            }
        }
        panic!("{best:?} where {limit:?} is too much");
    }

    /// How long it takes from a release until the last of the waiters has had the lock.
    fn hand_off(&self, waiters: &[&zklock::Mutex], holder: MutexGuard) -> Duration {
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for (mutex, ahead) in waiters.iter().zip(1..) {
                let wait = || {
                    let guard = mutex.lock().unwrap();
                    let got = Instant::now();
                    drop(guard);
                    got
                };
                threads.push(scope.spawn(wait));
                self.wait_for_contenders(ahead + 1);
            }
            // The watch of the last one is set a round trip after its node.
            thread::sleep(2 * ROUND_TRIP);
            let released = Instant::now();
            drop(holder);
            let got = threads.into_iter().map(|thread| thread.join().unwrap());
            got.max().unwrap() - released
        })
    }

    fn wait_for_contenders(&self, count: usize) {
        eventually("the queue is as long", || {
            self.client.contenders(&self.path).unwrap().len() >= count
        });
    }
}

/// A way to a server on which all that passes is written down.
struct Tap {
    hosts: String,
    log: Arc<Mutex<Vec<Vec<i32>>>>,
}

impl Tap {
    fn start(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let hosts = listener.local_addr().unwrap().to_string();
        let log = Arc::<Mutex<Vec<Vec<i32>>>>::default();
        let (server, ours) = (server.to_owned(), log.clone());
        thread::spawn(move || {
            // One client, one connection.
            let (client, _) = listener.accept().unwrap();
            let server = TcpStream::connect(server).unwrap();
            for socket in [&client, &server] {
                socket.set_nodelay(true).unwrap();
            }
            let (from, to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || pass_on(from, to, |_| ()));
            let mut greeted = false;
            pass_on(client, server, move |bytes| match greeted {
                true => ours.lock().unwrap().push(opcodes(bytes)),
                false => greeted = true,
            });
        });
        Self { hosts, log }
    }

    fn log(&self) -> Vec<Vec<i32>> {
        self.log.lock().unwrap().clone()
    }

    /// What was written since the last time, but for pings: the requests of each write.
    fn take(&self) -> Vec<Vec<i32>> {
        let mut log = std::mem::take(&mut *self.log.lock().unwrap());
        log.retain(|write| *write != [op::PING]);
        for write in &mut log {
            write.retain(|op| *op != op::PING);
        }
        log
    }

    fn write_down(&self, write: &[i32]) {
        self.log.lock().unwrap().push(write.to_vec());
    }

    /// Waits until so many requests have left, without pings.
    fn settle(&self, requests: usize) {
        eventually("the requests have left", || {
            let sent = self.log().concat();
            sent.iter().filter(|op| **op != op::PING).count() >= requests
        });
    }
}

/// Passes on what one read brings in one write.
fn pass_on(mut from: TcpStream, mut to: TcpStream, mut seen: impl FnMut(&[u8])) {
    let mut bytes = vec![0; 1 << 20];
    let ended: io::Result<()> = (|| {
        loop {
            let read = from.read(&mut bytes)?;
            if read == 0 {
                return Ok(());
            }
            seen(&bytes[..read]);
            to.write_all(&bytes[..read])?;
        }
    })();
    drop(ended);
    drop(to.shutdown(Shutdown::Both));
}

fn opcodes(mut bytes: &[u8]) -> Vec<i32> {
    let int = |at: usize, bytes: &[u8]| i32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut all = Vec::new();
    while !bytes.is_empty() {
        all.push(int(8, bytes));
        bytes = &bytes[4 + int(0, bytes) as usize..];
    }
    all
}
