//! What goes on although a logger panics.

use std::sync::atomic::Ordering;
use std::time::Duration;

use zklock::Client;
use zklock::embedded::Server;

use crate::SOON;
use crate::panics::Panics;
use crate::support::worker::alone;
use crate::support::{aside, eventually};

#[test]
fn a_thread_whose_log_panics_in_line_leaves_its_place_to_the_next() {
    alone(|| {
        let panics = Panics::at("another thread of this client has");
        let server = Server::start().unwrap();
        for handoffs in [0, 5] {
            panics.armed.store(true, Ordering::SeqCst);
            let builder = Client::builder(server.hosts()).local_handoffs(handoffs);
            let client = builder.connect().unwrap();
            let mutex = client.mutex("/panics/line").unwrap();
            let held = mutex.lock().unwrap().into_send();
            let (one, next) = (mutex.clone(), mutex.clone());
            assert!(aside(move || one.lock().map(drop)).recv().is_err());
            let next = aside(move || next.lock().map(drop));
            let dropped = aside(move || drop(held));
            dropped.recv_timeout(SOON).expect("the drop hangs");
            next.recv_timeout(SOON)
                .expect("the next one hangs")
                .unwrap();
        }
    });
}

#[test]
fn a_log_that_panics_at_the_end_of_a_connection_ends_no_client() {
    alone(|| {
        let panics = Panics::at("the connection broke");
        let server = Server::start().unwrap();
        let client = Client::connect(server.hosts()).unwrap();
        let other = Client::connect(server.hosts()).unwrap();
        let mutex = client.mutex("/panics/broken").unwrap();
        let held = other.mutex("/panics/broken").unwrap().lock().unwrap();
        let locked = aside(move || mutex.lock().map(drop));
        eventually("it waits", || {
            other.contenders("/panics/broken").unwrap().len() == 2
        });
        // So that its request is open when the connection ends.
        server.delay(Duration::from_secs(60));
        let asked = aside({
            let client = client.clone();
            move || client.contenders("/panics/broken").map(drop)
        });
        server.disconnect(client.session_id());
        eventually("it panics", || panics.has_panicked());
        server.resume();
        drop(held);
        locked
            .recv_timeout(SOON)
            .expect("the waiter hangs")
            .unwrap();
        asked
            .recv_timeout(SOON)
            .expect("the request hangs")
            .unwrap();
    });
}

#[test]
fn a_log_that_panics_of_a_revoke_request_leaves_locks_confirmed_and_nodes_deleted() {
    alone(|| {
        let panics = Panics::at("asks for the lock");
        let server = Server::start().unwrap();
        let client = Client::connect(server.hosts()).unwrap();
        let other = Client::connect(server.hosts()).unwrap();
        let held = client.mutex("/panics/revoked").unwrap().lock().unwrap();
        eventually("it panics", || {
            other.contenders("/panics/revoked").unwrap()[0]
                .revoke()
                .unwrap();
            panics.has_panicked()
        });
        server.refuse();
        server.disconnect(client.session_id());
        drop(held);
        server.resume();
        let next = other.mutex("/panics/revoked").unwrap();
        assert!(next.try_lock_for(SOON).unwrap().is_some(), "a ghost has it");
    });
}
