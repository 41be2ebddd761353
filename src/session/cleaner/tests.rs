//! What the cleaner sends, and when a waiter learns how a deletion ended.

use std::sync::atomic::Ordering;

use super::*;
use crate::transport::mute::Mute;
use zklock_core::connection::sync;
use zklock_core::dialect::Sharing;
use zklock_jute::Reply;

fn cleaner() -> (Arc<Cleaner>, Arc<Mute>) {
    let status = Arc::new(Status::new(Duration::from_secs(1), true));
    status.connected(1);
    let mute = Arc::new(Mute::default());
    let (wake, _woken) = crate::system::channel::bounded(1);
    let cleaner = Cleaner::new(status, mute.clone(), Arc::default(), wake);
    (Arc::new(cleaner), mute)
}

#[test]
fn the_background_thread_sends_nothing_that_is_under_way() {
    let (cleaner, mute) = cleaner();
    let perhaps = Orphan::Prefix("_c_me-lock-".to_owned());
    cleaner.add("/m", 1, vec![perhaps]);
    cleaner.push();
    assert_eq!(mute.sent.lock().len(), 1);
    cleaner.answered(1, Ok(Reply::Synced { path: "/m".into() }));
    cleaner.push();
    cleaner.push();
    assert_eq!(mute.sent.lock().len(), 2);
}

/// A paused thread may write its create after the next session has started to let requests in and
/// before the status shows that session, and give up at once.
#[test]
fn what_is_left_between_two_sessions_is_looked_for_in_the_next_one() {
    let (cleaner, mute) = cleaner();
    cleaner.status.expired();
    let perhaps = Orphan::Prefix("_c_me-lock-".to_owned());
    let known = Orphan::Node("_c_you-lock-0000000001".to_owned());
    cleaner.add("/m", 1, vec![perhaps, known]);
    cleaner.status.connected(2);
    cleaner.push();
    assert_eq!(
        cleaner.entries.lock().len(),
        1,
        "a known node has gone with its session"
    );
    let synced = sync("/m");
    assert_eq!(mute.sent.lock().first(), Some(&synced));
    cleaner.status.expired();
    cleaner.status.connected(3);
    cleaner.push();
    assert_eq!(
        cleaner.entries.lock().len(),
        0,
        "and so has what came to be in it"
    );
}

/// The session may last for its timeout, and its locks are taken until then.
#[test]
fn what_is_kept_for_less_than_a_session_that_was_given_up_is_released_in_the_next_one() {
    let (cleaner, _mute) = cleaner();
    let now = clock::since_boot();
    for (node, kept) in [("/m/a", Duration::from_millis(500)), ("/m/b", PASSING * 60)] {
        let deletion = Deletion::of_guard(node, 1).not_before(Some(now + kept));
        cleaner.release([deletion], None, None);
    }
    cleaner.status.given_up.store(1, Ordering::Release);
    cleaner.status.expired();
    cleaner.status.connected(2);
    cleaner.push();
    let mut entries = cleaner.entries.lock();
    let left = [1, 2].map(|id| entries.get(id).map(|(deletion, _)| deletion.session()));
    assert_eq!(left, [Some(2), None]);
}

#[test]
fn who_waits_for_a_release_hears_of_a_client_that_was_closed() {
    let (cleaner, _mute) = cleaner();
    let (to, ended) = crate::system::channel::bounded(1);
    let deletion = Deletion::of_guard("/m/n", 1);
    cleaner.release([deletion], Some(&to.into()), None);
    cleaner.answered(1, Err(Failure::Closed));
    assert_eq!(ended.try_recv(), Ok(Ok(Ended::GoneBefore)));
    assert_eq!(cleaner.entries.lock().len(), 0);
}

/// Only the first one heard of it, and the second one was told that the lock is taken.
#[test]
fn tries_that_come_together_all_wait_for_what_their_client_has_left_unless_it_may_not_delete_that()
{
    let (cleaner, _mute) = cleaner();
    let known = Orphan::Node("_c_me-lock-0000000001".to_owned());
    cleaner.add("/m", 1, vec![known]);
    let over = Limit::after(Duration::ZERO);
    for _ in 0..2 {
        cleaner.finish(("/m", Sharing::Alone), &over);
    }
    let tries = || {
        let mut entries = cleaner.entries.lock();
        entries.get(1).map(|(_, left)| left.waiters.len())
    };
    assert_eq!(tries(), Some(2));
    cleaner.answered(1, Err(Failure::Refused(ErrorCode::NO_AUTH)));
    assert_eq!(tries(), Some(0));
}

#[test]
fn a_call_waits_for_nodes_that_are_looked_for_and_not_for_those_that_are_being_deleted() {
    let over = Limit::after(Duration::ZERO);
    let known = |nth| Orphan::Node(format!("_c_{nth}-lock-0000000001"));
    let perhaps = |nth| Orphan::Prefix(format!("_c_{nth}-lock-"));
    for (orphan, goes_on) in [(&known as &dyn Fn(_) -> _, true), (&perhaps, false)] {
        let (cleaner, mute) = cleaner();
        let orphans = (0..16).map(orphan).collect();
        cleaner.add("/m", 1, orphans);
        let transport: Arc<dyn Transport> = mute;
        let mut caller = Caller::new(&cleaner.status, &transport);
        let waited = cleaner.await_backlog("/m", &mut caller, &over);
        assert_eq!(waited, Ok(goes_on));
    }
}
