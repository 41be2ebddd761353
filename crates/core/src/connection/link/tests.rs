//! What a connection does with calls and frames, and what it leaves when it ends.

use alloc::string::String;
use core::iter;

use super::arrivals::Received;
use super::*;
use crate::answer::{Answered, BREATHER, TooLong};
use crate::connection::refused_write;
use zklock_jute::{ErrorCode, Event, EventKind, ReplyHeader, WatchLists};

const T: Duration = Duration::from_secs(12);
const START: Duration = Duration::from_secs(100);
const SESSION: i64 = 7;
/// The longest request.
const LIMIT: usize = 1000;

/// A link whose watches and answers are numbers.
type Numbered = Link<u64, u32>;

fn idle() -> Numbered {
    Link::new(("/root", LIMIT), PINGS, 0, (None, false))
}

/// Makes a connection at a time, whose server is asked for this much before it serves.
fn connects(link: &mut Numbered, auths: usize, now: Duration) -> Result<Option<i64>, End> {
    link.begin(now);
    let password = zklock_jute::Secret(Vec::new());
    let key = SessionKey {
        id: SESSION,
        password,
    };
    let auth = Request::Auth {
        scheme: String::new(),
        credentials: zklock_jute::Secret(Vec::new()),
    };
    link.greeted(key, T, None, iter::repeat_n(auth, auths));
    link.serve(now)
}

fn serving() -> Numbered {
    let mut link = idle();
    assert_eq!(connects(&mut link, 0, START), Ok(Some(SESSION)));
    link
}

/// Makes calls, which are numbered from 0.
fn calls(link: &mut Numbered, requests: impl IntoIterator<Item = Request>) {
    for (number, request) in (0..).zip(requests) {
        let watch = request
            .watches()
            .is_some()
            .then_some((number.into(), number.into()));
        let pushed = link.push(request, watch, number, START);
        assert_eq!(pushed, Ok(()));
    }
}

/// Writes what is queued; returns how many bytes that are.
fn writes(link: &mut Numbered) -> usize {
    let mut out = Vec::new();
    if link.queue.has_frames() {
        link.queue.take_frames(&mut out, START);
    }
    out.len()
}

fn header(xid: i32, code: ErrorCode) -> ReplyHeader {
    ReplyHeader { xid, zxid: 9, code }
}

/// Receives a reply; returns the answer that it gives, and to whom.
fn replies(link: &mut Numbered, xid: i32, code: ErrorCode) -> Option<(u32, Answered)> {
    match link.receive(header(xid, code), b"", START) {
        Ok(Received::Reply(pending) | Received::Early(pending)) => {
            let answered = pending.judge(code, b"", "/root").expect("no end");
            Some((pending.answer?, answered))
        }
        Ok(Received::Again(_) | Received::Nothing) => None,
        other => panic!("{other:?}"),
    }
}

fn ticks(link: &mut Numbered, left_out: bool, now: Duration) -> Result<Duration, End> {
    link.tick((now, false), left_out, now)
}

fn refused(code: ErrorCode) -> Answered {
    Err(Failure::Refused(code))
}

#[test]
fn a_call_is_taken_in_while_a_connection_serves_and_fails_with_it_by_what_has_left() {
    let mut link = idle();
    let read = || Request::exists("/a");
    let early = link.push(read(), None, 0, START);
    assert_eq!(early, Err((Some(0), Failure::NotSent)));
    let mut link = serving();
    let long = Request::exists(&"a".repeat(LIMIT));
    let (bytes, limit, reply) = (4 + 4 + 4 + 5 + LIMIT + 1, LIMIT, false);
    let too_long = Failure::TooLong(TooLong {
        reply,
        bytes,
        limit,
    });
    assert_eq!(link.push(long, None, 1, START), Err((Some(1), too_long)));
    calls(&mut link, [read(), read()]);
    let written = writes(&mut link);
    link.queue.written(written as u64);
    calls(&mut link, [read().and_watch()]);
    let Broken {
        served,
        answered,
        open,
    } = link.broke(false);
    assert_eq!((served, answered), (true, false));
    let left = [
        (0, Failure::Lost),
        (1, Failure::Lost),
        (0, Failure::NotSent),
    ];
    assert_eq!(open, left);
    assert!(link.watches.is_empty(), "its watch was never set");
    link.end();
    let late = link.push(read(), None, 0, START);
    assert_eq!(late, Err((Some(0), Failure::Closed)));
}

#[test]
fn no_request_is_let_in_before_all_credentials_are_accepted() {
    for code in [
        ErrorCode::OK,
        ErrorCode::AUTH_FAILED,
        ErrorCode::CONNECTION_LOSS,
    ] {
        let mut link = idle();
        assert_eq!(connects(&mut link, 2, START), Ok(None));
        let mut auth = |code| link.receive(header(xid::AUTH, code), b"", START);
        assert!(matches!(auth(ErrorCode::OK), Ok(Received::Nothing)));
        match code {
            ErrorCode::OK => assert!(matches!(auth(code), Ok(Received::Serves(SESSION)))),
            ErrorCode::CONNECTION_LOSS => assert!(matches!(auth(code), Err(End::Broken(_)))),
            _ => assert_eq!(auth(code).unwrap_err(), End::Refused(None)),
        }
    }
}

