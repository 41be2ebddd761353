//! Clients that are malformed, too large, half open or half dead. They never stop the server, leak
//! a session, or stall others.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use zklock::embedded::Server;

use super::support::eventually;
use super::support::raw::{EPHEMERAL, PERSISTENT, op};
use super::wire::{Wire, buffer, dial, look, word};

const MARSHALLING_ERROR: i32 = -5;

/// Returns how many connections the server knows of, without the one that asks.
fn connections(server: &Server) -> usize {
    word(server, "cons")
        .lines()
        .filter(|line| line.contains("queued="))
        .count()
        - 1
}

#[test]
fn random_bytes_leave_nothing_behind() {
    let builder = Server::builder().tick(Duration::from_millis(20));
    let builder = builder.max_session_timeout(Duration::from_secs(3));
    let server = builder.start().unwrap();
    let seed = fastrand::u64(..);
    println!("the seed is {seed}");
    let mut chance = fastrand::Rng::with_seed(seed);
    let mut witness = Wire::connect_for(&server, 3000);
    for round in 0..300 {
        let noise: Vec<u8> = std::iter::repeat_with(|| chance.u8(..))
            .take(round % 97)
            .collect();
        let mut stream = dial(&server);
        // Some of the noise is a frame, so that the server parses it.
        let noise = if chance.bool() { buffer(&noise) } else { noise };
        let _ = stream.write_all(&noise);
        witness.call(op::PING, &[]).unwrap();
    }
    eventually("the connections are gone", || {
        witness.call(op::PING, &[]).unwrap();
        connections(&server) == 1 && server.sessions() == [witness.session]
    });
}

#[test]
fn random_bytes_within_a_session_end_at_most_its_connection() {
    let server = Server::start().unwrap();
    let seed = fastrand::u64(..);
    println!("the seed is {seed}");
    let mut chance = fastrand::Rng::with_seed(seed);
    let mut client = Wire::connect(&server);
    client.create("/mine", EPHEMERAL).unwrap();
    for round in 0..500_usize {
        let noise: Vec<u8> = std::iter::repeat_with(|| chance.u8(..))
            .take(round % 61)
            .collect();
        let known = [
            1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 14, 15, 18, 19, 100, 101, 105, 106,
        ];
        let op = known[chance.usize(..known.len())];
        client.send(op, &noise);
        if client.hear().is_err() {
            client = client.again(&server);
            assert!(client.timeout_ms > 0, "the session lives on");
        }
    }
    assert!(client.again(&server).sees("/mine"));
}

#[test]
fn a_request_that_can_not_be_read_is_answered_so() {
    let server = Server::start().unwrap();
    let mut client = Wire::connect(&server);
    for op in [
        op::CREATE,
        op::DELETE,
        op::EXISTS,
        op::GET_CHILDREN2,
        op::SET_WATCHES,
    ] {
        // A path of 100 bytes, of which only two follow.
        let cut_off = [0, 0, 0, 100, b'/', b'a'];
        assert_eq!(client.call(op, &cut_off), Err(MARSHALLING_ERROR), "{op}");
    }
    assert!(!client.sees("/a"));
}

#[test]
fn a_frame_that_is_too_long_ends_the_connection_and_not_the_session() {
    let server = Server::builder().max_frame(1000).start().unwrap();
    for head in [1001_i32, i32::MAX, -1] {
        let mut client = Wire::connect(&server);
        client.stream.write_all(&head.to_be_bytes()).unwrap();
        assert!(client.is_hung_up_on());
        assert!(client.again(&server).timeout_ms > 0);
    }
    let mut stranger = dial(&server);
    stranger.write_all(&1001_i32.to_be_bytes()).unwrap();
    eventually("the stranger is gone", || connections(&server) == 0);
}

#[test]
fn half_open_connections_are_closed_in_time() {
    let server = Server::builder()
        .tick(Duration::from_millis(10))
        .start()
        .unwrap();
    let _silent = dial(&server);
    let mut slow = dial(&server);
    slow.write_all(&[0, 0, 0, 45, 0, 0]).unwrap();
    let half = dial(&server);
    half.shutdown(Shutdown::Write).unwrap();
    eventually("they are gone", || connections(&server) == 0);
    assert_eq!(server.sessions(), [0_i64; 0]);
}

#[test]
fn a_client_that_does_not_read_stalls_nobody() {
    let server = Server::start().unwrap();
    let mut other = Wire::connect(&server);
    let mut deaf = Wire::connect(&server);
    let mut create = buffer(b"/big");
    create.extend(buffer(&vec![0; 900_000]));
    create.extend(1_i32.to_be_bytes());
    create.extend(31_i32.to_be_bytes());
    create.extend(buffer(b"world"));
    create.extend(buffer(b"anyone"));
    create.extend(PERSISTENT.to_be_bytes());
    deaf.call(op::CREATE, &create).unwrap();
    for _ in 0..100 {
        deaf.send(op::GET_DATA, &look("/big", true));
    }
    for i in 0..100 {
        other.create(&format!("/n{i}"), PERSISTENT).unwrap();
    }
    eventually("the server has read its first request", || {
        server.watch_count() > 0
    });
    other.delete("/big").unwrap();
    // The client gets what it has asked for as soon as it reads.
    assert_eq!(deaf.hear().unwrap().unwrap().len(), 900_000 + 4 + 68);
}

#[test]
fn there_are_no_more_connections_than_allowed() {
    let server = Server::builder().max_connections(2).start().unwrap();
    let first = Wire::connect(&server);
    let mut second = Wire::connect(&server);
    assert!(Wire::hello(&server, 0, &[0; 16], 10_000, 0).is_err());
    assert!(!second.sees("/a"));
    drop(first);
    eventually("there is room again", || {
        Wire::hello(&server, 0, &[0; 16], 10_000, 0).is_ok()
    });
}

#[test]
fn connections_that_come_and_go_leave_no_threads() {
    let server = Server::start().unwrap();
    for _ in 0..200 {
        drop(TcpStream::connect(server.hosts()).unwrap());
    }
    for _ in 0..50 {
        let mut client = Wire::connect(&server);
        client.call(op::CLOSE, &[]).unwrap();
        assert!(client.is_hung_up_on());
    }
    eventually("the connections are gone", || connections(&server) == 0);
    assert_eq!(server.sessions(), [0_i64; 0]);
}
