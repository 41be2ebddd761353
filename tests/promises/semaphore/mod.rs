//! The promises of the semaphore, on every transport, on the embedded server and on a real
//! one.

mod contenders;
mod layouts;
mod many;
mod number;
mod rights;
mod which;

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use zklock::{Client, Dialect, Error, GuardEvent, LockOptions, Permit, Semaphore};

use crate::support::proxy::Proxy;
use crate::support::raw::{EPHEMERAL_SEQUENTIAL, Raw, assert_nothing_left, children, op};
use crate::support::{aside, eventually, fresh_path, timed};
use crate::transport::{
    Place, SOON, TIMEOUT, Transport, Waiter, expire_owner, in_every_place, on_every_server,
    wait_for,
};

in_every_place! {
    no_more_permits_are_out_than_there_are
    a_waiting_thread_is_told_and_gets_the_next_permit
    a_permit_may_change_threads_and_is_lost_with_its_session
    a_waiter_whose_session_expires_queues_again
    a_session_that_expires_while_it_is_first_in_line_stops_nobody
    hundreds_wait_without_a_herd
    a_cancel_at_any_time_is_heard
    a_try_waits_a_moment_at_most_for_who_fell_silent_while_it_acquired
}

// A handle has been given up by then, or sends one request after the other.
on_every_server! {
    of_those_that_try_at_once_each_gets_a_free_permit_however_far_away_the_servers_are
    threads_that_try_at_once_get_free_permits_although_a_write_takes_long
    a_try_behind_who_waits_for_a_permit_gives_up_once_it_sees_that_none_is_free
    a_waiter_whose_node_is_gone_before_its_session_queues_again
}

/// The dialects with Curator's layout and kazoo's.
const DIALECTS: [Dialect; 2] = [Dialect::Curator, Dialect::Kazoo];

/// Returns the dialects that exist at this place: a handle has Curator's layout.
fn dialects(place: Place) -> &'static [Dialect] {
    match place.transport {
        Transport::Wire => &DIALECTS,
        #[cfg(feature = "zookeeper")]
        Transport::Handle => &[Dialect::Curator],
    }
}

fn connect(place: Place, dialect: Dialect) -> Client {
    connect_to(place, dialect, &place.shared().hosts())
}

fn connect_to(place: Place, dialect: Dialect, hosts: &str) -> Client {
    match dialect {
        Dialect::Curator => place.connect(hosts),
        dialect => {
            let client = Client::builder(hosts).dialect(dialect);
            client.session_timeout(2 * TIMEOUT).connect().unwrap()
        }
    }
}

fn semaphore(place: Place, dialect: Dialect, path: &str, permits: u32) -> (Client, Semaphore) {
    let client = connect(place, dialect);
    let semaphore = client.semaphore(path, permits).unwrap();
    (client, semaphore)
}

/// Returns the directories of the line and of the permits.
fn layout(dialect: Dialect, path: &str) -> [String; 2] {
    match dialect {
        Dialect::Kazoo => [format!("{path}-__lock__"), path.to_owned()],
        _ => [format!("{path}/locks"), format!("{path}/leases")],
    }
}

/// Returns how many nodes are in the line, and how many permits are taken or, in Curator's
/// layout, asked for by the first in the line.
fn left(place: Place, dialect: Dialect, path: &str) -> [usize; 2] {
    let mut raw = Raw::connect(&place.shared().hosts());
    layout(dialect, path).map(|dir| raw.children(&dir).unwrap_or_default().len())
}

#[track_caller]
fn nothing_is_left(place: Place, dialect: Dialect, path: &str) {
    for dir in layout(dialect, path) {
        assert_nothing_left(&place.shared().hosts(), &dir);
    }
}

/// kazoo #214: a try got in when all permits were taken.
fn no_more_permits_are_out_than_there_are(place: Place) {
    for &dialect in dialects(place) {
        let path = fresh_path("permits");
        let (_client, ours) = semaphore(place, dialect, &path, 2);
        let (_other, theirs) = semaphore(place, dialect, &path, 2);
        let one = ours.acquire().unwrap();
        let two = theirs.try_acquire().unwrap().unwrap();
        assert!(ours.try_acquire().unwrap().is_none());
        let shortly = Duration::from_millis(500);
        assert!(theirs.try_acquire_for(shortly).unwrap().is_none());
        eventually("the one that gave up has gone", || {
            left(place, dialect, &path) == [0, 2]
        });
        one.verify().unwrap();
        drop(one);
        let three = ours.acquire().unwrap();
        two.unlock().unwrap();
        three.unlock().unwrap();
        nothing_is_left(place, dialect, &path);
    }
}

