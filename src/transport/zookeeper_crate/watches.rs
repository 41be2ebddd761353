//! The watches that are set through the handle.
//!
//! The crate keeps a watcher until its node changes, whatever becomes of the request. So a
//! watcher holds only an id; the rest is in this table, which can forget it at any time.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use zookeeper::{WatchedEvent, WatchedEventType};

use crate::jute::EventKind;
use crate::transport::slot::Slot;
use crate::transport::{Fired, Watch, WatchId};

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub(super) struct Watches(Arc<Mutex<HashMap<WatchId, Slot<Fired>>>>);

impl Watches {
    /// Returns a watcher for the crate, which does nothing but forward one event.
    pub(super) fn add(&self, watch: Watch) -> impl Fn(WatchedEvent) + Send + 'static {
        let id = watch.id;
        self.0.lock().insert(id, watch.to);
        let watches = self.clone();
        move |event| {
            if let Some(to) = watches.remove(id) {
                let kind = kind(event.event_type);
                to.put(Fired::told(id, kind));
            }
        }
    }

    /// Forgets a watch.
    pub(super) fn remove(&self, id: WatchId) -> Option<Slot<Fired>> {
        self.0.lock().remove(&id)
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
