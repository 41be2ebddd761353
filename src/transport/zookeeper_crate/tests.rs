//! The transport against a real ZooKeeper, through a network that misbehaves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, unbounded};

use super::watches::Watches;
use super::{WORKERS, calls, open};
use crate::support::proxy::Proxy;
use crate::support::raw::{EPHEMERAL, PERSISTENT, Raw, op};
use crate::support::zookeeper::ZooKeeper as Server;
use crate::support::{eventually, fresh_path, handle, timed};
use crate::transport::session_state::{SessionEvent, SessionState};
use crate::transport::status::Status;
use crate::transport::{Call, Failure, Fired, Transport, Watch, WatchId};
use zklock_jute::{Access, CreateMode, ErrorCode, EventKind, Permissions, Reply, Request};

const TIMEOUT: Duration = Duration::from_secs(2);

/// Far longer than any wait here should take.
const PATIENCE: Duration = Duration::from_secs(20);

struct Client {
    status: Arc<Status>,
    events: Receiver<SessionEvent>,
    transport: Arc<dyn Transport>,
}

impl Client {
    /// Connects, and waits until the handle has had an answer. A handle that is about to connect
    /// may report that twice, and a probe may still occupy a worker afterwards.
    fn connect(hosts: &str) -> Self {
        let handle = handle::connect(hosts, TIMEOUT, |_| ());
        handle.exists("/", false).unwrap();
        let client = Self::with(handle);
        let connected = client.events.recv_timeout(PATIENCE).unwrap();
        assert!(matches!(connected, SessionEvent::Connected { .. }));
        client
    }

    fn begin(hosts: &str) -> Self {
        Self::with(zookeeper::ZooKeeper::connect(hosts, TIMEOUT, |_| ()).unwrap())
    }

    fn with(handle: zookeeper::ZooKeeper) -> Self {
        let status = Arc::new(Status::new(TIMEOUT, false));
        let events = status.events();
        let transport = open(handle, TIMEOUT, TIMEOUT, status.clone()).unwrap();
        Self {
            status,
            events,
            transport,
        }
    }

    fn send(&self, requests: Vec<(Request, Option<Watch>)>) -> Receiver<Result<Reply, Failure>> {
        let (to, answers) = unbounded();
        let calls = requests.into_iter().map(|(request, watch)| {
            let to = to.clone();
            let answer = Box::new(move |answer| drop(to.send(answer)));
            Call {
                request,
                watch,
                answer,
            }
        });
        self.transport.send(calls.collect());
        answers
    }

    fn ask(&self, request: Request) -> Result<Reply, Failure> {
        let answers = self.send(vec![(request, None)]);
        answers.recv_timeout(PATIENCE).expect("an answer")
    }

    fn create(&self, path: &str, mode: CreateMode) -> Result<Reply, Failure> {
        self.ask(create(path, mode))
    }

    fn expect(&self, event: SessionEvent) {
        assert_eq!(self.events.recv_timeout(PATIENCE), Ok(event));
    }
}

fn create(path: &str, mode: CreateMode) -> Request {
    let acl = Access {
        permissions: Permissions::ALL,
        scheme: "world".to_owned(),
        id: "anyone".to_owned(),
    };
    Request::Create {
        path: path.to_owned(),
        data: b"data".to_vec().into(),
        acl: vec![acl],
        mode,
        stat: true,
    }
}

fn get_data(path: &str, watch: bool) -> Request {
    let path = path.to_owned();
    Request::GetData { path, watch }
}

fn exists(path: &str, watch: bool) -> Request {
    let path = path.to_owned();
    Request::Exists { path, watch }
}

