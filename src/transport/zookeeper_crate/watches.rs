//! The watches that are set through the handle.
//!
//! The crate keeps a watcher until its node changes, whatever becomes of the request. So one watcher serves all
//! calls that ask the same about a node: otherwise each wait in vain for the same holder, and each look at a
//! directory, would leave one. Every call still sets the server's watch, which may be gone without a word.
//!
//! A watcher holds only its number. The rest is in this table, which can forget it at any time.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use parking_lot::Mutex;
use zookeeper::{WatchedEvent, WatchedEventType};

use crate::transport::Slot;
use crate::transport::{Fired, Watch, WatchId};
use zklock_core::connection::watches::Kind;
use zklock_jute::EventKind;

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub(super) struct Watches(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    last: u64,
    nodes: HashMap<String, Node>,
}

#[derive(Debug, Default)]
struct Node {
    watchers: Vec<Watcher>,
    waiting: Vec<Waiting>,
}

/// A watcher that has not fired.
#[derive(Debug)]
struct Watcher {
    number: u64,
    of: Kind,
    /// Whether its request was answered: the crate has it from then on, and it may serve others.
    stands: bool,
}

#[derive(Debug)]
struct Waiting {
    id: WatchId,
    to: Slot<Fired>,
    watcher: u64,
    /// Whether the watcher is of an earlier call: its event may be of before what this one has read, and only tells it
    /// to look again.
    has_joined: bool,
}

impl Watches {
    /// Returns the number of a new watcher, and the watcher for the crate, which only forwards one event.
    pub(super) fn add(
        &self,
        (path, of): (&str, Kind),
        watch: Watch,
    ) -> (u64, impl Fn(WatchedEvent) + Send + use<>) {
        let mut table = self.0.lock();
        table.last += 1;
        let number = table.last;
        let node = table.nodes.entry(path.to_owned()).or_default();
        let stands = false;
        node.watchers.push(Watcher { number, of, stands });
        node.wait(number, watch, false);
        drop(table);
        let watches = self.clone();
        (number, move |event| watches.fire(number, &event))
    }

    /// Notes that the request of this watcher is answered, and whether the watcher may serve others from now on. It
    /// does not if it has fired, or the connection is another one.
    pub(super) fn answered(&self, path: &str, number: u64, stands: bool) {
        self.at(path, |node| {
            node.watchers.retain_mut(|one| {
                one.stands |= stands && one.number == number;
                one.stands || one.number != number
            });
        });
    }

    /// Lets a watcher that stands serve this watch too, or returns the watch.
    pub(super) fn join(&self, (path, of): (&str, Kind), watch: Watch) -> Result<(), Watch> {
        let mut table = self.0.lock();
        let Some(node) = table.nodes.get_mut(path) else {
            return Err(watch);
        };
        let watcher = node.watchers.iter().find(|one| one.of == of && one.stands);
        let Some(number) = watcher.map(|one| one.number) else {
            return Err(watch);
        };
        node.wait(number, watch, true);
        Ok(())
    }

    pub(super) fn remove(&self, path: &str, id: WatchId) {
        self.at(path, |node| node.waiting.retain(|one| one.id != id));
    }

    /// Notes that there is another connection. Watchers of earlier ones may never fire, so they are not kept.
    pub(super) fn begin(&self) {
        let mut table = self.0.lock();
        table.nodes.retain(|_, node| {
            node.watchers.clear();
            !node.waiting.is_empty()
        });
    }

    fn fire(&self, number: u64, event: &WatchedEvent) {
        let path = event.path.as_deref().unwrap_or_default();
        let fired = self.at(path, |node| {
            node.watchers.retain(|one| one.number != number);
            let (fired, left) = mem::take(&mut node.waiting)
                .into_iter()
                .partition::<Vec<_>, _>(|one| one.watcher == number);
            node.waiting = left;
            fired
        });
        for one in fired.unwrap_or_default() {
            let kind = match one.has_joined {
                true => EventKind::None,
                false => kind(event.event_type),
            };
            one.to.put(Fired { id: one.id, kind });
        }
    }

    /// Changes what there is about a node, if there is anything.
    fn at<T>(&self, path: &str, change: impl FnOnce(&mut Node) -> T) -> Option<T> {
        let mut table = self.0.lock();
        let node = table.nodes.get_mut(path)?;
        let changed = change(node);
        if node.watchers.is_empty() && node.waiting.is_empty() {
            table.nodes.remove(path);
        }
        Some(changed)
    }
}

impl Node {
    fn wait(&mut self, watcher: u64, watch: Watch, has_joined: bool) {
        let Watch { id, to } = watch;
        self.waiting.push(Waiting {
            id,
            to,
            watcher,
            has_joined,
        });
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
