//! The answers to single requests, well formed or not.

use super::lab::{Heard, Lab, check, config, create, delete, ms, new_session, sync};
use crate::sim::ensemble::{EnsembleConfig, Fault, RequestKind};
use zklock_jute::{CreateMode, ErrorCode, OpCode, Reply, Request, Secret};

const LONG: std::time::Duration = ms(2000);

#[test]
fn a_lost_reply_is_that_of_the_kind_and_its_request_is_carried_out() {
    let mut lab = Lab::new(config(), 5);
    let client = lab.client(0, LONG);
    lab.fault(Fault::LoseNextReply {
        kind: Some(RequestKind::Create),
    });
    assert_eq!(lab.code(client.connection, &Request::Ping), ErrorCode::OK);
    let lost = lab.call(client.connection, &create("/a", CreateMode::Persistent));
    assert_eq!(lost, None);
    assert_eq!(lab.ensemble.nodes(), ["/a"]);
    assert!(lab.meet(0, &client.again()).is_some());
}

#[test]
fn malformed_frames_end_the_connection_and_not_the_session() {
    let mut lab = Lab::new(config(), 6);
    let client = lab.client(0, LONG);
    for bytes in [
        &[0xff; 4][..],
        &[0x7f, 0xff, 0xff, 0xff],
        &[0, 0, 0, 3, 1, 2, 3],
        b"ruok",
    ] {
        let stranger = lab.dial(0);
        lab.send(stranger, bytes);
        assert!(lab.is_closed(stranger), "{bytes:?}");
    }
    for bytes in [&[0xff; 4][..], &[0, 0, 0, 7, 1, 2, 3, 4, 5, 6, 7]] {
        let client = lab.meet(0, &client.again()).unwrap();
        lab.send(client.connection, bytes);
        assert!(lab.is_closed(client.connection), "{bytes:?}");
    }
    let client = lab.meet(0, &client.again()).unwrap();
    // A path of 100 bytes, of which two follow.
    let mut cut_off = vec![0, 0, 0, 14, 0, 0, 0, 9];
    cut_off.extend(OpCode::DELETE.0.to_be_bytes());
    cut_off.extend([0, 0, 0, 100, b'/', b'a']);
    lab.send(client.connection, &cut_off);
    match lab.heard(client.connection).last() {
        Some(Heard::Reply(header, None)) => {
            assert_eq!((header.xid, header.code), (9, ErrorCode::MARSHALLING_ERROR));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_stream_may_come_in_pieces_of_any_size() {
    let mut lab = Lab::new(config(), 7);
    let connection = lab.dial(0);
    let mut bytes = Vec::new();
    new_session(LONG).encode(&mut bytes);
    create("/a", CreateMode::Persistent).encode(1, &mut bytes);
    Request::Ping.encode(-2, &mut bytes);
    // What follows the handshake is not read before it is answered.
    for byte in bytes {
        lab.send(connection, &[byte]);
    }
    lab.until("the node is there", |lab| lab.ensemble.nodes() == ["/a"]);
}

#[test]
fn an_old_server_ends_the_connection_at_what_it_does_not_know() {
    let old = EnsembleConfig {
        old: true,
        ..config()
    };
    let mut lab = Lab::new(old, 8);
    for request in [
        create("/c", CreateMode::Container),
        Request::WhoAmI,
        Request::RemoveWatches {
            path: "/".to_owned(),
            kind: 3,
        },
    ] {
        let client = lab.client(1, LONG);
        assert_eq!(
            lab.code(client.connection, &request),
            ErrorCode::UNIMPLEMENTED
        );
        assert!(lab.is_closed(client.connection));
    }
    let client = lab.client(1, LONG);
    lab.create(client.connection, "/a", CreateMode::Persistent);
    assert_eq!(lab.code(client.connection, &check("/a")), ErrorCode::OK);
}

#[test]
fn a_container_goes_after_its_last_child_and_counts_from_where_it_is_told() {
    let counting = EnsembleConfig {
        counters: [("/c".to_owned(), i32::MAX - 1)].into(),
        ..config()
    };
    let mut lab = Lab::new(counting, 9);
    let client = lab.client(2, LONG);
    lab.create(client.connection, "/c", CreateMode::Container);
    let mode = CreateMode::EphemeralSequential;
    let first = lab.create(client.connection, "/c/n-", mode);
    assert_eq!(first, "/c/n-2147483646");
    assert_eq!(
        lab.create(client.connection, "/c/n-", mode),
        "/c/n-2147483647"
    );
    let end = lab.code(client.connection, &create("/c/n-", mode));
    assert_eq!(end, ErrorCode::NODE_EXISTS);
    lab.code(client.connection, &delete("/c/n-2147483646"));
    lab.code(client.connection, &delete("/c/n-2147483647"));
    lab.until("the container goes", |lab| lab.ensemble.nodes().is_empty());
}

#[test]
fn a_node_is_changed_by_whom_its_list_names_and_by_an_administrator() {
    let mut lab = Lab::new(config(), 10);
    let (owner, other) = (lab.client(0, LONG), lab.client(1, LONG));
    let auth = Request::Auth {
        scheme: "digest".to_owned(),
        credentials: Secret(b"me:secret".to_vec()),
    };
    assert_eq!(lab.code(owner.connection, &auth), ErrorCode::OK);
    let mut private = create("/a", CreateMode::Persistent);
    if let Request::Create { acl, .. } = &mut private {
        acl[0].scheme = "auth".to_owned();
        acl[0].id = String::new();
    }
    assert_eq!(lab.code(owner.connection, &private), ErrorCode::OK);
    lab.code(other.connection, &sync("/"));
    assert_eq!(
        lab.code(other.connection, &Request::get("/a")),
        ErrorCode::NO_AUTH
    );
    assert_eq!(
        lab.code(owner.connection, &Request::get("/a")),
        ErrorCode::OK
    );
    let path = "/a".to_owned();
    lab.fault(Fault::Revoke { path: path.clone() });
    lab.code(owner.connection, &sync("/"));
    match lab.call(owner.connection, &Request::get("/a")) {
        Some((_, Some(Reply::Data { data, .. }))) => assert_eq!(&data[..], b"__REVOKE__"),
        other => panic!("{other:?}"),
    }
    lab.fault(Fault::Evict { path });
    lab.until("the node goes", |lab| lab.ensemble.nodes().is_empty());
}
