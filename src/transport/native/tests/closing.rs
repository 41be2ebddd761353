//! The end of a session while servers go away and return.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::fake::{Act, Fake, Script, greeting, greeting_for};
use super::*;
use crate::support::proxy::Proxy;
use crate::support::{eventually, timed};

const TIMEOUT: Duration = Duration::from_secs(10);

/// Ends the session of a server that closes the connection on the first request to end it, and
/// greets the next connection with `again`. Returns whether the end is confirmed, and which
/// sessions were asked for and ended.
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

/// Ends the session of a server that answers the first request to end it with this code. Returns
/// whether the end is confirmed, and how often the client asked for it: it connects more often to a server that is
/// slow to greet.
fn end_where_a_server_refuses(code: ErrorCode) -> (bool, usize) {
    let closes = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&closes);
    let server = Fake::start(Script::new(move |_, request| match request {
        Request::Close => match counter.fetch_add(1, Ordering::SeqCst) {
            0 => Act::Refuse(code),
            _ => Act::Reply(Reply::Nothing),
        },
        _ => Act::Ignore,
    }));
    let rig = Rig::connect(&server.hosts(), TIMEOUT);
    let ended = rig.transport.close(PATIENCE);
    (ended, closes.load(Ordering::SeqCst))
}

#[test]
fn a_server_that_refuses_is_asked_again_unless_it_knows_no_such_session() {
    let refusals = [
        (ErrorCode::SESSION_MOVED, 2),
        (ErrorCode::THROTTLED, 2),
        (ErrorCode::OPERATION_TIMEOUT, 2),
        (ErrorCode::SESSION_EXPIRED, 1),
    ];
    for (code, closes) in refusals {
        let seen = end_where_a_server_refuses(code);
        assert_eq!(seen, (true, closes), "{code}");
    }
}

#[test]
fn a_server_that_is_silent_is_left_for_another_one_in_time() {
    let asked = Arc::new(AtomicUsize::new(0));
    let servers = [(); 2].map(|()| {
        let asked = Arc::clone(&asked);
        Fake::start(Script::new(move |_, request| match request {
            Request::Close if 0 < asked.fetch_add(1, Ordering::SeqCst) => {
                Act::Reply(Reply::Nothing)
            }
            _ => Act::Ignore,
        }))
    });
    let hosts = servers.each_ref().map(Fake::hosts).join(",");
    let rig = Rig::connect(&hosts, TIMEOUT);
    assert!(rig.transport.close(Duration::ZERO));
    assert_eq!(servers.each_ref().map(Fake::connections), [1, 1]);
}

#[test]
fn a_thread_that_closes_a_client_while_another_does_learns_how_that_ends() {
    let (asks, asked) = bounded(1);
    let (release, released) = bounded::<()>(0);
    let server = Fake::start(Script::new(move |_, request| match request {
        Request::Close => {
            asks.send(()).unwrap();
            let _ = released.recv();
            Act::Reply(Reply::Nothing)
        }
        _ => Act::Ignore,
    }));
    let rig = Rig::connect(&server.hosts(), TIMEOUT);
    thread::scope(|scope| {
        let close = || scope.spawn(|| rig.transport.close(PATIENCE));
        let first = close();
        asked
            .recv_timeout(PATIENCE)
            .expect("the end of the session");
        let second = close();
        // A second one that does not wait is done by then.
        thread::sleep(Duration::from_millis(100));
        drop(release);
        assert!(first.join().unwrap());
        assert!(second.join().unwrap());
    });
}

#[test]
fn a_client_whose_end_was_given_up_is_closed_again_at_once() {
    let server = Fake::start(Script::new(|_, _| Act::Refuse(ErrorCode::NO_NODE)));
    let rig = Rig::connect(&server.hosts(), TIMEOUT);
    let (release, released) = bounded::<()>(0);
    let (began, begun) = bounded(1);
    // Whatever keeps the transport's thread, such as a connection that nobody accepts.
    let answer: Answer = Box::new(move |_| {
        began.send(()).unwrap();
        let _ = released.recv();
    });
    let request = data("/a", false);
    rig.transport.send(vec![Call {
        request,
        watch: None,
        answer,
    }]);
    begun.recv_timeout(PATIENCE).expect("an answer");
    let close = || timed(|| rig.transport.close(Duration::ZERO));
    let (first, again) = (close(), close());
    drop(release);
    assert!(!first.0 && !again.0);
    assert!(again.1 < first.1 / 2, "{:?}, {:?}", again.1, first.1);
}

#[test]
fn a_client_that_is_closed_asks_for_no_new_session() {
    let (to, seen) = unbounded();
    let server = Fake::start(Script {
        greet: Box::new(move |hello| {
            to.send(hello.session).unwrap();
            (hello.session == 0).then(|| greeting_for(7, 200))
        }),
        act: Box::new(|_, request| match request {
            Request::Close => Act::Reply(Reply::Nothing),
            _ => Act::Ignore,
        }),
    });
    let proxy = Proxy::start(&server.hosts());
    let rig = Rig::connect(&proxy.hosts(), Duration::from_millis(200));
    proxy.refuse();
    rig.disconnected();
    // By now the client assumes that perhaps no server resumes the session.
    thread::sleep(Duration::from_millis(1500));
    let end = thread::spawn(move || rig.transport.close(Duration::from_secs(1)));
    proxy.accept();
    assert!(!end.join().unwrap());
    assert_eq!(seen.try_iter().filter(|id| *id == 0).count(), 1);
}

/// Some servers grant another session when asked for an unknown one.
#[test]
fn a_session_that_a_server_grants_to_a_client_that_ends_is_ended_too() {
    for host in ["127.0.0.1", "localhost"] {
        let (to, seen) = unbounded();
        let (ended, mut id) = (to.clone(), 0);
        let server = Fake::start(Script {
            greet: Box::new(move |_| {
                id += 1;
                to.send(id).unwrap();
                Some(greeting(id))
            }),
            act: Box::new(move |_, request| match request {
                Request::Close => {
                    ended.send(-1).unwrap();
                    Act::Reply(Reply::Nothing)
                }
                _ => Act::Ignore,
            }),
        });
        let proxy = Proxy::start(&server.hosts());
        let hosts = format!("{host}:{}", proxy.port());
        let rig = Rig::connect(&hosts, TIMEOUT);
        proxy.refuse();
        rig.disconnected();
        let end = thread::spawn(move || rig.transport.close(PATIENCE));
        proxy.accept();
        assert!(end.join().unwrap(), "{host}");
        assert_eq!(seen.try_iter().collect::<Vec<_>>(), [1, 2, -1], "{host}");
    }
}

/// The thread used to continue the attempt that was in progress.
#[test]
fn the_thread_of_a_dropped_client_ends_when_the_session_has_timed_out() {
    let server = Fake::start(Script::new(|_, _| Act::Ignore));
    let proxy = Proxy::start(&server.hosts());
    let Rig {
        status, transport, ..
    } = Rig::connect(&proxy.hosts(), TIMEOUT);
    proxy.blackhole();
    drop(transport);
    let ends = || Arc::strong_count(&status) == 1;
    let ((), took) = timed(|| eventually("its thread ends", ends));
    // The server grants four seconds, in which the thread looks twelve times.
    assert!(took < Duration::from_secs(5), "{took:?}");
}
