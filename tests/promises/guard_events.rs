//! The events that a guard reports to its holder, and those that it does not.

use std::time::Duration;

use crossbeam_channel::RecvTimeoutError;
use zklock::{GuardEvent, GuardState};

use crate::support::fresh_path;
use crate::support::proxy::Proxy;
use crate::transport::{Place, SOON, in_every_place, on_every_server};

/// A time longer than any event takes that is already on its way.
const QUIET: Duration = Duration::from_millis(30);

in_every_place! {
    the_first_guard_of_a_fresh_client_hears_nothing
}

// On a handle, a guard is lost with its connection.
on_every_server! {
    a_guard_hears_of_a_broken_connection_and_that_it_is_well_again
}

fn the_first_guard_of_a_fresh_client_hears_nothing(place: Place) {
    let (hosts, path) = (place.shared().hosts(), fresh_path("quiet"));
    for _ in 0..20 {
        let client = place.connect(&hosts);
        let guard = client.mutex(&path).unwrap().lock().unwrap();
        let heard = guard.events().recv_timeout(QUIET);
        assert_eq!(heard, Err(RecvTimeoutError::Timeout));
        assert_eq!(guard.state(), GuardState::Held);
    }
}

fn a_guard_hears_of_a_broken_connection_and_that_it_is_well_again(place: Place) {
    let network = Proxy::start(&place.shared().hosts());
    let client = place.connect(&network.hosts());
    let guard = client.mutex(&fresh_path("broken")).unwrap().lock().unwrap();
    for _ in 0..5 {
        network.cut();
        for event in [GuardEvent::Suspect, GuardEvent::Held] {
            assert_eq!(guard.events().recv_timeout(SOON), Ok(event));
        }
        assert!(guard.is_valid());
    }
    guard.unlock().unwrap();
}
