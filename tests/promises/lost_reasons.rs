//! The reasons of lost locks: wherever a lock says that it is lost, it also says why.

use std::error::Error as _;
use std::time::Duration;

use zklock::embedded::Server;
use zklock::{Client, Error, GuardEvent, LostReason, MutexGuard};

use crate::support::proxy::Proxy;
use crate::support::{eventually, fresh_path, timed};
use crate::transport::{Place, on_every_server, wait_for};

on_every_server! {
    an_evicted_holder_learns_that_it_was_evicted
    a_holder_that_is_cut_off_learns_that_nothing_was_confirmed
    a_holder_whose_client_is_closed_learns_that
}

#[track_caller]
fn finds(guard: MutexGuard, path: &str, why: LostReason) {
    wait_for(&guard, GuardEvent::Lost);
    eventually("the reason is known", || guard.lost_reason() == Some(why));
    let lost = Error::Lost {
        path: path.to_owned(),
        why,
    };
    assert_eq!(guard.check(), Err(lost.clone()));
    assert_eq!(guard.verify(), Err(lost.clone()));
    assert_eq!(guard.unlock(), Err(lost.clone()));
    let message = lost.to_string();
    assert!(message.contains(&why.to_string()), "{message}");
}

fn an_evicted_holder_learns_that_it_was_evicted(place: Place) {
    let (hosts, path) = (place.shared().hosts(), fresh_path("evicted"));
    let (client, other) = (place.connect(&hosts), place.connect(&hosts));
    for pause in [Duration::ZERO, Duration::from_millis(200)] {
        // The pause decides whether there is a watch on the guard's node.
        let guard = client.mutex(&path).unwrap().lock().unwrap();
        assert_eq!(guard.lost_reason(), None);
        std::thread::sleep(pause);
        other.contenders(&path).unwrap()[0].evict().unwrap();
        finds(guard, &path, LostReason::Evicted);
    }
    // The release finds the loss out, unless there was time to set a watch on the guard's node.
    let lost = within_a_moment(|| {
        let guard = client.mutex(&path).unwrap().lock().unwrap();
        other.contenders(&path).unwrap()[0].evict().unwrap();
        guard.unlock().unwrap_err()
    });
    let why = LostReason::Evicted;
    assert_eq!(lost, Error::Lost { path, why });
}

/// Returns the first result that has taken less time than a guard's node stays unwatched.
fn within_a_moment<T>(mut run: impl FnMut() -> T) -> T {
    loop {
        let (result, took) = timed(&mut run);
        if took < Duration::from_millis(50) {
            return result;
        }
    }
}

fn a_holder_that_is_cut_off_learns_that_nothing_was_confirmed(place: Place) {
    let network = Proxy::start(&place.shared().hosts());
    let path = fresh_path("cut-off");
    let client = place.connect(&network.hosts());
    let guard = client.mutex(&path).unwrap().lock().unwrap();
    network.blackhole();
    finds(guard, &path, LostReason::NotConfirmed);
}

fn a_holder_whose_client_is_closed_learns_that(place: Place) {
    let path = fresh_path("closed");
    let client = place.connect(&place.shared().hosts());
    let guard = client.mutex(&path).unwrap().lock().unwrap();
    client.close().unwrap();
    let source = guard.check().unwrap_err();
    let source = source.source().map(ToString::to_string);
    assert_eq!(source, Some(Error::Closed.to_string()));
    finds(guard, &path, LostReason::Closed);
}

#[test]
fn a_holder_whose_session_expires_learns_that() {
    let server = Server::start().unwrap();
    let client = Client::connect(server.hosts()).unwrap();
    for pause in [Duration::ZERO, Duration::from_millis(200)] {
        let guard = client.mutex("/m").unwrap().lock().unwrap();
        std::thread::sleep(pause);
        server.expire_session(client.session_id());
        finds(guard, "/m", LostReason::SessionExpired);
    }
}

#[cfg(feature = "zookeeper")]
#[test]
fn a_holder_on_a_handle_that_is_disconnected_learns_that() {
    use crate::transport::Transport;

    let server = Server::start().unwrap();
    let network = Proxy::start(server.hosts());
    let client = Transport::Handle.connect(&network.hosts());
    let guard = client.mutex("/m").unwrap().lock().unwrap();
    network.cut();
    finds(guard, "/m", LostReason::Disconnected);
}
