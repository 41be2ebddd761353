//! The end of a session where servers go away and come back.

use std::thread;

use super::fake::{Act, Fake, Script, greeting, greeting_for};
use super::*;
use crate::support::proxy::Proxy;
use crate::support::{eventually, timed};

const TIMEOUT: Duration = Duration::from_secs(10);

/// Ends the session of a server that hangs up on the first request to, and greets the next connection
/// so. Returns whether the end is confirmed, and which sessions were asked for and ended.
fn end_where_a_server_hangs_up(again: fn() -> Vec<u8>) -> (bool, Vec<i64>) {
    let (to, seen) = unbounded();
    let (greeted, mut hellos, mut closes) = (to.clone(), 0, 0);
    let server = Fake::start(Script {
        greet: Box::new(move |hello| {
            greeted.send(hello.session).unwrap();
            hellos += 1;
            Some(if hellos == 1 { greeting(7) } else { again() })
        }),
        act: Box::new(move |_, request| match request {
            Request::Close => {
                to.send(-1).unwrap();
                closes += 1;
                match closes {
                    1 => Act::Close,
                    _ => Act::Reply(Reply::Nothing),
                }
            }
            _ => Act::Ignore,
        }),
    });
    let rig = Rig::connect(&server.hosts(), TIMEOUT);
    let confirmed = rig.transport.close(PATIENCE);
    (confirmed, seen.try_iter().collect())
}

#[test]
fn a_server_that_hangs_up_without_an_answer_is_asked_again() {
    let seen = end_where_a_server_hangs_up(|| greeting(7));
    assert_eq!(seen, (true, vec![0, -1, 7, -1]));
    // The first request was carried out.
    let seen = end_where_a_server_hangs_up(|| greeting_for(0, 0));
    assert_eq!(seen, (true, vec![0, -1, 7]));
}

#[test]
fn the_end_of_a_session_that_nobody_confirms_is_given_up_in_time() {
    let server = Fake::start(Script::new(|_, _| Act::Close));
    let rig = Rig::connect(&server.hosts(), TIMEOUT);
    assert!(!rig.transport.close(Duration::from_millis(300)));
    let connections = server.connections();
    assert!((2..40).contains(&connections), "{connections}");
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_session_that_is_closed_or_dropped_in_an_outage_ends_when_servers_are_back() {
    let other = Rig::connect(&server().hosts(), TIMEOUT);
    for drops in [false, true] {
        let proxy = Proxy::start(&server().hosts());
        let rig = Rig::connect(&proxy.hosts(), TIMEOUT);
        let path = node();
        rig.ask(create(&path, CreateMode::Ephemeral)).unwrap();
        proxy.refuse();
        rig.disconnected();
        let end = thread::spawn(move || drops || rig.transport.close(PATIENCE));
        thread::sleep(Duration::from_millis(200));
        assert!(other.ask(exists(&path, false)).is_ok());
        proxy.accept();
        let gone = || other.ask(exists(&path, false)) == NO_NODE;
        let ((), took) = timed(|| eventually("its node is gone", gone));
        assert!(took < TIMEOUT / 2, "{took:?}");
        assert!(end.join().unwrap());
    }
}
