use std::sync::Barrier;
use std::thread;

use super::*;
use zklock_core::lifetime::Lifetime;
use zklock_core::validity::LEAST_TIMEOUT;

const T: Duration = Duration::from_secs(60);

fn stamp(age: Duration) -> Stamp {
    let sent = since_boot() - age;
    Stamp {
        sent,
        touched: sent - T / 4,
    }
}

fn lease(age: Duration) -> Lease {
    let nodes = vec!["/m/n".into()];
    let bounds = SessionValidity::new(&lifetime());
    Lease::new("/m", nodes, 1, bounds, stamp(age))
}

fn lifetime() -> Lifetime {
    Lifetime::new(T, Duration::ZERO, Duration::ZERO)
}

/// Breaks the connection, and makes another.
fn reconnect(lease: &Lease) {
    let mut lifetime = lifetime();
    lifetime.broke();
    lease.life.bounds.follow(&lifetime);
    assert_eq!(lease.state(), GuardState::Suspect);
    lifetime.greeted(T, since_boot(), since_boot());
    lease.life.bounds.follow(&lifetime);
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn trust_fades_with_the_age_of_the_proof() {
    for (age, state) in [
        (0, GuardState::Held),
        (18, GuardState::Held),
        (21, GuardState::Suspect),
        (27, GuardState::Suspect),
        (30, GuardState::Lost),
    ] {
        let lease = lease(seconds(age));
        assert_eq!(lease.state(), state, "{age} s");
        assert_eq!(lease.check().is_err(), state == GuardState::Lost);
        assert!(lease.valid_for() <= seconds(30 - age));
    }
}

/// As where the thread that reads answers confirms a lock while the background thread takes an earlier answer.
#[test]
fn of_two_proofs_that_arrive_together_the_newer_one_counts() {
    for _ in 0..20_000 {
        let (lease, both) = (lease(seconds(9)), Barrier::new(2));
        let proofs = [stamp(seconds(6)), stamp(seconds(3))];
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                both.wait();
                lease.confirm(proofs[0]);
            });
            both.wait();
            lease.confirm(proofs[1]);
            other.join().unwrap();
        });
        assert_eq!(lease.stamp(), Some(proofs[1]));
    }
}

#[test]
fn a_deadline_that_passes_between_two_looks_is_told() {
    let lease = lease(seconds(30));
    assert_eq!(lease.steady_for(), Some(Duration::ZERO));
    lease.tell(&Counters::default());
    assert_eq!(lease.events().try_recv(), Ok(GuardEvent::Lost));
    assert_eq!(lease.steady_for(), None);
}

#[test]
fn a_limit_ends_the_trust_in_a_lock_that_is_held() {
    let over = |lease: &Lease| lease.lost_reason() == Some(LostReason::OverTime);
    let lease = lease(Duration::ZERO);
    lease.limit(Duration::MAX);
    assert!(lease.check().is_ok() && lease.valid_for() > seconds(20));
    lease.limit(seconds(10));
    assert!(lease.check().is_ok() && lease.valid_for() <= seconds(10));
    assert!(
        lease
            .steady_for()
            .is_some_and(|steady| steady <= seconds(10))
    );
    lease.limit(Duration::ZERO);
    assert!(over(&lease) && lease.check().unwrap_err().is_lost());
    assert_eq!(
        (lease.state(), lease.valid_for()),
        (GuardState::Lost, Duration::ZERO)
    );
    assert_eq!(lease.steady_for(), Some(Duration::ZERO));
    lease.tell(&Counters::default());
    assert_eq!(lease.events().try_recv(), Ok(GuardEvent::Lost));
    assert_eq!(lease.steady_for(), None);
    // A proof does not end that state, and a real loss is reported as such.
    lease.confirm(stamp(Duration::ZERO));
    assert!(over(&lease) && lease.succeed().is_none());
    lease.lose(LostReason::Evicted);
    assert_eq!(lease.lost_reason(), Some(LostReason::Evicted));
}

#[test]
fn lost_is_final() {
    let lease = lease(Duration::ZERO);
    lease.lose(LostReason::Evicted);
    lease.confirm(stamp(Duration::ZERO));
    assert_eq!(lease.state(), GuardState::Lost);
    assert!(lease.check().unwrap_err().is_lost());
    assert_eq!(lease.valid_for(), Duration::ZERO);
}

#[test]
fn another_session_is_the_end_at_once() {
    let lease = lease(Duration::ZERO);
    lease.life.bounds.end(LostReason::Closed);
    assert!(lease.check().is_err());
}

