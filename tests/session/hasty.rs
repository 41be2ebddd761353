//! Calls that give up, one after the other, before a server has answered.

use std::time::Duration;

use zklock::Client;
use zklock::embedded::Server;

use crate::SOON;
use crate::support::fresh_path;

/// Each would create a node that the servers have to list, to delete and to show to all others: once more come than
/// go, nobody gets the lock.
#[test]
fn calls_that_give_up_before_a_server_answers_leave_few_nodes_at_a_time() {
    let server = Server::start().unwrap();
    let client = Client::connect(server.hosts()).unwrap();
    let path = fresh_path("hasty");
    let hasty: [&dyn Fn() -> bool; 2] = [
        &|| {
            let rwlock = client.rwlock(&path).unwrap();
            rwlock
                .try_write_for(Duration::from_millis(1))
                .is_ok_and(|guard| guard.is_some())
        },
        &|| {
            let multi = client.multi_lock([path.as_str()]).unwrap();
            multi
                .try_lock_for(Duration::from_millis(1))
                .is_ok_and(|guard| guard.is_some())
        },
    ];
    drop(client.rwlock(&path).unwrap().write().unwrap());
    for give_up in hasty {
        let asked = || {
            let requests = client.metrics().requests;
            requests.creates + requests.multis
        };
        let before = asked();
        server.delay(Duration::from_secs(2));
        assert!((0..100).all(|_| !give_up()));
        let asked = asked() - before;
        assert!(asked < 50, "{asked} of 100 calls have created a node");
        server.resume();
        let next = client.mutex(&path).unwrap().try_lock_for(SOON).unwrap();
        next.expect("what was left is in the way").unlock().unwrap();
    }
}
