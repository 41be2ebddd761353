//! The number of a semaphore's permits, and what happens to that number when they are released.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use zklock::embedded::Server;
use zklock::{Client, Dialect, Error, LockOptions, Permit, Result, Semaphore};

use super::{DIALECTS, connect, dialects};
use crate::support::proxy::Proxy;
use crate::support::raw::{PERSISTENT, Raw, assert_nothing_left};
use crate::support::zookeeper::ZooKeeper;
use crate::support::{Ends, aside, eventually, fresh_path, timed};
use crate::transport::{Place, SOON, in_every_place};

/// The variable that says how many rounds the races run, in place of [`ROUNDS`].
const ROUNDS_VARIABLE: &str = "ZKLOCK_TEST_ROUNDS";
const ROUNDS: usize = 100;

in_every_place! {
    a_number_that_nobody_goes_by_is_replaced
    who_counts_otherwise_is_told_who_holds_since_when_and_what_to_do
    who_has_time_waits_in_its_turn_for_those_who_count_otherwise
    a_rolling_deploy_gets_everybody_in_and_never_more_than_he_counts_on
}

fn leases(dialect: Dialect, path: &str) -> String {
    match dialect {
        Dialect::Kazoo => path.to_owned(),
        _ => format!("{path}/leases"),
    }
}

#[track_caller]
fn disagrees(result: Result<Option<Permit>>, expected: [u32; 2]) -> Error {
    match result {
        Err(error @ Error::PermitsDisagree { ours, theirs, .. }) => {
            assert_eq!([ours, theirs], expected);
            error
        }
        other => panic!("{other:?}"),
    }
}

fn a_number_that_nobody_goes_by_is_replaced(place: Place) {
    for &dialect in dialects(place) {
        let path = fresh_path("number");
        let mut witness = Raw::connect(&place.shared().hosts());
        let client = connect(place, dialect);
        let other = connect(place, dialect);
        for (client, permits) in [(&client, 5), (&other, 3), (&client, 4), (&client, 5)] {
            let semaphore = client.semaphore(&path, permits).unwrap();
            let all: Vec<_> = (0..permits).map(|_| semaphore.acquire().unwrap()).collect();
            assert!(semaphore.try_acquire().unwrap().is_none());
            assert_eq!(witness.data(&path).unwrap(), permits.to_string().as_bytes());
            all.into_iter().for_each(|permit| permit.unlock().unwrap());
        }
        assert_nothing_left(&place.shared().hosts(), &leases(dialect, &path));
    }
}

/// Curator checks nothing in this case: each client counts by its own limit.
fn who_counts_otherwise_is_told_who_holds_since_when_and_what_to_do(place: Place) {
    for &dialect in dialects(place) {
        let path = fresh_path("disagree");
        let two = connect(place, dialect).semaphore(&path, 2).unwrap();
        let three = connect(place, dialect).semaphore(&path, 3).unwrap();
        let permit = two.acquire().unwrap();
        // This is long enough to notice it.
        let shortly = Duration::from_secs(3);
        for refused in [
            three.acquire().map(Some),
            three.try_acquire(),
            three.try_acquire_for(Duration::MAX),
            three.try_acquire_for(shortly),
            three.acquire_with(LockOptions::new().deadline(Instant::now() + shortly)),
        ] {
            let told = disagrees(refused, [3, 2]).to_string();
            let pid = format!("pid {}", std::process::id());
            for part in [
                &*path,
                "has 2 permits",
                &pid,
                " since 20",
                "make the numbers agree",
            ] {
                assert!(told.contains(part), "{part}: {told}");
            }
        }
        // A cancel is not a disagreement.
        let (cancel, cancelled) = crossbeam_channel::bounded(1);
        cancel.send(()).unwrap();
        let options = LockOptions::new().deadline(Instant::now() + SOON);
        assert!(
            three
                .acquire_with(options.cancel(cancelled))
                .unwrap()
                .is_none()
        );
        // A client with the same number has blocked nobody.
        drop(two.try_acquire().unwrap().unwrap());
        permit.unlock().unwrap();
        let all: Vec<_> = (0..3).map(|_| three.acquire().unwrap()).collect();
        disagrees(two.try_acquire(), [2, 3]);
        drop(all);
        assert_nothing_left(&place.shared().hosts(), &leases(dialect, &path));
    }
}

