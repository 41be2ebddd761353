//! A server that gives a new session to a client that asks for its old one, without saying
//! so, as ClickHouse Keeper does (ClickHouse issue 116690).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use zklock::embedded::Server;
use zklock::{GuardEvent, SessionEvent};

use super::{SOON, connect};
use crate::support::relay::{listen, pass_on};
use crate::support::{aside, eventually, fresh_path};

const TIMEOUT: Duration = Duration::from_secs(4);

#[test]
fn a_session_that_is_replaced_in_silence_costs_its_locks_before_anybody_else_has_them() {
    let server = Server::start().expect("a server");
    let client = connect(&forgetful(server.hosts()), TIMEOUT);
    let other = connect(server.hosts(), TIMEOUT);
    let (session, events) = (client.session_id(), client.events());
    let [held, awaited] = ["held", "awaited"].map(fresh_path);

    let guard = client.mutex(&held).unwrap().lock().unwrap();
    let mutex = other.mutex(&held).unwrap();
    let next = aside(move || mutex.lock().map(drop));
    let theirs = other.mutex(&awaited).unwrap().lock().unwrap();
    let mutex = client.mutex(&awaited).unwrap();
    let waited = aside(move || mutex.lock().map(|guard| guard.verify()));
    let queued = |path: &str| {
        let nodes = server.nodes();
        nodes.iter().filter(|node| node.starts_with(path)).count() - 1
    };
    eventually("both queues", || {
        queued(&held) == 2 && queued(&awaited) == 2
    });

    server.disconnect(session);
    while guard.events().recv_timeout(SOON).expect("an event") != GuardEvent::Lost {}
    assert!(guard.check().unwrap_err().is_lost());
    // The server keeps the old session until it times out.
    assert!(server.nodes().iter().any(|node| node == guard.node()));
    assert!(next.try_recv().is_err());
    let told = (0..3).map(|_| events.recv_timeout(SOON).expect("an event"));
    let told: Vec<_> = told.collect();
    let new = client.session_id();
    assert_ne!(new, session);
    let connected = SessionEvent::Connected { session: new };
    assert_eq!(
        told,
        [SessionEvent::Disconnected, SessionEvent::Expired, connected]
    );

    drop(theirs);
    next.recv_timeout(SOON).expect("the next holder").unwrap();
    let waited = waited.recv_timeout(SOON).expect("the waiter");
    waited.unwrap().unwrap();
}

/// Starts a relay in front of the server that asks for a new session whatever a client asks for.
fn forgetful(server: &str) -> String {
    let server = server.to_owned();
    listen(move |client| {
        let server = TcpStream::connect(&server).expect("the server");
        pass_on(&client, &server, |from, to| {
            let mut hello = [0; 48];
            from.read_exact(&mut hello)?;
            // The session follows the length, the version, the last transaction and the timeout;
            // the password follows its own length.
            hello[20..28].fill(0);
            hello[32..48].fill(0);
            to.write_all(&hello)
        });
        pass_on(&server, &client, |_, _| Ok(()));
    })
}
