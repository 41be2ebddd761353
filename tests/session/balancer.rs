//! Servers behind one address, where a balancer picks one for each connection.

use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use zklock::MutexGuard;
use zklock::embedded::Server;

use super::{SOON, connect};
use crate::support::ensemble::Ensemble;
use crate::support::relay::Relay;
use crate::support::{aside, eventually, free_port, fresh_path, timed};

/// The timeout of a session whose guards outlast a machine that is busy for a second or two.
const TIMEOUT: Duration = Duration::from_secs(8);

/// The age at which a connection is no longer a failure.
const WORTHWHILE: Duration = Duration::from_millis(700);

#[test]
#[ignore = "needs ZooKeeper servers"]
fn behind_a_load_balancer_a_session_moves_from_server_to_server_and_keeps_its_lock() {
    let ensemble = Ensemble::start();
    let servers = (0..3).map(|i| ensemble.server(i).hosts()).collect();
    let balancer = Relay::start(servers);
    let timeout = Duration::from_secs(8);
    let [holder, waiter] = [(); 2].map(|()| connect(&balancer.hosts, timeout));
    let path = fresh_path("balanced");
    let guard = holder.mutex(&path).unwrap().lock().unwrap();
    let mutex = waiter.mutex(&path).unwrap();
    let next = aside(move || mutex.lock().map(|guard| guard.fencing_token()));
    eventually("it waits", || holder.contenders(&path).unwrap().len() == 2);
    // The balancer leads each client to each server, and to one that does not exist.
    for round in 0..6 {
        if round == 3 {
            ensemble.kill(ensemble.follower().expect("a follower"));
        }
        // A client that is cut off sooner asks for connections more and more rarely.
        thread::sleep(WORTHWHILE);
        let before = balancer.picked().len();
        balancer.cut();
        eventually("both are back", || before + 2 <= balancer.picked().len());
        eventually("it is held", || guard.verify().is_ok());
        assert_eq!(holder.contenders(&path).unwrap().len(), 2);
        assert!(next.is_empty());
    }
    let token = guard.fencing_token();
    guard.unlock().unwrap();
    assert!(token < next.recv_timeout(SOON).unwrap().unwrap());
    let picked = balancer.picked();
    assert!((0..3).all(|server| picked.contains(&server)), "{picked:?}");
}

/// Checks that a client keeps its lock however often its connections are cut, and although the
/// balancer leads it to servers that refuse or keep silent in between.
fn a_restless_client_keeps_its_lock(bad: Vec<String>) {
    let server = Server::start().expect("a server");
    let mut servers = vec![server.hosts().to_owned()];
    servers.extend(bad);
    let balancer = Relay::start(servers);
    let client = connect(&balancer.hosts, TIMEOUT);
    let session = client.session_id();
    let guard = client.mutex("/restless").unwrap().lock().unwrap();
    let begun = Instant::now();
    let mut cuts = 0;
    while begun.elapsed() < 2 * TIMEOUT {
        eventually("a server answers", || {
            guard.verify().is_ok() || lost(&guard)
        });
        assert!(!lost(&guard), "it is lost after {cuts} cuts");
        // The connection is too short to count as steady.
        thread::sleep(WORTHWHILE / 3);
        balancer.cut();
        cuts += 1;
    }
    assert_eq!(client.session_id(), session);
    println!("{cuts} cuts");
}

fn lost(guard: &MutexGuard) -> bool {
    guard.check().is_err_and(|error| error.is_lost())
}

#[test]
fn who_is_cut_off_again_and_again_keeps_its_lock_although_most_servers_refuse() {
    let refused = format!("127.0.0.1:{}", free_port());
    a_restless_client_keeps_its_lock(vec![refused; 2]);
}

#[test]
fn who_is_cut_off_again_and_again_keeps_its_lock_although_another_server_is_silent() {
    let mute = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let silent = mute.local_addr().expect("its port").to_string();
    a_restless_client_keeps_its_lock(vec![silent]);
}

/// The address has greeted quickly before.
#[test]
fn a_balancer_that_leads_to_a_silent_server_twice_costs_a_small_part_of_the_session_timeout() {
    const TIMEOUT: Duration = Duration::from_secs(32);
    let server = Server::start().expect("a server");
    let mute = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let silent = mute.local_addr().expect("its port").to_string();
    let servers = [server.hosts(), &silent, &silent].map(str::to_owned);
    let balancer = Relay::start(servers.to_vec());
    let client = connect(&balancer.hosts, TIMEOUT);
    let guard = client.mutex("/twice").unwrap().lock().unwrap();
    // A connection that was too short costs a pause.
    thread::sleep(WORTHWHILE);
    balancer.cut();
    let ((), took) = timed(|| eventually("it is back", || guard.verify().is_ok()));
    assert_eq!(balancer.picked(), [0, 1, 2, 0]);
    assert!(took < TIMEOUT / 16, "{took:?}");
}
