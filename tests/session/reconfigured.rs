//! Ensembles whose servers are replaced under a client that runs on.

use std::time::Duration;

use zklock::embedded::Server;
use zklock::{Client, GuardEvent, MutexGuard};

use super::SOON;
use crate::support::ensemble::Ensemble;
use crate::support::members::Members;
use crate::support::zookeeper::ZooKeeper;
use crate::support::{aside, eventually, fresh_path};

/// The timeout of a session whose guards outlast an election on a very busy machine, and the tick
/// of servers that grant it.
const TIMEOUT: Duration = Duration::from_secs(40);
const TICK: Duration = Duration::from_secs(2);

fn follower(hosts: &str) -> Client {
    let builder = Client::builder(hosts).session_timeout(TIMEOUT);
    let builder = builder.create_chroot(true).follow_reconfiguration(true);
    builder.connect().expect("a client")
}

fn is_held(guard: &MutexGuard) {
    eventually("it is held", || {
        guard.check().expect("it is not lost");
        guard.verify().is_ok()
    });
}

#[test]
#[ignore = "needs ZooKeeper servers"]
fn a_lock_is_held_and_waited_for_while_every_server_is_replaced() {
    let mut members = Members::start(TICK);
    let hosts = format!("{}/app", members.hosts());
    let [holder, waiter] = [(); 2].map(|()| follower(&hosts));
    let path = fresh_path("replaced");
    let guard = holder.mutex(&path).unwrap().lock().unwrap();
    let mutex = waiter.mutex(&path).unwrap();
    let next = aside(move || mutex.lock().map(|guard| guard.fencing_token()));
    eventually("it waits", || holder.contenders(&path).unwrap().len() == 2);
    let sessions = [holder.session_id(), waiter.session_id()];
    for _ in 0..3 {
        let before = connections(members.oldest(), &sessions);
        let removed = members.replace_oldest();
        // The clients move while the server is up. A client that finds the others slow comes back,
        // and stays.
        eventually("nobody has stayed on the server", || {
            let there = connections(&removed, &sessions);
            !there.iter().any(|one| before.contains(one))
        });
        drop(removed);
        is_held(&guard);
        assert_eq!(holder.contenders(&path).unwrap().len(), 2);
        assert!(next.is_empty());
    }
    assert_eq!([holder.session_id(), waiter.session_id()], sessions);
    let lost = |event: GuardEvent| matches!(event, GuardEvent::Lost);
    assert!(!guard.events().try_iter().any(lost));
    let token = guard.fencing_token();
    guard.unlock().unwrap();
    assert!(token < next.recv_timeout(SOON).unwrap().unwrap());
}

/// Returns the clients' ends of the connections that these sessions have to a server.
fn connections(server: &ZooKeeper, sessions: &[i64]) -> Vec<String> {
    let all = server.four_letter("cons").unwrap_or_default();
    let is_ours = |line: &&str| {
        let mut sessions = sessions.iter();
        sessions.any(|session| line.contains(&format!("sid={session:#x},")))
    };
    let ends = all
        .lines()
        .filter(is_ours)
        .filter_map(|line| line.split_once('['));
    ends.map(|(end, _)| end.to_owned()).collect()
}

fn locks_as_any_other(hosts: &str) {
    let client = follower(hosts);
    let path = fresh_path("alone");
    let guard = client.mutex(&path).unwrap().lock().unwrap();
    guard.verify().unwrap();
    guard.unlock().unwrap();
}

#[test]
fn a_follower_of_a_server_without_a_configuration_locks_as_any_other() {
    let server = Server::start().unwrap();
    locks_as_any_other(server.hosts());
}

/// The configuration of such a server is empty.
#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_follower_of_a_server_without_others_locks_as_any_other() {
    locks_as_any_other(&ZooKeeper::shared().hosts());
}

/// Each of these servers keeps its port for clients to itself.
#[test]
#[ignore = "needs ZooKeeper servers"]
fn a_follower_of_servers_that_name_no_ports_for_clients_goes_on_with_those_it_has() {
    let ensemble = Ensemble::start_with(&ZooKeeper::builder().fsync(false).tick(TICK));
    let client = follower(&ensemble.hosts());
    let path = fresh_path("unnamed");
    let guard = client.mutex(&path).unwrap().lock().unwrap();
    ensemble.roll(|_| is_held(&guard));
    is_held(&guard);
    guard.unlock().unwrap();
}
