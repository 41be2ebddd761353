//! The number of a semaphore's permits changes while other libraries use it too.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use zklock::{Client, Dialect};

use super::contender::Said;
use super::libraries::Library;
use super::peer::{Peer, server};
use crate::support::raw::assert_nothing_left;
use crate::support::{Ends, eventually, fresh_path};

const OLD: u32 = 3;
const NEW: u32 = 5;

/// The number of our contenders, and of theirs.
const EACH: usize = 3;

/// How long a contender of ours may have to wait for those that use another number.
const PATIENCE: Duration = Duration::from_secs(120);

/// The session timeout, so long that nobody loses a permit in use, however slow the machine is.
const SESSION: Duration = Duration::from_secs(30);

/// The contenders inside, and the numbers on which all rely.
#[derive(Debug, Default)]
struct Room {
    /// The number that each contender has been told, from one call until its next one.
    told: Vec<u32>,
    inside: Vec<usize>,
    most: usize,
}

/// A contender that comes again and again.
#[derive(Debug)]
struct Visitor<'a> {
    me: usize,
    room: &'a Mutex<Room>,
    /// The number that the visitor is told from its next call on.
    number: &'a AtomicU32,
    /// How often the visitor was inside with that number.
    visits: &'a AtomicU32,
    over: &'a AtomicBool,
}

impl Visitor<'_> {
    /// Begins a call, and returns the number for it.
    fn begin(&self) -> u32 {
        let mut room = self.room.lock();
        let number = self.number.load(Ordering::Relaxed);
        room.told[self.me] = number;
        number
    }

    fn visit(&self) {
        let mut room = self.room.lock();
        let largest = room.told.iter().max().copied().unwrap_or_default();
        assert!(
            room.inside.len() < largest as usize,
            "{}: {room:?}",
            self.me
        );
        room.inside.push(self.me);
        room.most = room.most.max(room.inside.len());
        let counts_on = room.told[self.me];
        drop(room);
        thread::sleep(Duration::from_micros(fastrand::u64(..20_000)));
        self.room.lock().inside.retain(|one| *one != self.me);
        if counts_on == self.number.load(Ordering::Relaxed) {
            self.visits.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn come_and_go(&self, client: &Client, path: &str) {
        while !self.over.load(Ordering::Relaxed) {
            let semaphore = client.semaphore(path, self.begin()).unwrap();
            let permit = semaphore.try_acquire_for(PATIENCE).unwrap();
            let permit = permit.expect("a permit in time");
            self.visit();
            drop(permit);
        }
    }

    fn come_and_go_as(&self, peer: &Peer, path: &str) {
        let contender = peer.contender();
        while !self.over.load(Ordering::Relaxed) {
            contender.lock(&format!("semaphore:{}", self.begin()), path);
            match contender.hear() {
                Said::Held(_) => {}
                // kazoo fails where ours waits; kazoo's user tries again.
                Said::Error(text) if text.contains("Inconsistent max leases") => {
                    thread::sleep(Duration::from_millis(fastrand::u64(..20)));
                    continue;
                }
                said => panic!("{said:?}"),
            }
            self.visit();
            contender.release();
        }
    }
}

#[test]
#[ignore = "needs a ZooKeeper server, Curator and kazoo: tests/all.sh"]
fn beside_curator_a_rolling_change_never_has_more_permits_out_than_the_larger_number() {
    deploy(Library::Java, Dialect::Curator, |path| {
        ["locks", "leases"].map(|dir| format!("{path}/{dir}"))
    });
}

#[test]
#[ignore = "needs a ZooKeeper server, Curator and kazoo: tests/all.sh"]
fn beside_kazoo_a_rolling_change_never_has_more_permits_out_than_the_larger_number() {
    deploy(Library::Kazoo, Dialect::Kazoo, |path| {
        [path.to_owned(), format!("{path}-__lock__")]
    });
}

/// Changes the number of all contenders, one after the other, and back again. Half of the
/// contenders are ours.
fn deploy(library: Library, dialect: Dialect, dirs: fn(&str) -> [String; 2]) {
    let (hosts, path) = (server().hosts(), fresh_path("deploy"));
    let peer = Peer::start_with(library, &hosts, SESSION).expect("a library at hand");
    let clients = [(); EACH].map(|()| {
        let client = Client::builder(&hosts).dialect(dialect);
        client.session_timeout(SESSION).connect().unwrap()
    });
    let room = Mutex::new(Room {
        told: vec![OLD; 2 * EACH],
        ..Room::default()
    });
    let over = AtomicBool::new(false);
    let numbers = [const { AtomicU32::new(OLD) }; 2 * EACH];
    let visits = [const { AtomicU32::new(0) }; 2 * EACH];
    let visitor = |me| Visitor {
        me,
        room: &room,
        number: &numbers[me],
        visits: &visits[me],
        over: &over,
    };
    thread::scope(|scope| {
        let end = Ends(&over);
        for (me, client) in (0..).step_by(2).zip(&clients) {
            let (visitor, theirs, path) = (visitor(me), visitor(me + 1), &path);
            let peer = &peer;
            scope.spawn(move || {
                let _end = Ends(visitor.over);
                visitor.come_and_go(client, path);
            });
            scope.spawn(move || {
                let _end = Ends(theirs.over);
                theirs.come_and_go_as(peer, path);
            });
        }
        for number in [OLD, NEW, OLD] {
            for (me, told) in numbers.iter().enumerate() {
                told.store(number, Ordering::Relaxed);
                visits[me].store(0, Ordering::Relaxed);
                // A contender of kazoo's may have to wait until the last of ours has changed.
                if me % 2 == 0 {
                    eventually("it comes in again", || {
                        2 < visits[me].load(Ordering::Relaxed)
                    });
                }
            }
            eventually("nobody goes by another number", || {
                let mut room = room.lock();
                room.most = 0;
                room.told.iter().all(|told| *told == number)
            });
            for visits in &visits {
                let before = visits.load(Ordering::Relaxed);
                eventually("everybody comes in", || {
                    before + 3 < visits.load(Ordering::Relaxed)
                });
            }
            println!(
                "{library:?}: {number} permits, at most {} out",
                room.lock().most
            );
        }
        drop(end);
    });
    for dir in dirs(&path) {
        assert_nothing_left(&hosts, &dir);
    }
}
