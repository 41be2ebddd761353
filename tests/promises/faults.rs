//! The promises of a mutex when the network, the server or an operator interferes.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use zklock::{Client, Error, GuardEvent, GuardState, LockOptions, LostReason, MutexGuard};

use crate::support::proxy::Proxy;
use crate::support::raw::{
    EPHEMERAL_SEQUENTIAL, Raw, assert_nothing_left, children, op, wait_for_children,
};
use crate::support::worker::{self, Worker};
use crate::support::zookeeper::ZooKeeper;
use crate::support::{eventually, fresh_path, timed, within};
use crate::transport::{TIMEOUT, Transport, on_every_transport};

/// A time longer than any call takes unless it hangs, and shorter than a hang.
const SOON: Duration = Duration::from_secs(10);

on_every_transport! {
    a_holder_learns_of_its_loss_before_anybody_else_has_the_lock
    a_paused_holder_finds_its_lock_lost_when_it_goes_on
    a_holder_whose_node_is_deleted_has_lost_the_lock
    a_waiter_whose_node_is_deleted_is_evicted
    a_waiter_whose_node_is_deleted_does_not_get_the_lock_from_the_last_one_ahead
    a_waiter_whose_node_is_deleted_does_not_get_the_lock_from_who_became_the_last
    a_lost_reply_to_the_create_leaves_one_node
    a_lost_create_is_repeated
    a_lost_reply_to_the_release_leaves_nothing
    a_lost_release_is_repeated
    a_lost_request_to_end_the_session_is_repeated
    a_truncated_reply_does_not_end_the_wait
    a_waiter_gets_the_lock_after_its_connection_was_cut
    a_waiter_gets_the_lock_after_its_look_at_the_queue_was_lost
    a_deadline_holds_in_a_blackhole_and_nothing_is_left_when_it_heals
    a_flapping_network_causes_neither_overlap_nor_leftovers
    a_release_wakes_the_next_two_and_nobody_else
    trying_a_taken_lock_changes_nothing
    an_idle_client_costs_the_server_nothing_but_pings
}

/// CURATOR-460: the loss was reported when another client could long have had the lock.
fn a_holder_learns_of_its_loss_before_anybody_else_has_the_lock(transport: Transport) {
    let (server, path) = (ZooKeeper::shared(), fresh_path("early"));
    let proxy = Proxy::start(&server.hosts());
    let timeout = Duration::from_secs(2);
    let client = transport.connect_with(&proxy.hosts(), timeout);
    let guard = client.mutex(&path).unwrap().lock().unwrap();
    let other = transport.connect(&server.hosts());
    thread::scope(|scope| {
        let next = scope.spawn(|| {
            let next = other.mutex(&path).unwrap().lock().unwrap();
            (guard.check().is_err(), next.fencing_token())
        });
        wait_for_children(&server.hosts(), &path, 2);
        proxy.blackhole();
        let (lost, token) = next.join().unwrap();
        assert!(lost, "two had the lock");
        assert!(guard.fencing_token() < token);
    });
    assert_eq!(guard.state(), GuardState::Lost);
    assert_eq!(guard.valid_for(), Duration::ZERO);
    wait_for_event(&guard, GuardEvent::Lost);
    assert!(guard.verify().unwrap_err().is_lost());
    let (unlocked, took) = timed(|| guard.unlock());
    assert!(unlocked.unwrap_err().is_lost());
    assert!(took < SOON, "{took:?}");
    proxy.heal();
    assert_nothing_left(&server.hosts(), &path);
}

#[test]
#[ignore = "a worker process"]
fn worker_that_holds_until_it_has_lost() {
    let Some(input) = worker::input() else { return };
    let [transport, hosts, path] = worker::words(&input);
    let client = Transport::named(&transport).connect_with(&hosts, Duration::from_secs(4));
    let guard = client.mutex(&path).unwrap().lock().unwrap();
    worker::say("locked");
    eventually("the lock is lost", || guard.check().is_err());
    worker::say("lost");
}

