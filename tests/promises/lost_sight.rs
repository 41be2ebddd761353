//! What a waiter is told about those ahead, if it could not see all of them.

use std::convert::Infallible;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use zklock::{Client, JobOptions, LockGuard, LockOptions, Result};

use crate::support::proxy::Proxy;
use crate::support::raw::{Raw, children, wait_for_children};
use crate::support::{aside, eventually, fresh_path};
use crate::transport::{Place, SOON, on_every_server};

on_every_server! {
    who_waits_in_one_session_sees_all_release_in_order
    who_queues_again_in_another_session_has_not_seen_all
    a_job_that_is_lost_before_it_begins_has_not_seen_all
    who_waited_for_permits_of_another_number_has_not_seen_all
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Mutex,
    MultiLock,
    Semaphore(u32),
    Job,
}

const KINDS: [Kind; 4] = [Kind::Mutex, Kind::MultiLock, Kind::Semaphore(1), Kind::Job];

/// A contender that wants a lock, and holds it until it is told to leave.
struct Contender {
    waits: Receiver<()>,
    /// Whether all ahead released in order.
    inside: Receiver<Option<bool>>,
    leave: Sender<()>,
    ended: Receiver<Result<()>>,
}

impl Contender {
    /// Starts a contender. If the lock is a job, a later contender has a later slot.
    fn start(kind: Kind, client: Client, path: &str, slot: &'static str) -> Self {
        let (wait, waits) = unbounded();
        let (enter, inside) = bounded(1);
        let (leave, leaving) = bounded(1);
        let path = path.to_owned();
        let ended = aside(move || {
            let waits = move || wait.send(()).unwrap();
            let inside = |follows: Option<bool>| {
                enter.send(follows).unwrap();
                let _ = leaving.recv();
            };
            let options = LockOptions::new().sees_ahead().timeout(3 * SOON);
            let options = options.on_wait(|_| waits());
            match kind {
                Kind::Mutex => stay(client.mutex(&path)?.lock_with(options)?, inside),
                Kind::MultiLock => stay(client.multi_lock([&*path])?.lock_with(options)?, inside),
                Kind::Semaphore(permits) => {
                    let semaphore = client.semaphore(&path, permits)?;
                    stay(semaphore.acquire_with(options)?, inside)
                }
                Kind::Job => {
                    let options = JobOptions::new().on_wait(|_| waits());
                    let run = |run: &zklock::Run<'_>| {
                        inside(run.follows_release());
                        Ok::<_, Infallible>(())
                    };
                    client.job(&path)?.once_with(slot, options, run).map(drop)
                }
            }
        });
        Self {
            waits,
            inside,
            leave,
            ended,
        }
    }

    /// Waits until the contender waits.
    fn await_wait(&self) {
        self.waits.recv_timeout(SOON).expect("others ahead");
    }

    /// Waits until the contender has the lock; returns whether all ahead released in order.
    fn follows_release(&self) -> Option<bool> {
        self.inside.recv_timeout(SOON).expect("the lock")
    }

    fn end(self) -> Result<()> {
        self.leave.send(()).unwrap();
        self.ended.recv_timeout(SOON).expect("an end")
    }
}

/// Holds the lock until it is told to leave, and then releases in order.
fn stay(guard: Option<impl LockGuard>, inside: impl FnOnce(Option<bool>)) -> Result<()> {
    let guard = guard.expect("the lock");
    let follows = guard.follows_release();
    guard.leave_note();
    inside(follows);
    guard.unlock_noting();
    guard.unlock()
}

/// Returns the directory in which the nodes of holders are.
fn dir_of(kind: Kind, path: &str) -> String {
    match kind {
        Kind::Semaphore(_) => format!("{path}/leases"),
        _ => path.to_owned(),
    }
}

/// Lets another contender get the lock, and evicts it while it is at work.
fn come_and_be_evicted(place: Place, kind: Kind, path: &str) -> Contender {
    let hosts = place.shared().hosts();
    let other = Contender::start(kind, place.connect(&hosts), path, "b");
    assert_eq!(other.follows_release(), None, "{kind:?}");
    let dir = dir_of(kind, path);
    let [node] = &children(&hosts, &dir)[..] else {
        panic!("one holder in {dir}");
    };
    Raw::connect(&hosts)
        .delete(&format!("{dir}/{node}"))
        .unwrap();
    other
}

fn who_waits_in_one_session_sees_all_release_in_order(place: Place) {
    let hosts = place.shared().hosts();
    for kind in KINDS {
        let path = fresh_path("sight");
        let start = |slot| Contender::start(kind, place.connect(&hosts), &path, slot);
        let first = start("a");
        assert_eq!(first.follows_release(), None, "{kind:?}");
        let waiter = start("c");
        waiter.await_wait();
        first.end().unwrap();
        assert_eq!(waiter.follows_release(), Some(true), "{kind:?}");
        waiter.end().unwrap();
    }
}

/// Ends the session of a contender that waits behind one of the first kind, which then releases in
/// order.
fn queue_again(place: Place, first: Kind, kind: Kind) {
    let hosts = place.shared().hosts();
    let (path, network) = (fresh_path("sight"), Proxy::start(&hosts));
    let first = Contender::start(first, place.connect(&hosts), &path, "a");
    assert_eq!(first.follows_release(), None, "{kind:?}");
    let client = place.connect(&network.hosts());
    let session = client.session_id();
    let waiter = Contender::start(kind, client, &path, "c");
    waiter.await_wait();
    network.refuse();
    place.shared().expire(session);
    wait_for_children(&hosts, &dir_of(kind, &path), 1);
    first.end().unwrap();
    let _at_work = come_and_be_evicted(place, kind, &path);
    network.accept();
    assert_eq!(waiter.follows_release(), Some(false), "{kind:?}");
    waiter.end().unwrap();
}

fn who_queues_again_in_another_session_has_not_seen_all(place: Place) {
    for kind in KINDS {
        queue_again(place, kind, kind);
    }
}

/// The contender waits in the line for permits, and not for a permit.
fn who_waited_for_permits_of_another_number_has_not_seen_all(place: Place) {
    queue_again(place, Kind::Semaphore(2), Kind::Semaphore(1));
}

/// The session ends when the job has got the lock, and is about to write that it begins.
fn a_job_that_is_lost_before_it_begins_has_not_seen_all(place: Place) {
    let hosts = place.shared().hosts();
    let (path, network) = (fresh_path("sight"), Proxy::start(&hosts));
    let first = Contender::start(Kind::Job, place.connect(&hosts), &path, "a");
    assert_eq!(first.follows_release(), None);
    let client = place.connect(&network.hosts());
    let session = client.session_id();
    let waiter = Contender::start(Kind::Job, client, &path, "c");
    waiter.await_wait();
    network.blackhole_at_next_request(crate::support::raw::op::MULTI);
    first.end().unwrap();
    eventually("it is about to begin", || network.fired());
    place.shared().expire(session);
    let _at_work = come_and_be_evicted(place, Kind::Job, &path);
    network.heal();
    assert_eq!(waiter.follows_release(), Some(false));
    waiter.end().unwrap();
}