fn who_has_time_waits_in_its_turn_for_those_who_count_otherwise(place: Place) {
    for &dialect in dialects(place) {
        let path = fresh_path("patient");
        let old = connect(place, dialect).semaphore(&path, 2).unwrap();
        let new = connect(place, dialect).semaphore(&path, 3).unwrap();
        let late = connect(place, dialect).semaphore(&path, 2).unwrap();
        let onlooker = connect(place, dialect);
        let line = || onlooker.contenders(&path).unwrap().len();
        let held = old.acquire().unwrap();
        let node = held.node().to_owned();
        let (told, waits) = crossbeam_channel::bounded(1);
        let got_in = aside(move || {
            let options = LockOptions::new().on_wait(|waiting| {
                // At first it may be waiting for the line.
                if waiting.ahead().unwrap().node() == node {
                    let _ = told.try_send(());
                }
            });
            new.acquire_with(options.deadline(Instant::now() + 6 * SOON))
        });
        waits.recv_timeout(SOON).unwrap();
        let comes_after = aside(move || late.try_acquire_for(6 * SOON));
        eventually("it waits behind", || line() == 3);
        assert!(got_in.is_empty() && comes_after.is_empty());
        held.unlock().unwrap();
        let new = got_in.recv_timeout(SOON).unwrap().unwrap().unwrap();
        assert!(
            comes_after.is_empty(),
            "there is still one that counts otherwise"
        );
        new.unlock().unwrap();
        let late = comes_after.recv_timeout(SOON).unwrap().unwrap().unwrap();
        late.unlock().unwrap();
    }
}

/// The clients that are inside, by the number that they use.
#[derive(Debug, Default)]
struct Room {
    inside: Mutex<Vec<u32>>,
}

impl Room {
    fn visit(&self, counts: u32) {
        let mut inside = self.inside.lock();
        assert!(
            inside.iter().all(|other| *other == counts),
            "{counts} beside {inside:?}"
        );
        inside.push(counts);
        assert!(inside.len() <= counts as usize, "{inside:?}");
        drop(inside);
        thread::sleep(Duration::from_micros(fastrand::u64(..2_000)));
        let mut inside = self.inside.lock();
        let place = inside.iter().position(|other| *other == counts);
        inside.swap_remove(place.expect("somebody who is inside"));
    }
}

/// Ten clients go from three permits to five, one after the other.
fn a_rolling_deploy_gets_everybody_in_and_never_more_than_he_counts_on(place: Place) {
    const CLIENTS: usize = 10;
    const OLD: u32 = 3;
    const NEW: u32 = 5;
    for &dialect in dialects(place) {
        let (path, room) = (fresh_path("deploy"), Arc::new(Room::default()));
        let clients: Vec<_> = (0..CLIENTS).map(|_| connect(place, dialect)).collect();
        let over = AtomicBool::new(false);
        let deployed: Vec<_> = (0..CLIENTS).map(|_| AtomicBool::new(false)).collect();
        let visits: Vec<_> = (0..CLIENTS).map(|_| AtomicU32::new(0)).collect();
        thread::scope(|scope| {
            for (client, (is_new, visits)) in clients.iter().zip(deployed.iter().zip(&visits)) {
                let (room, path, over) = (&room, &path, &over);
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        let counts = if is_new.load(Ordering::Relaxed) {
                            NEW
                        } else {
                            OLD
                        };
                        let semaphore = client.semaphore(path, counts).unwrap();
                        let permit = semaphore.try_acquire_for(12 * SOON).unwrap();
                        let permit = permit.expect("a permit in time");
                        room.visit(counts);
                        drop(permit);
                        visits.fetch_add(1, Ordering::Relaxed);
                        // The client also has other work to do.
                        thread::sleep(Duration::from_micros(fastrand::u64(..4_000)));
                    }
                });
            }
            let end = Ends(&over);
            for (is_new, visits) in deployed.iter().zip(&visits) {
                is_new.store(true, Ordering::Relaxed);
                let before = visits.load(Ordering::Relaxed);
                eventually("the client comes in again", || {
                    before + 2 < visits.load(Ordering::Relaxed)
                });
            }
            drop(end);
        });
        let semaphore = clients[0].semaphore(&path, NEW).unwrap();
        let all: Vec<_> = (0..NEW).map(|_| semaphore.acquire().unwrap()).collect();
        drop(all);
        assert_nothing_left(&place.shared().hosts(), &leases(dialect, &path));
    }
}