/// etcd #11456: a lock whose lease had expired was handed out.
fn a_paused_holder_finds_its_lock_lost_when_it_goes_on(transport: Transport) {
    let (server, path) = (ZooKeeper::shared(), fresh_path("paused"));
    let input = format!("{transport:?} {} {path}", server.hosts());
    let holder = Worker::spawn(worker_that_holds_until_it_has_lost, &input);
    holder.expect("locked");
    holder.pause();
    let client = transport.connect(&server.hosts());
    let guard = client.mutex(&path).unwrap().lock().unwrap();
    assert!(holder.lines().is_empty());
    holder.resume();
    holder.expect("lost");
    assert!(guard.is_valid());
    drop(guard);
    assert_nothing_left(&server.hosts(), &path);
}

fn a_holder_whose_node_is_deleted_has_lost_the_lock(transport: Transport) {
    let (server, path) = (ZooKeeper::shared(), fresh_path("deleted"));
    let client = transport.connect(&server.hosts());
    let guard = client.mutex(&path).unwrap().lock().unwrap();
    Raw::connect(&server.hosts()).delete(guard.node()).unwrap();
    wait_for_event(&guard, GuardEvent::Lost);
    let reason = match transport {
        Transport::Wire => LostReason::Evicted,
        // A handle cannot distinguish an eviction from the end of the session.
        #[cfg(feature = "zookeeper")]
        Transport::Handle => LostReason::NodeGone,
    };
    eventually("it is known why", || guard.lost_reason() == Some(reason));
    let lost = Err(Error::Lost {
        path: path.clone(),
        why: reason,
    });
    assert_eq!(
        (guard.check(), guard.verify()),
        (lost.clone(), lost.clone())
    );
    assert_eq!(guard.unlock(), lost);
    // The client works as before.
    client
        .mutex(&path)
        .unwrap()
        .lock()
        .unwrap()
        .unlock()
        .unwrap();
    assert_nothing_left(&server.hosts(), &path);
}

/// go-zookeeper: a waiter that was no longer in the queue took itself for the first.
fn a_waiter_whose_node_is_deleted_is_evicted(transport: Transport) {
    let (server, path) = (ZooKeeper::shared(), fresh_path("evicted"));
    let holder = transport.connect(&server.hosts());
    let guard = holder.mutex(&path).unwrap().lock().unwrap();
    let mut raw = Raw::connect(&server.hosts());
    let ahead = raw.create(&format!("{path}/x-lock-"), b"", EPHEMERAL_SEQUENTIAL);
    let waiter = transport.connect(&server.hosts());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| waiter.mutex(&path).unwrap().lock().map(drop));
        wait_for_children(&server.hosts(), &path, 3);
        let nodes = children(&server.hosts(), &path);
        let name = nodes.iter().find(|name| name.ends_with('2')).unwrap();
        let node = format!("{path}/{name}");
        raw.delete(&node).unwrap();
        raw.delete(&ahead.unwrap()).unwrap();
        assert_eq!(waiting.join().unwrap(), Err(Error::Evicted { node }));
    });
    assert!(guard.is_valid());
    drop(guard);
    assert_nothing_left(&server.hosts(), &path);
}

fn a_waiter_whose_node_is_deleted_does_not_get_the_lock_from_the_last_one_ahead(
    transport: Transport,
) {
    let (server, path) = (ZooKeeper::shared(), fresh_path("evicted-next"));
    let (one, two) = (
        transport.connect(&server.hosts()),
        transport.connect(&server.hosts()),
    );
    let guard = one.mutex(&path).unwrap().lock().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| two.mutex(&path).unwrap().lock().map(drop));
        wait_for_children(&server.hosts(), &path, 2);
        let nodes = children(&server.hosts(), &path);
        let name = nodes.iter().find(|name| name.ends_with('1')).unwrap();
        let node = format!("{path}/{name}");
        Raw::connect(&server.hosts()).delete(&node).unwrap();
        guard.unlock().unwrap();
        assert_eq!(waiting.join().unwrap(), Err(Error::Evicted { node }));
    });
    assert_nothing_left(&server.hosts(), &path);
}

fn a_waiter_whose_node_is_deleted_does_not_get_the_lock_from_who_became_the_last(
    transport: Transport,
) {
    let (hosts, path) = (ZooKeeper::shared().hosts(), fresh_path("evicted-third"));
    let mut node = String::new();
    let taken = in_line_behind(2, transport, (&hosts, &path), |first, positions| {
        first.unlock().unwrap();
        assert_eq!(positions.recv_timeout(SOON), Ok(1));
        let nodes = children(&hosts, &path);
        let name = nodes.iter().find(|name| name.ends_with('2')).unwrap();
        node = format!("{path}/{name}");
        Raw::connect(&hosts).delete(&node).unwrap();
    });
    assert_eq!(taken, Err(Error::Evicted { node }));
    assert_nothing_left(&hosts, &path);
}

