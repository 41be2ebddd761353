//! The numbers of permits, which no two permits share.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::thread;

use zklock::embedded::Server;
use zklock::{Client, Error, GuardEvent};

use super::{DIALECTS, semaphore};
use crate::support::proxy::Proxy;
use crate::support::raw::{Raw, children, op};
use crate::support::{eventually, fresh_path};
use crate::transport::{Place, on_every_server, wait_for};

// A handle has no transactions.
on_every_server! {
    permits_that_are_held_at_a_time_have_different_numbers
    a_number_is_kept_and_is_free_when_its_permit_is
    whoever_asks_for_none_has_none
    a_permit_whose_number_is_deleted_is_lost
    an_evicted_holder_keeps_its_number_unless_no_other_is_left
}

/// Returns the directory of the numbers.
fn directory(dialect: zklock::Dialect, path: &str) -> String {
    match dialect {
        zklock::Dialect::Kazoo => format!("{path}-__numbers__"),
        _ => format!("{path}/numbers"),
    }
}

fn permits_that_are_held_at_a_time_have_different_numbers(place: Place) {
    for dialect in DIALECTS {
        let path = fresh_path("numbers");
        let used = Mutex::new(BTreeSet::new());
        thread::scope(|threads| {
            for _ in 0..6 {
                threads.spawn(|| {
                    let (_client, semaphore) = semaphore(place, dialect, &path, 3);
                    for _ in 0..8 {
                        let permit = semaphore.acquire().unwrap();
                        let number = permit.number().unwrap();
                        assert!(number < 3);
                        assert!(used.lock().unwrap().insert(number), "{number} twice");
                        assert_eq!(permit.number().unwrap(), number);
                        permit.check().unwrap();
                        assert!(used.lock().unwrap().remove(&number));
                    }
                });
            }
        });
        let hosts = place.shared().hosts();
        let directory = directory(dialect, &path);
        eventually("nothing is left", || {
            children(&hosts, &directory).is_empty()
        });
    }
}

fn a_number_is_kept_and_is_free_when_its_permit_is(place: Place) {
    for dialect in DIALECTS {
        let path = fresh_path("kept");
        let (_client, semaphore) = semaphore(place, dialect, &path, 3);
        let all = [(); 3].map(|()| semaphore.acquire().unwrap());
        let numbers = all.each_ref().map(|permit| permit.number().unwrap());
        assert_eq!(numbers, [0, 1, 2]);
        let [first, second, third] = all;
        second.verify().unwrap();
        second.unlock().unwrap();
        let next = semaphore.acquire().unwrap();
        assert_eq!(next.number().unwrap(), 1);
        assert_eq!(
            [&first, &third].map(|permit| permit.number().unwrap()),
            [0, 2]
        );
        drop(first);
        let many = semaphore.acquire_many(1).unwrap();
        assert_eq!(many.number().unwrap(), 0);
        assert_eq!(many.nodes().len(), 1);
    }
}

fn whoever_asks_for_none_has_none(place: Place) {
    for dialect in DIALECTS {
        let (path, hosts) = (fresh_path("unasked"), place.shared().hosts());
        let (_client, semaphore) = semaphore(place, dialect, &path, 2);
        let silent = semaphore.acquire().unwrap();
        assert_eq!(children(&hosts, &directory(dialect, &path)), [""; 0]);
        let asks = semaphore.acquire().unwrap();
        assert_eq!(asks.number().unwrap(), 0);
        assert_eq!(silent.number().unwrap(), 1);
        assert!(semaphore.try_acquire().unwrap().is_none());
    }
}

fn a_permit_whose_number_is_deleted_is_lost(place: Place) {
    let (path, hosts) = (fresh_path("deleted"), place.shared().hosts());
    let (_client, semaphore) = semaphore(place, zklock::Dialect::Curator, &path, 2);
    let permit = semaphore.acquire().unwrap();
    permit.number().unwrap();
    let node = children(&hosts, &format!("{path}/numbers")).remove(0);
    let mut raw = Raw::connect(&hosts);
    raw.delete(&format!("{path}/numbers/{node}")).unwrap();
    wait_for(&permit, GuardEvent::Lost);
    assert!(permit.number().unwrap_err().is_lost());
    assert!(permit.unlock().unwrap_err().is_lost());
    let next = semaphore.acquire().unwrap();
    assert_eq!(next.number().unwrap(), 0);
}

/// The holder's code may still run, so its number is used last.
fn an_evicted_holder_keeps_its_number_unless_no_other_is_left(place: Place) {
    let path = fresh_path("evicted");
    let (_client, here) = semaphore(place, zklock::Dialect::Curator, &path, 2);
    let (there, other) = semaphore(place, zklock::Dialect::Curator, &path, 2);
    let evicted = here.acquire().unwrap();
    assert_eq!(evicted.number().unwrap(), 0);
    for contender in there.contenders(&path).unwrap() {
        contender.evict().unwrap();
    }
    wait_for(&evicted, GuardEvent::Lost);
    let first = other.acquire().unwrap();
    assert_eq!(first.number().unwrap(), 1);
    let second = other.acquire().unwrap();
    assert_eq!(second.number().unwrap(), 0);
    drop(evicted);
    second.verify().unwrap();
    first.verify().unwrap();
}

#[test]
fn a_number_survives_a_reconnect_and_a_lost_reply() {
    let server = Server::start().unwrap();
    let proxy = Proxy::start(server.hosts());
    let client = Client::connect(&proxy.hosts()).unwrap();
    let semaphore = client.semaphore("/s", 3).unwrap();
    let (one, two) = (semaphore.acquire().unwrap(), semaphore.acquire().unwrap());
    let names = || {
        let nodes = server.nodes().into_iter();
        nodes.filter(|node| node.contains("numbers/")).count()
    };
    proxy.drop_next_reply_to(op::MULTI);
    assert_eq!(one.number().unwrap(), 0);
    assert!(proxy.fired());
    assert_eq!(names(), 1);
    server.disconnect_all();
    assert_eq!(two.number().unwrap(), 1);
    server.disconnect_all();
    eventually("they are confirmed", || {
        one.verify().is_ok() && two.verify().is_ok()
    });
    assert_eq!((one.number().unwrap(), two.number().unwrap()), (0, 1));
    drop((one, two));
    eventually("nothing is left", || {
        !server.nodes().iter().any(|node| node.contains("numbers/"))
    });
}

#[test]
fn a_lost_permit_gets_no_number() {
    let server = Server::start().unwrap();
    let client = Client::connect(server.hosts()).unwrap();
    let permit = client.semaphore("/s", 3).unwrap().acquire().unwrap();
    let mut raw = Raw::connect(server.hosts());
    raw.delete(permit.node()).unwrap();
    let error = permit.number().unwrap_err();
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    assert!(!server.nodes().iter().any(|node| node.contains("numbers/")));
}

#[test]
fn in_other_dialects_numbers_are_those_of_the_layout() {
    let server = Server::start().unwrap();
    for dialect in [zklock::Dialect::Recipe, zklock::Dialect::LeaderLatch] {
        let client = Client::builder(server.hosts()).dialect(dialect);
        let client = client.connect().unwrap();
        let permit = client.semaphore("/s", 3).unwrap().acquire().unwrap();
        assert_eq!(permit.number().unwrap(), 0, "{dialect:?}");
    }
}
