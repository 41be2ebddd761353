//! The server dies and comes back.

use std::thread;
use std::time::Duration;

use zklock::GuardState;

use super::{SOON, connect};
use crate::support::raw::{assert_nothing_left, wait_for_children};
use crate::support::zookeeper::ZooKeeper;
use crate::support::{eventually, fresh_path, timed};

/// Half of it is far longer than a server takes to start.
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
        assert!(guard.is_held());
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
