//! The `zookeeper` crate as the client.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use zklock::embedded::Server;
use zookeeper::{
    Acl, CreateMode, WatchedEvent, WatchedEventType, Watcher, ZkError, ZkResult, ZooKeeper,
};

use super::support::handle;
use super::wire::LONG;

struct Forward(Sender<WatchedEvent>);

impl Watcher for Forward {
    fn handle(&self, event: WatchedEvent) {
        let _ = self.0.send(event);
    }
}

fn connect(server: &Server) -> (ZooKeeper, Receiver<WatchedEvent>) {
    let (tell, told) = channel();
    let client = handle::connect(server.hosts(), Duration::from_secs(10), Forward(tell));
    (client, told)
}

fn create(client: &ZooKeeper, path: &str, mode: CreateMode) -> ZkResult<String> {
    client.create(path, b"x".to_vec(), Acl::open_unsafe().clone(), mode)
}

fn next_change(events: &Receiver<WatchedEvent>) -> (WatchedEventType, String) {
    loop {
        let event = events.recv_timeout(LONG).expect("an event");
        if let Some(path) = event.path.filter(|path| !path.is_empty()) {
            return (event.event_type, path);
        }
    }
}

#[test]
fn a_server_starts_in_less_than_10_ms() {
    let start = || {
        let begin = Instant::now();
        let server = Server::start().unwrap();
        (begin.elapsed(), server).0
    };
    // The best of many tries counts, since the machine has other things to do.
    let best = (0..50).map(|_| start()).min().unwrap();
    assert!(best < Duration::from_millis(10), "{best:?}");
}

#[test]
fn nodes_are_created_read_written_and_deleted() {
    let server = Server::start().unwrap();
    let (client, _events) = connect(&server);

    assert_eq!(create(&client, "/a", CreateMode::Persistent).unwrap(), "/a");
    assert_eq!(
        create(&client, "/a", CreateMode::Persistent),
        Err(ZkError::NodeExists)
    );
    assert_eq!(
        create(&client, "/b/c", CreateMode::Persistent),
        Err(ZkError::NoNode)
    );
    let stat = client.set_data("/a", b"yz".to_vec(), Some(0)).unwrap();
    assert_eq!((stat.version, stat.data_length), (1, 2));
    let (data, stat) = client.get_data("/a", false).unwrap();
    assert_eq!((data, stat.version), (b"yz".to_vec(), 1));
    assert_eq!(client.delete("/a", Some(0)), Err(ZkError::BadVersion));
    create(&client, "/a/n-", CreateMode::EphemeralSequential).unwrap();
    create(&client, "/a/n-", CreateMode::PersistentSequential).unwrap();
    let mut names = client.get_children("/a", false).unwrap();
    names.sort();
    assert_eq!(names, ["n-0000000000", "n-0000000001"]);
    assert_eq!(client.delete("/a", None), Err(ZkError::NotEmpty));
    assert_eq!(
        create(&client, "/a/n-0000000000/x", CreateMode::Persistent),
        Err(ZkError::NoChildrenForEphemerals)
    );
    client.close().unwrap();
    assert_eq!(server.nodes(), ["/a", "/a/n-0000000001"]);
    assert_eq!(server.sessions(), [0_i64; 0]);
}

#[test]
fn watches_fire_once_and_only_for_what_they_watch() {
    let server = Server::start().unwrap();
    let (client, events) = connect(&server);
    assert!(client.exists("/a", true).unwrap().is_none());
    client.get_children("/", true).unwrap();
    create(&client, "/a", CreateMode::Persistent).unwrap();
    assert_eq!(
        next_change(&events),
        (WatchedEventType::NodeCreated, "/a".into())
    );
    assert_eq!(
        next_change(&events),
        (WatchedEventType::NodeChildrenChanged, "/".into())
    );
    client.get_data("/a", true).unwrap();
    client.set_data("/a", vec![], None).unwrap();
    client.set_data("/a", vec![], None).unwrap();
    client.get_children("/a", true).unwrap();
    client.delete("/a", None).unwrap();
    assert_eq!(
        next_change(&events),
        (WatchedEventType::NodeDataChanged, "/a".into())
    );
    assert_eq!(
        next_change(&events),
        (WatchedEventType::NodeDeleted, "/a".into())
    );
    assert_eq!(server.watch_count(), 0);
}

#[test]
fn a_list_of_rights_keeps_others_out() {
    let server = Server::start().unwrap();
    let (owner, _events) = connect(&server);
    let (other, _events) = connect(&server);
    owner.add_auth("digest", b"me:secret".to_vec()).unwrap();
    let acl = Acl::creator_all().clone();
    owner
        .create("/mine", b"x".to_vec(), acl, CreateMode::Persistent)
        .unwrap();
    assert_eq!(other.get_data("/mine", false).unwrap_err(), ZkError::NoAuth);
    assert!(other.exists("/mine", false).unwrap().is_some());
    other.add_auth("digest", b"me:secret".to_vec()).unwrap();
    assert_eq!(other.get_data("/mine", false).unwrap().0, b"x");
}

#[test]
fn a_dropped_server_hangs_up_and_frees_its_port() {
    let server = Server::start().unwrap();
    let hosts = server.hosts().to_owned();
    let mut client = super::wire::Wire::connect(&server);
    drop(server);
    assert!(client.is_hung_up_on());
    assert!(std::net::TcpStream::connect(&hosts).is_err());
    std::net::TcpListener::bind(&hosts).unwrap();
}
