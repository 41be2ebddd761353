//! What both layouts of a semaphore promise alike, Curator's and kazoo's, and what only
//! kazoo's has.

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use support::eventually;
use support::raw::{EPHEMERAL_SEQUENTIAL, Raw};
use zklock::embedded::Server;
use zklock::{Client, Dialect, Error, GuardEvent, LockOptions, Permit, Result, Role, Semaphore};

const PATH: &str = "/limits/imports";

/// Curator's layout and kazoo's.
const DIALECTS: [Dialect; 2] = [Dialect::Curator, Dialect::Kazoo];

fn semaphore(server: &Server, dialect: Dialect, permits: u32) -> (Client, Semaphore) {
    let client = Client::builder(server.hosts()).dialect(dialect);
    let client = client.connect().unwrap();
    let semaphore = client.semaphore(PATH, permits).unwrap();
    (client, semaphore)
}

fn left(client: &Client) -> usize {
    let count = |dir: &str| client.contenders(&format!("{PATH}{dir}")).unwrap().len();
    count("/locks") + count("/leases") + count("-__lock__") + count("")
}

/// kazoo #214: by trying one got in when as many as may be were.
#[test]
fn no_more_permits_are_out_than_there_are() {
    for dialect in DIALECTS {
        let server = Server::start().unwrap();
        let (client, ours) = semaphore(&server, dialect, 2);
        let (_other, theirs) = semaphore(&server, dialect, 2);
        let one = ours.acquire().unwrap();
        let two = theirs.try_acquire().unwrap().unwrap();
        assert!(ours.try_acquire().unwrap().is_none());
        assert!(
            theirs
                .try_acquire_for(Duration::from_millis(50))
                .unwrap()
                .is_none()
        );
        eventually("the one that gave up has gone", || left(&client) == 2);
        one.verify().unwrap();
        drop(one);
        let three = ours.acquire().unwrap();
        two.unlock().unwrap();
        three.unlock().unwrap();
        eventually("nothing is left", || left(&client) == 0);
    }
}

/// Curator checks nothing here: each client counts by its own limit.
#[test]
fn permits_that_disagree_are_reported() {
    for dialect in DIALECTS {
        let server = Server::start().unwrap();
        let (client, two) = semaphore(&server, dialect, 2);
        let permit = two.acquire().unwrap();
        let (_other, three) = semaphore(&server, dialect, 3);
        let disagree = Error::PermitsDisagree {
            path: PATH.into(),
            ours: 3,
            theirs: 2,
        };
        assert_eq!(three.acquire().unwrap_err(), disagree);
        drop(permit);
        eventually("nothing is left", || left(&client) == 0);
        assert!(client.semaphore(PATH, 0).is_err());
    }
}

#[test]
fn a_waiting_thread_is_told_and_gets_the_next_permit() {
    for dialect in DIALECTS {
        let server = Server::start().unwrap();
        let (_client, ours) = semaphore(&server, dialect, 1);
        let (_other, theirs) = semaphore(&server, dialect, 1);
        let permit = ours.acquire().unwrap();
        let (told, waits) = crossbeam_channel::bounded(1);
        thread::scope(|scope| {
            scope.spawn(move || {
                let options = LockOptions::new().on_wait(|waiting| {
                    assert_eq!(waiting.position(), 1);
                    let _ = told.try_send(());
                });
                let _permit = theirs.acquire_with(options).unwrap().unwrap();
            });
            waits.recv().unwrap();
            permit.unlock().unwrap();
        });
    }
}

#[test]
fn a_permit_may_change_threads_and_is_lost_with_its_session() {
    for dialect in DIALECTS {
        let server = Server::start().unwrap();
        let (client, semaphore) = semaphore(&server, dialect, 1);
        let permit: Permit = semaphore.acquire().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| permit.verify().unwrap());
        });
        server.expire_session(client.session_id());
        assert!(
            permit
                .events()
                .iter()
                .any(|event| event == GuardEvent::Lost)
        );
        assert!(permit.unlock().unwrap_err().is_lost());
        drop(semaphore.acquire().unwrap());
    }
}

