//! Servers behind one address, where a balancer picks one for each connection.

use std::thread;
use std::time::Duration;

use super::{SOON, connect};
use crate::support::ensemble::Ensemble;
use crate::support::relay::Relay;
use crate::support::{aside, eventually, fresh_path};

/// A connection that lived this long was not a failure.
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
    // Each client is led to each server, and to one that does not exist.
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