fn rounds() -> usize {
    let text = std::env::var(ROUNDS_VARIABLE).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(ROUNDS)
}

/// Both clients find the semaphore idle, and want to replace its number.
#[test]
fn of_two_that_count_otherwise_and_come_at_once_only_one_gets_in() {
    for dialect in DIALECTS {
        let server = Server::start().unwrap();
        let clients = [(); 2].map(|()| {
            let client = Client::builder(server.hosts()).dialect(dialect);
            client.connect().unwrap()
        });
        let mut winners = 0;
        for round in 0..rounds() {
            let path = format!("/race/{}", round % 7);
            let ready = std::sync::Barrier::new(2);
            let got = thread::scope(|scope| {
                let comers = [(0, 1), (1, 2)].map(|(client, extra)| {
                    let (path, ready, client) = (&path, &ready, &clients[client]);
                    scope.spawn(move || {
                        let counts = 2 * (round as u32 % 3) + extra + 1;
                        let semaphore = client.semaphore(path, counts).unwrap();
                        ready.wait();
                        let permit = match semaphore.try_acquire() {
                            Ok(permit) => permit,
                            Err(Error::PermitsDisagree { .. }) => None,
                            Err(error) => panic!("{error}"),
                        };
                        // Both clients have tried before either gives up what it has got.
                        ready.wait();
                        permit.is_some()
                    })
                });
                comers.map(|comer| comer.join().unwrap())
            });
            assert_ne!(got, [true, true], "{dialect:?}, round {round}");
            winners += usize::from(got != [false, false]);
        }
        println!("{dialect:?}: {winners} of {} rounds had a winner", rounds());
        assert_ne!(winners, 0, "{dialect:?}");
    }
}

/// Permits are dropped, forgotten by their threads, tried for and given up at random.
#[test]
fn however_permits_come_and_go_no_more_are_out_than_there_are() {
    const CLIENTS: usize = 6;
    const THREADS: usize = 4;
    for dialect in DIALECTS {
        let server = Server::start().unwrap();
        let room = Arc::new(Room::default());
        thread::scope(|scope| {
            for _ in 0..CLIENTS {
                let client = Client::builder(server.hosts()).dialect(dialect);
                let client = client.connect().unwrap();
                for _ in 0..THREADS {
                    let (client, room) = (client.clone(), &room);
                    scope.spawn(move || {
                        for _ in 0..rounds().min(1_000) / 4 {
                            come_and_go(&client, room);
                        }
                    });
                }
            }
        });
        assert_nothing_left(server.hosts(), &leases(dialect, "/limits/random"));
    }
}

fn come_and_go(client: &Client, room: &Room) {
    let counts = [3, 3, 3, 2, 5][fastrand::usize(..5)];
    let semaphore: Semaphore = client.semaphore("/limits/random", counts).unwrap();
    let shortly = Duration::from_millis(fastrand::u64(..30));
    let got = match fastrand::u8(..3) {
        0 => semaphore.try_acquire(),
        1 => semaphore.try_acquire_for(shortly),
        _ => semaphore.acquire_with(LockOptions::new().deadline(Instant::now() + SOON)),
    };
    match got {
        Ok(None) | Err(Error::ConnectTimeout { .. } | Error::PermitsDisagree { .. }) => {}
        Err(error) => panic!("{error}"),
        Ok(Some(permit)) => {
            room.visit(counts);
            match fastrand::bool() {
                true => permit.unlock().unwrap(),
                false => drop(permit),
            }
        }
    }
}

