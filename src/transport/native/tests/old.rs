//! Servers that lack the newer requests.

use std::sync::Mutex;

use super::fake::{Act, Fake, Script, greeting};
use super::*;
use zklock_jute::{OpCode, Reply, Request};

const TIMEOUT: Duration = Duration::from_secs(4);

/// The requests that a server has seen.
type Seen = Arc<Mutex<Vec<Request>>>;

/// Returns whether a server from before ZooKeeper 3.5 knows this request.
fn is_known(op: OpCode) -> bool {
    (OpCode::CREATE.0..=OpCode::MULTI.0).contains(&op.0) || op == OpCode::CLOSE
}

fn reply_to(request: &Request) -> Act {
    Act::Reply(match request {
        Request::Create { path, stat, .. } => Reply::Created {
            path: path.clone(),
            stat: stat.then(Stat::default),
        },
        Request::GetData { .. } => Reply::Data {
            data: Vec::new().into(),
            stat: Stat::default(),
        },
        Request::Multi(ops) => Reply::Multi(ops.iter().map(|_| Ok(Reply::Checked)).collect()),
        _ => Reply::Nothing,
    })
}

/// Starts a server that reacts as `unknown` says to requests that it does not know.
fn old_server(mut unknown: impl FnMut() -> Act + Send + 'static) -> (Fake, Seen) {
    let seen = Seen::default();
    let log = Arc::clone(&seen);
    let script = Script::new(move |_, request| {
        log.lock().unwrap().push(request.clone());
        match request {
            Request::Ping => Act::Ignore,
            request if is_known(request.op()) => reply_to(&request),
            _ => unknown(),
        }
    });
    (Fake::start(script), seen)
}

/// Repeats the request until a connection carries it through.
fn insist(rig: &Rig, request: &Request) -> Reply {
    for _ in 0..9 {
        let before = rig.status.snapshot().connects;
        match rig.ask(request.clone()) {
            Ok(reply) => return reply,
            Err(Failure::Lost | Failure::NotSent) => {
                crate::support::eventually("it connects again", || {
                    rig.status.snapshot().connects > before
                });
            }
            Err(failure) => panic!("{failure:?}"),
        }
    }
    panic!("nothing came of it");
}

fn created(path: &str) -> Reply {
    Reply::Created {
        path: path.to_owned(),
        stat: None,
    }
}

/// ZooKeeper 3.4 does this.
#[test]
fn a_server_that_says_unimplemented_and_hangs_up_gets_the_older_requests() {
    let (server, seen) = old_server(|| Act::RefuseAndClose(ErrorCode::UNIMPLEMENTED));
    let rig = Rig::connect(&server.hosts(), TIMEOUT);
    let made = insist(&rig, &create("/a", CreateMode::EphemeralSequential));
    assert_eq!(made, created("/a"));
    let made = rig.ask(create("/b", CreateMode::Container));
    assert_eq!(made, Ok(created("/b")));
    assert_eq!(rig.status.snapshot().connects, 2);

    // removeWatches would end the connection too.
    let (read, _fired) = rig.watch(data("/a", true), 1);
    read.unwrap();
    rig.transport.unwatch("/a", WatchId(1));
    rig.ask(data("/a", false)).unwrap();
    assert_eq!(rig.status.snapshot().connects, 2);
    let seen = seen.lock().unwrap();
    let modes = seen.iter().filter_map(|request| match request {
        Request::Create {
            path, mode, stat, ..
        } if path == "/b" => Some((*mode, *stat)),
        _ => None,
    });
    assert_eq!(modes.collect::<Vec<_>>(), [(CreateMode::Persistent, false)]);
}

#[test]
fn a_server_that_says_unimplemented_and_stays_is_asked_again_at_once() {
    let (server, _) = old_server(|| Act::Refuse(ErrorCode::UNIMPLEMENTED));
    let rig = Rig::connect(&server.hosts(), TIMEOUT);
    let batch = vec![create("/a", CreateMode::Ephemeral), data("/a", false)];
    let answers = rig.send(batch);
    let outcomes = [one(&answers), one(&answers)];
    assert!(outcomes.contains(&Ok(created("/a"))), "{outcomes:?}");
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert!(answers.try_recv().is_err());
    assert_eq!(rig.status.snapshot().connects, 1);
}

