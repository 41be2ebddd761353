//! Clients whose frames are nearly right: the server answers or closes the connection, and
//! continues to serve the others.

use std::io::{Read, Write};
use std::net::Shutdown;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use zklock::embedded::Server;

use super::support::raw::{EPHEMERAL, EPHEMERAL_SEQUENTIAL, PERSISTENT, PERSISTENT_SEQUENTIAL, op};
use super::support::{eventually, fuzz};
use super::wire::{Wire, buffer, creation, dial, look, word};

const ADD_WATCH: i32 = 106;
const CHECK: i32 = 13;
const GET_ACL: i32 = 6;
const SET_ACL: i32 = 7;

/// The operation and the body, which follow the number of a request.
type Content = (i32, Vec<u8>);

fn requests() -> Vec<Content> {
    let paths = ["/a", "/a/b", "/", "/zookeeper/quota", "/a/n-"];
    let modes = [
        PERSISTENT,
        EPHEMERAL,
        PERSISTENT_SEQUENTIAL,
        EPHEMERAL_SEQUENTIAL,
    ];
    let mut requests = vec![
        (op::PING, Vec::new()),
        (op::CLOSE, Vec::new()),
        (
            op::AUTH,
            [&[0; 4], &buffer(b"digest")[..], &buffer(b"me:x")].concat(),
        ),
        (op::MULTI, multi()),
        (op::SET_WATCHES, watches()),
    ];
    for path in paths {
        let path_and =
            |number: i32| [buffer(path.as_bytes()), number.to_be_bytes().into()].concat();
        let looks = [
            op::EXISTS,
            op::GET_DATA,
            op::GET_CHILDREN,
            op::GET_CHILDREN2,
        ];
        requests.extend(looks.map(|op| (op, look(path, true))));
        requests.extend([GET_ACL, op::SYNC].map(|op| (op, buffer(path.as_bytes()))));
        requests.extend([op::DELETE, op::REMOVE_WATCHES, ADD_WATCH].map(|op| (op, path_and(1))));
        for mode in modes {
            let ops = [op::CREATE, op::CREATE2, op::CREATE_CONTAINER];
            requests.extend(ops.map(|op| (op, creation(path, mode))));
        }
        let data = [buffer(path.as_bytes()), buffer(b"data"), vec![255; 4]].concat();
        requests.push((op::SET_DATA, data));
        let creation = creation(path, 0);
        // This is the list and the version, without the data before, and with the mode as the
        // version.
        let list = &creation[4 + path.len() + 5..];
        requests.push((SET_ACL, [&buffer(path.as_bytes()), list].concat()));
    }
    requests
}

fn multi() -> Vec<u8> {
    let part = |op: i32, body: &[u8]| {
        let head = [&op.to_be_bytes()[..], &[0], &(-1_i32).to_be_bytes()].concat();
        [&head, body].concat()
    };
    let check = [buffer(b"/"), vec![255; 4]].concat();
    [
        part(CHECK, &check),
        part(op::CREATE, &creation("/m", PERSISTENT)),
        part(op::DELETE, &[buffer(b"/m"), vec![255; 4]].concat()),
        [&(-1_i32).to_be_bytes()[..], &[1], &(-1_i32).to_be_bytes()].concat(),
    ]
    .concat()
}

fn watches() -> Vec<u8> {
    let list = [&1_i32.to_be_bytes()[..], &buffer(b"/a")].concat();
    [&[0; 8], &list[..], &list, &list].concat()
}

fn hello() -> Vec<u8> {
    let mut hello = vec![0; 12];
    hello.extend(10_000_i32.to_be_bytes());
    hello.extend([0; 8]);
    hello.extend(buffer(&[0; 16]));
    hello.push(0);
    hello
}

fn frame() -> impl Strategy<Value = Vec<u8>> {
    let content = select(requests()).prop_map(|(op, body)| {
        let head = [1_i32.to_be_bytes(), op.to_be_bytes()].concat();
        [head, body].concat()
    });
    fuzz::frames(content).prop_map(|content| buffer(&content))
}

/// Returns what a client sends: mostly a handshake and frames with mistakes inside them, and
/// sometimes mistakes in their lengths, too.
fn saying() -> impl Strategy<Value = Vec<u8>> {
    let well = (Just(buffer(&hello())), vec(frame(), 1..12));
    let well = well
        .prop_map(|(hello, frames)| [hello, frames.concat()].concat())
        .boxed();
    let handshake = fuzz::frames(Just(hello())).prop_map(|hello| buffer(&hello));
    prop_oneof![6 => well.clone(), 1 => fuzz::frames(well), 1 => handshake]
}

/// Sends everything, and collects what the server sends until it closes the connection.
fn say(server: &Server, saying: &[u8]) -> Vec<u8> {
    let mut stream = dial(server);
    // The server may close the connection in the middle.
    drop(stream.write_all(saying));
    drop(stream.shutdown(Shutdown::Write));
    let mut heard = Vec::new();
    if let Err(error) = stream.read_to_end(&mut heard) {
        assert!(
            !super::wire::is_timeout(&error),
            "the server does not hang up"
        );
    }
    heard
}

proptest! {
    // If a broken server lets a client wait, each attempt takes long.
    #![proptest_config(ProptestConfig { max_shrink_time: 60_000, ..ProptestConfig::default() })]

    #[test]
    fn clients_with_mistakes_harm_nobody(sayings in vec(saying(), 1..4)) {
        let server = Server::start().unwrap();
        let mut witness = Wire::connect(&server);
        witness.create("/witness", EPHEMERAL).unwrap();
        for saying in &sayings {
            say(&server, saying);
            witness.call(op::PING, &[]).unwrap();
        }
        prop_assert!(witness.sees("/witness"));
        prop_assert!(server.sessions().contains(&witness.session));
        eventually("their connections are gone", || {
            let connections = word(&server, "cons");
            let connections = connections.lines().filter(|line| line.contains("queued="));
            // The witness, and the client that asks.
            connections.count() == 2
        });
    }
}

/// Checks that some requests get through: otherwise a run would show little.
#[test]
fn of_the_requests_with_mistakes_some_are_carried_out() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let server = Server::start().unwrap();
    let (frame, mut runner) = (frame(), TestRunner::deterministic());
    let (mut well, mut refused) = (0, 0);
    for _ in 0..300 {
        let content = frame.new_tree(&mut runner).unwrap().current();
        let heard = say(&server, &[buffer(&hello()), content].concat());
        // The rest follows the reply to the handshake, whose length comes first.
        let length = u32::from_be_bytes(heard[..4].try_into().unwrap()) as usize;
        match heard.get(4 + length + 4 + 12..4 + length + 4 + 16) {
            Some([0, 0, 0, 0]) => well += 1,
            _ => refused += 1,
        }
    }
    assert!(
        well > 30 && refused > 30,
        "{well} were carried out, {refused} were not"
    );
}

/// A real server without a configured login does the same. The suites of kazoo and Curator send
/// such tokens.
#[test]
fn a_token_for_a_login_that_is_not_configured_is_answered_with_none() {
    const SASL: i32 = 102;
    let server = Server::start().unwrap();
    let mut wire = Wire::connect(&server);
    for token in [&b""[..], b"token"] {
        let answer = wire.call(SASL, &buffer(token));
        assert_eq!(answer, Ok((-1_i32).to_be_bytes().to_vec()));
    }
    assert!(wire.sees("/"), "the connection goes on");
}
