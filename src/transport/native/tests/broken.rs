//! Against a real ZooKeeper, through a network that misbehaves.

use std::fs;
use std::io::Read;
use std::mem::replace;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::super::io;
use super::super::shared::Shared;
use super::fake::{Act, Fake, Script, greeting, greeting_for};
use super::*;
use crate::support::proxy::Proxy;
use crate::support::relay::listen;
use crate::support::{eventually, timed};
use crate::transport::handover::{Inherited, SessionKey};

/// The session timeout in most tests; the server's tick is 500 ms.
const SHORT: Duration = Duration::from_secs(6);
const LONG: Duration = Duration::from_secs(10);

/// Connects a client behind a proxy.
fn behind_proxy(timeout: Duration) -> (Proxy, Rig) {
    let proxy = Proxy::start(&server().hosts());
    let rig = Rig::connect(&proxy.hosts(), timeout);
    (proxy, rig)
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn session_and_watches_survive_a_cut() {
    let (proxy, rig) = behind_proxy(LONG);
    let other = Rig::connect(&server().hosts(), LONG);
    let (session, path, missing) = (rig.session(), node(), node());
    rig.ask(create(&path, CreateMode::Ephemeral)).unwrap();
    let (_, on_data) = rig.watch(data(&path, true), 1);
    let (_, on_children) = rig.watch(children("/", true), 2);
    let (_, on_missing) = rig.watch(exists(&missing, true), 3);
    let (_, stays) = rig.watch(data(&path, true), 4);
    drop(stays);

    proxy.refuse();
    rig.disconnected();
    assert_eq!(rig.ask(data("/", false)), Err(Failure::NotSent));
    other.ask(create(&missing, CreateMode::Ephemeral)).unwrap();
    other.ask(delete(&path)).unwrap();
    proxy.accept();
    rig.reconnected();
    assert_eq!(rig.session(), session);
    assert_eq!(fires(&on_data), (1, EventKind::Deleted));
    assert_eq!(fires(&on_children), (2, EventKind::ChildrenChanged));
    assert_eq!(fires(&on_missing), (3, EventKind::Created));

    // A watch on a node that did not change meanwhile fires too.
    let (_, later) = rig.watch(data(&missing, true), 5);
    proxy.cut();
    rig.reconnected();
    other.ask(delete(&missing)).unwrap();
    assert_eq!(fires(&later), (5, EventKind::Deleted));
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn what_was_open_when_the_connection_broke_is_lost_and_answered_once() {
    let (proxy, rig) = behind_proxy(LONG);
    let path = node();
    proxy.drop_next_reply_to(15);
    let made = create(&path, CreateMode::Ephemeral);
    let answers = rig.send(vec![made, children("/", false)]);
    assert_eq!(one(&answers), Err(Failure::Lost));
    assert_eq!(one(&answers), Err(Failure::Lost));
    rig.reconnected();
    assert!(rig.ask(exists(&path, false)).is_ok());
    assert!(answers.try_recv().is_err());
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_truncated_reply_is_the_end_of_the_connection_and_no_more() {
    let (proxy, rig) = behind_proxy(LONG);
    let session = rig.session();
    proxy.truncate_next_reply();
    assert_eq!(rig.ask(children("/", false)), Err(Failure::Lost));
    rig.reconnected();
    assert!(rig.ask(children("/", false)).is_ok());
    assert_eq!(rig.session(), session);
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn an_idle_connection_is_kept_and_a_silent_one_given_up() {
    let (proxy, rig) = behind_proxy(SHORT);
    let session = rig.session();
    let ((), idle) = timed(|| thread::sleep(SHORT + SHORT / 2));
    assert_eq!(rig.status.snapshot().connects, 1);
    assert_eq!(rig.status.snapshot().state, SessionState::Connected);
    let pings = proxy.requests(11);
    // One ping each sixth of the timeout, however long the sleep was.
    let most = (idle.as_secs_f64() / SHORT.as_secs_f64() * 6.0) as usize + 1;
    assert!((3..=most).contains(&pings), "{pings} pings in {idle:?}");

    proxy.blackhole();
    let ((), noticed) = timed(|| rig.disconnected());
    assert!(noticed < SHORT, "{noticed:?}");
    proxy.cut();
    proxy.heal();
    rig.reconnected();
    assert_eq!(rig.session(), session);
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_session_that_expired_is_reported_and_replaced_without_its_watches() {
    let (proxy, rig) = behind_proxy(SHORT);
    let (session, path) = (rig.session(), node());
    rig.ask(create(&path, CreateMode::Ephemeral)).unwrap();
    let (_, fired) = rig.watch(data(&path, true), 1);
    proxy.refuse();
    let other = Rig::connect(&server().hosts(), LONG);
    eventually("the server expires the session", || {
        other.ask(exists(&path, false)) == NO_NODE
    });
    proxy.accept();
    let mut seen = vec![rig.events.recv_timeout(PATIENCE).unwrap()];
    while !matches!(seen.last(), Some(SessionEvent::Connected { .. })) {
        seen.push(rig.events.recv_timeout(PATIENCE).unwrap());
    }
    let new = rig.session();
    assert_ne!(new, session);
    let connected = SessionEvent::Connected { session: new };
    use SessionEvent::{Disconnected, Expired};
    assert_eq!(seen, [Disconnected, Expired, connected]);
    rig.ask(create(&path, CreateMode::Ephemeral)).unwrap();
    rig.ask(delete(&path)).unwrap();
    assert!(fired.try_recv().is_err());
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn close_is_bounded_in_a_blackhole_and_what_is_open_is_answered() {
    let (proxy, rig) = behind_proxy(LONG);
    proxy.blackhole();
    let answers = rig.send(vec![data("/", false)]);
    let (_, took) = timed(|| rig.transport.close(Duration::from_millis(300)));
    assert!(took < LONG / 2, "{took:?}");
    assert_eq!(one(&answers), Err(Failure::Closed));
    assert!(answers.try_recv().is_err());
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn connections_leave_no_thread_and_no_descriptor_behind() {
    let count = |what: &str| fs::read_dir(format!("/proc/self/{what}")).map(Iterator::count);
    let Ok(_) = count("fd") else { return };
    let cycle = || {
        let (proxy, rig) = behind_proxy(LONG);
        proxy.cut();
        rig.disconnected();
        rig.reconnected();
        rig.transport.close(PATIENCE);
    };
    cycle();
    let ours = || {
        let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
        let names = threads.flat_map(|thread| fs::read_to_string(thread.path().join("comm")));
        names.filter(|name| name.trim() == "zklock-io").count()
    };
    for _ in 0..5 {
        cycle();
    }
    // Other tests run in threads of this process.
    eventually("few are left", || ours() < 20);
}

/// More paths than fit into one setWatches frame.
#[test]
#[ignore = "needs a ZooKeeper server"]
fn thousands_of_watches_survive_a_cut() {
    let (proxy, rig) = behind_proxy(LONG);
    let other = Rig::connect(&server().hosts(), LONG);
    let paths: Vec<String> = (0..1500).map(|i| format!("{}-{i:0>150}", node())).collect();
    let (to, fired) = unbounded();
    let (answer, answers) = unbounded();
    let set = |(id, path): (usize, &String)| {
        let watch = Watch::new(WatchId(id as u64), to.clone());
        call(exists(path, true), Some(watch), &answer)
    };
    rig.transport
        .send(paths.iter().enumerate().map(set).collect());
    assert!(paths.iter().all(|_| one(&answers) == NO_NODE));
    let session = rig.session();
    proxy.cut();
    rig.disconnected();
    rig.reconnected();
    assert_eq!(rig.session(), session);
    eventually("two frames set them", || proxy.requests(101) == 2);
    let made = other.send(
        paths
            .iter()
            .map(|path| create(path, CreateMode::Ephemeral))
            .collect(),
    );
    assert!(paths.iter().all(|_| one(&made).is_ok()));
    let mut ids: Vec<u64> = paths.iter().map(|_| fires(&fired).0).collect();
    ids.sort_unstable();
    assert!(ids.into_iter().eq(0..1500));
}

/// Servers would take the answer to a request of an earlier connection for that to a request with the same number.
#[test]
fn a_session_has_no_two_requests_with_one_number() {
    let (to, numbers) = unbounded();
    let server = Fake::start(Script::new(move |xid, request| {
        if request == Request::Close {
            return Act::Reply(Reply::Nothing);
        }
        to.send(xid).unwrap();
        Act::Close
    }));
    let next = |rig: &Rig| {
        drop(rig.ask(Request::exists("/")));
        numbers.recv_timeout(PATIENCE).unwrap()
    };
    let rig = Rig::connect(&server.hosts(), LONG);
    let first = next(&rig);
    rig.reconnected();
    assert_eq!((first, next(&rig)), (1, 2));
    drop(rig);
    let [one, other] = [(); 2].map(|()| {
        let mut config = Config::plain(&server.hosts(), LONG);
        config.inherited = Some(Inherited {
            key: SessionKey {
                id: 7,
                password: Secret(vec![9; 16]),
            },
            timeout: LONG,
            heard_of: Duration::ZERO,
            is_kept: true,
        });
        let rig = Rig::open(config);
        rig.reconnected();
        next(&rig)
    });
    assert_ne!(one, other);
}

/// Starts a server that lets a client in once, and after that ends its connections when it authenticates.
fn closing_server() -> Fake {
    let mut asked = 0;
    let mut script = Script::new(move |_, request| {
        asked += i32::from(matches!(request, Request::Auth { .. }));
        match request {
            Request::Auth { .. } if asked == 1 => Act::Reply(Reply::Nothing),
            _ => Act::Close,
        }
    });
    script.greet = Box::new(|_| Some(greeting_for(7, 1000)));
    Fake::start(script)
}

/// Another ensemble may have that address by now, and grant its own locks.
#[test]
fn a_client_that_gives_its_session_up_takes_none_at_an_address_of_before() {
    let server = closing_server();
    let (mut script, begun) = (Script::new(|_, _| Act::Ignore), Arc::default());
    let count = Arc::<AtomicUsize>::clone(&begun);
    script.greet = Box::new(move |request| match request.session {
        0 => {
            count.fetch_add(1, Ordering::Relaxed);
            Some(greeting(8))
        }
        _ => Some(Vec::new()),
    });
    let other = Fake::start(script);
    let hosts = format!("{},no-such-host.invalid:2181", server.hosts());
    let mut config = Config::plain(&hosts, Duration::from_secs(1));
    config.auth.push(login());
    let status = Arc::new(Status::new(config.session_timeout, true));
    let (events, shared) = (status.events(), Arc::new(Shared::new(config, status)));
    let running = Arc::clone(&shared);
    let thread = thread::spawn(move || io::run(running));
    let happens = |what: fn(&SessionEvent) -> bool| {
        eventually("it happens", || events.try_iter().any(|event| what(&event)));
    };
    happens(|event| matches!(event, SessionEvent::Connected { .. }));
    let before = vec![other.hosts().parse().unwrap()];
    shared.state.lock().list.servers[1].name.addresses = before;
    shared.send(vec![call(delete("/a"), None, &unbounded().0)]);
    happens(|event| matches!(event, SessionEvent::Expired));
    let connections = server.connections();
    eventually("it tries on", || connections + 1 < server.connections());
    assert!(0 < other.connections(), "it tries to resume there");
    assert_eq!(begun.load(Ordering::Relaxed), 0);
    shared.begin_close(Duration::ZERO);
    thread.join().unwrap();
}

/// Servers that were all away keep their sessions. As they come back, one may hang up at the login once more.
#[test]
fn a_server_that_hangs_up_at_the_first_login_after_an_outage_costs_no_session() {
    const AWAY: Duration = Duration::from_secs(3);
    let (mut logins, left) = (0, Arc::<Mutex<Option<Instant>>>::default());
    let (since, mut is_back) = (Arc::clone(&left), false);
    let mut script = Script::new(move |_, request| {
        let is_login = matches!(request, Request::Auth { .. });
        logins += i32::from(is_login);
        if is_login && logins != 2 {
            return Act::Reply(Reply::Nothing);
        }
        left.lock().unwrap().get_or_insert_with(Instant::now);
        Act::Close
    });
    script.greet = Box::new(move |request| {
        let since = *since.lock().unwrap();
        is_back |= request.session == 7 && since.is_some_and(|since| AWAY < since.elapsed());
        let session = 7 + i64::from(since.is_some() && request.session == 0);
        (since.is_none() || is_back).then(|| greeting_for(session, 1000))
    });
    let server = Fake::start(script);
    let mut config = Config::plain(&server.hosts(), Duration::from_secs(1));
    config.auth.push(login());
    let rig = Rig::open(config);
    rig.reconnected();
    assert_eq!(rig.ask(delete("/a")), Err(Failure::Lost));
    rig.disconnected();
    let next = rig.events.recv_timeout(PATIENCE).unwrap();
    assert_eq!(next, SessionEvent::Connected { session: 7 });
    assert!(5 < server.connections(), "it tries meanwhile");
}

fn login() -> Credentials {
    Credentials {
        scheme: "digest".to_owned(),
        secret: Secret(b"ann:secret".to_vec()),
    }
}

/// As in a long election, while the server that led before hangs.
#[test]
fn a_session_is_kept_while_half_of_the_servers_hang_up_and_the_rest_are_silent() {
    let mut script = Script::new(|_, _| Act::Ignore);
    let mut greeted = false;
    script.greet = Box::new(move |_| (!replace(&mut greeted, true)).then(|| greeting_for(7, 600)));
    let leaderless = Fake::start(script);
    let asked = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&asked);
    let silent = listen(move |mut client| {
        let _ = client.read_exact(&mut [0; 40]);
        count.fetch_add(1, Ordering::Relaxed);
        let _ = client.read_to_end(&mut Vec::new());
    });
    let hosts = format!("{},{silent}", leaderless.hosts());
    let rig = Rig::connect(&hosts, Duration::from_millis(600));
    rig.disconnected();
    let began = Instant::now();
    eventually("it was asked for more than two sessions", || {
        Duration::from_secs(4) < began.elapsed() && 3 < asked.load(Ordering::Relaxed)
    });
    assert!(rig.events.try_iter().next().is_none(), "no session ended");
}

/// Its client deletes what it has left there as soon as it has another session, however late that is.
#[test]
fn a_session_that_was_given_up_is_known_until_there_is_another() {
    let mut script = Script::new(|_, _| Act::Ignore);
    let mut greeted = false;
    script.greet = Box::new(move |_| match replace(&mut greeted, true) {
        false => Some(greeting_for(7, 600)),
        true => Some(Vec::new()),
    });
    let server = Fake::start(script);
    let rig = Rig::connect(&server.hosts(), Duration::from_millis(600));
    rig.hear(|event| *event == SessionEvent::Expired);
    let before = server.connections();
    eventually("it has asked for another in vain", || {
        before + 2 < server.connections()
    });
    assert_eq!(rig.status.given_up(), Some(7));
}
