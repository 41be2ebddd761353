//! The faults that users can cause.

use std::io;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use zklock::embedded::{RequestKind, Server};

use super::support::eventually;
use super::support::raw::{EPHEMERAL, EPHEMERAL_SEQUENTIAL, PERSISTENT, op};
use super::wire::{Wire, buffer, creation, is_timeout, look};

#[test]
fn an_expired_session_is_gone_at_once() {
    let server = Server::start().unwrap();
    let mut other = Wire::connect(&server);
    let mut client = Wire::connect(&server);
    client.create("/mine", EPHEMERAL).unwrap();
    assert!(server.expire_session(client.session));
    assert!(!other.sees("/mine"));
    assert!(client.is_hung_up_on());
    assert_eq!(client.again(&server).timeout_ms, 0);
    assert!(!server.expire_session(client.session));
}

#[test]
fn nodes_can_outlive_their_session() {
    let server = Server::start().unwrap();
    let mut other = Wire::connect(&server);
    let mut client = Wire::connect(&server);
    client.create("/mine", EPHEMERAL).unwrap();
    let linger = Duration::from_secs(2);
    server.linger_expired(linger);
    let begin = Instant::now();
    server.expire_session(client.session);
    assert_eq!(client.again(&server).timeout_ms, 0, "the client knows");
    assert!(other.sees("/mine"), "and its node is there");
    eventually("the node is gone", || !other.sees("/mine"));
    assert!(begin.elapsed() >= linger);
}

#[test]
fn disconnected_sessions_live_on() {
    let server = Server::start().unwrap();
    let mut here = Wire::connect(&server);
    let mut there = Wire::connect(&server);
    here.create("/here", EPHEMERAL).unwrap();
    assert!(server.disconnect(here.session));
    assert!(here.is_hung_up_on());
    assert!(
        !server.disconnect(here.session),
        "there is no connection any more"
    );
    assert!(there.sees("/here"));
    let mut here = here.again(&server);
    assert!(here.sees("/here"));
    server.disconnect_all();
    assert!(here.is_hung_up_on() && there.is_hung_up_on());
    assert_eq!(server.sessions().len(), 2);
}

#[test]
fn a_server_that_refuses_comes_back_on_the_same_port() {
    let server = Server::start().unwrap();
    let mut client = Wire::connect(&server);
    server.refuse();
    let refused = TcpStream::connect(server.hosts()).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    assert!(!client.sees("/a"), "who is connected stays so");
    server.refuse();
    server.resume();
    server.resume();
    assert!(client.again(&server).timeout_ms > 0);
}

#[test]
fn a_blackhole_swallows_everything_until_it_ends() {
    let server = Server::start().unwrap();
    let mut client = Wire::connect(&server);
    client.create("/a", PERSISTENT).unwrap();
    server.blackhole();
    client
        .stream
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    client.send(op::EXISTS, &look("/a", false));
    assert!(is_timeout(&client.hear().unwrap_err()));
    server.expire_session(client.session);
    assert!(
        is_timeout(&client.hear().unwrap_err()),
        "not even the end gets through"
    );
    server.resume();
    assert!(client.is_hung_up_on());
}

#[test]
fn what_was_sent_into_a_blackhole_arrives_in_the_end() {
    let server = Server::start().unwrap();
    let mut client = Wire::connect(&server);
    server.blackhole();
    client.send(op::CREATE, &creation("/a", PERSISTENT));
    client
        .stream
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    assert!(is_timeout(&client.hear().unwrap_err()));
    assert_eq!(server.nodes(), [""; 0]);
    client
        .stream
        .set_read_timeout(Some(super::wire::LONG))
        .unwrap();
    server.resume();
    assert!(client.hear().unwrap().is_ok());
    assert_eq!(server.nodes(), ["/a"]);
}

#[test]
fn a_server_can_be_dropped_in_a_blackhole() {
    let server = Server::start().unwrap();
    let mut client = Wire::connect(&server);
    server.blackhole();
    client.send(op::EXISTS, &look("/a", false));
    drop(server);
    assert!(client.is_hung_up_on());
}

#[test]
fn a_slow_network_delays_replies_and_keeps_their_order() {
    let server = Server::start().unwrap();
    let mut client = Wire::connect(&server);
    let delay = Duration::from_millis(100);
    server.delay(delay);
    let begin = Instant::now();
    client.send(op::CREATE, &creation("/a", PERSISTENT));
    client.send(op::EXISTS, &look("/a", false));
    assert_eq!(
        client.hear().unwrap().unwrap().len(),
        6,
        "the path is first"
    );
    assert!(begin.elapsed() >= delay);
    assert_eq!(
        client.hear().unwrap().unwrap().len(),
        68,
        "the stat is second"
    );
    server.delay(Duration::ZERO);
    assert!(client.sees("/a"));
}

#[test]
fn a_request_whose_reply_is_dropped_was_carried_out() {
    let server = Server::start().unwrap();
    let mut client = Wire::connect(&server);
    server.drop_next_reply();
    client.call(op::PING, &[]).unwrap();
    client.send(op::CREATE, &creation("/a", EPHEMERAL));
    assert!(client.is_hung_up_on());
    let mut client = client.again(&server);
    assert!(client.sees("/a"));
    assert!(client.sees("/a"), "it happens once");
}

#[test]
fn the_reply_to_be_dropped_can_be_chosen_by_kind() {
    let server = Server::start().unwrap();
    let mut client = Wire::connect(&server);
    server.drop_next_reply_to(RequestKind::Delete);
    client.create("/a", PERSISTENT).unwrap();
    assert!(client.lists("/a"));
    let mut body = buffer(b"/a");
    body.extend((-1_i32).to_be_bytes());
    client.send(op::DELETE, &body);
    assert!(client.is_hung_up_on());
    assert_eq!(server.nodes(), [""; 0]);
}

#[test]
fn an_old_server_hangs_up_on_what_it_does_not_know() {
    const UNIMPLEMENTED: i32 = -6;
    let builder = Server::builder().without_create2().without_containers();
    let server = builder.start().unwrap();
    for (op, mode) in [(op::CREATE2, PERSISTENT), (op::CREATE_CONTAINER, 4)] {
        let mut client = Wire::connect(&server);
        assert_eq!(client.call(op, &creation("/a", mode)), Err(UNIMPLEMENTED));
        assert!(client.is_hung_up_on());
        let mut client = client.again(&server);
        assert!(client.timeout_ms > 0, "the session lives on");
        assert!(!client.sees("/a"));
    }
}

#[test]
fn sequence_numbers_can_run_out() {
    let server = Server::builder()
        .start_counter("/d", i32::MAX - 1)
        .start()
        .unwrap();
    let mut client = Wire::connect(&server);
    client.create("/d", PERSISTENT).unwrap();
    let names = ["a-", "b-", "c-"].map(|name| {
        let path = format!("/d/{name}");
        client.create(&path, EPHEMERAL_SEQUENTIAL).unwrap()
    });
    assert_eq!(
        names,
        ["/d/a-2147483646", "/d/b-2147483647", "/d/c-2147483647"]
    );
}
