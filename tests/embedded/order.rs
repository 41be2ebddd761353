//! The order in which a client gets events and replies.

use std::thread;

use zklock::embedded::Server;

use super::support::raw::{PERSISTENT, op};
use super::support::zookeeper::ZooKeeper;
use super::wire::{Wire, buffer, look};

/// The number of rounds, enough to see a thread that is late now and then.
const ROUNDS: i32 = 1000;

#[test]
fn a_client_gets_an_event_before_any_reply_that_shows_the_change() {
    let server = Server::start().unwrap();
    events_come_before_what_they_tell_of(server.hosts());
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn on_a_real_zookeeper_too_an_event_comes_before_any_reply_that_shows_the_change() {
    let server = ZooKeeper::builder().fsync(false).start();
    events_come_before_what_they_tell_of(&server.hosts());
}

/// One client sets and another one watches, and neither waits for the other.
fn events_come_before_what_they_tell_of(hosts: &str) {
    let mut writer = Wire::connect_to(hosts);
    writer.create("/watched", PERSISTENT).unwrap();
    let mut watcher = Wire::connect_to(hosts);
    let mut watched = version(&watcher.call(op::GET_DATA, &look("/watched", true)).unwrap());
    let set = [buffer(b"/watched"), buffer(b"y"), vec![0xff; 4]].concat();
    let writer = thread::spawn(move || {
        for _ in 0..ROUNDS {
            let read = writer.call(op::GET_DATA, &look("/watched", true));
            read.unwrap();
            writer.send(op::SET_DATA, &set);
            let (events, reply) = writer.hear_all().unwrap();
            assert_eq!((events, reply.is_ok()), (1, true), "its own event");
        }
    });
    while watched < ROUNDS && !writer.is_finished() {
        watcher.send(op::GET_DATA, &look("/watched", true));
        let (events, reply) = watcher.hear_all().unwrap();
        let seen = version(&reply.unwrap());
        assert_eq!(events, usize::from(seen > watched), "{watched} {seen}");
        watched = seen;
    }
    writer.join().unwrap();
}

/// Returns the version in the reply to a read of one byte.
fn version(reply: &[u8]) -> i32 {
    let bytes = &reply[4 + 1 + 4 * 8..][..4];
    i32::from_be_bytes(bytes.try_into().unwrap())
}
