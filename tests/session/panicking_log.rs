//! What goes on although a logger panics.

use std::fs;
use std::sync::atomic::Ordering;
use std::time::Duration;

use zklock::embedded::Server;
use zklock::{Client, Error};

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

#[cfg(feature = "tls")]
#[test]
fn a_log_that_panics_of_an_authority_costs_no_connection() {
    use crate::support::secure::Keys;
    use crate::support::worker::{Worker, itself};

    let keys = Keys::new();
    // The names are those of authorities in a folder.
    let folder = keys.folder.path("authorities");
    fs::create_dir(&folder).unwrap();
    fs::copy(keys.ca(), folder.join("00000000.0")).unwrap();
    fs::write(folder.join("00000000.1"), "-----BEGIN CERTIFICATE-----\n").unwrap();
    let mut command = itself();
    command
        .env("SSL_CERT_DIR", folder)
        .env_remove("SSL_CERT_FILE");
    let worker = Worker::launch(command, worker_that_trusts_the_system, "");
    worker.expect("it has panicked, and no server answers");
}

#[cfg(feature = "tls")]
#[test]
#[ignore = "a worker process"]
fn worker_that_trusts_the_system() {
    use crate::support::worker;

    let Some(_) = worker::input() else { return };
    let panics = Panics::at("an authority of the system cannot be read");
    let builder = Client::builder("127.0.0.1:1").tls(zklock::Tls::new());
    let told = builder.connect_timeout(Duration::from_millis(1)).connect();
    assert!(matches!(told, Err(Error::ConnectTimeout { .. })));
    assert!(panics.has_panicked());
    worker::say("it has panicked, and no server answers");
}
