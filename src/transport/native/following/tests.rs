//! Lists that are taken, refused, and left behind.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::transport::native::config::Config;
use crate::transport::native::hosts::{Server, Target};
use crate::transport::native::resolver::Found;
use crate::transport::status::Status;
use zklock_jute::{ReplyHeader, Stat, xid};

/// Returns the state of a client with literal addresses, which need no resolver.
fn shared(ports: &[u16]) -> Arc<Shared> {
    let session_timeout = Duration::from_secs(10);
    let hosts: Vec<_> = ports.iter().map(|port| at(*port)).collect();
    let config = Config {
        follow_reconfiguration: true,
        ..Config::plain(&hosts.join(","), session_timeout)
    };
    let status = Arc::new(Status::new(session_timeout, true));
    let shared = Arc::new(Shared::new(config, status));
    shared.look_up(true);
    shared
}

fn at(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

/// Connects the client to this port.
fn connect(shared: &Shared, port: u16) {
    let mut state = shared.state.lock();
    state.target = Some(Target::of(([127, 0, 0, 1], port).into()));
    shared.arrived(&mut state);
}

fn answer(shared: &Shared, data: &[u8]) {
    let data = data.to_vec().into();
    let stat = Stat::default();
    let (xid, zxid, code) = (xid::MEMBERS, 1, ErrorCode::OK);
    let mut frame = Vec::new();
    ReplyHeader { xid, zxid, code }.encode(Some(&Reply::Data { data, stat }), &mut frame);
    let (_, body) = ReplyHeader::decode(&frame[4..]).unwrap();
    shared.members_came(code, body);
}

fn name(shared: &Shared, version: i64, ports: &[u16]) {
    let line = |port| format!("server.{port}=127.0.0.1:1:2:participant;0.0.0.0:{port}\n");
    let lines: String = ports.iter().map(line).collect();
    answer(shared, format!("{lines}version={version:x}").as_bytes());
}

/// Returns the ports of all addresses to try, and of those that are tried after them.
fn tried(shared: &Arc<Shared>, has_session: bool) -> (Vec<u16>, Vec<u16>) {
    let Found { targets, kept, .. } = shared.look_up(has_session);
    let ports = |targets: Vec<Target>| {
        let mut ports: Vec<_> = targets.iter().map(|target| target.address.port()).collect();
        ports.sort_unstable();
        ports
    };
    (ports(targets), ports(kept))
}

fn is_to_move(shared: &Shared) -> bool {
    shared.state.lock().list.is_left_out()
}

#[test]
fn the_newest_list_counts() {
    let shared = shared(&[1, 2, 3]);
    connect(&shared, 3);
    name(&shared, 7, &[2, 3, 4]);
    assert_eq!(tried(&shared, true), (vec![2, 3, 4], vec![]));
    for old in [6, 7] {
        name(&shared, old, &[1, 2, 3]);
        assert_eq!(tried(&shared, true), (vec![2, 3, 4], vec![]));
    }
    name(&shared, 8, &[3, 4, 5]);
    assert_eq!(tried(&shared, true), (vec![3, 4, 5], vec![]));
    // Another ensemble, which has made fewer changes.
    shared.state.lock().list.forget_version();
    name(&shared, 1, &[3]);
    assert_eq!(tried(&shared, false), (vec![3], vec![]));
    assert!(!is_to_move(&shared));
}

#[test]
fn an_answer_without_a_list_changes_nothing_and_is_told_once() {
    let shared = shared(&[1, 2]);
    connect(&shared, 1);
    let told = || shared.state.lock().complaint.clone();
    for code in [ErrorCode::NO_NODE, ErrorCode::NO_AUTH] {
        shared.members_came(code, b"");
        assert!(!told().is_empty());
    }
    let long = [b"server.1=".as_slice(), &[b'%'; 100_000]].concat();
    let garbage: [&[u8]; 6] = [
        b"",
        b"version=7",
        b"server.1=a:1:2;5",
        b"\xff",
        b"{}",
        &long,
    ];
    for data in garbage {
        answer(&shared, data);
        assert!((1..=LONGEST).contains(&told().len()), "{}", told());
    }
    for body in [&b""[..], b"\0", &[0xff; 80]] {
        shared.members_came(ErrorCode::OK, body);
        assert!(!told().is_empty());
    }
    assert_eq!(tried(&shared, true), (vec![1, 2], vec![]));
    name(&shared, 7, &[1]);
    assert_eq!(
        (told(), tried(&shared, true)),
        (String::new(), (vec![1], vec![]))
    );
}

#[test]
fn a_client_of_a_list_that_has_not_served_goes_back_to_those_of_before() {
    let shared = shared(&[1, 2]);
    connect(&shared, 1);
    // Such a client reaches the servers at other addresses than they use among themselves.
    name(&shared, 7, &[8, 9]);
    assert!(!is_to_move(&shared), "it may be a balancer");
    assert_eq!(tried(&shared, true), (vec![8, 9], vec![1, 2]));
    assert_eq!(tried(&shared, false), (vec![1, 2, 8, 9], vec![]));
    name(&shared, 8, &[2, 9]);
    assert_eq!(tried(&shared, true), (vec![2, 9], vec![1, 8]));
    connect(&shared, 9);
    assert_eq!(tried(&shared, true), (vec![2, 9], vec![]));
}

/// A resolver that does not answer must not cost the session of a client that could go back.
#[test]
fn a_list_of_names_without_addresses_leaves_those_of_before() {
    let shared = shared(&[1, 2]);
    connect(&shared, 1);
    answer(&shared, b"server.1=zk1.invalid:1:2;5\nversion=1");
    assert!(!shared.state.lock().list.knows_no_address());
    assert_eq!(tried(&shared, true), (vec![], vec![1, 2]));
    assert_eq!(tried(&shared, false), (vec![1, 2], vec![]));
}

#[test]
fn only_a_server_that_a_change_has_removed_is_left() {
    let shared = shared(&[1, 2]);
    connect(&shared, 1);
    name(&shared, 7, &[1, 2]);
    assert!(!is_to_move(&shared));
    name(&shared, 8, &[2, 3]);
    assert!(is_to_move(&shared));
    assert_eq!(tried(&shared, true), (vec![2, 3], vec![1]));
    // The client is now connected to the only server that serves.
    connect(&shared, 1);
    name(&shared, 8, &[2, 3]);
    assert!(!is_to_move(&shared), "once is enough");
}

#[test]
fn a_name_keeps_what_is_known_of_it() {
    let shared = shared(&[1]);
    connect(&shared, 1);
    let lines = "server.1=zk1.invalid:1:2;5\nserver.2=127.0.0.1:1:2;1\nversion=";
    answer(&shared, format!("{lines}1").as_bytes());
    let address = ([127, 0, 0, 9], 5).into();
    let mut state = shared.state.lock();
    assert_eq!(
        state.list.servers[0].server,
        Server {
            host: "zk1.invalid".to_owned(),
            port: 5
        }
    );
    state.list.servers[0].name.addresses = vec![address];
    drop(state);
    answer(
        &shared,
        format!("server.3=c.invalid:1:2;5\n{lines}2").as_bytes(),
    );
    let state = shared.state.lock();
    assert_eq!(state.list.servers[1].name.addresses, [address]);
}
