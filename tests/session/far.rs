//! Servers that are far away.

use std::time::Duration;

use zklock::Error;
use zklock::embedded::Server;

use super::connect;
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
