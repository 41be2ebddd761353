use crate::system::channel::bounded;

use super::*;
use crate::transport::native;

/// A heartbeat whose client was connected, and a lock that it keeps.
fn heartbeat() -> (Heartbeat, Arc<Status>) {
    let status = Arc::new(Status::new(Duration::from_secs(20), true));
    let config = native::Config::plain("127.0.0.1:1", Duration::from_secs(20));
    // It reports elsewhere.
    let transport = native::open(config, Arc::new(Status::new(Duration::from_secs(20), true)));
    let leases = Arc::new(Leases::new(bounded(1).0));
    status.greeted(7, Duration::from_secs(20), Moment::now());
    status.connected(7);
    let nodes = vec!["/m/n".to_owned()];
    let lease = Lease::new("/m", nodes, 7, status.bounds(7), status.stamp());
    leases.begin(Arc::new(lease));
    let heartbeat = Heartbeat::new(
        status.clone(),
        transport,
        leases,
        Arc::default(),
        Arc::default(),
    );
    (heartbeat, status)
}

#[test]
fn a_check_of_long_names_fits_into_one_request() {
    let short = vec!["/m/n".to_owned(); 1_200];
    assert_eq!(in_one_check(&short), NODES_A_CHECK);
    let long = vec![format!("/{}", "m".repeat(2_000)); 1_200];
    assert_eq!(in_one_check(&long), BYTES_A_CHECK / 2_001);
    let longer = vec![format!("/{}", "m".repeat(100_000)); 2];
    assert_eq!(in_one_check(&longer), 1);
}

#[test]
fn without_a_connection_the_background_thread_sleeps_until_something_fades() {
    let (mut heartbeat, status) = heartbeat();
    heartbeat.leases.asked(Duration::from_nanos(1));
    status.disconnected();
    let pause = heartbeat.look().unwrap();
    assert!(Duration::from_secs(1) < pause, "{pause:?}");
}
