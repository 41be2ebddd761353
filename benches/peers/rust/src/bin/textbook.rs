//! The textbook recipe on the crate `zookeeper`, with a thread for each contender.

use std::sync::mpsc;

use peers::{Peer, SESSION_TIMEOUT};
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_blocking};
use zookeeper::{Acl, CreateMode, ZkError, ZkResult, ZooKeeper, ZooKeeperExt};

struct Textbook(ZooKeeper);

impl Textbook {
    fn enter(&self, dir: &str) -> ZkResult<String> {
        let path = format!("{dir}/lock-");
        let acl = Acl::open_unsafe().clone();
        let mode = CreateMode::EphemeralSequential;
        self.0.create(&path, Vec::new(), acl, mode)
    }

    /// Goes through the queue; returns the node.
    fn hold(&self, dir: &str) -> ZkResult<String> {
        let node = match self.enter(dir) {
            Err(ZkError::NoNode) => {
                self.0.ensure_path(dir)?;
                self.enter(dir)?
            }
            entered => entered?,
        };
        loop {
            let names = self.0.get_children(dir, false)?.into_iter();
            let paths = names.map(|name| format!("{dir}/{name}"));
            let Some(before) = paths.filter(|path| *path < node).max() else {
                return Ok(node);
            };
            let (tell, told) = mpsc::channel();
            let watch = move |_| tell.send(()).unwrap_or_default();
            if self.0.exists_w(&before, watch)?.is_some() {
                told.recv().expect("an event");
            }
        }
    }
}

/// A client whose calls block their threads.
impl Peer for Textbook {
    type Held = String;

    async fn connect(hosts: &str) -> Self {
        Self(ZooKeeper::connect(hosts, SESSION_TIMEOUT, |_| ()).expect("a server"))
    }

    async fn lock(&self, dir: &str) -> String {
        self.hold(dir).expect("the lock")
    }

    async fn unlock(&self, node: String) {
        self.0.delete(&node, None).expect("our node");
    }

    async fn contenders(&self, dir: &str) -> usize {
        self.0.get_children(dir, false).expect("a directory").len()
    }

    fn spawn(task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        let runtime = Handle::current();
        spawn_blocking(move || runtime.block_on(task))
    }
}

fn main() {
    peers::run::<Textbook>();
}
