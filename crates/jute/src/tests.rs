//! What is written is read back, and no bytes make a reader panic.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::Names;

mod mistakes;

fn stat() -> impl Strategy<Value = Stat> {
    (any::<[i64; 6]>(), any::<[i32; 5]>()).prop_map(|(longs, ints)| Stat {
        czxid: longs[0],
        mzxid: longs[1],
        ctime: longs[2],
        mtime: longs[3],
        version: ints[0],
        cversion: ints[1],
        aversion: ints[2],
        ephemeral_owner: longs[4],
        data_length: ints[3],
        num_children: ints[4],
        pzxid: longs[5],
    })
}

fn text() -> impl Strategy<Value = String> {
    "\\PC{0,12}"
}

fn texts() -> impl Strategy<Value = Vec<String>> {
    vec(text(), 0..4)
}

fn names() -> impl Strategy<Value = Names> {
    texts().prop_map(|names| names.iter().collect())
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..24)
}

fn data() -> impl Strategy<Value = Data> {
    prop_oneof![Just(Data::default()), bytes().prop_map(Data::from)]
}

fn acl() -> impl Strategy<Value = Vec<Access>> {
    let access = (any::<i32>(), text(), text()).prop_map(|(bits, scheme, id)| Access {
        permissions: Permissions(bits),
        scheme,
        id,
    });
    vec(access, 0..3)
}

/// A mode, and whether the reply has a stat, as those of containers and of nodes with a time to
/// live always do.
fn mode() -> impl Strategy<Value = (CreateMode, bool)> {
    let with_ttl = (5..=6, any::<i64>());
    prop_oneof![
        (-1..=9, any::<bool>()).prop_map(|(flag, stat)| {
            let mode = CreateMode::from_flag(flag);
            (mode, stat || mode == CreateMode::Container)
        }),
        with_ttl.prop_map(|(flag, ms)| (CreateMode::Ttl { flag, ms }, true)),
    ]
}

fn op() -> impl Strategy<Value = Request> {
    prop_oneof![
        (text(), any::<i32>()).prop_map(|(path, version)| Request::Check { path, version }),
        (text(), any::<i32>()).prop_map(|(path, version)| Request::Delete { path, version }),
        (text(), data(), any::<i32>()).prop_map(|(path, data, version)| Request::SetData {
            path,
            data,
            version
        }),
        (text(), data(), acl(), mode()).prop_map(|(path, data, acl, (mode, stat))| {
            Request::Create {
                path,
                data,
                acl,
                mode,
                stat,
            }
        }),
    ]
}

fn read_op() -> impl Strategy<Value = Request> {
    (text(), any::<bool>(), any::<bool>()).prop_map(|(path, watch, lists)| match lists {
        true => Request::GetChildren {
            path,
            watch,
            stat: false,
        },
        false => Request::GetData { path, watch },
    })
}

fn lists() -> impl Strategy<Value = WatchLists> {
    (any::<i64>(), texts(), texts(), texts(), texts(), texts()).prop_map(
        |(since_zxid, data, exists, children, persistent, recursive)| WatchLists {
            since_zxid,
            data,
            exists,
            children,
            persistent,
            recursive,
        },
    )
}

fn node_request() -> impl Strategy<Value = Request> {
    let watch = any::<bool>();
    prop_oneof![
        (text(), data(), acl(), mode()).prop_map(|(path, data, acl, (mode, stat))| {
            Request::Create {
                path,
                data,
                acl,
                mode,
                stat,
            }
        }),
        (text(), any::<i32>()).prop_map(|(path, version)| Request::Delete { path, version }),
        (text(), watch).prop_map(|(path, watch)| Request::Exists { path, watch }),
        (text(), watch).prop_map(|(path, watch)| Request::GetData { path, watch }),
        (text(), watch, any::<bool>()).prop_map(|(path, watch, stat)| Request::GetChildren {
            path,
            watch,
            stat
        }),
        (text(), data(), any::<i32>()).prop_map(|(path, data, version)| Request::SetData {
            path,
            data,
            version
        }),
        text().prop_map(|path| Request::GetAcl { path }),
        (text(), acl(), any::<i32>()).prop_map(|(path, acl, version)| Request::SetAcl {
            path,
            acl,
            version
        }),
        text().prop_map(|path| Request::CountDescendants { path }),
        text().prop_map(|path| Request::Sync { path }),
        vec(op(), 0..4).prop_map(Request::Multi),
        vec(read_op(), 0..4).prop_map(Request::MultiRead),
    ]
}

fn session_request() -> impl Strategy<Value = Request> {
    prop_oneof![
        Just(Request::Ping),
        Just(Request::WhoAmI),
        Just(Request::Close),
        (text(), bytes()).prop_map(|(scheme, credentials)| Request::Auth {
            scheme,
            credentials: Secret(credentials)
        }),
        lists().prop_map(Request::SetWatches),
        (text(), any::<i32>()).prop_map(|(path, kind)| Request::CheckWatches { path, kind }),
        (text(), any::<i32>()).prop_map(|(path, kind)| Request::RemoveWatches { path, kind }),
        (text(), any::<i32>()).prop_map(|(path, mode)| Request::AddWatch { path, mode }),
        text().prop_map(|below| Request::GetEphemerals { below }),
    ]
}

