//! What a guard tells its holder, and what it does not.

use std::time::Duration;

use crossbeam_channel::RecvTimeoutError;
use zklock::embedded::Server;
use zklock::{Client, GuardEvent, GuardState};

/// Longer than any event takes that is on its way already.
const QUIET: Duration = Duration::from_millis(30);
const SOON: Duration = Duration::from_secs(10);

#[test]
fn the_first_guard_of_a_fresh_client_hears_nothing() {
    let server = Server::start().unwrap();
    for _ in 0..20 {
        let client = Client::connect(server.hosts()).unwrap();
        let guard = client.mutex("/m").unwrap().lock().unwrap();
        let heard = guard.events().recv_timeout(QUIET);
        assert_eq!(heard, Err(RecvTimeoutError::Timeout));
        assert_eq!(guard.state(), GuardState::Held);
    }
}

#[test]
fn a_guard_hears_of_a_broken_connection_and_that_it_is_well_again() {
    let server = Server::start().unwrap();
    let client = Client::connect(server.hosts()).unwrap();
    let guard = client.mutex("/m").unwrap().lock().unwrap();
    for _ in 0..5 {
        server.disconnect_all();
        for event in [GuardEvent::Suspect, GuardEvent::Held] {
            assert_eq!(guard.events().recv_timeout(SOON), Ok(event));
        }
        assert!(guard.is_held());
    }
    guard.unlock().unwrap();
}
