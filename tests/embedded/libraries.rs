//! The features on which other libraries rely, but zklock does not.

use std::time::{Duration, Instant};

use zklock::Client;
use zklock::embedded::Server;

use super::support::raw::{EPHEMERAL, PERSISTENT, op};
use super::support::zookeeper::ZooKeeper;
use super::support::{eventually, free_port};
use super::wire::{LONG, Wire, buffer, creation, creation_with, look};

const OK: i32 = 0;
const MARSHALLING_ERROR: i32 = -5;
const UNIMPLEMENTED: i32 = -6;
const BAD_ARGUMENTS: i32 = -8;
const NO_NODE: i32 = -101;
const NO_AUTH: i32 = -102;
const AUTH_FAILED: i32 = -115;

/// How often the servers look for nodes whose time is over.
const TTL_CHECK: Duration = Duration::from_millis(100);

/// The length of missing data.
const NULL: [u8; 4] = (-1_i32).to_be_bytes();

/// The bytes after the last part of a multi.
const END: [u8; 9] = [0xff, 0xff, 0xff, 0xff, 1, 0xff, 0xff, 0xff, 0xff];

mod code {
    pub(super) const GET_ACL: i32 = 6;
    pub(super) const CREATE_TTL: i32 = 21;
    pub(super) const MULTI_READ: i32 = 22;
    pub(super) const RECONFIG: i32 = 16;
}

#[test]
fn credentials_are_answered_under_the_number_they_were_sent_with() {
    let server = Server::start().unwrap();
    let mut client = Wire::connect(&server);
    let packet = |scheme: &[u8]| [&[0; 4], &buffer(scheme)[..], &buffer(b"me:secret")].concat();
    for (xid, scheme) in [(7, b"digest"), (-4, b"digest"), (i32::MAX, b"digest")] {
        client.send_as(xid, op::AUTH, &packet(scheme));
        assert_eq!(client.hear_number(), (xid, OK));
    }
    client.send_as(8, op::AUTH, &packet(b"ip"));
    assert_eq!(client.hear_number(), (8, OK));
    client.send_as(9, op::AUTH, &packet(b"nonsense"));
    assert_eq!(client.hear_number(), (9, AUTH_FAILED));
    assert!(client.is_hung_up_on());
}

#[test]
fn a_ping_is_answered_as_a_ping_whatever_its_number() {
    let server = Server::start().unwrap();
    let mut client = Wire::connect(&server);
    client.send_as(12, op::PING, &[]);
    assert_eq!(client.hear_number(), (-2, OK));
}

#[test]
fn no_data_at_all_stays_none() {
    let server = Server::start().unwrap();
    let mut client = Wire::connect(&server);
    for (path, data) in [
        ("/none", &NULL[..]),
        ("/empty", &[0; 4]),
        ("/some", &buffer(b"yz")),
    ] {
        let made = client.call(op::CREATE, &creation_with(path, data, PERSISTENT));
        made.unwrap();
        let read = client.call(op::GET_DATA, &look(path, false)).unwrap();
        assert_eq!(read[..data.len()], *data, "{path}");
    }
    let set = [&buffer(b"/some")[..], &NULL, &(-1_i32).to_be_bytes()].concat();
    let stat = client.call(op::SET_DATA, &set).unwrap();
    assert_eq!(stat[52..56], [0; 4], "a length of 0");
    let read = client.call(op::GET_DATA, &look("/some", false)).unwrap();
    assert_eq!(read[..4], NULL);
}

#[test]
fn several_nodes_are_read_at_once_and_fail_each_for_itself() {
    let server = Server::start().unwrap();
    let mut client = Wire::connect(&server);
    client.create("/a", PERSISTENT).unwrap();
    let part = |code: i32, path: &str| [&head(code)[..], &look(path, false)].concat();
    let ask = [
        part(op::GET_DATA, "/a"),
        part(op::GET_DATA, "/no"),
        part(op::GET_CHILDREN, "/zookeeper"),
        END.to_vec(),
    ]
    .concat();
    let read = client.call(code::MULTI_READ, &ask).unwrap();
    let data = client.call(op::GET_DATA, &look("/a", false)).unwrap();
    let names = client
        .call(op::GET_CHILDREN, &look("/zookeeper", false))
        .unwrap();
    let expected = [
        &[&op::GET_DATA.to_be_bytes()[..], &[0; 5], &data].concat()[..],
        &[
            &(-1_i32).to_be_bytes()[..],
            &[0],
            &NO_NODE.to_be_bytes(),
            &NO_NODE.to_be_bytes(),
        ]
        .concat(),
        &[&op::GET_CHILDREN.to_be_bytes()[..], &[0; 5], &names].concat(),
        &END,
    ]
    .concat();
    assert_eq!(read, expected);
    // An operation that a multi does not allow is refused, and costs nobody the connection.
    let ask = [part(op::EXISTS, "/a"), END.to_vec()].concat();
    assert_eq!(client.call(code::MULTI_READ, &ask), Err(MARSHALLING_ERROR));
    assert!(client.sees("/a"));
}

