//! Servers that send nonsense, hang up or are silent cause an error, never a panic, and every
//! request is answered once.

use std::sync::atomic::{AtomicU32, Ordering};

use proptest::collection::vec;
use proptest::prelude::*;

use super::fake::{Act, Fake, Script, frame_of, greeting, greeting_for};
use super::*;
use crate::support::{eventually, timed};
use crate::time::limit::Limit;
use crate::transport::Mailbox;
use zklock_core::connection::link::PINGS;
use zklock_jute::{ConnectReply, Event, Reply, ReplyHeader, Request, xid};

const TIMEOUT: Duration = Duration::from_secs(4);

/// Returns a frame with this content.
fn framed(content: &[u8]) -> Vec<u8> {
    [&(content.len() as i32).to_be_bytes()[..], content].concat()
}

/// Answers every request with `bytes`; returns the outcomes of the requests.
fn answered_with(bytes: Vec<u8>) -> Vec<Outcome> {
    let server = Fake::start(Script::new(move |_, request| match request {
        Request::Ping => Act::Ignore,
        Request::Close => Act::Reply(Reply::Nothing),
        _ => Act::Raw(bytes.clone()),
    }));
    let rig = Rig::connect(&server.hosts(), TIMEOUT);
    let (to, _fired) = bounded(1);
    let watch = Watch::new(WatchId(1), to);
    let (to, answers) = unbounded();
    rig.transport.send(vec![
        call(data("/a", true), Some(watch), &to),
        call(Request::Multi(Vec::new()), None, &to),
        call(children("/", false), None, &to),
    ]);
    let outcomes = (0..3).map(|_| one(&answers)).collect();
    // This ends in time only if the I/O thread still works.
    let (_, took) = timed(|| rig.transport.close(PATIENCE));
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

#[test]
fn a_transaction_may_say_in_its_body_that_the_session_expired() {
    let server = Fake::start(Script::new(|_, request| match request {
        Request::Multi(_) => Act::Reply(Reply::Multi(vec![
            Err(ErrorCode::SESSION_EXPIRED),
            Err(ErrorCode::RUNTIME_INCONSISTENCY),
        ])),
        _ => Act::Ignore,
    }));
    let rig = Rig::connect(&server.hosts(), TIMEOUT);
    let told = rig.ask(Request::Multi(vec![
        Request::check("/a"),
        Request::check("/b"),
    ]));
    assert_eq!(told, Err(Failure::NotSent));
    let heard = rig.events.recv_timeout(PATIENCE);
    assert_eq!(heard, Ok(SessionEvent::Expired));
}

#[test]
fn a_transaction_that_was_refused_is_not_one_that_was_carried_out() {
    for results in [vec![], vec![Ok(Reply::Checked)]] {
        let mut bytes = Vec::new();
        header(1, ErrorCode::BAD_ARGUMENTS).encode(Some(&Reply::Multi(results)), &mut bytes);
        let refused = Err(Failure::Refused(ErrorCode::BAD_ARGUMENTS));
        let server = Fake::start(Script::new(move |_, request| match request {
            Request::Multi(_) => Act::Say(bytes.clone()),
            _ => Act::Ignore,
        }));
        let rig = Rig::connect(&server.hosts(), TIMEOUT);
        assert_eq!(rig.ask(Request::Multi(Vec::new())), refused);
    }
}

/// The caller takes the results for those of its own operations.
#[test]
fn a_transaction_is_not_answered_with_another_number_of_results() {
    let check = || Request::Check {
        path: "/a".to_owned(),
        version: -1,
    };
    let ok = || Ok(Reply::Checked);
    let gone = || Err(ErrorCode::NO_NODE);
    for (results, lost) in [
        (vec![], true),
        (vec![ok()], true),
        (vec![ok(), ok()], false),
        (vec![ok(), ok(), ok()], true),
        (vec![ok(), ok(), gone()], true),
    ] {
        let reply = Reply::Multi(results);
        let answer = reply.clone();
        let server = Fake::start(Script::new(move |_, request| match request {
            Request::Multi(_) => Act::Reply(answer.clone()),
            _ => Act::Ignore,
        }));
        let rig = Rig::connect(&server.hosts(), TIMEOUT);
        let told = rig.ask(Request::Multi(vec![check(), check()]));
        match lost {
            true => assert_eq!(told, Err(Failure::Lost), "{reply:?}"),
            false => assert_eq!(told, Ok(reply)),
        }
    }
}

/// Asserts that the status of a client names this reason why the greeting gives no session.
fn turned_away(greet: Option<Vec<u8>>, because: &str) {
    let mut script = Script::new(|_, _| Act::Ignore);
    script.greet = Box::new(move |_| greet.clone());
    let server = Fake::start(script);
    let rig = Rig::open(Config::plain(&server.hosts(), TIMEOUT));
    eventually(because, || {
        let trouble = rig.status.trouble();
        trouble.iter().any(|line| line.contains(because))
    });
    assert_eq!(rig.status.snapshot().state, SessionState::Connecting);
    assert_eq!(rig.ask(data("/", false)), Err(Failure::NotSent));
}

#[test]
fn a_bad_greeting_turns_the_client_away_with_a_reason() {
    let reply = ConnectReply {
        timeout_ms: 4000,
        session: 1,
        password: vec![9; 16],
        read_only: false,
    };
    let encoded = |reply: &ConnectReply| {
        let mut out = Vec::new();
        reply.encode(&mut out);
        Some(out)
    };
    let refused = ConnectReply {
        timeout_ms: 0,
        session: 0,
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

/// Returns greetings that neither grant a session nor end one, and the complaint about each.
fn nonsense() -> Vec<(Vec<u8>, &'static str)> {
    let greets = |version: i32, timeout_ms: i32, session: i64, password: usize| {
        let mut frame = Vec::new();
        frame.extend(version.to_be_bytes());
        frame.extend(timeout_ms.to_be_bytes());
        frame.extend(session.to_be_bytes());
        frame.extend((password as i32).to_be_bytes());
        frame.extend(vec![9; password]);
        frame.push(0);
        framed(&frame)
    };
    vec![
        // ClickHouse Keeper without a leader.
        (greets(42, 4000, -1, 16), "another version of the protocol"),
        (greets(1, 4000, 7, 16), "another version of the protocol"),
        // RaftKeeper without a leader.
        (greets(42, -1, -1, 16), "another version of the protocol"),
        (greets(0, 4000, -1, 16), "the session -1, which is none"),
        (greets(0, 4000, 0, 16), "the session 0, which is none"),
        (greets(0, 0, 7, 16), "a timeout of 0 ms"),
        (greets(0, -1, 7, 16), "a timeout of -1 ms"),
        (greets(0, 4000, 7, 0), "a password of 0 bytes"),
        (greets(0, 4000, 7, 17), "a password of 17 bytes"),
    ]
}

#[test]
fn a_greeting_that_is_none_is_named() {
    for (greeting, because) in nonsense() {
        turned_away(Some(greeting), because);
    }
}

#[test]
fn a_server_with_a_greeting_that_is_none_is_left_for_the_next_one() {
    for (greeting, because) in nonsense() {
        let mut script = Script::new(|_, _| Act::Ignore);
        script.greet = Box::new(move |_| Some(greeting.clone()));
        let bad = Fake::start(script);
        let good = Fake::start(Script::new(|_, _| Act::Refuse(ErrorCode::NO_NODE)));
        let hosts = format!("{},{}", bad.hosts(), good.hosts());
        let rig = Rig::connect(&hosts, TIMEOUT);
        assert_eq!(rig.status.snapshot().session, 7, "{because}");
        let refused = Err(Failure::Refused(ErrorCode::NO_NODE));
        assert_eq!(rig.ask(data("/a", false)), refused, "{because}");
    }
}

/// A timeout longer than the requested one is not nonsense: a server may have a minimum.
#[test]
fn a_server_whose_minimum_is_longer_than_what_was_asked_for_is_used() {
    let server = Fake::start(Script::new(|_, _| Act::Refuse(ErrorCode::NO_NODE)));
    let rig = Rig::connect(&server.hosts(), Duration::from_secs(1));
    assert_eq!(rig.status.snapshot().timeout, TIMEOUT);
}

#[test]
fn a_server_that_greets_and_hangs_up_is_left_for_the_next_one_at_once() {
    let bad = || Fake::start(Script::new(|_, _| Act::Close));
    let (bad, good) = (
        [bad(), bad(), bad()],
        Fake::start(Script::new(|_, _| Act::Refuse(ErrorCode::NO_NODE))),
    );
    let mut hosts: Vec<_> = bad.iter().map(Fake::hosts).collect();
    hosts.push(good.hosts());
    let rig = Rig::connect(&hosts.join(","), TIMEOUT);
    let (found, took) = timed(|| {
        eventually("the good one is found", || {
            let refused = Err(Failure::Refused(ErrorCode::NO_NODE));
            rig.ask(data("/a", false)) == refused
        })
    });
    let () = found;
    // Each bad server is tried once, and the client does not pause while another server is left.
    let tries: Vec<_> = bad.iter().map(Fake::connections).collect();
    assert!(tries.iter().all(|tries| *tries <= 1), "{tries:?}");
    assert!(took < PATIENCE / 2, "{took:?}");
}

/// RaftKeeper did this with create2.
#[test]
fn a_server_that_drops_what_it_does_not_know_is_asked_in_the_older_form() {
    let (asks, asked) = unbounded();
    let mut script = Script::new(move |_, request| match request {
        Request::Create { path, stat, .. } => {
            asks.send(stat).unwrap();
            match stat {
                true => Act::Ignore,
                false => Act::Reply(Reply::Created { path, stat: None }),
            }
        }
        _ => Act::Refuse(ErrorCode::NO_NODE),
    });
    // The client must neither ping nor leave a slow server while this test waits.
    let timeout = 8 * PATIENCE;
    script.greet = Box::new(move |_| Some(greeting_for(7, timeout.as_millis() as i32)));
    let server = Fake::start(script);
    let rig = Rig::connect(&server.hosts(), timeout);
    let (to, answers) = unbounded();
    let create = || Request::Create {
        path: "/a".to_owned(),
        data: Vec::new().into(),
        acl: Vec::new(),
        mode: CreateMode::Ephemeral,
        stat: true,
    };
    for _ in 0..3 {
        rig.transport.send(vec![
            call(create(), None, &to),
            call(children("/", false), None, &to),
        ]);
        let outcomes = [one(&answers), one(&answers)];
        assert_eq!(outcomes, [Err(Failure::Lost), Err(Failure::Lost)]);
        rig.reconnected();
    }
    eventually("the older form is answered", || {
        matches!(rig.ask(create()), Ok(Reply::Created { .. }))
    });
    let asked = asked.try_iter().collect::<Vec<_>>();
    assert_eq!(asked, [true, true, true, false]);
}

/// Nothing else is asked, so nothing overtakes the request, and no answer was prompt before.
#[test]
fn a_server_that_drops_the_only_request_is_asked_in_the_older_form() {
    let server = Fake::start(Script::new(|_, request| match request {
        Request::Create { stat: true, .. } => Act::Ignore,
        Request::Create { path, .. } => Act::Reply(Reply::Created { path, stat: None }),
        Request::Ping => Act::Say(pong()),
        _ => Act::Refuse(ErrorCode::NO_NODE),
    }));
    let rig = Rig::connect(&server.hosts(), TIMEOUT);
    eventually("the older form is answered", || {
        rig.ask(create("/a", CreateMode::Ephemeral)).is_ok()
    });
    assert!(server.connections() <= 4);
}

fn pong() -> Vec<u8> {
    frame_of(xid::PING, ErrorCode::OK)
}

#[test]
fn a_server_that_does_not_greet_is_given_up_and_close_does_not_wait_for_it() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let hosts = silent.local_addr().unwrap().to_string();
    let rig = Rig::open(Config::plain(&hosts, Duration::from_millis(600)));
    eventually("it is given up", || {
        let trouble = rig.status.trouble();
        trouble.iter().any(|line| line.contains("did not greet"))
    });
    rig.transport.close(PATIENCE);

    let rig = Rig::open(Config::plain(&hosts, Duration::from_secs(60)));
    let (_, took) = timed(|| rig.transport.close(PATIENCE));
    assert!(took < PATIENCE / 2, "{took:?}");
}

#[test]
fn a_server_that_refuses_is_not_pestered() {
    let mut script = Script::new(|_, _| Act::Ignore);
    script.greet = Box::new(|_| None);
    let server = Fake::start(script);
    let rig = Rig::open(Config::plain(&server.hosts(), TIMEOUT));
    // An attempt that is not made is not reported, so this measures a rate. The rate is high at
    // first: `backoff` counts the attempts in a minute.
    std::thread::sleep(Duration::from_secs(5));
    let connections = server.connections();
    assert!(
        (2..24).contains(&connections),
        "{connections} in five seconds"
    );
    let (_, took) = timed(|| rig.transport.close(PATIENCE));
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
        (2..21).contains(&connections),
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
    // Bytes that the kernel took may have arrived; the others have not.
    assert_eq!(outcomes.first(), Some(&Err(Failure::Lost)));
    assert_eq!(outcomes.last(), Some(&Err(Failure::NotSent)));
}

/// A reader that waits for replies would leave the rest for a twelfth of the timeout.
#[test]
fn a_request_that_fills_the_socket_is_written_on_while_nothing_is_answered() {
    let mut script = Script::new(|_, _| Act::Refuse(ErrorCode::NO_NODE));
    script.greet = Box::new(|_| {
        let mut out = Vec::new();
        let reply = ConnectReply {
            timeout_ms: 120_000,
            session: 7,
            password: vec![9; 16],
            read_only: false,
        };
        reply.encode(&mut out);
        Some(out)
    });
    let server = Fake::start(script);
    let mut config = Config::plain(&server.hosts(), Duration::from_secs(120));
    config.frame_limit = 64 << 20;
    let rig = Rig::open(config);
    rig.reconnected();
    let write = Request::SetData {
        path: "/a".to_owned(),
        data: vec![7; 24 << 20].into(),
        version: -1,
    };
    let mailbox = Mailbox::new();
    let slot = mailbox.slot();
    rig.transport.send(vec![Call {
        request: write,
        watch: None,
        answer: Box::new(move |answered| slot.put(answered)),
    }]);
    let limit = Limit::after(PATIENCE);
    let (answered, took) = timed(|| rig.transport.receive(&mailbox, &limit));
    assert_eq!(answered, Ok(Err(Failure::Refused(ErrorCode::NO_NODE))));
    assert!(took < Duration::from_secs(8), "{took:?}");
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

/// Returns a frame that is longer than the limit, with this number.
fn long_frame(xid: i32, code: ErrorCode) -> Vec<u8> {
    let mut frame = Vec::new();
    header(xid, code).encode(Some(&Reply::Nothing), &mut frame);
    let mut content = frame.split_off(4);
    content.resize(3_000_000, 7);
    framed(&content)
}

#[test]
fn a_reply_that_is_too_long_fails_its_request_and_those_behind_it_are_answered() {
    let mut bytes = long_frame(1, ErrorCode::OK);
    header(2, ErrorCode::OK).encode(Some(&Reply::Multi(Vec::new())), &mut bytes);
    header(3, ErrorCode::NO_NODE).encode(None, &mut bytes);
    let server = Fake::start(Script::new(move |_, request| match request {
        Request::GetData { .. } => Act::Say(bytes.clone()),
        _ => Act::Ignore,
    }));
    let rig = Rig::connect(&server.hosts(), TIMEOUT);
    let requests = [
        data("/a", false),
        Request::Multi(Vec::new()),
        children("/", false),
    ];
    let answers = rig.send(requests.to_vec());
    let outcomes: Vec<_> = (0..3).map(|_| one(&answers)).collect();
    assert_eq!(server.connections(), 1);
    let Err(Failure::TooLong(long)) = &outcomes[0] else {
        panic!("{outcomes:?}");
    };
    assert!(long.reply && long.bytes == 3_000_000 && long.limit < long.bytes);
    assert_eq!(outcomes[1..], [Ok(Reply::Multi(Vec::new())), NO_NODE]);
}

#[test]
fn a_long_frame_that_is_no_reply_to_the_oldest_read_breaks_the_connection() {
    let mut to_a_write = Vec::new();
    header(1, ErrorCode::NO_NODE).encode(None, &mut to_a_write);
    to_a_write.extend(long_frame(2, ErrorCode::OK));
    let lost = Err(Failure::Lost);
    for (bytes, outcomes) in [
        (
            long_frame(2, ErrorCode::OK),
            [lost.clone(), lost.clone(), lost.clone()],
        ),
        (
            long_frame(xid::EVENT, ErrorCode::OK),
            [lost.clone(), lost.clone(), lost.clone()],
        ),
        (
            long_frame(1, ErrorCode::NO_NODE),
            [lost.clone(), lost.clone(), lost.clone()],
        ),
        (to_a_write, [NO_NODE, lost.clone(), lost.clone()]),
    ] {
        assert_eq!(answered_with(bytes), outcomes);
    }
}

#[test]
fn guards_hear_of_the_end_of_a_session_before_the_server_does() {
    let (to, closes) = bounded(1);
    let server = Fake::start(Script::new(move |_, request| match request {
        Request::Close => {
            to.send(()).unwrap();
            Act::Reply(Reply::Nothing)
        }
        _ => Act::Ignore,
    }));
    let rig = Rig::connect(&server.hosts(), TIMEOUT);
    let bounds = rig.status.bounds(rig.status.snapshot().session);
    let heard = closes.clone();
    let (to, seen) = unbounded();
    let _awake = rig.status.on_change(move |_| {
        // A guard reads this.
        let over = bounds.terms().over;
        // This is longer than a nearby server takes to receive the request.
        let told = heard.recv_timeout(Duration::from_millis(300)).is_ok();
        to.send((over, told)).unwrap();
    });
    rig.transport.close(PATIENCE);
    assert_eq!(seen.recv_timeout(PATIENCE), Ok((true, false)));
    closes
        .recv_timeout(PATIENCE)
        .expect("the end of the session");
}

#[test]
fn a_session_that_no_server_takes_back_is_given_up_after_its_timeout_and_not_before() {
    let (served, mut hellos) = (Arc::new(parking_lot::Mutex::new(None)), 0);
    let (to, seen) = unbounded();
    let last = Arc::clone(&served);
    let script = Script {
        greet: Box::new(move |hello| {
            hellos += 1;
            if hellos == 1 {
                return Some(greeting(7));
            }
            let away = last.lock().map(|since: Instant| since.elapsed());
            to.send((hello.session, hello.last_zxid, away)).unwrap();
            // This server does not know the session.
            (hello.last_zxid == 0).then(|| greeting(8))
        }),
        act: Box::new(move |_, request| match request {
            Request::GetData { .. } => {
                *served.lock() = Some(Instant::now());
                Act::RefuseAndClose(ErrorCode::NO_NODE)
            }
            _ => Act::Ignore,
        }),
    };
    let server = Fake::start(script);
    let rig = Rig::connect(&server.hosts(), TIMEOUT);
    assert_eq!(rig.ask(data("/a", false)), NO_NODE);
    rig.disconnected();
    rig.hear(|event| matches!(event, SessionEvent::Expired));
    rig.hear(|event| matches!(event, SessionEvent::Connected { session: 8 }));
    let seen: Vec<_> = seen.try_iter().collect();
    let (last, before) = seen.split_last().expect("attempts");
    assert!(before.len() > 1, "{seen:?}");
    assert!(
        before.iter().all(|hello| (hello.0, hello.1) == (7, 1)),
        "{seen:?}"
    );
    assert_eq!((last.0, last.1), (0, 0));
    assert!(last.2 > Some(TIMEOUT), "{seen:?}");
}

/// Whatever it sends next is taken for the rest of that frame, and a gigabyte of pongs takes years.
#[test]
fn a_server_that_announces_more_than_it_sends_is_left_though_it_answers_pings() {
    for length in [2000_i32, 3 << 20] {
        let pings = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&pings);
        let mut script = Script::new(move |xid, request| match request {
            Request::Ping => {
                count.fetch_add(1, Ordering::Relaxed);
                Act::Say(pong())
            }
            _ => {
                let mut frame = frame_of(xid, ErrorCode::OK);
                frame[..4].copy_from_slice(&length.to_be_bytes());
                Act::Say(frame)
            }
        });
        script.greet = Box::new(|_| Some(greeting_for(7, 1200)));
        let server = Fake::start(script);
        let rig = Rig::connect(&server.hosts(), Duration::from_millis(1200));
        while rig.ask(exists("/a", false)) != Err(Failure::Lost) {}
        let pings = pings.load(Ordering::Relaxed);
        assert!(pings <= PINGS, "{pings} for {length}");
    }
}
