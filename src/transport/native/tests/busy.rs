//! Servers that refuse a request before its turn, or throw away what only the transport has asked for.

use std::sync::Mutex;

use super::fake::{Act, Fake, Script, frame_of, greeting_for};
use super::*;
use zklock_jute::xid;

const TIMEOUT: Duration = Duration::from_secs(4);

/// With `enableEagerACLCheck`, ZooKeeper refuses a write that nobody may carry out while earlier ones wait for the
/// quorum. Who takes that for the end of the connection comes back with the same requests, for ever.
#[test]
fn a_write_that_is_refused_before_its_turn_costs_no_connection() {
    let mut deleted = None;
    let script = Script::new(move |xid, request| match request {
        Request::Delete { .. } => {
            deleted = Some(xid);
            Act::Ignore
        }
        Request::Create { .. } => Act::Refuse(ErrorCode::NO_AUTH),
        // By now the quorum has answered.
        Request::GetData { .. } => Act::Say(
            [
                frame_of(deleted.unwrap_or_default(), ErrorCode::OK),
                frame_of(xid, ErrorCode::NO_NODE),
            ]
            .concat(),
        ),
        _ => Act::Ignore,
    });
    let server = Fake::start(script);
    let rig = Rig::connect(&server.hosts(), TIMEOUT);
    let create = create("/b", CreateMode::Ephemeral);
    let answers = rig.send(vec![delete("/a"), create, data("/a", false)]);
    let refused = Err(Failure::Refused(ErrorCode::NO_AUTH));
    assert_eq!(one(&answers), refused);
    assert_eq!(one(&answers), Ok(Reply::Nothing));
    assert_eq!(one(&answers), NO_NODE);
    assert!(answers.try_recv().is_err(), "one was answered twice");
    assert_eq!(rig.status.snapshot().connects, 1);
}

#[test]
fn watches_that_a_server_throws_away_are_set_again_on_the_same_connection() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let asked = Arc::clone(&seen);
    let script = Script::new(move |xid, request| match request {
        Request::SetWatches(lists) => {
            let mut asked = asked.lock().unwrap();
            asked.push(lists);
            match asked.len() {
                1 => Act::Ignore,
                2 => Act::Say(frame_of(xid, ErrorCode::THROTTLED)),
                _ => Act::Say(frame_of(xid, ErrorCode::OK)),
            }
        }
        Request::RemoveWatches { .. } => Act::Say(
            [
                frame_of(xid::SET_WATCHES, ErrorCode::THROTTLED),
                frame_of(xid, ErrorCode::NO_NODE),
            ]
            .concat(),
        ),
        Request::GetData { .. } => Act::Reply(Reply::Data {
            data: Vec::new().into(),
            stat: Stat::default(),
        }),
        Request::Delete { .. } => Act::Close,
        Request::Exists { .. } => Act::Refuse(ErrorCode::NO_NODE),
        _ => Act::Ignore,
    });
    let server = Fake::start(script);
    let rig = Rig::connect(&server.hosts(), TIMEOUT);
    let (_, _fired) = rig.watch(data("/a", true), 1);
    let (_, _gone) = rig.watch(data("/gone", true), 2);
    assert_eq!(rig.ask(delete("/b")), Err(Failure::Lost));
    rig.reconnected();
    rig.transport.unwatch("/gone", WatchId(2));
    crate::support::eventually("the watches are set", || seen.lock().unwrap().len() == 3);
    assert_eq!(rig.ask(exists("/c", false)), NO_NODE);
    let seen = seen.lock().unwrap();
    assert_eq!(seen[0].data, ["/a", "/gone"]);
    assert_eq!(
        (&seen[1].data, &seen[1]),
        (&vec!["/a".to_owned()], &seen[2])
    );
    assert_eq!(server.connections(), 2);
}

/// Many waiters may ask whether the leader has the node ahead, each at its own time.
#[test]
fn servers_whose_data_are_wrong_are_not_left_one_after_the_other() {
    let servers = [0, 1].map(|_| {
        let mut script = Script::new(|_, request| match request {
            Request::Ping => Act::Reply(Reply::Nothing),
            _ => Act::Refuse(ErrorCode::NO_NODE),
        });
        // Nothing arrives by itself for longer than this test takes.
        script.greet = Box::new(|_| Some(greeting_for(7, 3_600_000)));
        Fake::start(script)
    });
    let connections = || servers.each_ref().map(Fake::connections);
    let hosts = servers.each_ref().map(Fake::hosts).join(",");
    let rig = Rig::connect(&hosts, Duration::from_secs(3600));
    let session = rig.session();
    rig.transport.move_on("/a");
    rig.disconnected();
    rig.reconnected();
    assert_eq!((connections(), rig.session()), ([1, 1], session));
    rig.transport.move_on("/a");
    // The client would leave after the first answer.
    for _ in 0..2 {
        assert_eq!(rig.ask(exists("/a", false)), NO_NODE);
    }
    assert_eq!(connections(), [1, 1]);
}

/// ClickHouse Keeper answers everything like this while it has no leader. A client that ends would have lost its locks.
#[test]
fn a_server_that_cannot_check_the_credentials_now_is_asked_again() {
    let mut asked = 0;
    let server = Fake::start(Script::new(move |_, request| {
        asked += i32::from(matches!(request, Request::Auth { .. }));
        match asked {
            1 => Act::Refuse(ErrorCode::CONNECTION_LOSS),
            _ => Act::Reply(Reply::Nothing),
        }
    }));
    let mut config = Config::plain(&server.hosts(), TIMEOUT);
    config.auth.push(Credentials {
        scheme: "digest".to_owned(),
        secret: Secret(b"ann:secret".to_vec()),
    });
    let rig = Rig::open(config);
    let event = rig.events.recv_timeout(PATIENCE).unwrap();
    assert_eq!(event, SessionEvent::Connected { session: 7 });
    assert_eq!(server.connections(), 2);
}
