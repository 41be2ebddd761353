//! Servers that are far away, or were.

use std::thread;
use std::time::Duration;

use zklock::Error;
use zklock::embedded::Server;

use super::connect;
use crate::support::eventually;
use crate::support::proxy::Proxy;

const TIMEOUT: Duration = Duration::from_secs(4);

/// Once, the message said that no server answers.
#[test]
fn who_gets_no_lock_because_a_round_trip_takes_too_long_is_told_so() {
    let server = Server::start().expect("a server");
    let far = Proxy::start(server.hosts());
    let round_trip = TIMEOUT * 3 / 10;
    far.delay(round_trip / 2);
    let client = connect(&far.hosts(), TIMEOUT);
    let error = client.mutex("/m").unwrap().try_lock().unwrap_err();
    let Error::ConnectTimeout {
        round_trip: took, ..
    } = error
    else {
        panic!("{error}");
    };
    assert!(Some(round_trip) <= took, "{took:?}");
    let message = error.to_string();
    assert!(message.contains("too late for a lock"), "{message}");
    assert!(message.contains("s or more"), "{message}");
}

/// Once, the message said that no server answers.
#[test]
fn who_gets_no_lock_because_the_session_may_be_due_is_told_so() {
    let server = Server::start().expect("a server");
    let near = Proxy::start(server.hosts());
    let client = connect(&near.hosts(), TIMEOUT);
    // The client has committed nothing for so long that its session may be due when it comes back.
    thread::sleep(TIMEOUT * 11 / 10);
    near.cut();
    eventually("it is back", || client.metrics().reconnects == 1);
    let mutex = client.mutex("/m").unwrap();
    let error = mutex.try_lock_for(TIMEOUT / 10).unwrap_err();
    let Error::ConnectTimeout { held_back, .. } = error else {
        panic!("{error}");
    };
    let left = held_back.expect("how long it would have gone on");
    assert!(left <= TIMEOUT / 4, "{left:?}");
    let message = error.to_string();
    assert!(message.contains("about to end the session"), "{message}");
    // Who waits that much longer gets the lock.
    assert!(mutex.try_lock_for(TIMEOUT).unwrap().is_some());
}
