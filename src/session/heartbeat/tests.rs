use crate::system::channel::bounded;

use super::*;
use crate::guard::GuardState;
use crate::transport::native;

/// Returns a heartbeat whose client has connected, and its status.
fn heartbeat() -> (Heartbeat, Arc<Status>) {
    let status = Arc::new(Status::new(Duration::from_secs(20), true));
    let config = native::Config::plain("127.0.0.1:1", Duration::from_secs(20));
    // This transport reports to another status.
    let elsewhere = Arc::new(Status::new(Duration::from_secs(20), true));
    let transport = native::open(config, elsewhere).unwrap();
    let leases = Arc::new(Leases::new(transport.clone(), bounded(1).0));
    status.greeted(7, Duration::from_secs(20), Moment::now());
    status.connected(7);
    begin(&leases, &status, "/m/n");
    let heartbeat = Heartbeat::new(
        status.clone(),
        transport,
        leases,
        Arc::default(),
        Arc::default(),
    );
    (heartbeat, status)
}

/// Begins a lease over this node.
fn begin(leases: &Leases, status: &Status, node: &str) -> u64 {
    let (bounds, nodes) = (status.bounds(7), vec![node.to_owned()]);
    leases.begin(Arc::new(Lease::new("/m", nodes, 7, bounds, status.stamp())))
}

/// The thread stood still while its client connected and got a lock, which it then took for lost.
#[test]
fn what_is_older_than_a_lease_says_nothing_of_it() {
    let (heartbeat, status) = heartbeat();
    let before = Status::new(Duration::from_secs(20), true).snapshot();
    let state = |heartbeat: &Heartbeat| heartbeat.leases.get(0).map(|lease| lease.state());
    heartbeat.look_with(0, &before);
    assert_eq!(state(&heartbeat), Some(GuardState::Held));
    status.disconnected();
    std::thread::sleep(Duration::from_millis(5));
    heartbeat.look();
    assert_eq!(state(&heartbeat), Some(GuardState::Suspect));
}
