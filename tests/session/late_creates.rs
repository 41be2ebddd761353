//! A create that its servers carry out after its client has looked for the node in vain.

use std::thread;
use std::time::Duration;

use super::{SOON, connect};
use crate::support::ensemble::Ensemble;
use crate::support::proxy::Proxy;
use crate::support::raw::{Raw, children};
use crate::support::zookeeper::ZooKeeper;
use crate::support::{eventually, fresh_path};

/// So long that a follower is not given up whose words are kept for a while.
const SYNC_LIMIT: &str = "syncLimit=120";

/// Requests that a leader reads faster than it checks them.
const MANY: usize = 20;

/// The packet with which a server asks its leader whether a client's session lasts.
fn revalidation(session: i64) -> Vec<u8> {
    let (kind, no_zxid, length) = (6_i32, -1_i64, 12_i32);
    let parts = [
        &kind.to_be_bytes()[..],
        &no_zxid.to_be_bytes(),
        &length.to_be_bytes(),
        &session.to_be_bytes(),
    ];
    parts.concat()
}

#[test]
#[ignore = "needs ZooKeeper servers"]
fn a_create_that_is_carried_out_late_stands_in_nobodys_way() {
    let builder = ZooKeeper::builder().fsync(false).line(SYNC_LIMIT);
    let (ensemble, valves) = Ensemble::start_with_valves(&builder);
    let leader = ensemble.wait_for_leader();
    let followers: Vec<_> = (0..3).filter(|i| *i != leader).collect();
    let hosts = |i: usize| ensemble.server(i).hosts();
    let [here, there] = [followers[0], followers[1]].map(|i| Proxy::start(&hosts(i)));
    there.refuse();
    let both = format!("{},{}", here.hosts(), there.hosts());
    let client = connect(&both, Duration::from_secs(8));
    let valve = &valves[followers[0]][leader];
    let mut late = 0;
    // Whether the session is back before the create is checked is for the leader's threads to decide.
    for _ in 0..20 {
        let path = fresh_path("late");
        let mutex = client.mutex(&path).expect("a mutex");
        drop(mutex.lock().expect("the directory is made"));
        let mut busy = Raw::connect(&hosts(followers[0]));
        valve.hold();
        (0..MANY).for_each(|_| busy.keep_busy(2_000));
        let guard = thread::scope(|scope| {
            scope.spawn(|| {
                eventually("the create is on its way", || 0 < valve.keeps(b"-lock-"));
                there.accept();
                here.refuse();
            });
            let locked = mutex.try_lock_for(SOON).expect("an answer");
            locked.expect("a lock, through the other server")
        });
        here.accept();
        there.refuse();
        let back = revalidation(client.session_id());
        eventually("the session comes back", || 0 < valve.keeps(&back));
        valve.release();
        eventually("it is back", || guard.verify().is_ok());
        let leader = hosts(leader);
        // ZooKeeper counts what was created and deleted.
        let changes = || {
            Raw::connect(&leader)
                .stat(&path)
                .expect("the directory")
                .cversion
        };
        late += usize::from(changes() != 3);
        eventually("no other node is left", || {
            children(&leader, &path).len() == 1
        });
        guard.unlock().expect("a release");
        if late == 2 {
            return;
        }
    }
    panic!("no create was late in 20 tries, but in {late}");
}