/// Queues a client with these hosts behind this many others; returns whether it got the lock. The
/// last of the others holds the lock from its turn until `act` returns; those between release at
/// once. `act` gets the guard of the first one, and the places that the client is told after its
/// first place.
fn in_line_behind(
    others: usize,
    transport: Transport,
    (hosts, path): (&str, &str),
    act: impl FnOnce(MutexGuard, &Receiver<usize>),
) -> Result<bool, Error> {
    let server = ZooKeeper::shared();
    let connect = |_| transport.connect(&server.hosts());
    let ahead: Vec<_> = (0..others).map(connect).collect();
    let comer = transport.connect(hosts);
    let lock = |at: usize| ahead[at].mutex(path).unwrap().lock().unwrap();
    let first = lock(0);
    let (leave, leaving) = crossbeam_channel::bounded::<()>(0);
    let (told, positions) = crossbeam_channel::unbounded();
    thread::scope(|scope| {
        for at in 1..others {
            let leaving = (at + 1 == others).then(|| leaving.clone());
            scope.spawn(move || {
                let _guard = lock(at);
                leaving.map(|leaving| leaving.recv())
            });
            wait_for_children(&server.hosts(), path, at + 1);
        }
        let waiting = scope.spawn(|| {
            let options = LockOptions::new().deadline(Instant::now() + 2 * SOON);
            let options = options.on_wait(|waiting| {
                let _ = told.send(waiting.position());
            });
            let taken = comer.mutex(path).unwrap().lock_with(options);
            taken.map(|guard| guard.is_some())
        });
        assert_eq!(positions.recv_timeout(SOON), Ok(others));
        act(first, &positions);
        drop(leave);
        waiting.join().unwrap()
    })
}

/// Returns the request that creates a node; only newer clients ask for its stat.
fn create(transport: Transport) -> i32 {
    match transport {
        Transport::Wire => op::CREATE2,
        #[cfg(feature = "zookeeper")]
        Transport::Handle => op::CREATE,
    }
}

fn a_lost_reply_to_the_create_leaves_one_node(transport: Transport) {
    let (server, path) = (ZooKeeper::shared(), fresh_path("reply"));
    let proxy = Proxy::start(&server.hosts());
    let client = transport.connect(&proxy.hosts());
    let mutex = client.mutex(&path).unwrap();
    drop(mutex.lock().unwrap());
    wait_for_children(&server.hosts(), &path, 0);

    proxy.drop_next_reply_to(create(transport));
    let guard = mutex.lock().unwrap();
    assert!(proxy.fired());
    guard.verify().unwrap();
    wait_for_children(&server.hosts(), &path, 1);
    drop(guard);
    assert_nothing_left(&server.hosts(), &path);
}

fn a_lost_create_is_repeated(transport: Transport) {
    let (server, path) = (ZooKeeper::shared(), fresh_path("request"));
    let proxy = Proxy::start(&server.hosts());
    let client = transport.connect(&proxy.hosts());
    let mutex = client.mutex(&path).unwrap();
    proxy.drop_next_request(create(transport));
    let guard = mutex.lock().unwrap();
    assert!(proxy.fired());
    guard.verify().unwrap();
    wait_for_children(&server.hosts(), &path, 1);
    drop(guard);
    assert_nothing_left(&server.hosts(), &path);
}

fn a_lost_reply_to_the_release_leaves_nothing(transport: Transport) {
    let (server, path) = (ZooKeeper::shared(), fresh_path("release"));
    let proxy = Proxy::start(&server.hosts());
    let client = transport.connect(&proxy.hosts());
    let guard = client.mutex(&path).unwrap().lock().unwrap();
    proxy.drop_next_reply_to(op::DELETE);
    let (unlocked, took) = timed(|| guard.unlock());
    // A handle does not know whether its session, and the lock with it, has survived.
    assert!(
        matches!(
            unlocked,
            Ok(()) | Err(Error::Lost { .. } | Error::Suspect { .. })
        ),
        "{unlocked:?}"
    );
    if transport == Transport::Wire {
        assert_eq!(unlocked, Ok(()));
    }
    assert!(took < SOON, "{took:?}");
    assert!(proxy.fired());
    assert_nothing_left(&server.hosts(), &path);
}