fn a_waiting_thread_is_told_and_gets_the_next_permit(place: Place) {
    for &dialect in dialects(place) {
        let path = fresh_path("told");
        let (_client, ours) = semaphore(place, dialect, &path, 1);
        let (_other, theirs) = semaphore(place, dialect, &path, 1);
        let permit = ours.acquire().unwrap();
        let (told, waits) = crossbeam_channel::bounded(1);
        thread::scope(|scope| {
            scope.spawn(move || {
                let options = LockOptions::new().on_wait(|waiting| {
                    assert_eq!(waiting.position(), 1);
                    // It would wait for itself.
                    let refused = theirs.acquire().unwrap_err();
                    let path = theirs.path().to_owned();
                    assert_eq!(refused, Error::WouldDeadlock { path });
                    let _ = told.try_send(());
                });
                let _permit = theirs.acquire_with(options).unwrap().unwrap();
            });
            waits.recv().unwrap();
            permit.unlock().unwrap();
        });
        nothing_is_left(place, dialect, &path);
    }
}

fn a_permit_may_change_threads_and_is_lost_with_its_session(place: Place) {
    for &dialect in dialects(place) {
        let path = fresh_path("lost");
        let (client, semaphore) = semaphore(place, dialect, &path, 1);
        let permit: Permit = semaphore.acquire().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| permit.verify().unwrap());
        });
        expire_owner(place.shared(), permit.node());
        wait_for(&permit, GuardEvent::Lost);
        assert!(permit.unlock().unwrap_err().is_lost());
        let again = place.survivor(&client).semaphore(&path, 1).unwrap();
        drop(again.acquire().unwrap());
        nothing_is_left(place, dialect, &path);
    }
}

/// etcd #19597: the waiter went on waiting, in no queue. A waiter of ours once took itself for
/// evicted.
fn a_waiter_whose_session_expires_queues_again(place: Place) {
    let (path, waiter) = (fresh_path("expired"), Waiter::connect(place));
    let (_client, ours) = semaphore(place, Dialect::Curator, &path, 1);
    let theirs = waiter.client.semaphore(&path, 1).unwrap();
    let permit = ours.acquire().unwrap();
    let waiting = aside(move || theirs.acquire().map(drop));
    let leases = format!("{path}/leases");
    waiter.lose_sessions(&leases, permit.node(), &waiting);
    drop(permit);
    place.assert_gets_in(&waiting);
    nothing_is_left(place, Dialect::Curator, &path);
}

/// The waiter's first news looks like an eviction.
fn a_waiter_whose_node_is_gone_before_its_session_queues_again(place: Place) {
    let (path, waiter) = (fresh_path("before"), Waiter::connect(place));
    let (_client, ours) = semaphore(place, Dialect::Curator, &path, 1);
    let theirs = waiter.client.semaphore(&path, 1).unwrap();
    let permit = ours.acquire().unwrap();
    let waiting = aside(move || theirs.acquire().map(drop));
    // The waiter watches the directory.
    let leases = format!("{path}/leases");
    waiter.lose_node_and_session(&leases, &[permit.node()], &waiting, || {});
    drop(permit);
    place.assert_gets_in(&waiting);
    nothing_is_left(place, Dialect::Curator, &path);
}

