//! Against a real ZooKeeper.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;

use super::*;
use crate::support::proxy::Proxy;
use crate::support::zookeeper::ZooKeeper;
use crate::support::{eventually, timed};
use zklock_core::connection::sync;

const LONG: Duration = Duration::from_secs(10);

#[test]
#[ignore = "needs a ZooKeeper server"]
fn the_write_that_is_to_fail_changes_no_node_of_others() {
    let rig = Rig::connect(&server().hosts(), LONG);
    let dir = node();
    let theirs = format!("{dir}/_sync");
    assert!(rig.ask(create(&dir, CreateMode::Container)).is_ok());
    let absent = rig.ask(sync(&dir));
    assert_eq!(absent, Err(Failure::Refused(ErrorCode::NO_NODE)));
    assert!(rig.ask(create(&theirs, CreateMode::Ephemeral)).is_ok());
    let refused = rig.ask(sync(&dir));
    assert_eq!(refused, Err(Failure::Refused(ErrorCode::BAD_VERSION)));
    assert!(rig.ask(exists(&theirs, false)).is_ok());
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn requests_are_carried_out_and_answered() {
    let rig = Rig::connect(&server().hosts(), LONG);
    let path = node();
    let Ok(Reply::Created { path: made, stat }) = rig.ask(create(&path, CreateMode::Container))
    else {
        panic!("the container was not made");
    };
    assert_eq!(made, path);
    assert!(stat.unwrap().czxid > 0);

    let lock = format!("{path}/lock-");
    let batch = vec![
        create(&lock, CreateMode::EphemeralSequential),
        children(&path, false),
        data(&format!("{lock}0000000000"), false),
        Request::Sync { path: path.clone() },
        exists("/no-such-node", false),
    ];
    let answers = rig.send(batch);
    let Ok(Reply::Created { path: mine, stat }) = one(&answers) else {
        panic!("the node was not made");
    };
    assert_eq!(mine, format!("{lock}0000000000"));
    assert_eq!(stat.unwrap().ephemeral_owner, rig.session());
    let listed = one(&answers).unwrap();
    assert!(
        matches!(listed, Reply::Children { names, .. } if names.iter().eq(["lock-0000000000"]))
    );
    let read = one(&answers).unwrap();
    assert!(matches!(read, Reply::Data { data, .. } if data[..] == *b"data"));
    assert_eq!(one(&answers), Ok(Reply::Synced { path }));
    assert_eq!(one(&answers), NO_NODE);
    assert_eq!(rig.ask(delete(&mine)), Ok(Reply::Nothing));
    assert_eq!(rig.ask(delete(&mine)), NO_NODE);
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_multi_says_what_came_of_each_part() {
    use zklock_jute::{Reply, Request};

    let rig = Rig::connect(&server().hosts(), LONG);
    let path = node();
    let make = Request::Create {
        path: path.clone(),
        data: Vec::new().into(),
        acl: open_acl(),
        mode: CreateMode::Ephemeral,
        stat: true,
    };
    let check = |path: &str| Request::Check {
        path: path.to_owned(),
        version: -1,
    };
    let done = rig.ask(Request::Multi(vec![check("/"), make.clone()]));
    let Ok(Reply::Multi(results)) = done else {
        panic!("{done:?}");
    };
    assert_eq!(results[0], Ok(Reply::Checked));
    // Real servers answer create2 without a stat when it is part of a multi.
    assert!(matches!(&results[1], Ok(Reply::Created { path: made, .. }) if *made == path));

    let failed = rig.ask(Request::Multi(vec![check(&path), make, check("/none")]));
    let Ok(Reply::Multi(results)) = failed else {
        panic!("{failed:?}");
    };
    assert_eq!(results[1], Err(ErrorCode::NODE_EXISTS));
    assert!(results.iter().all(Result::is_err));
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_chroot_is_the_root_in_requests_replies_and_events() {
    let plain = Rig::connect(&server().hosts(), LONG);
    let root = node();
    plain.ask(create(&root, CreateMode::Persistent)).unwrap();
    let rig = Rig::connect(&format!("{}{root}", server().hosts()), LONG);

    let (listed, fired) = rig.watch(children("/", true), 1);
    assert!(matches!(listed, Ok(Reply::Children { names, .. }) if names.is_empty()));
    let made = rig.ask(create("/a", CreateMode::Ephemeral)).unwrap();
    assert!(matches!(made, Reply::Created { path, .. } if path == "/a"));
    assert_eq!(fires(&fired), (1, EventKind::ChildrenChanged));
    assert!(plain.ask(exists(&format!("{root}/a"), false)).is_ok());
    let (_, fired) = rig.watch(data("/a", true), 2);
    plain.ask(delete(&format!("{root}/a"))).unwrap();
    assert_eq!(fires(&fired), (2, EventKind::Deleted));
    let synced = Reply::Synced { path: "/".into() };
    assert_eq!(rig.ask(Request::Sync { path: "/".into() }), Ok(synced));
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn one_watch_at_the_server_serves_all_who_wait_and_is_removed_after_the_last() {
    let zk = ZooKeeper::builder().fsync(false).start();
    let rig = Rig::connect(&zk.hosts(), LONG);
    let count = || zk.monitor("zk_watch_count").unwrap();
    let path = node();
    rig.ask(create(&path, CreateMode::Ephemeral)).unwrap();
    let (_, first) = rig.watch(data(&path, true), 1);
    let (_, second) = rig.watch(exists(&path, true), 2);
    let (_, third) = rig.watch(data(&path, true), 3);
    assert_eq!(count(), 1);
    rig.transport.unwatch(&path, WatchId(1));
    rig.ask(delete(&path)).unwrap();
    assert_eq!(fires(&second), (2, EventKind::Deleted));
    assert_eq!(fires(&third), (3, EventKind::Deleted));
    assert!(first.try_recv().is_err());

    // A watch that was not set is not kept; a watch for a missing node is.
    let (missing, nothing) = rig.watch(data(&path, true), 4);
    assert_eq!(missing, NO_NODE);
    let (missing, comes) = rig.watch(exists(&path, true), 5);
    assert_eq!(missing, NO_NODE);
    rig.ask(create(&path, CreateMode::Ephemeral)).unwrap();
    assert_eq!(fires(&comes), (5, EventKind::Created));
    assert!(nothing.try_recv().is_err());

    rig.watch(data(&path, true), 6).0.unwrap();
    rig.watch(children(&path, true), 7).0.unwrap();
    assert_eq!(count(), 2);
    rig.transport.unwatch(&path, WatchId(6));
    rig.transport.unwatch(&path, WatchId(7));
    eventually("the server has no watch", || count() == 0);
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn credentials_are_sent_before_anything_else_on_every_connection() {
    let proxy = Proxy::start(&server().hosts());
    let mut config = Config::plain(&proxy.hosts(), LONG);
    config.auth.push(Credentials {
        scheme: "digest".to_owned(),
        secret: Secret(b"user:pa55word".to_vec()),
    });
    let shown = format!("{config:?}");
    let rig = Rig::open(config);
    assert!(
        !shown.contains("pa55") && !shown.contains("112, 97"),
        "{shown}"
    );
    rig.reconnected();
    let path = node();
    let made = Request::Create {
        path: path.clone(),
        data: Vec::new().into(),
        acl: vec![Access {
            permissions: Permissions::ALL,
            scheme: "auth".to_owned(),
            id: String::new(),
        }],
        mode: CreateMode::Ephemeral,
        stat: true,
    };
    rig.ask(made).unwrap();
    proxy.cut();
    rig.disconnected();
    rig.reconnected();
    assert!(rig.ask(data(&path, false)).is_ok());
    let other = Rig::connect(&server().hosts(), LONG);
    let refused = Err(Failure::Refused(ErrorCode::NO_AUTH));
    assert_eq!(other.ask(data(&path, false)), refused);
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn refused_credentials_are_the_end() {
    let mut config = Config::plain(&server().hosts(), LONG);
    config.auth.push(Credentials {
        scheme: "no-such-scheme".to_owned(),
        secret: Secret(b"x".to_vec()),
    });
    let rig = Rig::open(config);
    let event = rig.events.recv_timeout(PATIENCE);
    assert_eq!(event, Ok(SessionEvent::AuthFailed));
    assert_eq!(rig.ask(data("/", false)), Err(Failure::Closed));
    assert_eq!(rig.status.snapshot().state, SessionState::AuthFailed);
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn close_ends_the_session_at_once_and_leaves_no_thread() {
    let rig = Rig::connect(&server().hosts(), LONG);
    let other = Rig::connect(&server().hosts(), LONG);
    let path = node();
    rig.ask(create(&path, CreateMode::Ephemeral)).unwrap();
    let (_, took) = timed(|| rig.transport.close(Duration::from_secs(5)));
    assert!(took < Duration::from_secs(4), "{took:?}");
    assert_eq!(other.ask(exists(&path, false)), NO_NODE);
    assert_eq!(rig.ask(data("/", false)), Err(Failure::Closed));
    assert_eq!(rig.status.snapshot().state, SessionState::Closed);
    rig.transport.close(Duration::ZERO);

    // Dropping the transport does the same, without waiting.
    let path = node();
    let rig = Rig::connect(&server().hosts(), LONG);
    rig.ask(create(&path, CreateMode::Ephemeral)).unwrap();
    let Rig {
        transport, events, ..
    } = rig;
    drop(transport);
    assert_eq!(events.recv_timeout(PATIENCE), Ok(SessionEvent::Closed));
    eventually("the node is gone with the session", || {
        other.ask(exists(&path, false)) == NO_NODE
    });
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn many_threads_share_a_connection() {
    let rig = Arc::new(Rig::connect(&server().hosts(), LONG));
    let path = node();
    rig.ask(create(&path, CreateMode::Persistent)).unwrap();
    let threads = (0..8).map(|_| {
        let (rig, prefix) = (Arc::clone(&rig), format!("{path}/n-"));
        thread::spawn(move || {
            let make = || match rig.ask(create(&prefix, CreateMode::EphemeralSequential)) {
                Ok(Reply::Created { path, .. }) => path,
                other => panic!("{other:?}"),
            };
            (0..100).map(|_| make()).collect::<Vec<_>>()
        })
    });
    let threads: Vec<_> = threads.collect();
    let made = threads
        .into_iter()
        .flat_map(|thread| thread.join().unwrap());
    assert_eq!(made.collect::<BTreeSet<_>>().len(), 800);
    assert_eq!(rig.status.snapshot().connects, 1);
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn an_answer_may_send_the_next_request() {
    let rig = Rig::connect(&server().hosts(), LONG);
    let (to, answers) = unbounded();
    let (transport, next) = (
        Arc::clone(&rig.transport),
        call(data("/", false), None, &to),
    );
    let first: Answer = Box::new(move |_| transport.send(vec![next]));
    rig.transport.send(vec![Call {
        request: data("/", false),
        watch: None,
        answer: first,
    }]);
    assert!(one(&answers).is_ok());
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_request_beyond_the_limit_is_refused_and_a_large_one_passes() {
    let rig = Rig::connect(&server().hosts(), LONG);
    let path = node();
    rig.ask(create(&path, CreateMode::Ephemeral)).unwrap();
    let write = |bytes: usize| Request::SetData {
        path: path.clone(),
        data: vec![7; bytes].into(),
        version: -1,
    };
    let refused = rig.ask(write(FRAME_LIMIT));
    assert!(matches!(refused, Err(Failure::TooLong(long)) if long.limit < long.bytes));
    // The number of bytes around the data.
    let around = 4 + 4 + 4 + path.len() + 4 + 4;
    let longest = FRAME_LIMIT - around;
    let refused = rig.ask(write(longest + 1));
    assert!(matches!(refused, Err(Failure::TooLong(long)) if long.bytes == long.limit + 1));
    rig.ask(write(longest)).unwrap();
    let read = rig.ask(data(&path, false)).unwrap();
    assert!(matches!(read, Reply::Data { data, .. } if data[..] == vec![7; longest]));
    assert_eq!(rig.status.snapshot().connects, 1);
}
