//! Many contenders of several kinds on one path.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::Select;
use parking_lot::Mutex;

use super::contender::{Contender, Said};
use super::kinds::Kind;
use super::peer::{Peer, server};
use crate::support::raw::Raw;
use crate::support::{Ends, eventually, fresh_path, lasting};

/// How much longer the traffic may last, until a contender of each kind was inside.
const MORE: Duration = Duration::from_secs(60);

/// Lets `first` hold, queues `each` of each kind behind it in random order, and checks that
/// they are served in the order of their numbers.
pub(crate) fn queue_in_order(first: Kind, kinds: &[Kind], each: usize) {
    let server = server();
    let (hosts, path) = (server.hosts(), fresh_path("queue"));
    let holder = first.contender(&hosts);
    holder.lock(first.word, &path);
    holder.held();
    let kinds = kinds.iter().filter(|kind| kind.is_here());
    let mut crowd: Vec<_> = kinds
        .flat_map(|kind| (0..each).map(|_| (*kind, kind.contender(&hosts))))
        .collect();
    fastrand::shuffle(&mut crowd);
    for (kind, contender) in &crowd {
        contender.lock(kind.word, &path);
    }
    let mut witness = Raw::connect(&hosts);
    eventually("all are in the queue", || {
        witness
            .children(&path)
            .is_some_and(|all| all.len() == crowd.len() + 1)
    });

    holder.release();
    let mut served = 0;
    while served < crowd.len() {
        let (kind, contender, node) = next_held(&crowd);
        let left = witness.children(&path).expect("the directory");
        let late = overtaken(&node, kind, &left);
        assert!(late.is_empty(), "{node} came before {late:?}");
        contender.release();
        served += 1;
    }
}

/// Waits until one of the crowd holds.
fn next_held(crowd: &[(Kind, Contender)]) -> (Kind, &Contender, String) {
    let mut select = Select::new();
    for (_, contender) in crowd {
        select.recv(contender.said());
    }
    loop {
        let ready = select
            .select_timeout(Duration::from_secs(60))
            .expect("the queue moves on");
        let (kind, contender) = &crowd[ready.index()];
        match ready.recv(contender.said()) {
            Ok(Said::Held(node)) => return (*kind, contender, node),
            Ok(Said::Waiting) => {}
            other => panic!("{}: {other:?}", kind.label),
        }
    }
}

/// Returns the contenders that were ahead of this node and should have been served before it.
fn overtaken(node: &str, kind: Kind, left: &[String]) -> Vec<String> {
    let conflicts = |name: &&String| !(kind.only_reads() && reads(name));
    let earlier = |name: &&String| number(name) < number(node);
    left.iter()
        .filter(earlier)
        .filter(conflicts)
        .cloned()
        .collect()
}

fn reads(name: &str) -> bool {
    ["__READ__", "__rlock__", "-read-"]
        .iter()
        .any(|token| name.contains(token))
}

fn number(name: &str) -> i64 {
    let start = name.len().saturating_sub(10);
    name[start..]
        .parse()
        .expect("a number at the end of a node's name")
}

/// The contenders inside.
#[derive(Debug, Default)]
pub(crate) struct Room {
    inside: Mutex<Vec<Kind>>,
    visits: Mutex<Vec<Kind>>,
}

impl Room {
    fn enter(&self, kind: Kind) {
        let mut inside = self.inside.lock();
        let alone = |other: &&Kind| !(other.only_reads() && kind.only_reads());
        let others = inside.iter().filter(alone).map(|other| other.count());
        assert!(
            others.sum::<usize>() + kind.count() <= kind.permits(),
            "{kind:?} is in beside {inside:?}"
        );
        inside.push(kind);
        self.visits.lock().push(kind);
    }

    fn leave(&self, kind: Kind) {
        let mut inside = self.inside.lock();
        let place = inside.iter().position(|other| *other == kind);
        inside.swap_remove(place.expect("somebody who is inside"));
    }

    /// Returns whether each of these was in.
    pub(crate) fn saw_all(&self, crowd: &[(Kind, Contender)]) -> bool {
        crowd.iter().all(|(kind, _)| self.visits(*kind) != 0)
    }