/// The session has lost its node in the line and that of its permit: a client that created
/// one again without the other could wait for a client that waits for it.
fn a_session_that_expires_while_it_is_first_in_line_stops_nobody(place: Place) {
    let (server, path) = (place.shared(), fresh_path("first"));
    let (_client, ours) = semaphore(place, Dialect::Curator, &path, 1);
    let waiter = Waiter::connect(place);
    let one = waiter.client.semaphore(&path, 1).unwrap();
    let (_second, two) = semaphore(place, Dialect::Curator, &path, 1);
    let permit = ours.acquire().unwrap();
    let first = aside(move || one.acquire().map(drop));
    eventually("the first waits for a permit", || {
        left(place, Dialect::Curator, &path) == [1, 2]
    });
    let node = first_in_line(place, &path);
    let second = aside(move || two.acquire().map(drop));
    eventually("the second waits in the line", || {
        left(place, Dialect::Curator, &path) == [2, 2]
    });
    expire_owner(server, &node);
    eventually("both wait again", || {
        !first.is_empty()
            || (first_in_line(place, &path) != node
                && left(place, Dialect::Curator, &path) == [2, 2])
    });
    permit.unlock().unwrap();
    assert_eq!(second.recv_timeout(SOON), Ok(Ok(())));
    place.assert_gets_in(&first);
    nothing_is_left(place, Dialect::Curator, &path);
}

fn first_in_line(place: Place, path: &str) -> String {
    let locks = format!("{path}/locks");
    let mut names = children(&place.shared().hosts(), &locks);
    names.sort_by(|one, other| one[one.len() - 10..].cmp(&other[other.len() - 10..]));
    names
        .first()
        .map_or_else(String::new, |name| format!("{locks}/{name}"))
}

fn hundreds_wait_without_a_herd(place: Place) {
    const PERMITS: usize = 5;
    const CLIENTS: usize = 20;
    const EACH: usize = 10;
    for &dialect in dialects(place) {
        let path = fresh_path("hundreds");
        let network = Proxy::start(&place.shared().hosts());
        let inside = AtomicUsize::new(0);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| connect_to(place, dialect, &network.hosts()))
            .collect();
        thread::scope(|scope| {
            for client in &clients {
                for _ in 0..EACH {
                    scope.spawn(|| {
                        let semaphore = client.semaphore(&path, PERMITS as u32).unwrap();
                        let permit = semaphore.acquire().unwrap();
                        assert!(inside.fetch_add(1, Ordering::SeqCst) < PERMITS);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(permit);
                    });
                }
            }
        });
        nothing_is_left(place, dialect, &path);
        // Seven for each permit, and more where a busy machine makes the first place in the
        // line doubtful. If each release woke all clients, it would be twenty.
        let listings = network.requests(op::GET_CHILDREN) + network.requests(op::GET_CHILDREN2);
        println!("{listings} listings");
        assert!(listings < 12 * CLIENTS * EACH, "{listings} listings");
    }
}

fn a_cancel_at_any_time_is_heard(place: Place) {
    let network = Proxy::start(&place.shared().hosts());
    network.delay(Duration::from_millis(30));
    // A client's first call has the most requests to make; it takes half a second here.
    for cancelled_after in (0..400).step_by(40).map(Duration::from_millis) {
        let client = place.connect(&network.hosts());
        let semaphore = client.semaphore(&fresh_path("cancel"), 2).unwrap();
        let (cancel, cancelled) = crossbeam_channel::bounded(1);
        let (done, returned) = crossbeam_channel::bounded(1);
        thread::spawn(move || {
            let options = LockOptions::new().cancel(cancelled);
            let acquired = semaphore.acquire_with(options);
            drop(done.send(acquired.map(drop)));
        });
        thread::sleep(cancelled_after);
        network.blackhole();
        // This fails if the call has already returned.
        let _ = cancel.send(());
        let returned = returned.recv_timeout(SOON);
        network.heal();
        returned
            .unwrap_or_else(|_| panic!("cancelled after {cancelled_after:?}, and not heard"))
            .unwrap();
    }
}

/// Once, the try waited until the session of the silent client had ended.
fn a_try_waits_a_moment_at_most_for_who_fell_silent_while_it_acquired(place: Place) {
    let (client, path) = (connect(place, Dialect::Curator), fresh_path("silent"));
    let permits = client.semaphore(&path, 3).unwrap();
    let permit = permits.acquire().unwrap();
    let mut silent = Raw::connect(&place.shared().hosts());
    let node = format!("{path}/locks/_c_00000000-0000-0000-0000-000000000000-lock-");
    silent.create(&node, b"", EPHEMERAL_SEQUENTIAL).unwrap();
    let tries = permits.clone();
    let came = aside(move || tries.try_acquire().map(|permit| permit.is_none()));
    assert_eq!(came.recv_timeout(SOON), Ok(Ok(true)));
    drop((permit, silent));
    eventually("it is free again", || {
        permits.try_acquire().unwrap().is_some()
    });
}