#[test]
fn hundreds_wait_without_a_herd() {
    for dialect in DIALECTS {
        const PERMITS: usize = 5;
        let server = Server::start().unwrap();
        let inside = AtomicUsize::new(0);
        let (client, _) = semaphore(&server, dialect, PERMITS as u32);
        let semaphores: Vec<_> = (0..20)
            .map(|_| semaphore(&server, dialect, PERMITS as u32))
            .collect();
        thread::scope(|scope| {
            for (_, semaphore) in &semaphores {
                for _ in 0..10 {
                    scope.spawn(|| {
                        let permit = semaphore.acquire().unwrap();
                        assert!(inside.fetch_add(1, Ordering::SeqCst) < PERMITS);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(permit);
                    });
                }
            }
        });
        eventually("nothing is left", || left(&client) == 0);
    }
}

/// The layout of kazoo's semaphore, which counts the path's own children.
#[test]
fn in_kazoos_dialect_every_node_is_a_permit_that_is_out() {
    let server = Server::start().unwrap();
    let mut witness = Raw::connect(server.hosts());
    let (_client, ours) = semaphore(&server, Dialect::Kazoo, 2);
    let (_other, theirs) = semaphore(&server, Dialect::Kazoo, 2);
    let permits = [ours.acquire().unwrap(), ours.acquire().unwrap()];
    assert_eq!(witness.data(PATH).unwrap(), b"2");
    let mut names = permits.each_ref().map(|permit| {
        let name = permit.node().strip_prefix(&format!("{PATH}/")).unwrap();
        assert!(
            name.len() == 32 && name.bytes().all(|b| b.is_ascii_hexdigit()),
            "{name}"
        );
        name.to_owned()
    });
    names.sort();
    let (told, waits) = crossbeam_channel::bounded(1);
    thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            let options = LockOptions::new().on_wait(|_| {
                let _ = told.try_send(());
            });
            theirs.acquire_with(options).unwrap().unwrap()
        });
        waits.recv().unwrap();
        let mut children = witness.children(PATH).unwrap();
        children.sort();
        assert_eq!(children, names, "who waits has no node there");
        eventually("it is the only one in the line", || {
            let line = witness.children(&format!("{PATH}-__lock__")).unwrap();
            line.len() == 1 && line[0].contains("__lock__")
        });
        let [one, two] = permits;
        one.unlock().unwrap();
        let three = waiting.join().unwrap();
        let mut children = witness.children(PATH).unwrap();
        children.sort();
        let mut names = [two.node(), three.node()].map(|node| node[PATH.len() + 1..].to_owned());
        names.sort();
        assert_eq!(children, names);
    });
}

/// kazoo writes its limit in a second step, and over whatever is there.
#[test]
fn in_kazoos_dialect_a_limit_that_is_written_later_is_seen() {
    let server = Server::start().unwrap();
    let mut witness = Raw::connect(server.hosts());
    witness.create_all(PATH);
    let (_client, ours) = semaphore(&server, Dialect::Kazoo, 2);
    ours.acquire().unwrap().unlock().unwrap();
    assert_eq!(witness.data(PATH).unwrap(), b"2");
    witness.set_data(PATH, b"5").unwrap();
    let error = ours.acquire().unwrap_err();
    assert!(
        matches!(
            error,
            Error::PermitsDisagree {
                ours: 2,
                theirs: 5,
                ..
            }
        ),
        "{error}"
    );
    // What is no number is somebody else's.
    witness.set_data(PATH, b"127.0.0.1").unwrap();
    ours.acquire().unwrap().unlock().unwrap();
    assert_eq!(witness.data(PATH).unwrap(), b"127.0.0.1");
}

