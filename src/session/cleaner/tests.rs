//! What the cleaner does with answers that come late, twice or not at all.

use super::*;
use crate::transport::{Capabilities, TooLong, WatchId};
use zklock_jute::ErrorCode;

/// Records what it is given to send.
#[derive(Debug, Default)]
struct Mute(Mutex<Vec<Request>>);

impl Transport for Mute {
    fn send(&self, calls: Vec<Call>) {
        let requests = calls.into_iter().map(|call| call.request);
        self.0.lock().extend(requests);
    }

    fn unwatch(&self, _: &str, _: WatchId) {}

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            multi: true,
            sync: true,
            resumes: true,
        }
    }

    fn close(&self, _: Duration) -> bool {
        true
    }
}

/// A cleaner with one entry for what a lost reply may have created, and the entry's id.
fn perhaps_one() -> (Arc<Cleaner>, Arc<Mute>, u64) {
    let status = Arc::new(Status::new(Duration::from_secs(1), true));
    status.connected(1);
    let mute = Arc::new(Mute::default());
    let (wake, _woken) = crate::system::channel::bounded(1);
    let cleaner = Arc::new(Cleaner::new(status, mute.clone(), Arc::default(), wake));
    let perhaps = Orphan::Prefix("_c_me-lock-".to_owned());
    let id = cleaner.put(PendingNode::new("/m", 1, perhaps));
    (cleaner, mute, id)
}

#[test]
fn one_request_at_a_time_is_under_way_for_each_entry() {
    let (cleaner, mute, id) = perhaps_one();
    // The background thread comes between the thread's entry and its request.
    cleaner.push();
    cleaner.send(&[id]);
    assert_eq!(mute.0.lock().len(), 1);

    let synced = Reply::Synced { path: "/m".into() };
    cleaner.answered(id, Ok(synced.clone()));
    cleaner.push();
    let names = ["_c_me-lock-0000000001"].iter().collect();
    let listed = Reply::Children { names, stat: None };
    cleaner.answered(id, Ok(listed.clone()));
    // Nothing but the answer to a deletion says that a node is gone.
    for stale in [synced, listed] {
        cleaner.answered(id, Ok(stale));
        assert_eq!(cleaner.len(), 1);
    }
    cleaner.answered(id, Ok(Reply::Nothing));
    assert_eq!(cleaner.len(), 0);
}

#[test]
fn in_a_directory_that_is_too_long_to_be_listed_the_session_is_asked_for_its_own_nodes() {
    let (cleaner, mute, id) = perhaps_one();
    let answer = |answered| {
        cleaner.push();
        cleaner.answered(id, answered);
    };
    answer(Ok(Reply::Synced { path: "/m".into() }));
    answer(Err(Failure::TooLong(TooLong {
        reply: true,
        bytes: 2,
        limit: 1,
    })));
    let paths = ["/m/_c_me-lock-0000000001", "/m/a/b", "/mm/c"];
    answer(Ok(Reply::Ephemerals(paths.map(str::to_owned).to_vec())));
    cleaner.push();
    let sent = mute.0.lock();
    assert_eq!(sent[2], Request::GetEphemerals { below: "/m".into() });
    let path = paths[0].to_owned();
    assert_eq!(sent[3], Request::Delete { path, version: -1 });
}

#[test]
fn a_mark_that_may_not_be_written_does_not_keep_the_node() {
    let (cleaner, mute, _) = perhaps_one();
    mute.0.lock().clear();
    let mut entry = PendingNode::new("/m", 1, Orphan::Node("n".to_owned()));
    entry.closing = Some((b"{}".to_vec(), -1));
    let id = cleaner.put(entry);
    for refused in [ErrorCode::NO_AUTH, ErrorCode::NO_NODE] {
        cleaner.send(&[id]);
        cleaner.answered(id, Err(Failure::Refused(refused)));
    }
    let path = "/m/n".to_owned();
    let sent = mute.0.lock();
    assert!(matches!(&sent[0], Request::Multi(_)));
    assert_eq!(sent[1], Request::Delete { path, version: -1 });
}

#[test]
fn only_what_is_to_be_held_keeps_a_client_from_its_end() {
    let status = Arc::new(Status::new(Duration::from_secs(1), true));
    status.connected(1);
    let (wake, _woken) = crate::system::channel::bounded(1);
    let cleaner = Cleaner::new(status, Arc::<Mute>::default(), Arc::default(), wake);
    let cleaner = Arc::new(cleaner);
    for failure in [
        Failure::Refused(ErrorCode::NO_AUTH),
        Failure::TooLong(TooLong {
            reply: true,
            bytes: 2,
            limit: 1,
        }),
    ] {
        let mut refused = PendingNode::new("/m", 1, Orphan::Node("n".to_owned()));
        refused.crowded = true;
        let id = cleaner.put(refused);
        cleaner.send(&[id]);
        cleaner.answered(id, Err(failure));
        assert!(cleaner.push().is_some(), "it is tried again");
        assert_eq!(cleaner.held_until(), None);
    }
    let until = Instant::now() + Duration::from_secs(10);
    let mut held = PendingNode::new("/m", 1, Orphan::Node("n".to_owned()));
    held.not_before = Some(until);
    cleaner.put(held);
    assert_eq!(cleaner.held_until(), Some(until));
}

#[test]
fn who_waits_for_a_release_hears_of_a_client_that_was_closed() {
    let status = Arc::new(Status::new(Duration::from_secs(1), true));
    let (wake, _woken) = crate::system::channel::bounded(1);
    let cleaner = Cleaner::new(status, Arc::<Mute>::default(), Arc::default(), wake);
    let (to, ended) = crate::system::channel::bounded(1);
    let mut entry = PendingNode::new("/m", 1, Orphan::Node("n".to_owned()));
    entry.waiter = Some(to.into());
    let id = cleaner.put(entry);
    cleaner.answered(id, Err(Failure::Closed));
    assert_eq!(ended.try_recv(), Ok(Ended::GoneBefore));
    assert_eq!(cleaner.len(), 0);
}

#[test]
fn a_release_that_is_put_off_is_not_forgotten_when_an_earlier_one_is_due() {
    let (cleaner, mute, id) = perhaps_one();
    cleaner.entries.lock().open.remove(&id);
    let later = clock::now() + Duration::from_secs(60);
    for (node, not_before) in [("/m/a", clock::now()), ("/m/b", later)] {
        let mut entry = PendingNode::new("/m", 1, Orphan::Node(node.to_owned()));
        entry.not_before = Some(not_before);
        cleaner.put(entry);
    }
    assert_eq!(cleaner.push(), Some(later));
    assert_eq!(mute.0.lock().len(), 1, "the first one is due");
    assert_eq!(cleaner.push(), Some(later));
}
