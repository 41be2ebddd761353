//! What a client watches once its waits have ended. The server's watches are counted too: each has one of the client's.

use std::thread;
use std::time::Duration;

use crate::support::proxy::Proxy;
use crate::support::raw::{Raw, wait_for_children};
use crate::support::zookeeper::ZooKeeper;
use crate::support::{eventually, fresh_path, within};
use crate::{Client, Error};

const TIMEOUT: Duration = Duration::from_secs(10);
const SOON: Duration = Duration::from_secs(20);
const ROUNDS: usize = 3;

/// A server, a client that has locks, and another one that waits for them behind a proxy.
struct Scene {
    server: ZooKeeper,
    proxy: Proxy,
    holder: Client,
    waiter: Client,
    raw: Raw,
    paths: [String; 2],
}

impl Scene {
    fn set() -> Self {
        // A separate server, because its watches are counted.
        let server = ZooKeeper::builder().fsync(false).start();
        let proxy = Proxy::start(&server.hosts());
        let client = |hosts: &str| {
            let client = Client::builder(hosts).session_timeout(TIMEOUT).connect();
            client.expect("a session")
        };
        let (holder, waiter) = (client(&server.hosts()), client(&proxy.hosts()));
        let mut raw = Raw::connect(&server.hosts());
        raw.create_all("/tests");
        let paths = [fresh_path("one"), fresh_path("other")];
        Self {
            server,
            proxy,
            holder,
            waiter,
            raw,
            paths,
        }
    }

    /// Deletes the youngest node at a path.
    fn evict(&mut self, path: &str) {
        let nodes = self.raw.children(path).expect("a queue");
        let node = nodes.iter().max_by_key(|node| &node[node.len() - 10..]);
        let node = format!("{path}/{}", node.expect("a waiter"));
        self.raw.delete(&node).expect("the waiter's node");
    }

    fn reconnect(&self) {
        let before = self.proxy.connections();
        self.proxy.cut();
        eventually("it is back", || before < self.proxy.connections());
    }

    /// Waits until the client that waits, and the server for it, have so many watches.
    #[track_caller]
    fn watches(&self, count: usize) {
        let client = || self.waiter.locks.session.transport.watches();
        let holders = || self.holder.locks.session.transport.watches();
        let server = || self.server.monitor("zk_watch_count");
        let are_so_many =
            || client() == count && server().map(|all| all as usize) == Some(count + holders());
        if !within(SOON, are_so_many) {
            let (all, holders) = (server(), holders());
            let paths = self.server.four_letter("wchp").unwrap_or_default();
            panic!(
                "{} instead of {count}, and {all:?} with {holders} of the holder: {paths}",
                client()
            );
        }
    }
}

/// Waits in each kind of queue until the limit. On a busy machine, no server may have told by then that they are taken.
fn wait_in_vain(client: &Client, [one, other]: &[String; 2], limit: Duration) {
    let rwlock = client.rwlock(one).unwrap();
    let both = client.multi_lock([one.as_str(), other]).unwrap();
    thread::scope(|scope| {
        let mutex = client.mutex(other).unwrap();
        scope.spawn(move || assert!(!matches!(mutex.try_lock_for(limit), Ok(Some(_)))));
        let reads = || assert!(!matches!(rwlock.try_read_for(limit), Ok(Some(_))));
        scope.spawn(reads);
        scope.spawn(reads);
    });
    assert!(!matches!(rwlock.try_write_for(limit), Ok(Some(_))));
    assert!(!matches!(both.try_lock_for(limit), Ok(Some(_))));
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn nothing_is_watched_after_waits_in_vain_reconnects_and_evictions() {
    let mut scene = Scene::set();
    let [one, other] = scene.paths.clone();
    let guards = [&one, &other].map(|path| scene.holder.rwlock(path).unwrap().write().unwrap());
    for _ in 0..ROUNDS {
        thread::scope(|scope| {
            let limit = Duration::from_millis(400);
            let scene = &scene;
            scope.spawn(move || wait_in_vain(&scene.waiter, &scene.paths, limit));
            scene.reconnect();
        });
        // The queue is evicted in which the call waits, and the other one.
        for path in [&one, &other] {
            let both = scene.waiter.multi_lock([one.as_str(), &other]).unwrap();
            let waiting = thread::spawn(move || both.try_lock_for(3 * SOON).map(drop));
            for _ in 0..ROUNDS {
                scene.watches(3);
                scene.reconnect();
            }
            scene.watches(3);
            scene.evict(path);
            let ended = waiting.join().unwrap();
            assert!(matches!(ended, Err(Error::Evicted { .. })), "{ended:?}");
        }
    }
    drop(guards);
    scene.watches(0);
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn nothing_is_watched_if_the_limit_comes_before_the_answer_that_the_node_is_gone() {
    let mut scene = Scene::set();
    let path = scene.paths[0].clone();
    let guard = scene.holder.mutex(&path).unwrap().lock().unwrap();
    let mutex = scene.waiter.mutex(&path).unwrap();
    let delay = Duration::from_millis(200);
    scene.proxy.delay(delay);
    // The node is deleted before the look at it has arrived, which is not answered before the limit.
    let waiting = thread::spawn(move || mutex.try_lock_for(3 * delay).map(|taken| taken.is_some()));
    wait_for_children(&scene.server.hosts(), &path, 2);
    scene.evict(&path);
    assert!(!matches!(waiting.join().unwrap(), Ok(true)));
    scene.proxy.delay(Duration::ZERO);
    guard.unlock().unwrap();
    scene.watches(0);
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_lock_of_several_paths_watches_each_node_once_whatever_is_written_there() {
    let mut scene = Scene::set();
    let paths = scene.paths.clone();
    let both = scene
        .waiter
        .multi_lock(paths.iter().map(String::as_str))
        .unwrap();
    let guard = both.lock().unwrap();
    for _ in 0..10 {
        scene.watches(2);
        scene.raw.set_data(&guard.nodes()[0], b"{}").unwrap();
    }
    scene.watches(2);
    guard.unlock().unwrap();
    scene.watches(0);
}
