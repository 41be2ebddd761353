//! Handles of the `zookeeper` crate that are ready for requests.

use std::sync::mpsc::channel;
use std::time::Duration;

use ::zookeeper::{Watcher, ZooKeeper};

/// Makes a handle, and leaves it alone until it is connected: a handle that gets a request
/// while its thread begins to listen may never answer.
pub fn connect(hosts: &str, timeout: Duration, watcher: impl Watcher + 'static) -> ZooKeeper {
    let handle = ZooKeeper::connect(hosts, timeout, watcher).expect("a handle");
    let (to, told) = channel();
    handle.add_listener(move |_| {
        let _ = to.send(());
    });
    // There is no event if the handle was connected before the listener was added.
    let _ = told.recv_timeout(Duration::from_millis(100));
    handle
}
