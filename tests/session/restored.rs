//! Ensembles that are set up again, or restored, and have never heard of their clients.

use std::thread;
use std::time::Duration;

use zklock::{Client, GuardState, SessionEvent};

use super::connect;
use crate::support::proxy::Proxy;
use crate::support::raw::wait_for_children;
use crate::support::zookeeper::ZooKeeper;
use crate::support::{aside, eventually, fresh_path};

const TIMEOUT: Duration = Duration::from_secs(2);
/// How long this may take on a machine with other things to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// The number of clients, of which not all can get through by chance.
const CLIENTS: usize = 32;

#[test]
#[ignore = "needs a ZooKeeper server"]
fn clients_come_back_to_an_ensemble_that_was_set_up_anew_and_their_old_locks_are_lost() {
    let server = ZooKeeper::start();
    let hosts = server.hosts();
    let (client, other) = (connect(&hosts, TIMEOUT), connect(&hosts, TIMEOUT));
    let (session, events) = (client.session_id(), client.events());
    let [held, awaited] = ["held", "awaited"].map(fresh_path);
    let guard = client.mutex(&held).unwrap().lock().unwrap();
    let theirs = other.mutex(&awaited).unwrap().lock().unwrap();
    let mutex = client.mutex(&awaited).unwrap();
    let waited = aside(move || mutex.lock().map(|guard| guard.verify()));
    wait_for_children(&hosts, &awaited, 2);

    server.restart_empty();
    let waited = waited.recv_timeout(PATIENCE);
    waited.expect("the wait comes to an end").unwrap().unwrap();
    assert_eq!(guard.state(), GuardState::Lost);
    assert_eq!(theirs.state(), GuardState::Lost);
    let again = other.mutex(&held).unwrap();
    let again = aside(move || again.lock().map(drop)).recv_timeout(PATIENCE);
    again.expect("a new lock").unwrap();

    let new = client.session_id();
    assert!(new != session && new != 0);
    let told = [
        SessionEvent::Disconnected,
        SessionEvent::Expired,
        SessionEvent::Connected { session: new },
    ];
    // On a busy machine the old server may have been too slow, so that the client left it and came
    // back to it.
    let back = SessionEvent::Connected { session };
    let mut heard: Vec<_> = events.try_iter().filter(|event| *event != back).collect();
    heard.dedup();
    assert_eq!(heard, told);
    assert_eq!(client.metrics().expiries, 1);
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_session_outlives_a_time_without_servers_that_is_longer_than_its_timeout() {
    let server = ZooKeeper::start();
    // A busy machine has this long to come back to the restarted server.
    let timeout = 4 * TIMEOUT;
    let client = connect(&server.hosts(), timeout);
    let session = client.session_id();
    server.kill();
    // There is nothing to wait for: nothing must happen.
    thread::sleep(2 * timeout);
    server.restart();
    eventually("the client is back", || client.metrics().reconnects == 1);
    assert_eq!(client.session_id(), session);
    assert_eq!(client.metrics().expiries, 0);
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn sessions_outlive_a_time_in_which_clients_are_hung_up_on_for_longer_than_their_timeout() {
    let server = ZooKeeper::start();
    // The proxy accepts connections and hangs up while there is no server behind it.
    let proxy = Proxy::start(&server.hosts());
    // This is longer than the pause between two attempts to connect.
    let timeout = 2 * TIMEOUT;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| connect(&proxy.hosts(), timeout))
        .collect();
    let sessions: Vec<_> = clients.iter().map(Client::session_id).collect();
    server.kill();
    // There is nothing to wait for: nothing must happen.
    thread::sleep(2 * timeout);
    server.restart();
    eventually("all are back", || {
        let mut all = clients.iter().map(|client| client.metrics().reconnects);
        all.all(|reconnects| reconnects == 1)
    });
    // The server may come back between a client's request for its session, which gets no answer,
    // and its request for a new one, which follows at once. On a busy machine that happens to some
    // clients.
    let now = clients.iter().map(Client::session_id);
    let lost = now.zip(&sessions).filter(|(now, then)| now != *then);
    let lost = lost.count();
    assert!(lost <= CLIENTS / 4, "{lost} of {CLIENTS}");
}
