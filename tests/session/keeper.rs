//! Servers that end sessions by a wall clock: ClickHouse Keeper and RaftKeeper, which the tests imitate from their
//! sources.

use std::time::Duration;

use zklock::embedded::Server;
use zklock::{Client, Error, GuardEvent, Once, SessionEvent};

use super::SOON;
use crate::support::keeper::{self, Kind};
use crate::support::proxy::Proxy;
use crate::support::raw::op;
use crate::support::{aside, eventually, fresh_path};

const TIMEOUT: Duration = Duration::from_secs(4);
const KINDS: [Kind; 2] = [Kind::ClickHouse, Kind::Raft];

fn accepting(hosts: &str) -> Client {
    let client = Client::builder(hosts).session_timeout(TIMEOUT);
    client.wall_clock_expiry(true).connect().expect("a client")
}

#[test]
fn a_server_that_ends_sessions_by_a_wall_clock_is_refused_unless_that_is_accepted() {
    for kind in KINDS {
        let server = Server::start().expect("a server");
        let hosts = keeper::start(kind, server.hosts());
        let refused = Client::builder(&hosts).connect_timeout(TIMEOUT).connect();
        let Err(Error::ConnectTimeout { tried, .. }) = refused else {
            panic!("{refused:?}");
        };
        let told = |line: &String| line.contains("wall_clock_expiry");
        assert!(tried.iter().any(told), "{tried:?}");
        let client = accepting(&hosts);
        let guard = client.mutex("/m").unwrap().lock().unwrap();
        guard.verify().unwrap();
    }
}

#[test]
fn a_zookeeper_beside_one_that_is_refused_is_used() {
    let server = Server::start().expect("a server");
    let refused = keeper::start(Kind::ClickHouse, server.hosts());
    // The order in which the servers are asked is shuffled.
    for _ in 0..4 {
        let hosts = format!("{refused},{}", server.hosts());
        Client::connect(&hosts).expect("a session");
    }
}

/// ClickHouse Keeper begins a new session, RaftKeeper goes on with the old one.
#[test]
fn a_break_costs_the_locks_where_no_session_is_resumed() {
    for kind in KINDS {
        let server = Server::start().expect("a server");
        let client = accepting(&keeper::start(kind, server.hosts()));
        let (session, events) = (client.session_id(), client.events());
        let guard = client.mutex("/m").unwrap().lock().unwrap();
        server.disconnect(session);
        assert_eq!(events.recv_timeout(SOON), Ok(SessionEvent::Disconnected));
        if kind == Kind::Raft {
            eventually("it is held again", || guard.verify().is_ok());
            assert_eq!(client.session_id(), session);
            continue;
        }
        while guard.events().recv_timeout(SOON).expect("an event") != GuardEvent::Lost {}
        // The server keeps the old node until the old session times out, and then nobody waits.
        let again = client.mutex("/m").unwrap();
        drop(guard);
        aside(move || again.lock().map(drop))
            .recv_timeout(SOON)
            .expect("the lock is free in time")
            .unwrap();
    }
}

/// RaftKeeper then greets with another version of the protocol, which ZooKeeper does not do.
#[test]
fn a_session_that_raftkeeper_has_ended_is_replaced() {
    let server = Server::start().expect("a server");
    let client = accepting(&keeper::start(Kind::Raft, server.hosts()));
    let (session, path) = (client.session_id(), fresh_path("ended"));
    let guard = client.mutex(&path).unwrap().lock().unwrap();
    assert!(server.expire_session(session));
    while guard.events().recv_timeout(SOON).expect("an event") != GuardEvent::Lost {}
    eventually("a new session", || {
        ![0, session].contains(&client.session_id())
    });
    drop(guard);
    client
        .mutex(&path)
        .unwrap()
        .lock()
        .unwrap()
        .verify()
        .unwrap();
}

/// ClickHouse Keeper begins a new session, and still has the old one's node when the transaction that begins
/// the run comes once more.
#[test]
fn a_run_does_not_begin_in_a_session_whose_lock_is_not_held() {
    let server = Server::start().expect("a server");
    let proxy = Proxy::start(&keeper::start(Kind::ClickHouse, server.hosts()));
    let client = accepting(&proxy.hosts());
    let job = client.job("/job").unwrap();
    let runs = |slot| {
        let run = job.once(slot, |_| Ok::<_, String>(()));
        assert!(matches!(run, Ok(Once::Done(()))), "{run:?}");
    };
    runs("1");
    proxy.drop_next_request(op::MULTI);
    runs("2");
}