#[test]
fn a_semaphore_of_the_other_dialect_is_refused_and_named() {
    for [first, second] in [DIALECTS, [Dialect::Kazoo, Dialect::Curator]] {
        let server = Server::start().unwrap();
        let (_client, one) = semaphore(&server, first, 1);
        let permit = one.acquire().unwrap();
        let (_other, two) = semaphore(&server, second, 1);
        for refused in [
            two.acquire(),
            two.try_acquire_for(Duration::MAX).map(Option::unwrap),
        ] {
            match refused {
                Err(Error::ForeignContender { dialect, .. }) => assert_eq!(dialect, Some(first)),
                other => panic!("{second:?} beside {first:?}: {other:?}"),
            }
        }
        permit.unlock().unwrap();
    }
}

/// A lock's contender that comes when the semaphore has long been used would be counted.
#[test]
fn in_kazoos_dialect_who_comes_later_is_noticed() {
    let server = Server::start().unwrap();
    let (_client, ours) = semaphore(&server, Dialect::Kazoo, 2);
    ours.acquire().unwrap().unlock().unwrap();
    ours.acquire().unwrap().unlock().unwrap();
    let theirs = Client::connect(server.hosts()).unwrap();
    let mut witness = Raw::connect(server.hosts());
    let node = format!("{PATH}/_c_6f9c1c9e-5a0b-4b57-9a3e-0123456789ab-lock-");
    let node = witness.create(&node, b"", EPHEMERAL_SEQUENTIAL).unwrap();
    let is_refused = |result: Result<Option<Permit>>| match result {
        Err(Error::ForeignContender { node: named, .. }) => assert_eq!(named, node),
        other => panic!("{other:?}"),
    };
    is_refused(ours.acquire().map(Some));
    is_refused(ours.try_acquire());
    witness.delete(&node).unwrap();
    let permit = ours.try_acquire().unwrap().unwrap();
    let listed = theirs.contenders(PATH).unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (listed[0].node(), listed[0].role()),
        (permit.node(), Role::Permit)
    );
    assert!(listed[0].holds());
}

#[test]
fn who_waits_gives_up_in_time_and_leaves_nothing_but_the_holder() {
    for dialect in DIALECTS {
        let server = Server::start().unwrap();
        let (client, holder) = semaphore(&server, dialect, 1);
        let permit = holder.acquire().unwrap();
        server.delay(Duration::from_millis(10));
        thread::scope(|scope| {
            for limit in (1..16).map(|i| Duration::from_millis(10 * i)) {
                let server = &server;
                scope.spawn(move || {
                    let (_client, theirs) = semaphore(server, dialect, 1);
                    let start = Instant::now();
                    assert!(theirs.try_acquire_for(limit).unwrap().is_none());
                    let late = start.elapsed().saturating_sub(limit);
                    assert!(late < Duration::from_secs(2), "{late:?} late");
                });
            }
        });
        server.resume();
        eventually("nobody is left who waits", || left(&client) == 1);
        permit.unlock().unwrap();
        assert!(holder.try_acquire().unwrap().is_some());
        eventually("nothing is left", || left(&client) == 0);
    }
}

#[test]
fn a_waiter_whose_session_ends_queues_again_and_the_next_goes_on() {
    for dialect in DIALECTS {
        let server = Server::start().unwrap();
        let (client, holder) = semaphore(&server, dialect, 1);
        let permit = holder.acquire().unwrap();
        // Who waits for a permit has a lease of its own in Curator's layout only.
        let first = if dialect == Dialect::Kazoo { 1 } else { 2 };
        let waits = || {
            let (client, semaphore) = semaphore(&server, dialect, 1);
            let waiting = thread::spawn(move || semaphore.acquire().and_then(Permit::unlock));
            (client, waiting)
        };
        let (doomed, one) = waits();
        eventually("one waits for a permit", || left(&client) == 1 + first);
        let (_other, two) = waits();
        eventually("two wait", || left(&client) == 2 + first);
        server.expire_session(doomed.session_id());
        eventually("the first is in the line again", || {
            left(&client) == 2 + first
        });
        permit.unlock().unwrap();
        two.join().unwrap().unwrap();
        one.join().unwrap().unwrap();
        eventually("nothing is left", || left(&client) == 0);
    }
}
