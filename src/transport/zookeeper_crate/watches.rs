//! The watches that are set through the handle.
//!
//! The crate keeps a watcher until its node changes, whatever becomes of the request. A watcher
//! therefore holds only its node and an id. The rest is in this table, which can forget it at any
//! time.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use zookeeper::{WatchedEvent, WatchedEventType};

use crate::transport::Slot;
use crate::transport::{Fired, Watch, WatchId};
use zklock_jute::EventKind;

/// A node and an id, because watches on several nodes may have one id.
type Key = (String, WatchId);

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub(super) struct Watches(Arc<Mutex<HashMap<Key, Slot<Fired>>>>);

impl Watches {
    /// Returns a watcher for the crate, which only forwards one event.
    pub(super) fn add(&self, node: &str, watch: Watch) -> impl Fn(WatchedEvent) + Send + use<> {
        let id = watch.id;
        let node = node.to_owned();
        self.0.lock().insert((node.clone(), id), watch.to);
        let watches = self.clone();
        move |event| {
            if let Some(to) = watches.remove(&node, id) {
                let kind = kind(event.event_type);
                to.put(Fired { id, kind });
            }
        }
    }

    pub(super) fn remove(&self, node: &str, id: WatchId) -> Option<Slot<Fired>> {
        self.0.lock().remove(&(node.to_owned(), id))
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