/// Once, a try let others pass for a second, however long they took.
fn of_those_that_try_at_once_each_gets_a_free_permit_however_far_away_the_servers_are(
    place: Place,
) {
    const TRIES: usize = 6;
    let network = Proxy::start(&place.shared().hosts());
    let clients: Vec<_> = (0..TRIES)
        .map(|_| place.connect(&network.hosts()))
        .collect();
    network.delay(Duration::from_millis(100));
    let processes = clients.iter().collect::<Vec<_>>();
    for clients in [processes, vec![&clients[0]; TRIES]] {
        let (path, together) = (fresh_path("far"), Barrier::new(TRIES));
        let tried = |client: &Client| {
            let semaphore = client.semaphore(&path, TRIES as u32).unwrap();
            together.wait();
            semaphore.try_acquire().unwrap()
        };
        let tried = &tried;
        let all: Vec<_> = thread::scope(|scope| {
            let begun = clients
                .iter()
                .map(|client| scope.spawn(move || tried(client)));
            let begun: Vec<_> = begun.collect();
            begun.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let refused = all.iter().filter(|permit| permit.is_none()).count();
        assert_eq!(refused, 0, "of {TRIES}");
    }
}

/// Once, they let the first one pass for as long as the last answer had taken, which was a quick one.
fn threads_that_try_at_once_get_free_permits_although_a_write_takes_long(place: Place) {
    const TRIES: u32 = 3;
    let network = Proxy::start(&place.shared().hosts());
    let client = place.connect(&network.hosts());
    let semaphore = client.semaphore(&fresh_path("slow"), TRIES).unwrap();
    let together = Barrier::new(TRIES as usize);
    network.blackhole_at_next_request(op::CREATE2);
    thread::scope(|scope| {
        let tried = || {
            together.wait();
            semaphore.try_acquire().unwrap()
        };
        let begun: Vec<_> = (0..TRIES).map(|_| scope.spawn(tried)).collect();
        eventually("it writes", || network.fired());
        thread::sleep(Duration::from_millis(1300));
        network.heal();
        let all: Vec<_> = begun.into_iter().map(|one| one.join().unwrap()).collect();
        let refused = all.iter().filter(|permit| permit.is_none()).count();
        assert_eq!(refused, 0, "of {TRIES}");
    });
}

/// Once, it waited for twelve times as long as the write of its own node, or longer, and found no permit then.
fn a_try_behind_who_waits_for_a_permit_gives_up_once_it_sees_that_none_is_free(place: Place) {
    let (near, path) = (connect(place, Dialect::Curator), fresh_path("in-vain"));
    let network = Proxy::start(&place.shared().hosts());
    let far = place.connect(&network.hosts());
    let taken = near.semaphore(&path, 1).unwrap();
    drop(taken.acquire().unwrap());
    network.delay(Duration::from_millis(600));
    let tries = far.semaphore(&path, 1).unwrap();
    // The place in the line comes after the look that shows the free permit, and before the permit is taken.
    let (permit, waiter) = thread::scope(|scope| {
        let tried = scope.spawn(|| timed(|| tries.try_acquire().unwrap()));
        thread::sleep(Duration::from_millis(900));
        let permit = taken.acquire().unwrap();
        let other = connect(place, Dialect::Curator)
            .semaphore(&path, 1)
            .unwrap();
        let (cancel, cancelled) = crossbeam_channel::bounded(1);
        let waits = move || other.acquire_with(LockOptions::new().cancel(cancelled));
        let waiter = aside(waits);
        let (refused, took) = tried.join().unwrap();
        assert!(refused.is_none());
        assert!(took < Duration::from_secs(8), "it has waited for {took:?}");
        cancel.send(()).unwrap();
        (permit, waiter)
    });
    drop(permit);
    drop(waiter.recv_timeout(SOON).unwrap());
}