/// CURATOR-486: a release that failed was not repeated.
fn a_lost_release_is_repeated(transport: Transport) {
    let (server, path) = (ZooKeeper::shared(), fresh_path("repeat"));
    let proxy = Proxy::start(&server.hosts());
    // The node must be deleted: it would outlive this test otherwise.
    let client = transport.connect_with(&proxy.hosts(), Duration::from_secs(10));
    let guard = client.mutex(&path).unwrap().lock().unwrap();
    proxy.drop_next_request(op::DELETE);
    drop(guard);
    let gone = within(Duration::from_secs(6), || {
        children(&server.hosts(), &path).is_empty()
    });
    assert!(proxy.fired());
    if transport == Transport::Wire {
        assert!(gone, "the release was not repeated");
    }
    assert_nothing_left(&server.hosts(), &path);
}

fn a_lost_request_to_end_the_session_is_repeated(transport: Transport) {
    let (server, path) = (ZooKeeper::shared(), fresh_path("end"));
    let proxy = Proxy::start(&server.hosts());
    let client = transport.connect(&proxy.hosts());
    let _guard = client.mutex(&path).unwrap().lock().unwrap();
    proxy.drop_next_request(op::CLOSE);
    assert_eq!(client.close(), Ok(()));
    assert!(proxy.fired());
    assert_eq!(children(&server.hosts(), &path), [""; 0]);
}

fn a_truncated_reply_does_not_end_the_wait(transport: Transport) {
    let (server, path) = (ZooKeeper::shared(), fresh_path("truncated"));
    let proxy = Proxy::start(&server.hosts());
    let client = transport.connect(&proxy.hosts());
    let mutex = client.mutex(&path).unwrap();
    for _ in 0..3 {
        proxy.truncate_next_reply();
        let guard = mutex.lock().unwrap();
        assert!(proxy.fired());
        drop(guard);
    }
    assert_nothing_left(&server.hosts(), &path);
}

fn a_waiter_gets_the_lock_after_its_look_at_the_queue_was_lost(transport: Transport) {
    let (hosts, path) = (ZooKeeper::shared().hosts(), fresh_path("look"));
    let proxy = Proxy::start(&hosts);
    let through = proxy.hosts();
    let taken = in_line_behind(3, transport, (&through, &path), |first, positions| {
        proxy.drop_next_request(op::GET_CHILDREN);
        first.unlock().unwrap();
        assert_eq!(positions.recv_timeout(SOON), Ok(1));
        assert!(proxy.fired());
    });
    assert_eq!(taken, Ok(true));
    assert_nothing_left(&hosts, &path);
}

/// kazoo #29, kazoo #151: watches were lost with the connection, and waiters hung.
fn a_waiter_gets_the_lock_after_its_connection_was_cut(transport: Transport) {
    let (server, path) = (ZooKeeper::shared(), fresh_path("cut"));
    let proxy = Proxy::start(&server.hosts());
    let holder = transport.connect(&server.hosts());
    let guard = holder.mutex(&path).unwrap().lock().unwrap();
    let waiter = transport.connect(&proxy.hosts());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| waiter.mutex(&path).unwrap().lock().map(|g| g.verify()));
        wait_for_children(&server.hosts(), &path, 2);
        for connections in 2..4 {
            proxy.cut();
            eventually("the waiter connects again", || {
                proxy.connections() >= connections
            });
        }
        assert!(!waiting.is_finished());
        drop(guard);
        assert_eq!(waiting.join().unwrap(), Ok(Ok(())));
    });
    assert_nothing_left(&server.hosts(), &path);
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn a_cut_costs_a_waiter_no_place_in_the_queue() {
    let (server, path) = (ZooKeeper::shared(), fresh_path("place"));
    let proxy = Proxy::start(&server.hosts());
    let wire = Transport::Wire;
    let holder = wire.connect(&server.hosts());
    let guard = holder.mutex(&path).unwrap().lock().unwrap();
    let (first, second) = (wire.connect(&proxy.hosts()), wire.connect(&server.hosts()));
    let order = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for (i, client) in [&first, &second].into_iter().enumerate() {
            let (order, path) = (&order, &path);
            scope.spawn(move || {
                let _guard = client.mutex(path).unwrap().lock().unwrap();
                order.lock().unwrap().push(i);
            });
            wait_for_children(&server.hosts(), path, i + 2);
        }
        let before = children(&server.hosts(), &path);
        proxy.cut();
        eventually("the waiter connects again", || proxy.connections() == 2);
        assert_eq!(children(&server.hosts(), &path), before);
        drop(guard);
    });
    assert_eq!(order.into_inner().unwrap(), [0, 1]);
    assert_nothing_left(&server.hosts(), &path);
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn a_lock_survives_a_short_cut_in_doubt() {
    let (server, path) = (ZooKeeper::shared(), fresh_path("survive"));
    let proxy = Proxy::start(&server.hosts());
    let client = Transport::Wire.connect(&proxy.hosts());
    let guard = client.mutex(&path).unwrap().lock().unwrap();
    proxy.cut();
    wait_for_event(&guard, GuardEvent::Suspect);
    wait_for_event(&guard, GuardEvent::Held);
    assert!(guard.is_valid());
    guard.verify().unwrap();
    guard.unlock().unwrap();
    assert_nothing_left(&server.hosts(), &path);
}

