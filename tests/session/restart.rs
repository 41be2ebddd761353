//! The server dies and comes back.

use std::thread;
use std::time::Duration;

use zklock::GuardState;

use super::{SOON, connect};
use crate::logs;
use crate::support::raw::{assert_nothing_left, wait_for_children};
use crate::support::worker::alone;
use crate::support::zookeeper::ZooKeeper;
use crate::support::{eventually, fresh_path, timed};

/// The session timeout, half of which is far longer than a server takes to start.
const TIMEOUT: Duration = Duration::from_secs(40);

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_lock_and_its_queue_survive_a_server_that_is_killed_and_started_again() {
    let server = ZooKeeper::builder().tick(Duration::from_secs(2)).start();
    let (hosts, path) = (server.hosts(), fresh_path("restart"));
    let clients = [(); 3].map(|()| connect(&hosts, TIMEOUT));
    let sessions = clients.each_ref().map(|client| client.session_id());
    let [holder, second, third] = &clients;
    let guard = holder.mutex(&path).unwrap().lock().unwrap();
    thread::scope(|scope| {
        let wait = |client| {
            let mutex = zklock::Client::mutex(client, &path).unwrap();
            let guard = mutex.try_lock_for(Duration::from_secs(90)).unwrap();
            let guard = guard.expect("its turn");
            guard.verify().unwrap();
            guard.fencing_token()
        };
        let second = scope.spawn(move || wait(second));
        wait_for_children(&hosts, &path, 2);
        let third = scope.spawn(move || wait(third));
        wait_for_children(&hosts, &path, 3);

        server.kill();
        eventually("the holder notices", || {
            guard.state() == GuardState::Suspect
        });
        assert!(guard.is_valid());
        let ((), took) = timed(|| server.restart());
        eventually("the lock is confirmed", || {
            guard.state() == GuardState::Held
        });
        println!(
            "the server was away for {took:?}, {:?} were left",
            guard.valid_for()
        );
        assert!(!second.is_finished() && !third.is_finished());
        guard.verify().unwrap();
        let token = guard.fencing_token();
        guard.unlock().unwrap();
        let (next, took) = timed(|| second.join().unwrap());
        assert!(took < SOON);
        let last = third.join().unwrap();
        assert!(token < next && next < last);
    });
    assert_eq!(
        clients.each_ref().map(|client| client.session_id()),
        sessions
    );
    assert_nothing_left(&hosts, &path);
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn the_log_warns_of_a_server_that_grants_a_session_less_than_it_had() {
    alone(|| {
        logs::keep();
        let server = ZooKeeper::builder().tick(Duration::from_secs(2)).start();
        let client = connect(&server.hosts(), TIMEOUT);
        let mut lines = Vec::new();
        let warnings_after = |lines: &mut Vec<String>, connects: u64| {
            eventually("it is back", || connects <= client.metrics().reconnects);
            client.nodes().exists("/").unwrap();
            lines.extend(logs::take());
            let warnings = lines
                .iter()
                .filter(|line| line.contains("grants the session"));
            warnings.cloned().collect::<Vec<_>>()
        };
        server.restart();
        assert_eq!(warnings_after(&mut lines, 1), [""; 0], "the same as before");
        server.restart_with("maxSessionTimeout=10000");
        let told = warnings_after(&mut lines, 2);
        assert_eq!(told.len(), 1, "{told:?} {lines:#?}");
        assert!(told[0].starts_with("WARN "), "{told:?}");
        let said = format!(
            "{} grants the session 10s, and it had 40s: ",
            server.hosts()
        );
        assert!(told[0].contains(&said), "{told:?}");
        assert!(told[0].contains("--granted-at-least"), "{told:?}");
        // The warning is logged once.
        server.restart();
        assert_eq!(warnings_after(&mut lines, 3), told);
    });
}