fn result() -> impl Strategy<Value = Result<Reply, ErrorCode>> {
    prop_oneof![
        any::<i32>().prop_map(|code| Err(ErrorCode(code))),
        Just(Ok(Reply::Checked)),
        Just(Ok(Reply::Nothing)),
        stat().prop_map(|stat| Ok(Reply::Stat(stat))),
        names().prop_map(|names| Ok(Reply::Children { names, stat: None })),
        (data(), stat()).prop_map(|(data, stat)| Ok(Reply::Data { data, stat })),
        (text(), option::of(stat())).prop_map(|(path, stat)| Ok(Reply::Created { path, stat })),
    ]
}

fn reply() -> impl Strategy<Value = (OpCode, Reply)> {
    prop_oneof![
        (text(), option::of(stat())).prop_map(|(path, stat)| {
            let op = OpCode::create(CreateMode::Ephemeral, stat.is_some());
            (op, Reply::Created { path, stat })
        }),
        stat().prop_map(|stat| (OpCode::EXISTS, Reply::Stat(stat))),
        (data(), stat()).prop_map(|(data, stat)| (OpCode::GET_DATA, Reply::Data { data, stat })),
        (acl(), stat()).prop_map(|(acl, stat)| (OpCode::GET_ACL, Reply::Acl { acl, stat })),
        names().prop_map(|names| {
            let reply = Reply::Children { names, stat: None };
            (OpCode::GET_CHILDREN, reply)
        }),
        (names(), stat()).prop_map(|(names, stat)| {
            let stat = Some(stat);
            (OpCode::GET_CHILDREN2, Reply::Children { names, stat })
        }),
        any::<i32>().prop_map(|count| (OpCode::COUNT_DESCENDANTS, Reply::Count(count))),
        text().prop_map(|path| (OpCode::SYNC, Reply::Synced { path })),
        vec(result(), 0..4).prop_map(|results| (OpCode::MULTI, Reply::Multi(results))),
        texts().prop_map(|paths| (OpCode::GET_EPHEMERALS, Reply::Ephemerals(paths))),
        vec((text(), text()), 0..3).prop_map(|pairs| (OpCode::WHO_AM_I, Reply::Identities(pairs))),
        Just((OpCode::DELETE, Reply::Nothing)),
    ]
}

/// Strips the length from a frame, and checks it.
fn content(frame: &[u8]) -> &[u8] {
    let (length, content) = frame.split_first_chunk::<4>().unwrap();
    assert_eq!(u32::from_be_bytes(*length) as usize, content.len());
    content
}

fn all_ops() -> impl Iterator<Item = OpCode> {
    (-12..=22).chain(100..=107).map(OpCode)
}

/// Passes the bytes to every decoder.
fn decode_all(bytes: &[u8]) {
    let _ = Request::decode(bytes);
    let _ = ConnectRequest::decode(bytes);
    let _ = ConnectReply::decode(bytes);
    let _ = ReplyHeader::decode(bytes);
    let _ = Event::decode(bytes);
    for op in all_ops() {
        let _ = Reply::decode(op, bytes);
        let head = [&7i32.to_be_bytes()[..], &op.0.to_be_bytes(), bytes].concat();
        let _ = Request::decode(&head);
    }
}