#[test]
fn replies_answer_requests_in_turn_but_for_a_write_that_is_refused_early() {
    let mut link = serving();
    let write = || refused_write("/a".to_owned());
    calls(
        &mut link,
        [Request::exists("/a"), write(), Request::exists("/b")],
    );
    let early = replies(&mut link, 2, ErrorCode::NO_AUTH);
    assert_eq!(early, Some((1, refused(ErrorCode::NO_AUTH))));
    let no_node = refused(ErrorCode::NO_NODE);
    for (xid, number) in [(1, 0), (3, 2)] {
        let answered = replies(&mut link, xid, ErrorCode::NO_NODE);
        assert_eq!(answered, Some((number, no_node.clone())));
    }
    let end = link.receive(header(4, ErrorCode::OK), b"", START);
    assert!(matches!(end, Err(End::Broken(_))), "none is open");
    calls(&mut link, [write(), write()]);
    let end = link.receive(header(5, ErrorCode::NO_NODE), b"", START);
    assert!(matches!(end, Err(End::Broken(_))), "one was skipped");
    let open = link.broke(false).open;
    assert_eq!(open, [(0, Failure::Lost), (1, Failure::NotSent)]);
}

#[test]
fn a_request_that_a_server_does_not_know_is_sent_again_and_the_reads_behind_it() {
    let mut link = serving();
    let mut create = Request::create(
        "/a",
        Vec::new(),
        Vec::new(),
        zklock_jute::CreateMode::Ephemeral,
    );
    if let Request::Create { stat, .. } = &mut create {
        *stat = true;
    }
    calls(&mut link, [create, Request::exists("/a")]);
    assert_eq!(replies(&mut link, 1, ErrorCode::UNIMPLEMENTED), None);
    assert_eq!(
        replies(&mut link, 2, ErrorCode::NO_NODE),
        None,
        "it was early"
    );
    let exists = refused(ErrorCode::NODE_EXISTS);
    assert_eq!(
        replies(&mut link, 3, ErrorCode::NODE_EXISTS),
        Some((0, exists))
    );
    let no_node = refused(ErrorCode::NO_NODE);
    assert_eq!(
        replies(&mut link, 4, ErrorCode::NO_NODE),
        Some((1, no_node))
    );
}

#[test]
fn an_event_fires_the_watch_of_a_read_that_the_server_has_carried_out() {
    for (code, fires) in [(ErrorCode::NO_NODE, true), (ErrorCode::NO_AUTH, false)] {
        let mut link = serving();
        calls(&mut link, [Request::exists("/a").and_watch()]);
        replies(&mut link, 1, code);
        let mut frame = Vec::new();
        let event = Event {
            kind: EventKind::Created,
            state: Event::SYNC_CONNECTED,
            path: "/root/a".to_owned(),
        };
        event.encode(&mut frame);
        let (header, body) = ReplyHeader::decode(&frame[4..]).unwrap();
        let received = link.receive(header, body, START);
        let Ok(Received::Event(_, fired)) = received else {
            panic!("{received:?}");
        };
        assert_eq!(fired, [0_u64; 1][usize::from(!fires)..]);
    }
}

#[test]
fn the_end_of_a_session_is_asked_for_on_each_connection_until_one_confirms_it() {
    let until = START + T;
    let mut link = serving();
    calls(&mut link, [Request::exists("/a")]);
    assert_eq!(link.close(until, START), Some((vec![0], false)));
    assert_eq!(link.close(until, START), None, "it has begun");
    let closing = Link::<u64, u32>::is_away;
    assert!(!closing(&link) && link.broke(true).open.is_empty() && closing(&link));
    assert!(link.wants_connection(START) && !link.wants_connection(until));
    assert_eq!(link.longest_pause(START), Some(T / PARTS));
    assert_eq!(link.at_most(2 * T, START), T);
    assert_eq!(connects(&mut link, 0, START), Ok(None));
    assert!(!closing(&link), "it is asked");
    let left = ticks(&mut link, false, START).unwrap();
    assert!(left <= START + T / PATIENT_PARTS, "{left:?}");
    let stray = link.receive(header(1, ErrorCode::OK), b"", START);
    assert!(matches!(stray, Ok(Received::Nothing)));
    let closed = link.receive(header(3, ErrorCode::OK), b"", START);
    assert_eq!(closed.unwrap_err(), End::Closed);
    assert!(link.key().is_none());
}

