//! Servers that send nonsense, hang up or say nothing: an error, never a panic, and
//! every request is answered once.

use proptest::collection::vec;
use proptest::prelude::*;

use super::fake::{Act, Fake, Script};
use super::*;
use crate::proto::{ConnectReply, Event, ReplyHeader, xid};
use crate::support::{eventually, timed};

const TIMEOUT: Duration = Duration::from_secs(4);

/// What a server says instead of answering, with the frame's length before it.
fn framed(content: &[u8]) -> Vec<u8> {
    [&(content.len() as i32).to_be_bytes()[..], content].concat()
}

/// Answers every request with `bytes`, and sees how the client takes it.
fn answered_with(bytes: Vec<u8>) -> Vec<Outcome> {
    let server = Fake::start(Script::new(move |_, request| match request {
        Request::Ping => Act::Ignore,
        Request::Close => Act::Close,
        _ => Act::Raw(bytes.clone()),
    }));
    let rig = Rig::connect(&server.hosts(), TIMEOUT);
    let (to, _fired) = bounded(1);
    let watch = Watch::new(WatchId(1), to);
    let (to, answers) = unbounded();
    rig.wire.send(vec![
        call(data("/a", true), Some(watch), &to),
        call(Request::Multi(Vec::new()), None, &to),
        call(children("/", false), None, &to),
    ]);
    let outcomes = (0..3).map(|_| one(&answers)).collect();
    // The I/O thread is well, or this would not end in time.
    let ((), took) = timed(|| rig.wire.close(PATIENCE));
    assert!(took < PATIENCE, "{took:?}");
    assert!(answers.try_recv().is_err(), "a request was answered twice");
    outcomes
}

fn header(xid: i32, code: ErrorCode) -> ReplyHeader {
    ReplyHeader { xid, zxid: 5, code }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn arbitrary_bytes_are_an_error(bytes in vec(any::<u8>(), 0..300)) {
        answered_with(bytes);
    }

    #[test]
    fn frames_of_arbitrary_bytes_are_an_error(
        frames in vec(vec(prop_oneof![Just(0u8), Just(1), any::<u8>()], 0..80), 1..4),
    ) {
        answered_with(frames.iter().flat_map(|frame| framed(frame)).collect());
    }

    #[test]
    fn replies_with_arbitrary_bodies_are_an_error(
        code in prop_oneof![Just(0), -120..0i32],
        body in vec(prop_oneof![Just(0u8), any::<u8>()], 0..120),
    ) {
        let mut out = Vec::new();
        header(1, ErrorCode(code)).encode(None, &mut out);
        let reply = [&out[4..], &body].concat();
        answered_with(framed(&reply));
    }
}

#[test]
fn a_frame_longer_than_any_may_be_is_an_error_at_once() {
    for length in [i32::MAX, i32::MIN, -1, 64 * 1024 * 1024] {
        let outcomes = answered_with(length.to_be_bytes().to_vec());
        assert_eq!(outcomes, vec![Err(Failure::Lost); 3]);
    }
}

#[test]
fn a_reply_out_of_order_is_an_error() {
    let mut out = Vec::new();
    let reply = Reply::Data {
        data: Vec::new().into(),
        stat: Stat::default(),
    };
    header(2, ErrorCode::OK).encode(Some(&reply), &mut out);
    assert_eq!(answered_with(out), vec![Err(Failure::Lost); 3]);
}

#[test]
fn a_truncated_frame_is_an_error() {
    let mut out = Vec::new();
    let stat = Stat::default();
    let reply = Reply::Data {
        data: vec![7; 100].into(),
        stat,
    };
    header(1, ErrorCode::OK).encode(Some(&reply), &mut out);
    for cut in [1, 30, 80, 120, out.len() - 1] {
        let part = out[..cut].to_vec();
        assert_eq!(answered_with(part), vec![Err(Failure::Lost); 3], "{cut}");
    }
}

#[test]
fn events_nobody_waits_for_do_no_harm() {
    let mut out = Vec::new();
    for kind in [EventKind::None, EventKind::Deleted, EventKind::Other(77)] {
        for path in ["", "/none", "no path"] {
            let event = Event {
                kind,
                state: Event::SYNC_CONNECTED,
                path: path.to_owned(),
            };
            event.encode(&mut out);
        }
    }
    header(xid::PING, ErrorCode::OK).encode(None, &mut out);
    let stat = Stat::default();
    let reply = Reply::Data {
        data: b"x".to_vec().into(),
        stat,
    };
    header(1, ErrorCode::OK).encode(Some(&reply), &mut out);
    assert_eq!(answered_with(out).first(), Some(&Ok(reply)));
}

#[test]
fn what_the_server_says_about_the_session_ends_the_connection() {
    use ErrorCode as Code;
    #[rustfmt::skip]
    let table = [
        // code                   the request it came for  the event
        (Code::SESSION_MOVED,     Failure::NotSent,        SessionEvent::Disconnected),
        (Code::SESSION_EXPIRED,   Failure::NotSent,        SessionEvent::Expired),
        (Code::CONNECTION_LOSS,   Failure::Lost,           SessionEvent::Disconnected),
        (Code::OPERATION_TIMEOUT, Failure::Lost,           SessionEvent::Disconnected),
    ];
    for (code, failure, event) in table {
        let server = Fake::start(Script::new(move |_, request| match request {
            Request::Ping => Act::Ignore,
            _ => Act::Refuse(code),
        }));
        let rig = Rig::connect(&server.hosts(), TIMEOUT);
        assert_eq!(rig.ask(data("/", false)), Err(failure), "{code}");
        let heard = rig.events.recv_timeout(PATIENCE);
        assert_eq!(heard, Ok(event), "{code}");
        rig.reconnected();
    }
}

