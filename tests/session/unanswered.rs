//! Tries without an answer: a lock is said to be taken only if a server has said so.

use std::time::{Duration, Instant};

use crossbeam_channel::bounded;
use zklock::embedded::Server;
use zklock::{Client, Contender, Error, JobOptions, LockOptions, Once};

use super::{SOON, connect};
use crate::support::proxy::Proxy;
use crate::support::raw::op;
use crate::support::{aside, eventually};

const TIMEOUT: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(300);

type Way = (&'static str, fn(&Client) -> zklock::Result<bool>);

/// Every way to try once, and every way with a limit; each returns whether it got the lock.
const WAYS: [Way; 11] = [
    ("try_lock", |client| {
        Ok(client.mutex("/m")?.try_lock()?.is_some())
    }),
    ("try_lock_for", |client| {
        Ok(client.mutex("/m")?.try_lock_for(SHORT)?.is_some())
    }),
    ("try_lock_until", |client| {
        let deadline = Instant::now() + SHORT;
        Ok(client.mutex("/m")?.try_lock_until(deadline)?.is_some())
    }),
    ("reentrant", |client| {
        Ok(client.reentrant_mutex("/r")?.try_lock()?.is_some())
    }),
    ("try_read", |client| {
        Ok(client.rwlock("/rw")?.try_read()?.is_some())
    }),
    ("try_write", |client| {
        Ok(client.rwlock("/rw")?.try_write()?.is_some())
    }),
    ("try_write_for", |client| {
        Ok(client.rwlock("/rw")?.try_write_for(SHORT)?.is_some())
    }),
    ("try_acquire", |client| {
        Ok(client.semaphore("/s", 2)?.try_acquire()?.is_some())
    }),
    ("try_acquire_for", |client| {
        Ok(client.semaphore("/s", 2)?.try_acquire_for(SHORT)?.is_some())
    }),
    ("multi_lock", |client| {
        Ok(client.multi_lock(["/a", "/b"])?.try_lock()?.is_some())
    }),
    ("job", |client| {
        let options = JobOptions::new().wait(false);
        let ran = client
            .job("/j")?
            .once_with("a", options, |_| Ok::<_, Error>(()))?;
        Ok(matches!(ran, Once::Done(())))
    }),
];

#[test]
fn without_a_connection_every_try_ends_soon_and_with_an_error() {
    let server = Server::start().expect("a server");
    let network = Proxy::start(server.hosts());
    let client = connect(&network.hosts(), TIMEOUT);
    network.refuse();
    network.cut();
    eventually("it is cut off", || {
        client.state() != zklock::SessionState::Connected
    });
    for (name, way) in WAYS {
        let (client, begun) = (client.clone(), Instant::now());
        let tried = aside(move || way(&client)).recv_timeout(SOON);
        let tried = tried.unwrap_or_else(|_| panic!("{name} goes on"));
        assert!(
            begun.elapsed() < TIMEOUT / 4,
            "{name}: {:?}",
            begun.elapsed()
        );
        match tried {
            Err(Error::ConnectTimeout { tried, .. }) => assert!(!tried.is_empty(), "{name}"),
            other => panic!("{name}: {other:?}"),
        }
    }
    network.accept();
    eventually("it is back", || {
        client.state() == zklock::SessionState::Connected
    });
    for (name, way) in WAYS.into_iter().filter(|(name, _)| !name.contains("_for")) {
        assert_eq!(way(&client), Ok(true), "{name}");
    }
}

/// Returns a server, and two clients of it: the first is connected over this network.
fn scene() -> (Server, Proxy, [Client; 2]) {
    let server = Server::start().expect("a server");
    let network = Proxy::start(server.hosts());
    let clients = [&network.hosts(), server.hosts()].map(|hosts| connect(hosts, TIMEOUT));
    (server, network, clients)
}

#[test]
fn a_limit_that_ends_without_a_connection_tells_of_a_holder_that_a_server_named() {
    let (_server, network, [client, other]) = scene();
    let _held = other.mutex("/m").unwrap().lock().unwrap();
    let (to, waits) = bounded(1);
    let mutex = client.mutex("/m").unwrap();
    let limited = aside(move || {
        let options = LockOptions::new().timeout(3 * SHORT);
        let told = options.on_wait(|_| {
            let _ = to.try_send(());
        });
        mutex.lock_with(told).map(|guard| guard.is_some())
    });
    waits.recv_timeout(SOON).expect("it waits");
    network.refuse();
    network.cut();
    assert_eq!(limited.recv_timeout(SOON), Ok(Ok(false)));
}

#[test]
fn a_guard_of_this_client_is_told_as_taken_without_a_connection_too() {
    let server = Server::start().expect("a server");
    let network = Proxy::start(server.hosts());
    let client = connect(&network.hosts(), TIMEOUT);
    let guard = client.mutex("/m").unwrap().lock().unwrap();
    network.refuse();
    network.cut();
    eventually("it is cut off", || {
        client.state() != zklock::SessionState::Connected
    });
    let mutex = client.mutex("/m").unwrap();
    let tried = aside(move || mutex.try_lock().map(|guard| guard.is_some()));
    assert_eq!(tried.recv_timeout(SOON), Ok(Ok(false)));
    guard.check().unwrap();
}

#[test]
fn a_wait_for_a_change_that_no_server_answers_fails_at_its_limit() {
    let (_server, network, [client, other]) = scene();
    let _held = other.mutex("/m").unwrap().lock().unwrap();
    network.blackhole();
    let fails = || {
        let (client, begun) = (client.clone(), Instant::now());
        let waited = aside(move || client.wait_for_change("/m", &[], SHORT));
        let waited = waited.recv_timeout(SOON).expect("it ends");
        assert!(SHORT <= begun.elapsed());
        let limit = match waited {
            Err(Error::ConnectTimeout { limit, .. }) => limit,
            other => panic!("{other:?}"),
        };
        assert_eq!(limit, SHORT);
    };
    fails();
    network.refuse();
    network.cut();
    fails();
    // The call waits for a connection within its limit.
    let watching = client.clone();
    let changed = aside(move || watching.wait_for_change("/m", &[], SOON));
    network.heal();
    network.accept();
    let changed = changed.recv_timeout(SOON).expect("it ends").unwrap();
    assert_eq!(changed.len(), 1);
}

#[test]
fn a_wait_for_a_change_whose_connection_breaks_later_returns_what_a_server_told() {
    let (_server, network, [client, other]) = scene();
    let _held = other.mutex("/m").unwrap().lock().unwrap();
    let known = client.contenders("/m").unwrap();
    let looks = || network.requests(op::GET_CHILDREN) + network.requests(op::EXISTS);
    let before = looks();
    client.wait_for_change("/m", &known, SHORT).unwrap();
    let (begun, watching, nodes) = (looks(), client.clone(), known.clone());
    let waited = aside(move || watching.wait_for_change("/m", &nodes, 5 * SHORT));
    eventually("it has asked", || looks() == begun + (begun - before));
    // Answers come in order.
    client.nodes().get("/m").unwrap();
    network.refuse();
    network.cut();
    let waited = waited.recv_timeout(SOON).expect("it ends").unwrap();
    let nodes = |all: &[Contender]| {
        all.iter()
            .map(|one| one.node().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(nodes(&waited), nodes(&known));
}
