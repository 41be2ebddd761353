//! Curator's and kazoo's layouts of a semaphore side by side, and the features of kazoo's alone.

use std::thread;
use std::time::{Duration, Instant};

use zklock::embedded::Server;
use zklock::{Client, Dialect, Error, LockOptions, Permit, Result, Role, Semaphore};

use super::DIALECTS;
use crate::support::eventually;
use crate::support::proxy::Proxy;
use crate::support::raw::{EPHEMERAL, EPHEMERAL_SEQUENTIAL, PERSISTENT, Raw, op};
use crate::transport::SOON;

const PATH: &str = "/limits/imports";

fn semaphore(server: &Server, dialect: Dialect, permits: u32) -> (Client, Semaphore) {
    let client = Client::builder(server.hosts()).dialect(dialect);
    let client = client.connect().unwrap();
    let semaphore = client.semaphore(PATH, permits).unwrap();
    (client, semaphore)
}

/// Returns how many contenders hold or wait.
fn left(client: &Client) -> usize {
    client.contenders(PATH).unwrap().len()
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

/// A client with another dialect that gives up early leaves directories that were never used, and so stay.
#[test]
fn in_kazoos_dialect_the_directories_of_another_layout_are_no_permits() {
    let server = Server::start().unwrap();
    let (_client, ours) = semaphore(&server, Dialect::Kazoo, 1);
    drop(ours.acquire().unwrap());
    let mut other = Raw::connect(server.hosts());
    for name in ["locks", "numbers"] {
        let dir = format!("{PATH}/{name}");
        other.create(&dir, b"", PERSISTENT).unwrap();
    }
    let permit = ours.try_acquire_for(SOON).unwrap();
    let permit = permit.expect("nobody has one");
    assert!(ours.try_acquire().unwrap().is_none());
    permit.unlock().unwrap();
    // With no permit out, another number takes the place of the first one.
    let (_client, two) = semaphore(&server, Dialect::Kazoo, 2);
    assert_eq!(two.acquire_many(2).unwrap().nodes().len(), 2);
}

/// Those permits obey the number, and a client in kazoo's dialect does not see them.
#[test]
fn in_kazoos_dialect_no_number_is_replaced_beside_the_permits_of_another_layout() {
    let server = Server::start().unwrap();
    drop(semaphore(&server, Dialect::Kazoo, 2).1.acquire().unwrap());
    let proxy = Proxy::start(server.hosts());
    let client = Client::builder(&proxy.hosts()).dialect(Dialect::Kazoo);
    let client = client.connect().unwrap();
    let three = client.semaphore(PATH, 3).unwrap();
    proxy.blackhole_at_next_request(op::MULTI);
    let refused = thread::scope(|scope| {
        let acquires = scope.spawn(|| three.try_acquire_for(SOON));
        eventually("the number is about to be written", || proxy.fired());
        let (_other, curators) = semaphore(&server, Dialect::Curator, 2);
        let permit = curators.acquire().unwrap();
        proxy.heal();
        let refused = acquires.join().unwrap();
        drop(permit);
        refused
    });
    assert!(
        matches!(refused, Err(Error::ForeignContender { .. })),
        "{refused:?}"
    );
    assert_eq!(Raw::connect(server.hosts()).data(PATH).unwrap(), b"2");
}

/// kazoo writes its limit in a second step, and overwrites whatever is there.
#[test]
fn in_kazoos_dialect_a_limit_that_is_written_later_is_seen() {
    let server = Server::start().unwrap();
    let mut witness = Raw::connect(server.hosts());
    witness.create_all(PATH);
    let (_client, ours) = semaphore(&server, Dialect::Kazoo, 2);
    ours.acquire().unwrap().unlock().unwrap();
    assert_eq!(witness.data(PATH).unwrap(), b"2");
    witness.set_data(PATH, b"5").unwrap();
    // Nobody uses the number, so it is replaced; a client with a permit uses it.
    let permit = ours.acquire().unwrap();
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
    permit.unlock().unwrap();
    // Data that is not a number belongs to another program.
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

/// A lock's contender that comes later, while the semaphore is in use, would be counted.
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
    // A client that gets a permit leaves the line without waiting for the answer.
    eventually("the line is empty", || left(&theirs) == 1);
    let listed = theirs.contenders(PATH).unwrap();
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
                    assert!(!matches!(theirs.try_acquire_for(limit), Ok(Some(_))));
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
        let waits = || {
            let (client, semaphore) = semaphore(&server, dialect, 1);
            let waiting = thread::spawn(move || semaphore.acquire().and_then(Permit::unlock));
            (client, waiting)
        };
        let (doomed, one) = waits();
        eventually("one waits for a permit", || left(&client) == 2);
        let (_other, two) = waits();
        eventually("two wait", || left(&client) == 3);
        server.expire_session(doomed.session_id());
        eventually("the first is in the line again", || left(&client) == 3);
        permit.unlock().unwrap();
        two.join().unwrap().unwrap();
        one.join().unwrap().unwrap();
        eventually("nothing is left", || left(&client) == 0);
    }
}