#[test]
fn what_a_server_is_not_set_up_for_is_refused_and_the_connection_stays() {
    let server = Server::start().unwrap();
    let mut client = Wire::connect(&server);
    let with_ttl = |mode| [&creation("/ttl", mode)[..], &1000_i64.to_be_bytes()].concat();
    for (code, body, refusal) in [
        (code::CREATE_TTL, with_ttl(5), UNIMPLEMENTED),
        (code::CREATE_TTL, with_ttl(6), UNIMPLEMENTED),
        (code::CREATE_TTL, with_ttl(0), BAD_ARGUMENTS),
        (op::CREATE2, creation("/ttl", 5), UNIMPLEMENTED),
        (op::CREATE2, creation("/ttl", 9), BAD_ARGUMENTS),
        (
            code::RECONFIG,
            [&[0; 12][..], &(-1_i64).to_be_bytes()].concat(),
            UNIMPLEMENTED,
        ),
    ] {
        assert_eq!(client.call(code, &body), Err(refusal), "{code}");
    }
    assert!(!client.sees("/ttl"));
}

#[test]
fn a_node_goes_once_its_time_is_over_and_it_has_no_child() {
    let builder = Server::builder().container_check(TTL_CHECK);
    let server = builder.extended_types().start().unwrap();
    nodes_live_for_their_time(server.hosts());
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn on_a_real_zookeeper_too_a_node_lives_for_its_time() {
    let builder = ZooKeeper::builder().fsync(false);
    let builder = builder.property("zookeeper.extendedTypesEnabled", "true");
    nodes_live_for_their_time(&builder.container_check(TTL_CHECK).start().hosts());
}

fn nodes_live_for_their_time(hosts: &str) {
    let mut client = Wire::connect_to(hosts);
    let mut create = |path: &str, mode: i32, ttl_ms: i64| {
        let body = [&creation(path, mode)[..], &ttl_ms.to_be_bytes()].concat();
        client
            .call(code::CREATE_TTL, &body)
            .map(|reply| reply.len())
    };
    const STAT: usize = 68;
    assert_eq!(create("/short", 5, 1), Ok(4 + 6 + STAT));
    assert_eq!(create("/parent", 5, 1), Ok(4 + 7 + STAT));
    assert_eq!(create("/long", 5, (1 << 40) - 1), Ok(4 + 5 + STAT));
    assert_eq!(create("/n-", 6, 1 << 30), Ok(4 + 13 + STAT));
    for (mode, ttl_ms) in [(5, 1 << 40), (5, 0), (6, -1), (0, 1000), (1, 1000)] {
        assert_eq!(create("/no", mode, ttl_ms), Err(BAD_ARGUMENTS));
    }
    let without_ttl = client.call(op::CREATE2, &creation("/no", 5));
    assert_eq!(without_ttl, Err(BAD_ARGUMENTS));
    // A child that was created in the first millisecond would show nothing about the parent's time.
    while client.create("/parent/child", PERSISTENT) == Err(NO_NODE) {
        let body = [&creation("/parent", 5)[..], &1_i64.to_be_bytes()].concat();
        client.call(code::CREATE_TTL, &body).unwrap();
    }
    eventually("its time is over", || !client.sees("/short"));
    // The server has looked at all of them at least once more.
    client.create("/last", PERSISTENT).unwrap();
    let body = [&creation("/last/short", 5)[..], &1_i64.to_be_bytes()].concat();
    client.call(code::CREATE_TTL, &body).unwrap();
    eventually("its time is over", || !client.sees("/last/short"));
    assert!(client.sees("/parent"), "it has a child");
    assert!(client.sees("/long"));
    client.delete("/parent/child").unwrap();
    eventually("its time is over", || !client.sees("/parent"));
}

/// The digest of `super:secret`.
const SUPER_DIGEST: &str = "super:lK75jTNcA+U9vtVEw5vB51mj/w4=";

#[test]
fn a_superuser_may_do_what_nobody_else_may() {
    let server = Server::builder().super_digest(SUPER_DIGEST);
    the_superuser_may_do_it(server.start().unwrap().hosts());
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn on_a_real_zookeeper_too_a_superuser_may_do_what_nobody_else_may() {
    let name = "zookeeper.DigestAuthenticationProvider.superDigest";
    let builder = ZooKeeper::builder().fsync(false);
    let server = builder.property(name, SUPER_DIGEST).start();
    the_superuser_may_do_it(&server.hosts());
}

fn the_superuser_may_do_it(hosts: &str) {
    let [mut owner, mut other, mut admin] = [(); 3].map(|()| Wire::connect_to(hosts));
    let login = |client: &mut Wire, credentials: &[u8]| {
        let packet = [&[0; 4], &buffer(b"digest")[..], &buffer(credentials)].concat();
        client.send_as(-4, op::AUTH, &packet);
        assert_eq!(client.hear_number(), (-4, OK));
    };
    login(&mut owner, b"me:secret");
    login(&mut other, b"super:wrong");
    login(&mut admin, b"super:secret");
    let create = |client: &mut Wire, path: &str| {
        let acl = [&1_i32.to_be_bytes()[..], &31_i32.to_be_bytes()].concat();
        let acl = [acl, buffer(b"auth"), buffer(b""), vec![0; 4]].concat();
        let body = [buffer(path.as_bytes()), buffer(b"x"), acl].concat();
        client.call(op::CREATE, &body).unwrap();
    };
    let set = |path: &str| [buffer(path.as_bytes()), buffer(b"y"), vec![0xff; 4]].concat();
    create(&mut owner, "/mine");
    create(&mut admin, "/admins");
    for path in ["/mine", "/zookeeper/config"] {
        assert_eq!(other.call(op::SET_DATA, &set(path)), Err(NO_AUTH));
        assert!(admin.call(op::SET_DATA, &set(path)).is_ok(), "{path}");
    }
    // A node of the superuser's own belongs to its name, as with any user.
    assert_eq!(owner.call(op::SET_DATA, &set("/admins")), Err(NO_AUTH));
    let acl = admin.call(code::GET_ACL, &buffer(b"/admins")).unwrap();
    let [scheme, id] = [&b"digest"[..], SUPER_DIGEST.as_bytes()].map(buffer);
    let expected = [
        &1_i32.to_be_bytes()[..],
        &31_i32.to_be_bytes(),
        &scheme,
        &id,
    ]
    .concat();
    assert_eq!(acl[..expected.len()], expected);
}

#[test]
fn the_clients_of_a_server_that_was_restarted_hear_that_their_sessions_are_over() {
    // Many of the restarts take less than a millisecond.
    let port = free_port();
    for _ in 0..50 {
        let server = Server::builder().port(port).start().unwrap();
        let mut client = Wire::connect(&server);
        for name in ["/a", "/b", "/c"] {
            client.create(name, EPHEMERAL).unwrap();
        }
        drop(server);
        let server = Server::builder().port(port).start().unwrap();
        // The restarted server had no change yet, and is not behind what the client has seen.
        assert_eq!(client.again(&server).timeout_ms, 0);
    }
}

#[test]
fn a_lock_works_again_after_a_restart_of_the_server() {
    let port = free_port();
    let server = Server::builder().port(port).start().unwrap();
    let client = Client::connect(server.hosts()).unwrap();
    let mutex = client.mutex("/locks/restarted").unwrap();
    let guard = mutex.lock().unwrap();
    drop(server);
    let server = Server::builder().port(port).start().unwrap();
    let begin = Instant::now();
    while guard.check().is_ok() && begin.elapsed() < LONG {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(guard.unlock().unwrap_err().is_lost());
    let guard = mutex.try_lock_for(LONG).unwrap();
    guard.expect("nobody has it").unlock().unwrap();
    drop(server);
}

/// Returns the bytes before a part of a multi.
fn head(code: i32) -> [u8; 9] {
    let mut head = END;
    head[..4].copy_from_slice(&code.to_be_bytes());
    head[4] = 0;
    head
}
