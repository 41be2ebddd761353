//! A directory whose listing is longer than the limit for one message.

use std::fmt::Debug;
use std::time::Duration;

use zklock::{Client, Error, GuardState};

use super::{SOON, connect};
use crate::support::fresh_path;
use crate::support::proxy::Proxy;
use crate::support::raw::{Raw, children, op, wait_for_children};
use crate::support::zookeeper::ZooKeeper;

const TIMEOUT: Duration = Duration::from_secs(4);

/// The number of names, which are together longer than a message may be.
const NODES: usize = 1300;
const NAME: usize = 1000;

/// Fills a directory with nodes that are not contenders.
fn crowd(hosts: &str, dir: &str) {
    let mut raw = Raw::connect(hosts);
    raw.create_all(dir);
    for i in 0..NODES {
        raw.create(&format!("{dir}/{i:0NAME$}"), b"", 0).unwrap();
    }
}

#[track_caller]
fn assert_too_long<T: Debug>(result: zklock::Result<T>, dir: &str) {
    let error = result.expect_err("it cannot be listed");
    let Error::ReplyTooLong { path, bytes, limit } = &error else {
        panic!("{error}");
    };
    assert_eq!(path, dir);
    assert!(NODES * NAME < *bytes && limit < bytes, "{error}");
    let text = error.to_string();
    assert!(text.contains(dir) && text.contains("max_buffer"), "{text}");
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_directory_too_long_to_be_listed_fails_who_asks_for_it_and_disturbs_nobody_else() {
    let hosts = ZooKeeper::shared().hosts();
    let [crowded, fine, taken] = ["crowded", "fine", "taken"].map(fresh_path);
    let semaphore = fresh_path("semaphore");
    let leases = format!("{semaphore}/leases");
    crowd(&hosts, &crowded);
    crowd(&hosts, &leases);
    let (client, other) = (connect(&hosts, TIMEOUT), connect(&hosts, TIMEOUT));
    let events = client.events();
    let guard = client.mutex(&fine).unwrap().lock().unwrap();
    let theirs = other.mutex(&taken).unwrap().lock().unwrap();
    std::thread::scope(|scope| {
        let mutex = client.mutex(&taken).unwrap();
        let waiter = scope.spawn(move || mutex.try_lock_for(SOON).unwrap().is_some());
        wait_for_children(&hosts, &taken, 2);

        let mutex = client.mutex(&crowded).unwrap();
        assert_too_long(mutex.try_lock_for(SOON), &crowded);
        assert_too_long(mutex.try_lock(), &crowded);
        let reentrant = client.reentrant_mutex(&crowded).unwrap();
        assert_too_long(reentrant.try_lock_for(SOON), &crowded);
        let rwlock = client.rwlock(&crowded).unwrap();
        assert_too_long(rwlock.try_read_for(SOON), &crowded);
        assert_too_long(rwlock.try_write_for(SOON), &crowded);
        let both = client.multi_lock([fine.as_str(), &crowded]).unwrap();
        drop(both);
        let both = client.multi_lock([crowded.as_str(), "/a"]).unwrap();
        assert_too_long(both.try_lock(), &crowded);
        assert_too_long(both.try_lock_for(SOON), &crowded);
        let permits = client.semaphore(&semaphore, 2).unwrap();
        assert_too_long(permits.try_acquire_for(SOON), &leases);
        assert_too_long(client.contenders(&crowded), &crowded);
        assert_too_long(client.wait_for_change(&crowded, &[], SOON), &crowded);

        theirs.unlock().unwrap();
        assert!(waiter.join().unwrap());
    });
    assert_eq!(guard.state(), GuardState::Held);
    guard.verify().unwrap();
    assert_eq!(guard.events().len(), 0);
    assert_eq!(
        events.len(),
        0,
        "{:?}",
        events.try_iter().collect::<Vec<_>>()
    );
    // No node of the client's is left in these directories.
    for dir in [&crowded, &leases] {
        wait_for_children(&hosts, dir, NODES);
    }
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn what_may_have_been_made_in_a_directory_too_long_to_be_listed_is_found_and_deleted() {
    let hosts = ZooKeeper::shared().hosts();
    let crowded = fresh_path("crowded");
    crowd(&hosts, &crowded);
    let proxy = Proxy::start(&hosts);
    let client = connect(&proxy.hosts(), 2 * TIMEOUT);
    let mutex = client.mutex(&crowded).unwrap();
    proxy.drop_next_reply_to(op::CREATE2);
    assert_too_long(mutex.try_lock_for(SOON), &crowded);
    assert!(proxy.fired());
    let session = client.session_id();
    wait_for_children(&hosts, &crowded, NODES);
    assert_eq!(client.session_id(), session, "by us, not by an expiry");
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_client_with_a_larger_buffer_lists_and_locks_what_is_too_long_for_others() {
    let hosts = ZooKeeper::shared().hosts();
    let crowded = fresh_path("crowded");
    crowd(&hosts, &crowded);
    let client = Client::builder(&hosts)
        .max_buffer(4 << 20)
        .connect()
        .unwrap();
    let guard = client.mutex(&crowded).unwrap().lock().unwrap();
    guard.verify().unwrap();
    assert_eq!(client.contenders(&crowded).unwrap().len(), 1);
    guard.unlock().unwrap();
    assert_eq!(children(&hosts, &crowded).len(), NODES);
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_request_that_is_too_long_fails_alone_and_one_at_the_limit_passes() {
    let hosts = ZooKeeper::shared().hosts();
    let client = connect(&hosts, TIMEOUT);
    let guard = client.mutex(&fresh_path("fine")).unwrap().lock().unwrap();
    let events = client.events();
    let path = format!("/{}", "x".repeat(1_100_000));
    let error = client.mutex(&path).unwrap().try_lock_for(SOON).unwrap_err();
    let Error::RequestTooLong {
        path: named,
        bytes,
        limit,
    } = &error
    else {
        panic!("another error");
    };
    assert_eq!((named, *limit), (&path, 1_048_575));
    assert!(1_100_000 < *bytes);
    guard.verify().unwrap();
    assert_eq!(events.len(), 0);
}

#[test]
fn a_buffer_out_of_bounds_is_refused_before_anything_is_connected() {
    for bytes in [0, 1, 256 * 1024 - 1, (512 << 20) + 1, usize::MAX] {
        let connected = Client::builder("localhost:1").max_buffer(bytes).connect();
        let error = connected.map(drop).unwrap_err();
        assert!(matches!(
            error,
            Error::BadArgument {
                name: "max_buffer",
                ..
            }
        ));
        assert!(error.is_bad_input());
    }
}
