//! Connections that are cut every second while there is work to do.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use zklock::embedded::Server;
use zklock::{Client, Error, GuardEvent, SessionEvent};

use super::{SOON, a_while, connect};
use crate::support::proxy::Proxy;
use crate::support::raw::{assert_nothing_left, children, op};
use crate::support::zookeeper::ZooKeeper;
use crate::support::{eventually, fresh_path, timed, within};

/// The timeout of a session whose guards are valid for half of it after each proof.
const LONG: Duration = Duration::from_secs(40);

/// The state that the holders of one lock leave for each other.
#[derive(Default)]
struct Room {
    inside: AtomicUsize,
    last_token: AtomicI64,
    visits: AtomicUsize,
    closing: AtomicBool,
}

impl Room {
    /// Locks, checks and releases until the room is closed.
    fn visit_often(&self, client: &Client, path: &str) {
        let mutex = client.mutex(path).unwrap();
        while !self.closing.load(Ordering::Acquire) {
            let guard = mutex.lock().unwrap();
            assert_eq!(
                self.inside.fetch_add(1, Ordering::SeqCst),
                0,
                "two are inside"
            );
            let token = guard.fencing_token().get();
            assert!(self.last_token.swap(token, Ordering::SeqCst) < token);
            thread::sleep(Duration::from_millis(1));
            assert_eq!(
                self.inside.fetch_sub(1, Ordering::SeqCst),
                1,
                "two are inside"
            );
            guard.check().unwrap();
            self.visits.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_busy_client_loses_nothing_when_its_connection_is_cut_every_second() {
    let server = ZooKeeper::shared();
    let proxy = Proxy::start(&server.hosts());
    let timeout = Duration::from_secs(10);
    let (victim, other) = (
        connect(&proxy.hosts(), timeout),
        connect(&server.hosts(), timeout),
    );
    let (held, busy) = (fresh_path("held"), fresh_path("busy"));
    let (session, events) = (victim.session_id(), victim.events());
    let guard = victim.mutex(&held).unwrap().lock().unwrap();
    let (room, begun) = (Room::default(), Instant::now());
    let (mut cuts, mut held_throughout) = (0, true);
    thread::scope(|scope| {
        for client in [&victim, &victim, &other] {
            scope.spawn(|| room.visit_often(client, &busy));
        }
        while begun.elapsed() < a_while(Duration::from_secs(20)) {
            thread::sleep(Duration::from_secs(1));
            let before = room.visits.load(Ordering::Relaxed);
            // A panic at this place would leave the other threads running for ever.
            held_throughout &= guard.is_valid();
            within(SOON, || proxy.connections() > cuts);
            proxy.cut();
            cuts += 1;
            println!("{:?}: cut {cuts}, {before} visits", begun.elapsed());
        }
        room.closing.store(true, Ordering::Release);
    });
    assert!(held_throughout);
    guard.verify().unwrap();
    assert!(
        !guard
            .events()
            .try_iter()
            .any(|event| event == GuardEvent::Lost)
    );
    assert_eq!(victim.session_id(), session);
    assert_eq!(
        children(&server.hosts(), &held).len(),
        1,
        "no ghost of the held lock"
    );
    assert_nothing_left(&server.hosts(), &busy);
    guard.unlock().unwrap();
    assert_nothing_left(&server.hosts(), &held);

    let sessions: HashSet<_> = events.try_iter().map(session_of).collect();
    assert_eq!(sessions, HashSet::from([None, Some(session)]));
    assert_eq!(
        proxy.connections(),
        cuts + 1,
        "one connection after each cut"
    );
    let visits = room.visits.into_inner();
    println!("{cuts} cuts, {visits} visits");
    assert!(visits > 5 * cuts);
}

/// Fails on an event that cuts of the connection do not cause.
fn session_of(event: SessionEvent) -> Option<i64> {
    match event {
        SessionEvent::Connected { session } => Some(session),
        SessionEvent::Disconnected => None,
        event => panic!("{event:?}"),
    }
}

#[test]
fn verify_asks_again_where_the_connection_is_back_at_once() {
    let server = Server::start().expect("a server");
    let proxy = Proxy::start(server.hosts());
    let client = connect(&proxy.hosts(), LONG);
    let guard = client.mutex("/m").unwrap().lock().unwrap();
    for _ in 0..3 {
        proxy.drop_next_request(op::MULTI);
        guard.verify().expect("it is held");
        assert!(proxy.fired(), "the connection was not cut");
    }
}

/// The guard is valid for long, and its owner asks for a proof.
#[test]
fn verify_waits_for_no_connection_for_long_in_an_outage() {
    let server = Server::start().expect("a server");
    let proxy = Proxy::start(server.hosts());
    let client = connect(&proxy.hosts(), LONG);
    let guard = client.mutex("/m").unwrap().lock().unwrap();
    proxy.refuse();
    for _ in 0..2 {
        let (verified, took) = timed(|| guard.verify());
        let is_suspect = matches!(verified, Err(Error::Suspect { .. }));
        assert!(is_suspect && guard.check().is_ok(), "{verified:?}");
        assert!(took < LONG / 8, "{took:?}");
    }
    proxy.accept();
    eventually("it is confirmed", || guard.verify().is_ok());
}
