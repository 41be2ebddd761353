//! How sessions begin, continue and end.

use std::time::Duration;

use zklock::embedded::Server;

use super::support::eventually;
use super::support::raw::{EPHEMERAL, PERSISTENT, op};
use super::support::zookeeper::ZooKeeper;
use super::wire::{Wire, buffer, look};

fn quick() -> Server {
    let builder = Server::builder().tick(Duration::from_millis(20));
    builder
        .max_session_timeout(Duration::from_secs(10))
        .start()
        .unwrap()
}

#[test]
fn a_timeout_is_negotiated_between_two_and_twenty_ticks() {
    let server = Server::builder()
        .tick(Duration::from_millis(100))
        .start()
        .unwrap();
    for (asked, given) in [(0, 200), (777, 777), (60_000, 2000)] {
        assert_eq!(Wire::connect_for(&server, asked).timeout_ms, given);
    }
}

#[test]
fn a_silent_session_expires_and_its_nodes_with_it() {
    let server = quick();
    let mut watcher = Wire::connect(&server);
    let mut silent = Wire::connect_for(&server, 1_500);
    silent.create("/silent", EPHEMERAL).unwrap();
    assert!(watcher.call(op::EXISTS, &look("/silent", true)).is_ok());

    assert!(silent.is_hung_up_on());
    assert!(!watcher.sees("/silent"));
    assert_eq!(server.watch_count(), 0, "the watch has fired");
    assert_eq!(server.sessions(), [watcher.session]);
    assert_eq!(
        silent.again(&server).timeout_ms,
        0,
        "a dead session is not taken up"
    );
}

#[test]
fn pings_keep_a_session() {
    let server = quick();
    let mut watcher = Wire::connect(&server);
    let mut pinging = Wire::connect_for(&server, 1_500);
    pinging.create("/alive", EPHEMERAL).unwrap();
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(100));
        pinging.call(op::PING, &[]).unwrap();
    }
    assert!(watcher.sees("/alive"));
}

#[test]
fn a_session_is_taken_up_with_its_password_and_keeps_its_nodes() {
    let server = Server::start().unwrap();
    let mut client = Wire::connect(&server);
    client.create("/mine", EPHEMERAL).unwrap();
    let stranger = Wire::hello(&server, client.session, &[7; 16], 10_000, 0).unwrap();
    assert_eq!((stranger.session, stranger.timeout_ms), (0, 0));
    assert!(client.sees("/mine"), "a stranger does not disturb");

    let mut again = client.again(&server);
    assert_eq!((again.session, again.timeout_ms), (client.session, 10_000));
    assert!(again.sees("/mine"));
    assert!(client.is_hung_up_on(), "a session has one connection");
}

#[test]
fn a_client_that_has_seen_more_than_there_is_gets_no_session() {
    let server = Server::start().unwrap();
    assert!(Wire::hello(&server, 0, &[0; 16], 10_000, i64::MAX).is_err());
}

#[test]
fn the_watches_of_a_connection_end_with_it() {
    let server = Server::start().unwrap();
    let mut client = Wire::connect(&server);
    client.create("/a", PERSISTENT).unwrap();
    client.call(op::GET_CHILDREN2, &look("/a", true)).unwrap();
    assert_eq!(server.watch_count(), 1);
    drop(client);
    eventually("the watch is gone", || server.watch_count() == 0);
    assert_eq!(server.sessions().len(), 1, "the session lives on");
}

#[test]
fn an_empty_container_is_reaped() {
    let builder = Server::builder().container_check(Duration::from_millis(20));
    let server = builder.start().unwrap();
    let mut client = Wire::connect(&server);
    let created = client.call(op::CREATE_CONTAINER, &super::wire::creation("/c", 4));
    assert!(created.is_ok());
    client.create("/c/child", PERSISTENT).unwrap();
    client.delete("/c/child").unwrap();
    eventually("the container is gone", || !client.sees("/c"));
}

#[test]
fn a_client_from_before_3_4_gets_a_greeting_of_its_own_length() {
    let server = Server::start().unwrap();
    an_old_client_is_greeted(server.hosts());
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn on_a_real_zookeeper_too_a_client_from_before_3_4_gets_a_greeting_of_its_own_length() {
    let server = ZooKeeper::builder().fsync(false).start();
    an_old_client_is_greeted(&server.hosts());
}

/// Such a client does not know of a server that only reads. It takes what follows the 40 bytes of a
/// greeting for the next frame.
fn an_old_client_is_greeted(hosts: &str) {
    let hello = |session: i64, password: &[u8]| {
        let numbers = [
            &[0; 12][..],
            &10_000_i32.to_be_bytes(),
            &session.to_be_bytes(),
        ];
        [numbers.concat(), buffer(password)].concat()
    };
    let greet = |hello: &[u8]| Wire::say_hello(hosts, hello).unwrap();
    let (mut client, length) = greet(&hello(0, &[0; 16]));
    assert_eq!(length, 36);
    client.call(op::PING, &[]).unwrap();
    let (mut again, length) = greet(&hello(client.session, &client.password));
    assert_eq!((again.session, length), (client.session, 36));
    again.call(op::PING, &[]).unwrap();
    let (refused, length) = greet(&hello(client.session, &[7; 16]));
    assert_eq!((refused.session, length), (0, 36));
    let newer = [hello(0, &[0; 16]), vec![0]].concat();
    assert_eq!(greet(&newer).1, 37);
}
