//! A server that leaves a request that it does not know without an answer, and answers the
//! others, as RaftKeeper did with `create2`.

use std::time::Duration;

use zklock::embedded::Server;
use zklock::{Client, Error, Result};

use super::{SOON, connect};
use crate::support::proxy::Proxy;
use crate::support::raw::op;
use crate::support::{aside, eventually, fresh_path};

const TIMEOUT: Duration = Duration::from_secs(8);

/// The requests that a client sends, and ZooKeeper 3.4 does not know.
const NEWER: [(&str, i32); 3] = [
    ("create2", op::CREATE2),
    ("createContainer", op::CREATE_CONTAINER),
    ("removeWatches", op::REMOVE_WATCHES),
];

/// How often a client sends such a request to a server that lacks it and answers later ones.
const TRIES: usize = 3;

/// Takes locks of every kind, some of which wait.
fn work(client: &Client, other: &Client, transacts: bool) -> Result<()> {
    for _ in 0..3 {
        let path = fresh_path("dropping");
        let guard = client.mutex(&path)?.lock()?;
        eventually("it is confirmed", || guard.verify().is_ok());
        guard.unlock()?;
        let held = other.mutex(&path)?.lock()?;
        let limited = client
            .mutex(&path)?
            .try_lock_for(Duration::from_millis(100));
        // The connection may end meanwhile.
        match limited {
            Ok(None) | Err(Error::ConnectTimeout { .. }) => {}
            other => panic!("it is held: {other:?}"),
        }
        held.unlock()?;
        let [rw, s, a, b] = ["rw", "s", "a", "b"].map(fresh_path);
        client.rwlock(&rw)?.read()?.unlock()?;
        client.rwlock(&rw)?.write()?.unlock()?;
        client.semaphore(&s, 2)?.acquire()?.unlock()?;
        match client.multi_lock([&*a, &*b])?.lock() {
            Ok(all) => all.unlock()?,
            // Without transactions, there are none.
            Err(Error::Unsupported { .. }) if !transacts => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[test]
fn a_server_that_drops_a_newer_request_for_ever_costs_three_reconnects_at_most() {
    for (name, opcode) in NEWER {
        for has_good_neighbour in [false, true] {
            let server = Server::start().expect("a server");
            let network = Proxy::start(server.hosts());
            network.swallow(opcode);
            let mut hosts = network.hosts();
            if has_good_neighbour {
                hosts = format!("{hosts},{}", server.hosts());
            }
            let client = connect(&hosts, TIMEOUT);
            let session = client.session_id();
            finish(name, &client, &server);
            let tried = network.requests(opcode);
            assert!(tried <= TRIES, "{name}: tried {tried} times");
            assert!(has_good_neighbour || 0 < tried, "{name}");
            assert_eq!(client.session_id(), session, "{name}");
        }
    }
}

/// The server that drops the request may be the last one that the client comes to, as while others
/// are upgraded.
#[test]
fn what_another_server_knew_is_not_asked_of_one_that_drops_it() {
    for (name, opcode) in NEWER {
        let server = Server::start().expect("a server");
        let [good, bad] = [(); 2].map(|()| Proxy::start(server.hosts()));
        bad.swallow(opcode);
        bad.refuse();
        let hosts = format!("{},{}", good.hosts(), bad.hosts());
        let client = connect(&hosts, TIMEOUT);
        finish("all is known", &client, &server);
        bad.accept();
        good.refuse();
        finish(name, &client, &server);
        let tried = bad.requests(opcode);
        assert!(tried <= 1 + TRIES, "{name}: tried {tried} times");
    }
}

/// Takes each lock without transactions; an operation that is a transaction by its nature says that
/// there are none.
#[test]
fn a_server_that_drops_transactions_for_ever_has_locks_without_them() {
    let server = Server::start().expect("a server");
    let network = Proxy::start(server.hosts());
    network.swallow(op::MULTI);
    let client = connect(&network.hosts(), TIMEOUT);
    finish("multi", &client, &server);
    // A busy machine may cost some more.
    assert!(network.connections() <= 9, "{}", network.connections());
    let guard = client.mutex("/m").unwrap().lock().unwrap();
    let written = guard.transaction().create("/written", b"").commit();
    assert!(
        matches!(written, Err(Error::Unsupported { .. })),
        "{written:?}"
    );
}

/// Repeats the work until all is done.
#[track_caller]
fn finish(name: &str, client: &Client, server: &Server) {
    let other = connect(server.hosts(), TIMEOUT);
    let (client, transacts) = (client.clone(), name != "multi");
    let worked = aside(move || work(&client, &other, transacts)).recv_timeout(2 * SOON);
    let worked = worked.unwrap_or_else(|_| panic!("{name}: it goes on"));
    worked.unwrap_or_else(|error| panic!("{name}: {error}"));
}