/// Otherwise a lock would look for its node in a listing from before the node.
#[test]
fn what_was_asked_after_a_request_that_is_sent_again_is_answered_after_it() {
    let (server, seen) = old_server(|| Act::Refuse(ErrorCode::UNIMPLEMENTED));
    let rig = Rig::connect(&server.hosts(), TIMEOUT);
    let answers = rig.send(vec![create("/a", CreateMode::Ephemeral), data("/a", false)]);
    assert_eq!(one(&answers), Ok(created("/a")));
    one(&answers).unwrap();
    let seen = seen.lock().unwrap();
    let last = seen.iter().rev().find(|request| **request != Request::Ping);
    assert_eq!(last, Some(&data("/a", false)));
}

/// ZooKeeper 3.4 refuses an unknown request before it answers earlier ones.
#[test]
fn a_refusal_that_comes_before_earlier_replies_is_learned_from() {
    let script = Script::new(|_, request| match request {
        // The reply to a delete waits for the quorum.
        Request::Delete { .. } => Act::Ignore,
        request if is_known(request.op()) => reply_to(&request),
        _ => Act::RefuseAndClose(ErrorCode::UNIMPLEMENTED),
    });
    let server = Fake::start(script);
    let rig = Rig::connect(&server.hosts(), TIMEOUT);
    let answers = rig.send(vec![delete("/b"), create("/a", CreateMode::Ephemeral)]);
    assert_eq!(one(&answers), Err(Failure::Lost));
    assert_eq!(one(&answers), Err(Failure::Lost));
    rig.reconnected();
    let again = rig.ask(create("/a", CreateMode::Ephemeral));
    assert_eq!(again, Ok(created("/a")));
}

/// Starts a server that closes the connection on requests that it does not know, and resumes no session.
fn forgetful_server() -> (Fake, Seen) {
    let seen = Seen::default();
    let log = Arc::clone(&seen);
    let mut script = Script::new(move |_, request| {
        log.lock().unwrap().push(request.clone());
        match request {
            Request::Ping => Act::Ignore,
            request if is_known(request.op()) => reply_to(&request),
            _ => Act::Close,
        }
    });
    let mut sessions = 100..;
    script.greet = Box::new(move |_| sessions.next().map(greeting));
    (Fake::start(script), seen)
}

/// ClickHouse Keeper does this.
#[test]
fn a_server_that_just_hangs_up_is_found_out_after_two_attempts() {
    let (server, seen) = forgetful_server();
    let rig = Rig::connect(&server.hosts(), TIMEOUT);
    assert_eq!(rig.session(), 100);
    let made = insist(&rig, &create("/a", CreateMode::Ephemeral));
    assert_eq!(made, created("/a"));
    assert_eq!(rig.status.snapshot().connects, 3);
    // A session other than the requested one means that the old one has ended.
    assert_eq!(rig.session(), 102);
    let events: Vec<_> = rig.events.try_iter().collect();
    let expired = events
        .iter()
        .filter(|event| **event == SessionEvent::Expired);
    assert_eq!(expired.count(), 2, "{events:?}");

    let op = Request::Create {
        path: "/b".to_owned(),
        data: Vec::new().into(),
        acl: open_acl(),
        mode: CreateMode::Ephemeral,
        stat: true,
    };
    rig.ask(Request::Multi(vec![op])).unwrap();
    let seen = seen.lock().unwrap();
    let last = seen.iter().rev().find_map(|request| match request {
        Request::Multi(ops) => Some(ops),
        _ => None,
    });
    assert!(matches!(
        last.unwrap()[0],
        Request::Create { stat: false, .. }
    ));
}

#[test]
fn a_container_that_is_a_bad_argument_becomes_a_plain_node() {
    let script = Script::new(|_, request| match request {
        Request::Create {
            mode: CreateMode::Container,
            ..
        } => Act::Refuse(ErrorCode::BAD_ARGUMENTS),
        request => reply_to(&request),
    });
    let server = Fake::start(script);
    let rig = Rig::connect(&server.hosts(), TIMEOUT);
    let made = rig.ask(create("/a", CreateMode::Container));
    assert_eq!(made, Ok(created("/a")));
}

#[test]
fn a_server_without_multi_or_sync_is_reported_as_such() {
    let script = Script::new(|_, request| match request {
        Request::Multi(_) | Request::Sync { .. } => Act::Refuse(ErrorCode::UNIMPLEMENTED),
        request => reply_to(&request),
    });
    let server = Fake::start(script);
    let rig = Rig::connect(&server.hosts(), TIMEOUT);
    assert!(rig.transport.transacts());
    let refused = Err(Failure::Refused(ErrorCode::UNIMPLEMENTED));
    assert_eq!(rig.ask(Request::Multi(Vec::new())), refused);
    assert_eq!(rig.ask(Request::Sync { path: "/".into() }), refused);
    assert!(!rig.transport.transacts());
}