#[test]
fn a_shorter_timeout_counts_at_once_and_a_longer_one_never() {
    let lease = lease(seconds(3));
    let mut lifetime = lifetime();
    for (granted, least, most) in [(120, 20, 27), (8, 0, 1), (60, 0, 1), (4, 0, 0)] {
        lifetime.greeted(seconds(granted), since_boot(), since_boot());
        lease.life.bounds.follow(&lifetime);
        let valid = lease.valid_for();
        assert!(
            seconds(least) <= valid && valid <= seconds(most),
            "{granted} s"
        );
    }
    assert!(lease.check().is_err());
}

#[test]
fn a_connect_request_without_an_answer_may_have_shortened_the_session() {
    let lease = lease(seconds(3));
    let mut lifetime = lifetime();
    lifetime.greets(since_boot(), Some(LEAST_TIMEOUT));
    lease.life.bounds.follow(&lifetime);
    assert!(lease.valid_for() <= seconds(4));
    lifetime.greeted(T, since_boot(), since_boot());
    lease.life.bounds.follow(&lifetime);
    assert!(lease.valid_for() > seconds(20));
}

#[test]
fn an_answer_that_shortens_the_session_gives_no_moment_of_trust() {
    for _ in 0..10_000 {
        let lease = lease(seconds(3));
        let stamp = lease.stamp().unwrap();
        let mut lifetime = lifetime();
        lifetime.greets(stamp.sent, Some(LEAST_TIMEOUT));
        lease.life.bounds.follow(&lifetime);
        lifetime.greeted(seconds(4), since_boot(), since_boot());
        let longest = thread::scope(|scope| {
            let looks = scope.spawn(|| {
                let mut longest = Duration::ZERO;
                while lease.life.bounds.terms().timeout == T {
                    longest = longest.max(lease.life.bounds.terms().until(stamp));
                }
                longest
            });
            lease.life.bounds.follow(&lifetime);
            looks.join().unwrap()
        });
        // Before the answer, the most that any server grants; after it, half of what this one granted.
        let most = stamp.sent + seconds(4);
        assert!(longest <= most, "{:?} too long", longest - most);
    }
}

#[test]
fn a_disconnect_is_forgiven_by_a_proof_only() {
    let lease = lease(Duration::ZERO);
    reconnect(&lease);
    assert_eq!(lease.state(), GuardState::Suspect);
    assert_eq!(lease.check(), Ok(()));
    lease.confirm(stamp(Duration::ZERO));
    assert_eq!(lease.state(), GuardState::Held);
}

#[test]
fn every_change_is_told_once_and_a_full_channel_keeps_the_newest() {
    let lease = lease(Duration::ZERO);
    lease.tell(&Counters::default());
    reconnect(&lease);
    lease.tell(&Counters::default());
    lease.tell(&Counters::default());
    lease.confirm(stamp(Duration::ZERO));
    lease.tell(&Counters::default());
    let events: Vec<_> = lease.events().try_iter().collect();
    assert_eq!(events, [GuardEvent::Suspect, GuardEvent::Held]);
    for _ in 0..2 * UNREAD_EVENTS {
        lease.note_revoke_request();
    }
    lease.lose(LostReason::Evicted);
    lease.tell(&Counters::default());
    assert_eq!(lease.events().try_iter().last(), Some(GuardEvent::Lost));
}

#[test]
fn the_first_reason_is_told_everywhere_and_a_node_that_is_gone_is_explained() {
    let lost = lease(Duration::ZERO);
    assert_eq!(lost.lost_reason(), None);
    lost.lose(LostReason::NodeGone);
    assert_eq!(lost.lost_reason(), Some(LostReason::NodeGone));
    lost.lose(LostReason::Evicted);
    lost.life.bounds.end(LostReason::SessionExpired);
    assert_eq!(lost.lost_reason(), Some(LostReason::Evicted));
    assert!(
        lost.lost()
            .to_string()
            .contains("another client evicted it")
    );

    let expired = lease(Duration::ZERO);
    expired.lose(LostReason::NodeGone);
    expired.life.bounds.end(LostReason::SessionExpired);
    assert_eq!(expired.lost_reason(), Some(LostReason::SessionExpired));

    let closed = lease(Duration::ZERO);
    closed.lose(LostReason::NodeGone);
    closed.life.bounds.end(LostReason::Closed);
    assert_eq!(closed.lost_reason(), Some(LostReason::NodeGone));

    let late = lease(seconds(30));
    late.lose(LostReason::Evicted);
    assert_eq!(late.lost_reason(), Some(LostReason::NotConfirmed));
}