proptest! {
    #[test]
    fn a_request_is_read_as_it_was_written(
        xid: i32,
        request in prop_oneof![node_request(), session_request()],
    ) {
        let mut out = Vec::new();
        request.encode(xid, &mut out);
        prop_assert_eq!(Request::decode(content(&out)), Ok((xid, request)));
    }

    #[test]
    fn a_reply_is_read_as_it_was_written(xid: i32, zxid: i64, (op, reply) in reply()) {
        let header = ReplyHeader { xid, zxid, code: ErrorCode::OK };
        let mut out = Vec::new();
        header.encode(Some(&reply), &mut out);
        let (read, body) = ReplyHeader::decode(content(&out)).unwrap();
        prop_assert_eq!(read, header);
        prop_assert_eq!(Reply::decode(op, body), Ok(reply));
    }

    #[test]
    fn an_event_is_read_as_it_was_written(number in -2..9i32, state: i32, path in text()) {
        let mut out = Vec::new();
        Event { kind: EventKind::Other(number), state, path: path.clone() }.encode(&mut out);
        let (header, body) = ReplyHeader::decode(content(&out)).unwrap();
        prop_assert_eq!(header.xid, xid::EVENT);
        let event = Event::decode(body).unwrap();
        prop_assert_eq!((event.state, &event.path), (state, &path));
        let mut again = Vec::new();
        event.encode(&mut again);
        prop_assert_eq!(out, again);
    }

    #[test]
    fn a_handshake_is_read_as_it_was_written(
        longs: [i64; 2], timeout_ms: i32, password in bytes(), read_only: bool,
    ) {
        let [last_zxid, session] = longs;
        let request = ConnectRequest {
            last_zxid, timeout_ms, session, password: password.clone(), read_only,
        };
        let reply = ConnectReply { timeout_ms, session, password, read_only };
        let (mut sent, mut answered) = (Vec::new(), Vec::new());
        request.encode(&mut sent);
        reply.encode(&mut answered);
        prop_assert_eq!(ConnectRequest::decode(content(&sent)), Ok(request));
        prop_assert_eq!(ConnectReply::decode(content(&answered)), Ok(reply));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..200)) {
        decode_all(&bytes);
    }

    /// Small numbers make lengths and counts that the bytes can fill, so readers get far.
    #[test]
    fn nearly_right_bytes_never_panic(
        words in vec(prop_oneof![-2..12i32, any::<i32>()], 0..40),
        cut in 0..4usize,
    ) {
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        bytes.truncate(bytes.len().saturating_sub(cut));
        decode_all(&bytes);
    }

    #[test]
    fn a_truncated_reply_is_an_error(
        (op, reply) in reply().prop_filter("has a body", |(_, reply)| *reply != Reply::Nothing),
        cut in 1..20usize,
    ) {
        let header = ReplyHeader { xid: 1, zxid: 1, code: ErrorCode::OK };
        let mut out = Vec::new();
        header.encode(Some(&reply), &mut out);
        let (_, body) = ReplyHeader::decode(content(&out)).unwrap();
        let cut = body.len().saturating_sub(cut);
        prop_assert!(Reply::decode(op, &body[..cut]).is_err());
    }
}

#[test]
fn a_handshake_may_lack_the_read_only_byte() {
    let (mut sent, mut answered) = (Vec::new(), Vec::new());
    let request = ConnectRequest {
        last_zxid: 5,
        timeout_ms: 4000,
        session: 7,
        password: vec![1; 16],
        read_only: false,
    };
    let reply = ConnectReply {
        timeout_ms: 4000,
        session: 7,
        password: vec![1; 16],
        read_only: false,
    };
    request.encode(&mut sent);
    reply.encode(&mut answered);
    let without = |frame: &'static str, bytes: &[u8]| {
        let content = content(bytes);
        (frame, content[..content.len() - 1].to_vec())
    };
    let (_, sent) = without("request", &sent);
    let (_, answered) = without("reply", &answered);
    assert_eq!(ConnectRequest::decode(&sent), Ok(request));
    assert_eq!(ConnectReply::decode(&answered), Ok(reply));
}

#[test]
fn debug_output_shows_no_secret() {
    let password = b"open-sesame".to_vec();
    let request = ConnectRequest {
        last_zxid: 0,
        timeout_ms: 0,
        session: 1,
        password: password.clone(),
        read_only: false,
    };
    let auth = Request::Auth {
        scheme: "digest".to_owned(),
        credentials: Secret(password),
    };
    let shown = format!("{request:?} {auth:?}");
    assert!(!shown.contains("sesame"), "{shown}");
    assert!(!shown.contains("111"), "{shown}");
}

#[test]
fn the_bytes_are_those_of_zookeeper() {
    let mut out = Vec::new();
    let request = Request::Create {
        path: "/a".to_owned(),
        data: b"d".to_vec().into(),
        acl: vec![Access {
            permissions: Permissions::ALL,
            scheme: "world".to_owned(),
            id: "anyone".to_owned(),
        }],
        mode: CreateMode::EphemeralSequential,
        stat: true,
    };
    request.encode(1, &mut out);
    let expected = [
        &[0, 0, 0, 50, 0, 0, 0, 1, 0, 0, 0, 15][..],
        &[0, 0, 0, 2, b'/', b'a', 0, 0, 0, 1, b'd'],
        &[0, 0, 0, 1, 0, 0, 0, 31, 0, 0, 0, 5],
        b"world\0\0\0\x06anyone",
        &[0, 0, 0, 3],
    ]
    .concat();
    assert_eq!(out, expected);
}

#[test]
fn a_failed_multi_is_told_by_the_part_that_is_to_blame() {
    let inconsistent = Err::<Reply, _>(ErrorCode::RUNTIME_INCONSISTENCY);
    let parts = |middle| [Err(ErrorCode::OK), middle, inconsistent.clone()];
    let checked = [Ok(Reply::Checked), Ok(Reply::Nothing)];
    assert_eq!(failure(&checked), None);
    assert_eq!(
        failure(&parts(Err(ErrorCode::NO_NODE))),
        Some(ErrorCode::NO_NODE)
    );
    // A multi that was not carried out has failed, even without a part at fault.
    assert_eq!(
        failure(&[inconsistent]),
        Some(ErrorCode::RUNTIME_INCONSISTENCY)
    );
}