fn a_deadline_holds_in_a_blackhole_and_nothing_is_left_when_it_heals(transport: Transport) {
    let (server, path) = (ZooKeeper::shared(), fresh_path("hole"));
    let proxy = Proxy::start(&server.hosts());
    let client = transport.connect(&proxy.hosts());
    let mutex = client.mutex(&path).unwrap();
    drop(mutex.lock().unwrap());
    proxy.blackhole();
    for limit in [0, 1, 300].map(Duration::from_millis) {
        let (result, took) = timed(|| mutex.try_lock_for(limit));
        assert!(
            matches!(result, Err(Error::ConnectTimeout { .. })),
            "{result:?}"
        );
        assert!(took < limit + SOON / 2, "{took:?}");
    }
    proxy.heal();
    assert_nothing_left(&server.hosts(), &path);
}

fn a_flapping_network_causes_neither_overlap_nor_leftovers(transport: Transport) {
    let (server, path) = (ZooKeeper::shared(), fresh_path("flap"));
    let proxies = [(); 3].map(|()| Proxy::start(&server.hosts()));
    let end = Instant::now() + Duration::from_secs(5);
    let stays = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for proxy in &proxies {
            let client = transport.connect_with(&proxy.hosts(), Duration::from_secs(4));
            let (stays, path) = (&stays, &path);
            scope.spawn(move || {
                while Instant::now() < end {
                    proxy.cut();
                    thread::sleep(Duration::from_millis(fastrand::u64(0..100)));
                }
            });
            scope.spawn(move || {
                let mutex = client.mutex(path).unwrap();
                while Instant::now() < end {
                    let Ok(Some(guard)) = mutex.try_lock_until(end) else {
                        continue;
                    };
                    let entered = Instant::now();
                    if guard.check().is_err() {
                        continue;
                    }
                    thread::sleep(Duration::from_millis(1));
                    let left = Instant::now();
                    // A holder that finds its lock valid now was alone until now.
                    if guard.check().is_ok() {
                        let token = guard.fencing_token();
                        stays.lock().unwrap().push((entered, left, token));
                    }
                }
                drop(client);
            });
        }
    });
    let mut stays = stays.into_inner().unwrap();
    stays.sort();
    println!("{transport:?}: {} stays", stays.len());
    for pair in stays.windows(2) {
        assert!(pair[0].1 <= pair[1].0 && pair[0].2 < pair[1].2, "{pair:?}");
    }
    assert_nothing_left(&server.hosts(), &path);
}