/// This is as with a mutex: in Curator's layout the server deletes the node, in kazoo's nobody
/// does.
#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn nothing_is_left_of_a_semaphore_that_is_idle() {
    let often = Duration::from_millis(300);
    let real = ZooKeeper::builder().container_check(often).start();
    let embedded = Server::builder().container_check(often).start().unwrap();
    for hosts in [real.hosts(), embedded.hosts().to_owned()] {
        let client = Client::connect(&hosts).unwrap();
        // This client sends no pings.
        let witness = || Raw::connect(&hosts);
        let path = "/limits/idle/imports";
        for permits in [3, 5] {
            let semaphore = client.semaphore(path, permits).unwrap();
            let held = semaphore.acquire().unwrap();
            assert_eq!(
                witness().data(path).unwrap(),
                permits.to_string().as_bytes()
            );
            // The node stays as long as any client has a permit.
            thread::sleep(4 * often);
            assert!(semaphore.try_acquire().unwrap().is_some());
            held.unlock().unwrap();
            eventually("the semaphore has gone", || witness().stat(path).is_none());
            assert!(
                witness().stat("/limits/idle").is_some(),
                "the folder is not ours"
            );
        }
        let kazoo = Client::builder(&hosts).dialect(Dialect::Kazoo);
        let kazoo = kazoo
            .connect()
            .unwrap()
            .semaphore("/limits/kazoo", 2)
            .unwrap();
        kazoo.acquire().unwrap().unlock().unwrap();
        thread::sleep(4 * often);
        assert_eq!(witness().data("/limits/kazoo").unwrap(), b"2");
    }
}

/// Nodes that earlier versions made stay, and work like others.
#[test]
fn a_semaphore_whose_node_was_made_for_good_takes_on_a_new_number() {
    let server = Server::start().unwrap();
    let mut witness = Raw::connect(server.hosts());
    witness.create_all("/limits");
    witness.create("/limits/old", b"5", PERSISTENT).unwrap();
    let client = Client::connect(server.hosts()).unwrap();
    let semaphore = client.semaphore("/limits/old", 3).unwrap();
    let _permit = semaphore.acquire().unwrap();
    assert_eq!(witness.data("/limits/old").unwrap(), b"3");
}

/// A client that is evicted from the line does not come back by itself.
#[test]
fn the_first_in_the_line_is_evicted_as_the_others_are() {
    let server = Server::start().unwrap();
    let holder = Client::connect(server.hosts()).unwrap();
    let waiter = Client::connect(server.hosts()).unwrap();
    let semaphore = holder.semaphore("/limits/evicted", 1).unwrap();
    let _permit = semaphore.acquire().unwrap();
    let semaphore = waiter.semaphore("/limits/evicted", 1).unwrap();
    let waiting = aside(move || semaphore.acquire().map(drop));
    let waits = || {
        let contenders = holder.contenders("/limits/evicted").unwrap();
        contenders.into_iter().find(|contender| !contender.holds())
    };
    eventually("it waits", || waits().is_some());
    let mut witness = Raw::connect(server.hosts());
    eventually("it asks for a permit", || {
        witness.children("/limits/evicted/leases").unwrap().len() == 2
    });
    let contender = waits().unwrap();
    contender.evict().unwrap();
    let evicted = Error::Evicted {
        node: contender.node().to_owned(),
    };
    assert_eq!(waiting.recv_timeout(SOON), Ok(Err(evicted)));
}

#[test]
fn the_limit_is_kept_when_the_network_goes_while_a_permit_of_another_number_is_read() {
    const GET_DATA: i32 = 4;
    let server = Server::start().unwrap();
    let path = fresh_path("number");
    let ours = Client::connect(server.hosts()).unwrap();
    let _permit = ours.semaphore(&path, 2).unwrap().acquire().unwrap();

    let proxy = Proxy::start(server.hosts());
    let client = Client::connect(&proxy.hosts()).unwrap();
    let semaphore = client.semaphore(&path, 3).unwrap();
    proxy.delay(Duration::from_millis(15));
    let limit = Duration::from_secs(3);
    let waiting = aside(move || timed(|| semaphore.try_acquire_for(limit)));
    // The number is read before the line and in it; then the oldest permit's owner is read.
    eventually("the first in the line reads the number", || {
        proxy.requests(GET_DATA) == 2
    });
    proxy.blackhole_at_next_request(GET_DATA);
    let (taken, took) = waiting.recv_timeout(2 * SOON).unwrap();
    assert!(took < limit + Duration::from_millis(500), "{took:?}");
    // On a slow machine the client looks at its own node first, and then nobody has said that no
    // permit is free.
    match taken {
        Ok(None) | Err(Error::ConnectTimeout { .. }) => {}
        taken => panic!("{taken:?}"),
    }
}