    /// Returns how often a contender of this kind was inside.
    pub(crate) fn visits(&self, kind: Kind) -> usize {
        self.visits
            .lock()
            .iter()
            .filter(|other| **other == kind)
            .count()
    }
}

/// Returns a fresh path whose node stays: kazoo takes it for an error if a container is deleted
/// between two contenders.
pub(crate) fn lasting_path(hosts: &str, name: &str) -> String {
    let path = fresh_path(name);
    Raw::connect(hosts).create_all(&path);
    path
}

/// Lets them come and go on one path of these servers, and checks that they exclude each other.
pub(crate) fn traffic(hosts: &str, crowd: &[(Kind, Contender)], path: &str) -> Room {
    let (room, end) = (Room::default(), Instant::now() + duration());
    // On a busy machine, a contender that waits for only half a second may have to try for longer.
    let is_over = || {
        let now = Instant::now();
        end <= now && (end + MORE <= now || room.saw_all(crowd))
    };
    come_and_go(hosts, (crowd, path), &room, &is_over, false);
    room
}

/// The same on several paths, with mishaps, one after the other, that break connections. They begin once everybody was
/// in: then a peer may fail in its own way, and takes no further part. Ours may have to report that its release was not
/// confirmed while it had the lock.
///
/// At the end, the peers die: one that failed may have left a node of its living session in the queue.
pub(crate) fn through_mishaps<const N: usize>(
    hosts: &str,
    crowds: &[(Vec<(Kind, Contender)>, String); N],
    peers: [Peer; 2],
    mut mishap: impl FnMut(),
) -> [Room; N] {
    let rooms = [(); N].map(|()| Room::default());
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        // The others also end if this panics.
        let ends = Ends(&over);
        for ((crowd, path), room) in crowds.iter().zip(&rooms) {
            let is_over = || over.load(Ordering::Relaxed);
            scope.spawn(move || come_and_go(hosts, (crowd, path), room, &is_over, true));
        }
        eventually("everybody was in", || {
            let mut crowds = crowds.iter().zip(&rooms);
            crowds.all(|((crowd, _), room)| room.saw_all(crowd))
        });
        let end = Instant::now() + duration();
        while Instant::now() < end {
            mishap();
        }
        drop((ends, peers));
    });
    rooms
}

fn come_and_go(
    hosts: &str,
    (crowd, path): (&[(Kind, Contender)], &str),
    room: &Room,
    is_over: &(impl Fn() -> bool + Sync),
    tolerant: bool,
) {
    thread::scope(|scope| {
        for (kind, contender) in crowd {
            scope.spawn(move || {
                while !is_over() {
                    let _complaint = Complaint(*kind, hosts, path);
                    contender.lock(kind.word, path);
                    let said = contender.hear();
                    if tolerant && !kind.is_ours() && matches!(said, Said::Error(_)) {
                        println!("{} gives up: {said:?}", kind.label);
                        return;
                    }
                    if kind.is_limited() && said == Said::Late {
                        continue;
                    }
                    assert!(matches!(said, Said::Held(_)), "{}: {said:?}", kind.label);
                    room.enter(*kind);
                    thread::sleep(Duration::from_micros(fastrand::u64(..10_000)));
                    room.leave(*kind);
                    match contender.let_go() {
                        Said::Released => {}
                        Said::Error(_) if tolerant && !kind.is_ours() => return,
                        Said::Error(text)
                            if tolerant && text.contains("before it was released") => {}
                        said => panic!("{}: {said:?}", kind.label),
                    }
                }
            });
        }
    });
}

/// Shows the queue when one of the crowd panics.
struct Complaint<'a>(Kind, &'a str, &'a str);

impl Drop for Complaint<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let Self(kind, hosts, path) = *self;
            let queue = Raw::connect(hosts).children(path);
            println!("{} gave up at {path}: {queue:?}", kind.label);
        }
    }
}

/// Returns how long the traffic lasts.
pub(crate) fn duration() -> Duration {
    lasting(10)
}

/// Starts `each` of each kind that is available.
pub(crate) fn start_all(kinds: &[Kind], each: usize) -> Vec<(Kind, Contender)> {
    let hosts = server().hosts();
    let kinds = kinds.iter().filter(|kind| kind.is_here());
    kinds
        .flat_map(|kind| (0..each).map(|_| (*kind, kind.contender(&hosts))))
        .collect()
}