fn a_release_wakes_the_next_two_and_nobody_else(transport: Transport) {
    let (server, path) = (ZooKeeper::shared(), fresh_path("herd"));
    let proxies = [(); 5].map(|()| Proxy::start(&server.hosts()));
    let holder = transport.connect(&server.hosts());
    let guard = holder.mutex(&path).unwrap().lock().unwrap();
    thread::scope(|scope| {
        let mut gates = Vec::new();
        for proxy in &proxies {
            let client = transport.connect_with(&proxy.hosts(), Duration::from_secs(10));
            let (inside, entered) = crossbeam_channel::bounded(1);
            let (leave, leaving) = crossbeam_channel::bounded::<()>(0);
            let (told, waits) = crossbeam_channel::bounded(1);
            let path = &path;
            scope.spawn(move || {
                let options = LockOptions::new().on_wait(|_| {
                    let _ = told.try_send(());
                });
                let _guard = client.mutex(path).unwrap().lock_with(options).unwrap();
                // Both calls end when the other side of the channel is dropped, which is when all
                // may leave.
                let _ = inside.send(());
                let _ = leaving.recv();
            });
            // The waiter's watches are set; after that it sends nothing.
            waits.recv_timeout(SOON).expect("it waits");
            gates.push((entered, leave));
        }
        let before = proxies.each_ref().map(Proxy::all_requests);
        drop(guard);
        gates[0].0.recv_timeout(SOON).unwrap();
        let after = proxies.each_ref().map(Proxy::all_requests);
        // The second waiter checks whether it is the next.
        assert_eq!(after[2..], before[2..], "others were woken");
        drop(gates);
    });
    assert_nothing_left(&server.hosts(), &path);
}

fn trying_a_taken_lock_changes_nothing(transport: Transport) {
    let (server, path) = (ZooKeeper::shared(), fresh_path("no-write"));
    let proxy = Proxy::start(&server.hosts());
    let holder = transport.connect(&server.hosts());
    let _guard = holder.mutex(&path).unwrap().lock().unwrap();
    let client = transport.connect(&proxy.hosts());
    let mutex = client.mutex(&path).unwrap();
    for _ in 0..5 {
        assert!(mutex.try_lock().unwrap().is_none());
    }
    let writes = [op::CREATE, op::CREATE2, op::DELETE, op::MULTI];
    assert_eq!(writes.map(|opcode| proxy.requests(opcode)), [0; 4]);
    // These writes are refused; they let a server that lags catch up.
    assert_eq!(proxy.requests(op::SET_DATA), 5);
}

fn an_idle_client_costs_the_server_nothing_but_pings(transport: Transport) {
    let (server, path) = (ZooKeeper::shared(), fresh_path("idle"));
    let proxy = Proxy::start(&server.hosts());
    let client = transport.connect_with(&proxy.hosts(), TIMEOUT);
    drop(client.mutex(&path).unwrap().lock().unwrap());
    assert_nothing_left(&server.hosts(), &path);
    eventually("the client is quiet", || {
        let before = proxy.all_requests();
        !within(Duration::from_millis(300), || {
            proxy.all_requests() != before
        })
    });
    let counts = || (proxy.all_requests(), proxy.connections());
    let (before, pings) = (counts(), proxy.requests(op::PING));
    eventually("the client pings", || proxy.requests(op::PING) > pings + 1);
    assert_eq!(counts(), before);
}

#[track_caller]
fn wait_for_event(guard: &MutexGuard, event: GuardEvent) {
    let deadline = Instant::now() + TIMEOUT + SOON;
    loop {
        match guard.events().recv_deadline(deadline) {
            Ok(told) if told == event => return,
            Ok(_) => {}
            Err(error) => panic!("not told of {event:?}: {error}"),
        }
    }
}

#[test]
fn an_idle_client_can_ping_half_as_often_and_does_not_while_it_waits() {
    let (server, path) = (ZooKeeper::shared(), fresh_path("sparse"));
    let client = |pings: u32| {
        let proxy = Proxy::start(&server.hosts());
        let builder = Client::builder(&proxy.hosts()).session_timeout(Duration::from_secs(4));
        let client = builder.idle_pings(pings).connect().unwrap();
        (client, proxy)
    };
    let (regular, sparse, waiting) = (client(6), client(3), client(3));
    let guard = regular.0.mutex(&path).unwrap().lock().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| drop(waiting.0.mutex(&path).unwrap().lock().unwrap()));
        wait_for_children(&server.hosts(), &path, 2);
        // The first waiter in line lets its node be confirmed instead.
        let sent = |of: &(Client, Proxy)| of.1.requests(op::PING) + of.1.requests(op::MULTI);
        let before = (sent(&waiting), sent(&sparse));
        eventually("the one that waits is heard of", || {
            sent(&waiting) >= before.0 + 12
        });
        let sent = sent(&sparse) - before.1;
        assert!((4..=8).contains(&sent), "{sent}");
        drop(guard);
    });
}