/// Creates a node; returns its path and a raw client.
fn node_on(server: &Server) -> (String, Raw) {
    let mut raw = Raw::connect(&server.hosts());
    raw.create_all("/tests");
    let node = fresh_path("handle");
    raw.create(&node, b"", PERSISTENT).unwrap();
    (node, raw)
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn requests_are_carried_out_and_answered() {
    let server = Server::shared();
    let (dir, mut raw) = node_on(server);
    let client = Client::connect(&server.hosts());

    let created = client.create(&format!("{dir}/n-"), CreateMode::EphemeralSequential);
    let path = format!("{dir}/n-0000000000");
    let (reply, stat) = (path.clone(), None);
    assert_eq!(created, Ok(Reply::Created { path: reply, stat }));
    let owner = raw.stat(&path).unwrap().owner;
    assert_ne!(owner, 0);

    let Ok(Reply::Data { data, stat }) = client.ask(get_data(&path, false)) else {
        panic!("the node has data");
    };
    assert_eq!((&data[..], stat.ephemeral_owner), (&b"data"[..], owner));
    assert_eq!(
        client.ask(Request::GetChildren {
            path: dir.clone(),
            watch: false,
            stat: true
        }),
        Ok(Reply::Children {
            names: ["n-0000000000"].iter().collect(),
            stat: None
        })
    );
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn a_write_says_which_version_it_is_for() {
    let server = Server::shared();
    let (path, _raw) = node_on(server);
    let client = Client::connect(&server.hosts());
    let set = client.ask(Request::SetData {
        path: path.clone(),
        data: b"more".to_vec().into(),
        version: 0,
    });
    assert!(matches!(set, Ok(Reply::Stat(stat)) if stat.version == 1));
    let delete = |version| Request::Delete {
        path: path.clone(),
        version,
    };
    let bad_version = Err(Failure::Refused(ErrorCode::BAD_VERSION));
    assert_eq!(client.ask(delete(0)), bad_version);
    assert_eq!(client.ask(delete(-1)), Ok(Reply::Nothing));

    let no_node = Err(Failure::Refused(ErrorCode::NO_NODE));
    assert_eq!(client.ask(exists(&path, false)), no_node);
    assert_eq!(client.ask(get_data(&path, false)), no_node);
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn a_request_that_the_crate_lacks_is_refused() {
    let client = Client::connect(&Server::shared().hosts());
    let unimplemented = Err(Failure::Refused(ErrorCode::UNIMPLEMENTED));
    assert_eq!(client.ask(Request::Multi(Vec::new())), unimplemented);
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn calls_that_are_sent_together_are_carried_out_in_this_order() {
    let server = Server::shared();
    let (dir, _raw) = node_on(server);
    let client = Client::connect(&server.hosts());
    for i in 0..50 {
        let node = format!("{dir}/{i}");
        let answers = client.send(vec![
            (create(&node, CreateMode::Ephemeral), None),
            (get_data(&node, false), None),
        ]);
        assert!(matches!(
            answers.recv_timeout(PATIENCE).unwrap(),
            Ok(Reply::Created { .. })
        ));
        assert!(matches!(
            answers.recv_timeout(PATIENCE).unwrap(),
            Ok(Reply::Data { .. })
        ));
    }
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn a_watch_fires_once_unless_it_was_taken_back_or_its_request_failed() {
    let server = Server::shared();
    let (node, mut raw) = node_on(server);
    let client = Client::connect(&server.hosts());
    let (to, fired) = unbounded();
    let watch = |id| Some(Watch::new(WatchId(id), to.clone()));
    let kinds = |fired: &Receiver<Fired>, count| -> Vec<_> {
        let events = (0..count).map(|_| fired.recv_timeout(PATIENCE).unwrap());
        events.map(|event| (event.id.0, event.kind)).collect()
    };
    let missing = format!("{node}-missing");
    let answers = client.send(vec![
        (get_data(&node, true), watch(1)),
        (get_data(&node, true), watch(2)),
        (get_data(&missing, true), watch(3)),
        (exists(&missing, true), watch(4)),
    ]);
    assert_eq!(answers.iter().take(4).filter(Result::is_ok).count(), 2);
    client.transport.unwatch(&node, WatchId(1));

    raw.set_data(&node, b"1").unwrap();
    // Which of the calls has set the watcher that all of them share is a matter of threads.
    let Some((2, EventKind::DataChanged | EventKind::None)) = kinds(&fired, 1).pop() else {
        panic!("the watch that is left fires");
    };
    raw.create(&missing, b"", EPHEMERAL).unwrap();
    assert_eq!(kinds(&fired, 1), [(4, EventKind::Created)]);
    raw.delete(&node).unwrap();
    raw.delete(&missing).unwrap();
    client.ask(exists(&node, false)).unwrap_err();
    assert!(fired.is_empty());
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn watches_of_one_id_on_several_nodes_do_not_end_each_other() {
    let server = Server::shared();
    let (node, mut raw) = node_on(server);
    let client = Client::connect(&server.hosts());
    let (to, fired) = unbounded();
    let watch = || Some(Watch::new(WatchId(1), to.clone()));
    let missing = format!("{node}-missing");
    let ask = |requests| client.send(requests).recv_timeout(PATIENCE).unwrap();
    assert!(ask(vec![(get_data(&node, true), watch())]).is_ok());
    assert!(ask(vec![(get_data(&missing, true), watch())]).is_err());
    assert!(ask(vec![(exists(&missing, true), watch())]).is_err());
    client.transport.unwatch(&missing, WatchId(1));

    raw.set_data(&node, b"1").unwrap();
    let event = fired.recv_timeout(PATIENCE).expect("the first watch");
    assert_eq!(event.kind, EventKind::DataChanged);
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn watches_that_are_given_up_leave_one_watcher_for_each_node() {
    let server = Server::shared();
    let (dir, mut raw) = node_on(server);
    let (holder, missing) = (format!("{dir}/holder"), format!("{dir}/missing"));
    raw.create(&holder, b"", EPHEMERAL).unwrap();
    let handle = handle::connect(&server.hosts(), TIMEOUT, |_| ());
    let (watches, (to, fired)) = (Watches::default(), unbounded());
    let ask = |id, request: Request| {
        let watch = Some(Watch::new(WatchId(id), to.clone()));
        let _ = calls::perform(&handle, request, watch, &watches);
    };
    let looks = [
        (get_data(&holder, true), &holder),
        (exists(&missing, true), &missing),
        (Request::list(&dir).and_watch(), &dir),
        (Request::list(&missing).and_watch(), &missing),
    ];
    for id in 0..100 {
        for (look, node) in &looks {
            ask(id, look.clone());
            watches.remove(node, WatchId(id));
        }
    }
    assert_eq!(watches.watchers(), looks.len());
    ask(100, looks[0].0.clone());
    ask(101, looks[2].0.clone());
    raw.delete(&holder).unwrap();
    let mut events = [(); 2].map(|()| fired.recv_timeout(PATIENCE).expect("an event"));
    events.sort_by_key(|event| event.id.0);
    let expected = [100, 101].map(|id| (WatchId(id), EventKind::None));
    assert_eq!(events.map(|event| (event.id, event.kind)), expected);
    eventually("their watchers are gone", || {
        watches.watchers() == looks.len() - 2
    });
}

/// A server may drop a watch without a word, so each call sets it.
#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn a_watch_that_joins_a_watcher_of_an_earlier_connection_fires() {
    let server = Server::shared();
    let proxy = Proxy::start(&server.hosts());
    let (node, mut raw) = node_on(server);
    let handle = handle::connect(&proxy.hosts(), TIMEOUT, |_| ());
    let (watches, (to, fired)) = (Watches::default(), unbounded());
    let read = |id| {
        let watch = Some(Watch::new(WatchId(id), to.clone()));
        calls::perform(&handle, get_data(&node, true), watch, &watches)
    };
    read(1).unwrap();
    proxy.cut();
    eventually("it has connected again", || {
        handle.exists(&node, false).is_ok() && proxy.connections() == 2
    });
    read(2).unwrap();
    raw.set_data(&node, b"1").unwrap();
    let event = [(); 2].map(|()| fired.recv_timeout(PATIENCE).expect("an event").kind);
    assert_eq!(event, [EventKind::DataChanged, EventKind::None]);
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn a_disconnect_ends_the_session_and_another_begins() {
    let server = Server::shared();
    let proxy = Proxy::start(&server.hosts());
    let client = Client::connect(&proxy.hosts());
    let first = client.status.snapshot().session;

    proxy.cut();
    client.expect(SessionEvent::Disconnected);
    let session = match client.events.recv_timeout(PATIENCE).unwrap() {
        SessionEvent::Connected { session } => session,
        other => panic!("{other:?}"),
    };
    assert_ne!(session, first);
    assert!(client.ask(exists("/", false)).is_ok());
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn what_was_sent_in_one_session_is_not_carried_out_in_the_next() {
    let server = Server::shared();
    let proxy = Proxy::start(&server.hosts());
    let (dir, mut raw) = node_on(server);
    let client = Client::connect(&proxy.hosts());
    proxy.blackhole();
    let before = proxy.requests(op::EXISTS);
    // As many calls as there are workers, so that the create waits for one; the probe that stands
    // in for a ping may occupy one too.
    let calls = [(); WORKERS].map(|()| client.send(vec![(exists(&dir, false), None)]));
    eventually("they are under way", || {
        before + WORKERS - 1 <= proxy.requests(op::EXISTS)
    });
    let node = format!("{dir}/late");
    let late = client.send(vec![(create(&node, CreateMode::Persistent), None)]);
    proxy.cut();
    proxy.heal();

    for call in calls {
        let answer = call.recv_timeout(PATIENCE);
        let expected = [Failure::Lost, Failure::NotSent].map(|failure| Ok(Err(failure)));
        assert!(expected.contains(&answer), "{answer:?}");
    }
    assert_eq!(late.recv_timeout(PATIENCE), Ok(Err(Failure::NotSent)));
    client.expect(SessionEvent::Disconnected);
    eventually("another session", || {
        client.status.snapshot().state == SessionState::Connected
    });
    assert!(client.ask(exists("/", false)).is_ok());
    assert_eq!(raw.stat(&node), None);
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn a_network_that_swallows_everything_ends_the_transport_within_the_session_timeout() {
    let server = Server::shared();
    let proxy = Proxy::start(&server.hosts());
    let client = Client::connect(&proxy.hosts());
    proxy.blackhole();

    // More calls than there are workers, so that some never reach the crate.
    let begun = Instant::now();
    let calls = (0..10).map(|_| client.send(vec![(exists("/", false), None)]));
    let calls: Vec<_> = calls.collect();
    let answers: Vec<_> = calls
        .iter()
        .map(|call| call.recv_timeout(PATIENCE).unwrap())
        .collect();
    let took = begun.elapsed();
    assert_eq!(answers, vec![Err(Failure::Lost); 10]);
    assert!(TIMEOUT - Duration::from_millis(100) < took, "{took:?}");
    assert!(took < 5 * TIMEOUT, "{took:?}");
    client.expect(SessionEvent::Disconnected);
    client.expect(SessionEvent::Closed);
    assert_eq!(client.ask(exists("/", false)), Err(Failure::Closed));
    assert!(calls.iter().all(Receiver::is_empty), "answered twice");

    let (_, took) = timed(|| client.transport.close(Duration::from_millis(300)));
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn without_a_connection_nothing_is_sent() {
    let server = Server::start();
    let client = Client::connect(&server.hosts());
    server.kill();
    client.expect(SessionEvent::Disconnected);
    if client.status.snapshot().state == SessionState::Connecting {
        let answer = client.ask(exists("/", false));
        assert!(
            matches!(answer, Err(Failure::NotSent | Failure::Closed)),
            "{answer:?}"
        );
    }
    // Either the crate gives up, or the transport does.
    client.expect(SessionEvent::Closed);
    assert_eq!(client.ask(exists("/", false)), Err(Failure::Closed));
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn a_handle_that_never_connects_is_given_up() {
    let server = Server::shared();
    let proxy = Proxy::start(&server.hosts());
    proxy.blackhole();
    let client = Client::begin(&proxy.hosts());
    assert_eq!(client.ask(exists("/", false)), Err(Failure::NotSent));
    client.expect(SessionEvent::Closed);
}

/// This holds in one of a few tries: a handle that takes longer to connect is probed.
#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn a_handle_is_not_asked_while_it_connects() {
    let server = Server::shared();
    let asked = || {
        let proxy = Proxy::start(&server.hosts());
        let client = Client::begin(&proxy.hosts());
        let connected = client.events.recv_timeout(PATIENCE).unwrap();
        assert!(matches!(connected, SessionEvent::Connected { .. }));
        client.ask(get_data("/", false)).unwrap();
        proxy.requests(op::EXISTS)
    };
    assert!((0..20).any(|_| asked() == 0));
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn a_connection_is_probed_at_once_because_a_grant_relies_on_an_earlier_answer() {
    let server = Server::shared();
    // Without news, the handle is probed every sixth of this time.
    let believed = 30 * PATIENCE;
    let status = Arc::new(Status::new(believed, false));
    let handle = handle::connect(&server.hosts(), TIMEOUT, |_| ());
    let _transport = open(handle, believed, believed, status.clone()).unwrap();
    eventually("a message is answered", || {
        status.better_at(status.stamp()).is_some()
    });
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn closing_ends_the_session_at_once_and_answers_what_is_open() {
    let server = Server::shared();
    let (dir, mut raw) = node_on(server);
    let client = Client::connect(&server.hosts());
    let node = format!("{dir}/ephemeral");
    client.create(&node, CreateMode::Ephemeral).unwrap();

    client.transport.close(PATIENCE);
    assert_eq!(raw.stat(&node), None);
    client.expect(SessionEvent::Closed);
    assert_eq!(client.ask(exists("/", false)), Err(Failure::Closed));
    client.transport.close(PATIENCE);
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn dropping_the_transport_ends_the_session_in_the_background() {
    let server = Server::shared();
    let (dir, mut raw) = node_on(server);
    let client = Client::connect(&server.hosts());
    let node = format!("{dir}/ephemeral");
    client.create(&node, CreateMode::Ephemeral).unwrap();
    drop(client);
    eventually("the node is gone", || raw.stat(&node).is_none());
}

/// The crate resumes the session after a lost connection, and nobody could end it any more.
#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn a_session_ends_although_the_request_to_end_it_is_lost() {
    let server = Server::shared();
    let proxy = Proxy::start(&server.hosts());
    let (dir, mut raw) = node_on(server);
    let client = Client::connect(&proxy.hosts());
    let node = format!("{dir}/ephemeral");
    client.create(&node, CreateMode::Ephemeral).unwrap();
    proxy.drop_next_request(op::CLOSE);
    drop(client);
    eventually("the node is gone", || raw.stat(&node).is_none());
    assert!(proxy.fired());
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn a_close_says_whether_a_server_has_ended_the_session() {
    let server = Server::shared();
    let proxy = Proxy::start(&server.hosts());
    let client = Client::connect(&proxy.hosts());
    proxy.drop_next_reply_to(op::CLOSE);
    assert!(client.transport.close(PATIENCE));
    assert!(proxy.fired());

    let client = Client::connect(&proxy.hosts());
    proxy.refuse();
    assert!(!client.transport.close(PATIENCE));
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn a_chroot_stays_invisible() {
    let server = Server::shared();
    let (dir, mut raw) = node_on(server);
    let client = Client::connect(&format!("{}{dir}", server.hosts()));
    let (path, stat) = ("/inside".to_owned(), None);
    let created = client.create("/inside", CreateMode::Container);
    assert_eq!(created, Ok(Reply::Created { path, stat }));
    assert!(raw.stat(&format!("{dir}/inside")).is_some());

    let (to, fired) = unbounded();
    let watch = Some(Watch::new(WatchId(1), to));
    let answers = client.send(vec![(get_data("/inside", true), watch)]);
    assert!(answers.recv_timeout(PATIENCE).unwrap().is_ok());
    raw.delete(&format!("{dir}/inside")).unwrap();
    let event = fired.recv_timeout(PATIENCE).expect("an event");
    assert_eq!(event.kind, EventKind::Deleted);
}
