//! The watches that are set through the handle.
//!
//! The crate keeps a watcher until its node changes, whatever becomes of the request. So one watcher serves all
//! calls that read and watch a node: a client that waits in vain for the same holder again and again would
//! otherwise leave one each time. A watcher holds only its node and a number. The rest is in this table, which can
//! forget it at any time.
//!
//! Watches of children are set anew each time: waiters list a directory again because a server may have dropped its
//! watch without a word.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::Arc;

use parking_lot::Mutex;
use zookeeper::{WatchedEvent, WatchedEventType};

use crate::transport::Slot;
use crate::transport::{Fired, Watch, WatchId};
use zklock_jute::EventKind;

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub(super) struct Watches(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    last: u64,
    /// The watchers of this connection whose requests are not answered yet.
    asked: HashSet<u64>,
    nodes: HashMap<String, Node>,
}

#[derive(Debug, Default)]
struct Node {
    /// The watcher that a server has answered for.
    standing: Option<u64>,
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    id: WatchId,
    to: Slot<Fired>,
    watcher: u64,
    /// Whether the call has joined the watcher of an earlier one, whose event may be of before what this one has read.
    has_joined: bool,
}

impl Watches {
    /// Returns the number of a new watcher, and the watcher for the crate, which only forwards one event.
    pub(super) fn add(
        &self,
        path: &str,
        watch: Watch,
    ) -> (u64, impl Fn(WatchedEvent) + Send + use<>) {
        let Watch { id, to } = watch;
        let mut table = self.0.lock();
        table.last += 1;
        let watcher = table.last;
        table.asked.insert(watcher);
        table.node(path).waiting.push(Waiting {
            id,
            to,
            watcher,
            has_joined: false,
        });
        drop(table);
        let (watches, path) = (self.clone(), path.to_owned());
        let fire = move |event: WatchedEvent| watches.fire(&path, watcher, kind(event.event_type));
        (watcher, fire)
    }

    /// Notes that the request which set this watcher is answered. The watcher serves other calls too if there was a node.
    pub(super) fn answered(&self, path: &str, watcher: u64, is_there: bool) {
        let mut table = self.0.lock();
        // Otherwise it has fired, or the connection is another one, whose server does not know it.
        let is_set = table.asked.remove(&watcher);
        if is_set && is_there {
            table.node(path).standing = Some(watcher);
        }
    }

    /// Lets the watcher that stands serve this watch too, so that a mere read is enough; otherwise returns the watch.
    /// An event only tells who has joined to look again.
    pub(super) fn join(&self, path: &str, watch: Watch) -> Result<(), Watch> {
        let mut table = self.0.lock();
        let node = table.nodes.get_mut(path);
        let Some((node, watcher)) = node.and_then(|node| node.standing.map(|one| (node, one)))
        else {
            return Err(watch);
        };
        node.waiting.push(Waiting {
            id: watch.id,
            to: watch.to,
            watcher,
            has_joined: true,
        });
        Ok(())
    }

    pub(super) fn remove(&self, path: &str, id: WatchId) {
        let mut table = self.0.lock();
        if let Some(node) = table.nodes.get_mut(path) {
            node.waiting.retain(|one| one.id != id);
        }
        table.tidy(path);
    }

    /// Notes that there is another connection: no server knows the watchers of earlier ones.
    pub(super) fn begin(&self) {
        let mut table = self.0.lock();
        table.asked.clear();
        table.nodes.retain(|_, node| {
            node.standing = None;
            !node.waiting.is_empty()
        });
    }

    /// Returns how many watchers the crate has.
    #[cfg(test)]
    pub(super) fn watchers(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }

    fn fire(&self, path: &str, watcher: u64, kind: EventKind) {
        let mut table = self.0.lock();
        table.asked.remove(&watcher);
        let Some(node) = table.nodes.get_mut(path) else {
            return;
        };
        node.standing.take_if(|one| *one == watcher);
        let (fired, left) = mem::take(&mut node.waiting)
            .into_iter()
            .partition::<Vec<_>, _>(|one| one.watcher == watcher);
        node.waiting = left;
        table.tidy(path);
        drop(table);
        for one in fired {
            let kind = if one.has_joined {
                EventKind::None
            } else {
                kind
            };
            one.to.put(Fired { id: one.id, kind });
        }
    }
}

impl Table {
    fn node(&mut self, path: &str) -> &mut Node {
        self.nodes.entry(path.to_owned()).or_default()
    }

    fn tidy(&mut self, path: &str) {
        let is_empty = |node: &Node| node.standing.is_none() && node.waiting.is_empty();
        if self.nodes.get(path).is_some_and(is_empty) {
            self.nodes.remove(path);
        }
    }
}

fn kind(event: WatchedEventType) -> EventKind {
    match event {
        WatchedEventType::None => EventKind::None,
        WatchedEventType::NodeCreated => EventKind::Created,
        WatchedEventType::NodeDeleted => EventKind::Deleted,
        WatchedEventType::NodeDataChanged => EventKind::DataChanged,
        WatchedEventType::NodeChildrenChanged => EventKind::ChildrenChanged,
        other => EventKind::Other(other as i32),
    }
}

#[cfg(test)]
mod tests;