/// A child that is not a permit takes the place of one; nobody can be asked to give it back.
#[test]
fn who_waits_for_a_stray_child_does_not_evict_itself_for_that() {
    let server = Server::start().unwrap();
    let mut witness = Raw::connect(server.hosts());
    let (_client, one) = semaphore(&server, Dialect::Curator, 1);
    one.acquire().unwrap().unlock().unwrap();
    let stray = format!("{PATH}/leases/stray");
    witness.create(&stray, b"", PERSISTENT).unwrap();
    let shortly = Duration::from_millis(100);
    let options = LockOptions::new().evict_overdue(shortly, shortly);
    let got = one.acquire_with(options.deadline(Instant::now() + 20 * shortly));
    assert!(got.unwrap().is_none());

    // The client gets its permit as soon as there is room.
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let options = LockOptions::new().evict_overdue(shortly, shortly);
            one.acquire_with(options)
        });
        thread::sleep(5 * shortly);
        witness.delete(&stray).unwrap();
        assert!(waiting.join().unwrap().unwrap().is_some());
    });
}

/// A call that wants several permits does not take itself for an overdue holder. Names in
/// kazoo's layout have no order; the permit that is stuck is the last of them all.
#[test]
fn who_takes_several_permits_evicts_who_is_overdue_and_keeps_its_own() {
    let server = Server::start().unwrap();
    let mut witness = Raw::connect(server.hosts());
    let (_client, ours) = semaphore(&server, Dialect::Kazoo, 3);
    ours.acquire().unwrap().unlock().unwrap();
    let stuck = format!("{PATH}/{}", "f".repeat(32));
    witness.create(&stuck, b"stuck", EPHEMERAL).unwrap();
    let shortly = Duration::from_millis(200);
    let options = LockOptions::new().evict_overdue(shortly, shortly);
    let deadline = Instant::now() + Duration::from_secs(10);
    let permits = ours.acquire_many_with(3, options.deadline(deadline));
    let permits = permits.unwrap().expect("the one that is stuck is evicted");
    assert_eq!(witness.data(&stuck), None);
    permits.check().unwrap();
}

/// This dialect has names only for latches.
#[test]
fn in_the_latches_dialect_a_semaphore_is_curators() {
    let server = Server::start().unwrap();
    let (client, one) = semaphore(&server, Dialect::Curator, 1);
    let (_latch, two) = semaphore(&server, Dialect::LeaderLatch, 1);
    let (_other, three) = semaphore(&server, Dialect::Curator, 1);
    let permit = one.acquire().unwrap();
    thread::scope(|scope| {
        let second = scope.spawn(|| two.acquire().map(drop));
        eventually("it waits", || left(&client) == 2);
        let third = scope.spawn(|| three.acquire().map(drop));
        eventually("both wait", || left(&client) == 3);
        permit.unlock().unwrap();
        second.join().unwrap().unwrap();
        third.join().unwrap().unwrap();
    });
    eventually("nothing is left", || left(&client) == 0);
}

/// The server removes the directories of an idle semaphore a minute later.
#[test]
fn a_path_is_another_kinds_as_soon_as_nobody_uses_it() {
    let server = Server::start().unwrap();
    let (client, two) = semaphore(&server, Dialect::Curator, 2);
    let (mutex, rwlock) = (client.mutex(PATH).unwrap(), client.rwlock(PATH).unwrap());
    let is_foreign = |error: Error| matches!(error, Error::ForeignContender { .. });
    for _ in 0..3 {
        let permit = two.acquire().unwrap();
        assert!(is_foreign(mutex.lock().unwrap_err()));
        assert!(is_foreign(rwlock.try_read().unwrap_err()));
        permit.unlock().unwrap();
        eventually("nobody is left", || left(&client) == 0);
        let guard = mutex.try_lock().unwrap().unwrap();
        assert!(is_foreign(two.try_acquire().unwrap_err()));
        assert!(is_foreign(two.acquire().unwrap_err()));
        guard.unlock().unwrap();
        rwlock.read().unwrap().unlock().unwrap();
    }
}

/// A semaphore's client leaves a path where it sees the node of another lock, but that node went with its
/// session before the client came.
#[test]
fn a_waiter_whose_session_ended_looks_anew_whether_a_semaphore_is_used() {
    let server = Server::start().unwrap();
    let proxy = Proxy::start(server.hosts());
    let (holder, two) = semaphore(&server, Dialect::Curator, 2);
    two.acquire().unwrap().unlock().unwrap();
    let guard = holder.mutex(PATH).unwrap().lock().unwrap();
    let waiter = Client::connect(&proxy.hosts()).unwrap();
    thread::scope(|scope| {
        let mutex = waiter.mutex(PATH).unwrap();
        let waiting = scope.spawn(move || mutex.try_lock_for(SOON).map(|guard| guard.is_some()));
        eventually("it waits", || left(&holder) == 2);
        proxy.refuse();
        proxy.cut();
        assert!(server.expire_session(waiter.session_id()));
        guard.unlock().unwrap();
        let _permit = two.acquire().unwrap();
        proxy.accept();
        let ended = waiting.join().unwrap();
        let foreign = matches!(ended, Err(Error::ForeignContender { .. }));
        assert!(foreign, "{ended:?}");
    });
}
