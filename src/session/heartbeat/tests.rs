use crate::system::channel::bounded;

use super::*;
use crate::guard::GuardState;
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

/// Begins so many.
fn begin_many(heartbeat: &Heartbeat, status: &Status, count: usize) -> Vec<u64> {
    let begin = |at| begin(&heartbeat.leases, status, &format!("/m/{at}"));
    (0..count).map(begin).collect()
}

/// The thread stood still while its client connected and got a lock: the lock was lost.
#[test]
fn what_is_older_than_a_lease_says_nothing_of_it() {
    let (mut heartbeat, status) = heartbeat();
    let before = Status::new(Duration::from_secs(20), true).snapshot();
    let state = |heartbeat: &Heartbeat| heartbeat.leases.get(0).map(|lease| lease.state());
    heartbeat.look_with(0, &before);
    assert_eq!(state(&heartbeat), Some(GuardState::Held));
    status.disconnected();
    std::thread::sleep(Duration::from_millis(5));
    heartbeat.look();
    assert_eq!(state(&heartbeat), Some(GuardState::Suspect));
}

/// What a look costs is the number of leases that it takes.
#[test]
fn a_lock_beside_many_that_are_held_costs_one_look_at_itself() {
    let (mut heartbeat, status) = heartbeat();
    let ids = begin_many(&heartbeat, &status, 4_000);
    heartbeat.look();
    // The first look proves and watches them all; nothing is due again before T/6.
    let looked_at = |heartbeat: &Heartbeat| {
        let due = heartbeat.leases.take_due(Moment::now().since_boot());
        due.iter().map(|due| due.id).collect::<Vec<_>>()
    };
    heartbeat.look();
    assert!(looked_at(&heartbeat).is_empty());
    let one = begin(&heartbeat.leases, &status, "/m/one");
    assert_eq!(looked_at(&heartbeat), [one]);
    heartbeat.leases.end(one);
    heartbeat.leases.end(ids[0]);
    assert!(looked_at(&heartbeat).is_empty());
    // A change of the connection concerns them all.
    status.disconnected();
    heartbeat.look();
    let suspect = |id: &u64| {
        let lease = heartbeat.leases.get(*id);
        lease.is_some_and(|lease| lease.state() == GuardState::Suspect)
    };
    assert!(ids[1..].iter().all(suspect));
}

/// Their proofs are all as old.
#[test]
fn more_locks_than_one_check_names_are_checked_in_turns() {
    let (mut heartbeat, status) = heartbeat();
    let ids = begin_many(&heartbeat, &status, 4 * NODES_A_CHECK);
    let begun = status.stamp().sent;
    heartbeat.checked = begun;
    heartbeat.urgent = false;
    let asked = |heartbeat: &Heartbeat| {
        let after = |id: &&u64| begun < heartbeat.leases.asked(**id);
        ids.iter().filter(after).count()
    };
    let pause = heartbeat.pause_from(Moment::now(), &status.snapshot());
    assert!(pause <= Duration::from_secs(20) / 6 / 5, "{pause:?}");
    heartbeat.checked = Duration::ZERO;
    for turn in 1..=4 {
        heartbeat.check_what_is_due(&mut [], Moment::now(), &status.snapshot());
        let least = turn * NODES_A_CHECK - 1;
        assert!((least..=least + 1).contains(&asked(&heartbeat)), "{turn}");
        heartbeat.checked = Duration::ZERO;
    }
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
    heartbeat.leases.ask(&[0], 0, Duration::from_nanos(1));
    status.disconnected();
    let pause = heartbeat.look().unwrap();
    assert!(Duration::from_secs(1) < pause, "{pause:?}");
}
