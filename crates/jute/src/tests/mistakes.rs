//! Valid frames with a few mistakes, which get further into a reader than random bytes. What is read from
//! them is the same when written and read again, and takes no more memory than the bytes can fill.

use alloc::vec::Vec;

use zklock_testkit::fuzz;

use super::*;

/// What `Debug` shows is longer than the bytes: names of fields, escapes.
const MOST_SHOWN_FOR_A_BYTE: usize = 200;

/// Reads the bytes, writes what they say and reads that. Returns whether they can be read.
fn is_read_as_written<T: PartialEq + core::fmt::Debug>(
    bytes: &[u8],
    read: impl Fn(&[u8]) -> Result<T, Malformed>,
    write: impl Fn(&T, &mut Vec<u8>),
) -> bool {
    let Ok(value) = read(bytes) else { return false };
    let mut out = Vec::new();
    write(&value, &mut out);
    assert_eq!(read(&out).as_ref(), Ok(&value));
    let shown = format!("{value:?}").len();
    assert!(
        shown < 1000 + MOST_SHOWN_FOR_A_BYTE * bytes.len(),
        "{shown}"
    );
    true
}

/// Reads a request that this crate knows. A container's reply has a stat, however it was
/// asked for.
fn read_request(bytes: &[u8]) -> Result<(i32, Request), Malformed> {
    let (xid, mut request) = Request::decode(bytes)?;
    match &mut request {
        Request::Unknown(_) => return Err(Malformed("nobody knows it")),
        Request::Create {
            mode: CreateMode::Container,
            stat,
            ..
        } => *stat = true,
        _ => {}
    }
    Ok((xid, request))
}

fn request_is_read_as_written(bytes: &[u8]) -> bool {
    is_read_as_written(bytes, read_request, |(xid, request), out| {
        let mut frame = Vec::new();
        request.encode(*xid, &mut frame);
        out.extend_from_slice(content(&frame));
    })
}

fn reply_is_read_as_written(op: OpCode, bytes: &[u8]) -> bool {
    let read = |bytes: &[u8]| Reply::decode(op, bytes);
    is_read_as_written(bytes, read, |reply, out| {
        let mut frame = Vec::new();
        header().encode(Some(reply), &mut frame);
        let (_, body) = ReplyHeader::decode(content(&frame)).unwrap();
        out.extend_from_slice(body);
    })
}

fn header() -> ReplyHeader {
    ReplyHeader {
        xid: 1,
        zxid: 1,
        code: ErrorCode::OK,
    }
}

fn request_frame() -> impl Strategy<Value = Vec<u8>> {
    (any::<i32>(), prop_oneof![node_request(), session_request()]).prop_map(|(xid, request)| {
        let mut frame = Vec::new();
        request.encode(xid, &mut frame);
        content(&frame).to_vec()
    })
}

/// Returns bodies of replies: most with mistakes and some without, so that both outcomes occur.
fn reply_body() -> impl Strategy<Value = (OpCode, Vec<u8>)> {
    let body = reply().prop_map(|(op, reply)| {
        let mut frame = Vec::new();
        header().encode(Some(&reply), &mut frame);
        let (_, body) = ReplyHeader::decode(content(&frame)).unwrap();
        (op, body.to_vec())
    });
    body.prop_flat_map(|(op, body)| (Just(op), fuzz::frames(Just(body))))
}

fn handshake() -> impl Strategy<Value = Vec<u8>> {
    (any::<i64>(), any::<i32>(), bytes()).prop_map(|(session, timeout_ms, password)| {
        let mut frame = Vec::new();
        let reply = ConnectReply {
            timeout_ms,
            session,
            password,
            read_only: false,
        };
        reply.encode(&mut frame);
        content(&frame).to_vec()
    })
}

proptest! {
    #![proptest_config(fuzz::config())]

    #[test]
    fn a_request_with_mistakes_is_refused_or_read_as_it_is(
        frame in fuzz::frames(request_frame()),
    ) {
        request_is_read_as_written(&frame);
        decode_all(&frame);
    }

    #[test]
    fn a_reply_with_mistakes_is_refused_or_read_as_it_is((op, body) in reply_body()) {
        reply_is_read_as_written(op, &body);
        decode_all(&body);
    }

    #[test]
    fn a_handshake_with_mistakes_is_refused_or_read_as_it_is(
        frame in fuzz::frames(handshake()),
    ) {
        is_read_as_written(&frame, ConnectReply::decode, |reply, out| {
            let mut frame = Vec::new();
            reply.encode(&mut frame);
            out.extend_from_slice(content(&frame));
        });
        decode_all(&frame);
    }
}

/// A run in which all frames can be read, or none, would show little.
#[test]
fn of_the_frames_with_mistakes_some_are_read_and_some_are_not() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let (requests, replies) = (fuzz::frames(request_frame()), reply_body());
    let (mut read, cases) = ([0, 0], 2000);
    for _ in 0..cases {
        let frame = requests.new_tree(&mut runner).unwrap().current();
        read[0] += usize::from(request_is_read_as_written(&frame));
        let (op, body) = replies.new_tree(&mut runner).unwrap().current();
        read[1] += usize::from(reply_is_read_as_written(op, &body));
    }
    for read in read {
        assert!((cases / 10..cases * 9 / 10).contains(&read), "{read}");
    }
}

/// The counts and lengths in a frame are believed only as far as its bytes reach.
#[test]
fn an_announcement_alone_takes_no_memory() {
    for announced in [i32::MAX, 1_000_000_000, 1 << 24, -1, i32::MIN] {
        let head = announced.to_be_bytes();
        for op in all_ops() {
            let start = [&7i32.to_be_bytes()[..], &op.0.to_be_bytes(), &head].concat();
            request_is_read_as_written(&start);
            reply_is_read_as_written(op, &head);
        }
    }
}