/// A client of a server that greets with this never gets through, and says why.
fn turned_away(greet: Option<Vec<u8>>, because: &str) {
    let mut script = Script::new(|_, _| Act::Ignore);
    script.greet = Box::new(move |_| greet.clone());
    let server = Fake::start(script);
    let rig = Rig::open(config(&server.hosts(), TIMEOUT));
    eventually(because, || {
        let trouble = rig.hub.trouble();
        trouble.iter().any(|line| line.contains(because))
    });
    assert_eq!(rig.hub.link().state, SessionState::Connecting);
    assert_eq!(rig.ask(data("/", false)), Err(Failure::NotSent));
}

#[test]
fn a_bad_greeting_turns_the_client_away_with_a_reason() {
    let reply = ConnectReply {
        timeout_ms: 4000,
        session: 1,
        password: vec![0; 16],
        read_only: false,
    };
    let encoded = |reply: &ConnectReply| {
        let mut out = Vec::new();
        reply.encode(&mut out);
        Some(out)
    };
    let refused = ConnectReply {
        timeout_ms: 0,
        ..reply.clone()
    };
    let read_only = ConnectReply {
        read_only: true,
        ..reply
    };
    turned_away(None, "closed the connection");
    turned_away(encoded(&refused), "refused to open a session");
    turned_away(encoded(&read_only), "read-only");
    turned_away(Some(framed(b"nonsense")), "malformed");
    turned_away(
        Some(b"HTTP/1.1 400 Bad Request".to_vec()),
        "bytes was announced",
    );
}

#[test]
fn a_server_that_does_not_greet_is_given_up_and_close_does_not_wait_for_it() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let hosts = silent.local_addr().unwrap().to_string();
    let rig = Rig::open(config(&hosts, Duration::from_millis(600)));
    eventually("it is given up", || {
        let trouble = rig.hub.trouble();
        trouble.iter().any(|line| line.contains("did not greet"))
    });
    rig.wire.close(PATIENCE);

    let rig = Rig::open(config(&hosts, Duration::from_secs(60)));
    let ((), took) = timed(|| rig.wire.close(PATIENCE));
    assert!(took < PATIENCE / 2, "{took:?}");
}

#[test]
fn a_server_that_refuses_is_not_pestered() {
    let mut script = Script::new(|_, _| Act::Ignore);
    script.greet = Box::new(|_| None);
    let server = Fake::start(script);
    let rig = Rig::open(config(&server.hosts(), TIMEOUT));
    // There is no event for what does not happen: this is a rate.
    std::thread::sleep(Duration::from_secs(5));
    let connections = server.connections();
    assert!(
        (2..10).contains(&connections),
        "{connections} in five seconds"
    );
    let ((), took) = timed(|| rig.wire.close(PATIENCE));
    assert!(took < PATIENCE / 2, "{took:?}");
}

#[test]
fn a_connection_that_never_lasts_is_not_pestered_either() {
    let server = Fake::start(Script::new(|_, _| Act::Close));
    let rig = Rig::connect(&server.hosts(), TIMEOUT);
    let deadline = Instant::now() + Duration::from_secs(3);
    while Instant::now() < deadline {
        if rig.ask(data("/", false)) == Err(Failure::NotSent) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let connections = server.connections();
    assert!(
        (2..9).contains(&connections),
        "{connections} in three seconds"
    );
}

#[test]
fn a_full_socket_does_not_hold_up_the_callers() {
    let (release, released) = bounded::<()>(0);
    let server = Fake::start(Script::new(move |_, _| {
        let _ = released.recv();
        Act::Close
    }));
    let rig = Rig::connect(&server.hosts(), Duration::from_secs(30));
    let write = Request::SetData {
        path: "/a".to_owned(),
        data: vec![7; 900_000].into(),
        version: -1,
    };
    let sent: Vec<_> = (0..20)
        .map(|_| {
            let request = write.clone();
            let (answers, took) = timed(|| rig.send(vec![request]));
            assert!(took < PATIENCE / 2, "{took:?}");
            answers
        })
        .collect();
    drop(release);
    let outcomes: Vec<_> = sent.iter().map(one).collect();
    // What the kernel took may have arrived, and what was still here has not.
    assert_eq!(outcomes.first(), Some(&Err(Failure::Lost)));
    assert_eq!(outcomes.last(), Some(&Err(Failure::NotSent)));
}

#[test]
fn the_same_greeting_twice_is_the_same_session() {
    let server = Fake::start(Script::new(|_, _| Act::Close));
    let rig = Rig::connect(&server.hosts(), TIMEOUT);
    assert_eq!(rig.session(), 7);
    assert_eq!(rig.ask(data("/", false)), Err(Failure::Lost));
    rig.reconnected();
    assert_eq!(rig.session(), 7);
}
