use super::*;

#[test]
fn a_timeout_that_was_granted_before_the_connection_was_ready_counts() {
    let status = Status::new(Duration::from_secs(40), true);
    let (short, long) = (Duration::from_secs(4), Duration::from_secs(40));
    assert_eq!(status.greeted(7, short, clock::since_boot()), short);
    // The connection breaks before the server has checked the credentials, and
    // another server continues the session.
    assert_eq!(status.greeted(7, long, clock::since_boot()), short);
    status.connected(7);
    assert_eq!(status.snapshot().timeout, short);
    assert_eq!(status.bounds(7).terms().timeout, short);
    assert_eq!(
        status.greeted(8, long, clock::since_boot()),
        long,
        "another session"
    );
    status.connected(8);
    status.expired();
    assert_eq!(status.greeted(8, short, clock::since_boot()), short);
    status.connected(8);
    assert!(
        !status.bounds(8).terms().over,
        "another session of the same number"
    );
}

#[test]
fn a_subscriber_that_left_is_forgotten_while_nothing_changes() {
    let status = Status::new(Duration::from_secs(1), true);
    let stays: Vec<_> = (0..200).map(|_| status.changes()).collect();
    for _ in 0..10_000 {
        drop(status.changes());
    }
    assert!(status.inner.lock().subscribers.len() <= 2 * stays.len() + 1);
    status.closed();
    assert!(
        stays
            .iter()
            .all(|changes| changes.receiver().try_recv().is_ok())
    );
}

#[test]
fn a_greeting_is_no_answer() {
    let status = Status::new(Duration::from_secs(4), true);
    let is_silent = || status.silent_for().is_some();
    let greet = || {
        status.greeted(7, Duration::from_secs(4), clock::since_boot());
        status.connected(7);
    };
    assert!(is_silent());
    greet();
    assert!(is_silent());
    let answered = clock::since_boot();
    status.answered(answered, answered);
    assert!(!is_silent());
    status.disconnected();
    greet();
    let silent = status.silent_for().unwrap_or_default();
    assert!(silent <= clock::since_boot().saturating_sub(answered));
    let answered = clock::since_boot();
    status.answered(answered, answered);
    assert!(!is_silent());
    status.disconnected();
    assert!(is_silent());
    status.closed();
    assert!(!is_silent());
}
