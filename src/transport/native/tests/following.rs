//! Clients that follow the ensemble's configuration, and servers that give one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::fake::{Act, Fake, Script};
use super::*;
use crate::support::eventually;
use zklock_jute::Event;

const TIMEOUT: Duration = Duration::from_secs(4);

const CONFIG: &str = "/zookeeper/config";

/// Returns a script that gives this list to clients that ask for it, counts those, and ends the
/// connections of all others.
fn script(list: impl Fn() -> Act + Send + 'static) -> (Script, Arc<AtomicUsize>) {
    let asked = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&asked);
    let script = Script::new(move |_, request| match request {
        Request::GetData { path, watch } if path == CONFIG => {
            assert!(watch);
            count.fetch_add(1, Ordering::Relaxed);
            list()
        }
        Request::Ping | Request::Close => Act::Reply(Reply::Nothing),
        _ => Act::Close,
    });
    (script, asked)
}

fn names(hosts: &[String], version: u32) -> Act {
    let lines = hosts.iter().map(|at| format!("server.1=a:1:2;{at}\n"));
    let text = format!("{}version={version}", lines.collect::<String>());
    let (data, stat) = (text.into_bytes().into(), Stat::default());
    Act::Reply(Reply::Data { data, stat })
}

fn follower(hosts: &str) -> Rig {
    let rig = Rig::open(Config {
        follow_reconfiguration: true,
        ..Config::plain(&format!("{hosts}/app"), TIMEOUT)
    });
    rig.reconnected();
    rig
}

#[test]
fn a_client_with_a_chroot_goes_where_the_configuration_says() {
    let (to, asked_there) = script(|| Act::Refuse(ErrorCode::NO_AUTH));
    let to = Fake::start(to);
    let list = vec![to.hosts()];
    let (from, asked) = script(move || names(&list, 1));
    let from = Fake::start(from);
    let rig = follower(&from.hosts());
    let session = rig.session();
    eventually("it has asked", || asked.load(Ordering::Relaxed) == 1);
    // Another request ends the connection, but only after the answer.
    assert_eq!(rig.ask(exists("/a", false)), Err(Failure::Lost));
    rig.reconnected();
    assert_eq!((to.connections(), from.connections()), (1, 1));
    assert_eq!(rig.session(), session);
    eventually("it has asked again", || {
        asked_there.load(Ordering::Relaxed) == 1
    });
    assert_eq!(rig.ask(exists("/a", false)), Err(Failure::Lost));
    rig.reconnected();
    assert_eq!((to.connections(), from.connections()), (2, 1));
}

#[test]
fn a_client_comes_back_with_its_session_if_it_reaches_no_member() {
    // No server listens at this address.
    let (from, _) = script(|| names(&["127.0.0.1:1".to_owned()], 1));
    let from = Fake::start(from);
    let rig = follower(&from.hosts());
    let session = rig.session();
    for connections in 2..4 {
        assert_eq!(rig.ask(exists("/a", false)), Err(Failure::Lost));
        rig.reconnected();
        assert_eq!((rig.session(), from.connections()), (session, connections));
    }
}

#[test]
fn a_client_moves_when_an_event_tells_that_its_server_was_removed() {
    let (to, _) = script(|| Act::Refuse(ErrorCode::NO_NODE));
    let to = Fake::start(to);
    let (there, here) = (to.hosts(), Arc::<OnceLock<String>>::default());
    let (address, mut asked) = (Arc::clone(&here), 0);
    let from = Fake::start(Script::new(move |xid, request| match request {
        Request::GetData { path, .. } if path == CONFIG => {
            asked += 1;
            let both = [there.clone(), address.get().expect("it is set").clone()];
            names(if asked == 1 { &both } else { &both[..1] }, asked)
        }
        Request::Exists { .. } => Act::Say(changed(xid)),
        _ => Act::Reply(Reply::Nothing),
    }));
    here.set(from.hosts()).unwrap();
    let rig = follower(&from.hosts());
    let session = rig.session();
    assert_eq!(rig.ask(exists("/a", false)), NO_NODE);
    rig.reconnected();
    assert_eq!((to.connections(), from.connections()), (1, 1));
    assert_eq!(rig.session(), session);
}

/// The read that was thrown away has set no watch, so nothing else would tell the client.
#[test]
fn a_configuration_that_a_busy_server_does_not_read_is_asked_for_again() {
    let (to, _) = script(|| Act::Refuse(ErrorCode::NO_NODE));
    let to = Fake::start(to);
    let (list, times) = (vec![to.hosts()], AtomicUsize::new(0));
    let (from, asked) = script(move || match times.fetch_add(1, Ordering::Relaxed) {
        0 | 1 => Act::Refuse(ErrorCode::THROTTLED),
        _ => names(&list, 1),
    });
    let from = Fake::start(from);
    let rig = follower(&from.hosts());
    eventually("it has asked again", || asked.load(Ordering::Relaxed) == 3);
    // Another request ends the connection, but only after the answer.
    assert_eq!(rig.ask(exists("/a", false)), Err(Failure::Lost));
    rig.reconnected();
    assert_eq!((to.connections(), from.connections()), (1, 1));
}

/// Returns the event of a change of the configuration, followed by the answer to this request.
fn changed(xid: i32) -> Vec<u8> {
    let mut out = Vec::new();
    let event = Event {
        kind: EventKind::DataChanged,
        state: Event::SYNC_CONNECTED,
        path: CONFIG.to_owned(),
    };
    event.encode(&mut out);
    let code = ErrorCode::NO_NODE;
    zklock_jute::ReplyHeader { xid, zxid: 1, code }.encode(None, &mut out);
    out
}

#[test]
fn who_does_not_follow_asks_for_no_configuration() {
    let (script, asked) = script(|| Act::Close);
    let server = Fake::start(script);
    let rig = Rig::connect(&server.hosts(), TIMEOUT);
    assert_eq!(rig.ask(exists("/a", false)), Err(Failure::Lost));
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}