#[test]
fn a_session_that_is_kept_is_not_ended_nor_is_one_that_is_not_there() {
    let mut kept = serving();
    kept.keep_session(true);
    assert_eq!(kept.close(START + T, START), Some((vec![], true)));
    assert_eq!(kept.stage(), Stage::Over);
    let mut begins = idle();
    assert_eq!(begins.close(START + T, START), Some((vec![], true)));
    assert_eq!(begins.serve(START), Err(End::Closed));
}

#[test]
fn a_server_that_the_ensemble_has_left_out_is_left_when_nothing_is_asked() {
    let mut link = serving();
    calls(&mut link, [Request::exists("/a")]);
    assert!(ticks(&mut link, true, START).is_ok());
    replies(&mut link, 1, ErrorCode::NO_NODE);
    assert!(ticks(&mut link, false, START).is_ok());
    assert_eq!(ticks(&mut link, true, START), Err(End::LeftOut));
}

#[test]
fn a_server_whose_data_differ_is_left_once_in_a_while() {
    let mut link = serving();
    assert!(link.move_on(START));
    assert_eq!(ticks(&mut link, false, START), Err(End::Diverged));
    link.broke(false);
    assert!(!link.move_on(START + STAYS), "there is no connection");
    assert!(connects(&mut link, 0, START).is_ok());
    assert!(!link.move_on(START + STAYS / 2));
    assert!(ticks(&mut link, false, START).is_ok());
    assert!(link.move_on(START + STAYS));
}

#[test]
fn a_connection_is_kept_alive_by_pings_and_is_dead_when_nothing_arrives() {
    let mut link = serving();
    assert_eq!(writes(&mut link), 0);
    assert_eq!(ticks(&mut link, false, START), Ok(START + T / PINGS));
    assert_eq!(writes(&mut link), 0, "it is early");
    let (sent, dead_at) = (START + T / PINGS, START + T * 2 / 3);
    let next = link.tick((START, false), false, sent);
    assert_eq!(next, Ok(dead_at), "the ping is not written yet");
    assert_eq!(writes(&mut link), 12);
    let pong = link.receive(header(xid::PING, ErrorCode::OK), b"", sent);
    assert!(
        matches!(pong, Ok(Received::Pong(at)) if at == sent),
        "{pong:?}"
    );
    let dead = link.tick((START, false), false, dead_at);
    let told = "nothing arrived for 8.0 s".to_owned();
    assert_eq!(dead, Err(End::Broken(told)));
}

#[test]
fn what_a_server_has_thrown_away_is_sent_again_after_a_pause_and_once() {
    let mut link = serving();
    let throttled = ErrorCode::THROTTLED;
    let members = link.receive(header(xid::MEMBERS, throttled), b"", START);
    assert!(matches!(members, Ok(Received::Nothing)));
    let due = START + BREATHER;
    assert_eq!(ticks(&mut link, false, START + BREATHER / 2), Ok(due));
    assert_eq!(writes(&mut link), 0);
    assert_ne!(ticks(&mut link, false, due), Ok(due));
    assert_ne!(writes(&mut link), 0);
    // Nobody needs the watches any more.
    link.queue.set_watches(WatchLists {
        data: vec!["/a".to_owned()],
        ..WatchLists::default()
    });
    writes(&mut link);
    let watches = link.receive(header(xid::SET_WATCHES, throttled), b"", due);
    assert!(matches!(watches, Ok(Received::Nothing)));
    assert!(ticks(&mut link, false, due + BREATHER).is_ok());
    assert_eq!(writes(&mut link), 0);
}

#[test]
fn a_reply_that_is_too_long_fails_its_read_or_the_connection() {
    let mut link = serving();
    let write = refused_write("/a".to_owned());
    calls(&mut link, [Request::list("/a"), write]);
    let read = link.too_long(header(1, ErrorCode::OK), 5000);
    assert_eq!(read.unwrap().and_then(|read| read.answer), Some(0));
    let written = link.too_long(header(2, ErrorCode::OK), 5000);
    assert!(matches!(written, Err(End::Broken(_))));
    assert_eq!(link.broke(false).open, [(1, Failure::Lost)]);
}

#[test]
fn a_reply_about_the_session_ends_the_connection_and_tells_what_became_of_the_request() {
    use ErrorCode as Code;

    for (code, failure) in [
        (Code::SESSION_EXPIRED, Failure::NotSent),
        (Code::SESSION_MOVED, Failure::NotSent),
        (Code::CONNECTION_LOSS, Failure::Lost),
    ] {
        let mut link = serving();
        calls(&mut link, [refused_write("/a".to_owned())]);
        let Ok(Received::Reply(pending)) = link.receive(header(1, code), b"", START) else {
            panic!("{code}");
        };
        let (told, end) = pending.judge(code, b"", "").unwrap_err();
        assert_eq!(end == End::Expired, code == Code::SESSION_EXPIRED);
        link.queue.unpop(pending, told);
        assert_eq!(link.broke(false).open, [(0, failure)]);
    }
}
