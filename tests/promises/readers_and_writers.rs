//! Two hundred readers and four writers on one read-write lock.
//!
//! Each visitor notes when it came in and left, by a clock that counts such moments. The checks
//! read these notes afterwards, so that they change nothing.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use zklock::{FencingToken, LockGuard, LockOptions, RwLock, Waiting};

use crate::support::{fresh_path, lasting};
use crate::transport::{Place, on_every_server, wait_for_queue};

const CLIENTS: usize = 20;
const READERS: usize = 200;
const WRITERS: usize = 4;

// Over a handle the lock is the same, and that many clients of it are a thousand threads.
on_every_server! {
    writers_are_alone_and_nobody_is_overtaken
}

fn writers_are_alone_and_nobody_is_overtaken(place: Place) {
    check(&run(place, lasting(5)));
}

/// A client that comes again and again.
struct Visitor {
    writes: bool,
    stays: Vec<Stay>,
}

/// A stay inside, in ticks of the [`Clock`].
#[derive(Clone, Copy, Debug)]
struct Stay {
    token: FencingToken,
    writes: bool,
    /// A time when the visitor was certainly in the queue, if it had to wait.
    queued: Option<usize>,
    entered: usize,
    left: usize,
}

#[derive(Debug, Default)]
struct Clock(AtomicUsize);

impl Clock {
    fn tick(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

fn run(place: Place, duration: Duration) -> Vec<Visitor> {
    let (hosts, path) = (place.shared().hosts(), fresh_path("catalogue"));
    let connect = |_| place.connect(&hosts);
    let clients: Vec<_> = (0..CLIENTS).map(connect).collect();
    let (clock, end) = (Clock::default(), Instant::now() + duration);
    let visitors = thread::scope(|scope| {
        let visit = |i: usize| {
            let lock = clients[i % CLIENTS].rwlock(&path).unwrap();
            let clock = &clock;
            scope.spawn(move || visit_until(end, &lock, i < WRITERS, clock))
        };
        let threads: Vec<_> = (0..WRITERS + READERS).map(visit).collect();
        let ended = threads.into_iter().map(|thread| thread.join().unwrap());
        ended.collect()
    });
    wait_for_queue(&clients[0], &path, 0);
    visitors
}

fn visit_until(end: Instant, lock: &RwLock, writes: bool, clock: &Clock) -> Visitor {
    let mut stays = Vec::new();
    // Every visitor gets in once, however slow the machine is.
    while stays.is_empty() || Instant::now() < end {
        let mut queued = None;
        let options = LockOptions::new().on_wait(|_: &Waiting| {
            queued.get_or_insert_with(|| clock.tick());
        });
        let (entered, token, left) = if writes {
            let guard = lock.write_with(options).unwrap().unwrap();
            stay(&guard, guard.fencing_token(), clock)
        } else {
            let guard = lock.read_with(options).unwrap().unwrap();
            stay(&guard, guard.fencing_token(), clock)
        };
        stays.push(Stay {
            token,
            writes,
            queued,
            entered,
            left,
        });
    }
    Visitor { writes, stays }
}

fn stay(
    guard: &impl LockGuard,
    token: FencingToken,
    clock: &Clock,
) -> (usize, FencingToken, usize) {
    let entered = clock.tick();
    thread::yield_now();
    guard.check().unwrap();
    (entered, token, clock.tick())
}

fn check(visitors: &[Visitor]) {
    let mut stays: Vec<_> = visitors
        .iter()
        .flat_map(|visitor| &visitor.stays)
        .copied()
        .collect();
    stays.sort_by_key(|stay| stay.token);
    let writes = stays.iter().filter(|stay| stay.writes);
    println!(
        "{} stays, {} of them writers'",
        stays.len(),
        writes.clone().count()
    );
    assert_order(&stays);
    for write in writes {
        assert_served_in_one_generation(write, visitors);
    }
}

/// Checks that visitors that came before a writer have left when it enters, and that those that
/// came after it enter when it has left: the writer was alone, and the order was that of arrival.
fn assert_order(stays: &[Stay]) {
    let mut last_left = None;
    let mut last_writer: Option<&Stay> = None;
    for stay in stays {
        if let Some(writer) = last_writer {
            assert!(writer.left < stay.entered, "{writer:?} and {stay:?}");
        }
        if stay.writes {
            assert!(last_left < Some(stay.entered), "{stay:?} is not alone");
            last_writer = Some(stay);
        }
        last_left = last_left.max(Some(stay.left));
    }
}

/// Checks that nobody gets in twice while a writer waits.
fn assert_served_in_one_generation(write: &Stay, visitors: &[Visitor]) {
    let Some(queued) = write.queued else { return };
    for visitor in visitors {
        let before = |time| visitor.stays.partition_point(|stay| stay.entered < time);
        let meanwhile = before(write.entered) - before(queued);
        let who = if visitor.writes { "writer" } else { "reader" };
        assert!(
            meanwhile <= 1,
            "a {who} came in {meanwhile} times during {write:?}"
        );
    }
}
