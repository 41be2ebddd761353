//! The watches that are set, and where their events go.
//!
//! The server keeps one watch for a path and a kind, however many threads of this client
//! set it; its event goes to all of them. A watch is entered when its request is sent, so
//! that an event right behind the reply finds it, and removed if the reply says that the
//! server did not set it.

use std::collections::BTreeMap;
use std::mem;

use crate::transport::{Fired, Watch, WatchId};
use zklock_jute::{EventKind, WatchKind, WatchLists};

/// The longest part of a setWatches frame: well below the limit of any server.
const PART_BYTES: usize = 128 * 1024;

/// The kind of event that a watch waits for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// A change of the node, or its deletion.
    Data,
    /// The creation of the node.
    #[cfg(test)]
    Exists,
    Children,
}

#[derive(Debug, Default)]
pub(super) struct Watches(BTreeMap<String, Watchers>);

/// The watches on one path.
#[derive(Debug, Default)]
struct Watchers {
    data: Vec<Watch>,
    exists: Vec<Watch>,
    children: Vec<Watch>,
}

impl Watches {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn add(&mut self, path: String, kind: Kind, watch: Watch) {
        self.0.entry(path).or_default().of(kind).push(watch);
    }

    /// The node does not exist: the watch that `exists` set waits for its creation.
    pub(super) fn awaits_creation(&mut self, path: &str, id: WatchId) {
        let Some(watchers) = self.0.get_mut(path) else {
            return;
        };
        if let Some(at) = watchers.data.iter().position(|watch| watch.id == id) {
            let watch = watchers.data.swap_remove(at);
            watchers.exists.push(watch);
        }
    }

    /// Forgets a watch. Returns the kind of the server's watch if no other needs it.
    pub(super) fn remove(&mut self, path: &str, id: WatchId) -> Option<i32> {
        let watchers = self.0.get_mut(path)?;
        let idle = watchers.remove(id);
        if watchers.is_empty() {
            self.0.remove(path);
        }
        idle
    }

    /// Takes out the watches that this event fires, and sends it to them. Watches that have a
    /// prefetch for a deletion are returned instead.
    pub(super) fn fire(&mut self, path: &str, kind: EventKind) -> Vec<Watch> {
        let mut due = Vec::new();
        let Some(watchers) = self.0.get_mut(path) else {
            return due;
        };
        for watch in watchers.take(kind) {
            match watch.prefetch {
                Some(_) if kind == EventKind::Deleted => due.push(watch),
                _ => watch.to.put(Fired::told(watch.id, kind)),
            }
        }
        if watchers.is_empty() {
            self.0.remove(path);
        }
        due
    }

    /// Forgets all watches, because the session has ended.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The requests that set all watches again, each short enough for one frame.
    pub(super) fn lists(&self, since_zxid: i64) -> Vec<WatchLists> {
        let mut parts = Parts::new(since_zxid);
        for (path, watchers) in &self.0 {
            if !watchers.data.is_empty() {
                parts.room_for(path).data.push(path.clone());
            }
            if !watchers.exists.is_empty() {
                parts.room_for(path).exists.push(path.clone());
            }
            if !watchers.children.is_empty() {
                parts.room_for(path).children.push(path.clone());
            }
        }
        parts
            .done
            .into_iter()
            .chain((parts.used > 0).then_some(parts.open))
            .collect()
    }
}

impl Watchers {
    fn of(&mut self, kind: Kind) -> &mut Vec<Watch> {
        match kind {
            Kind::Data => &mut self.data,
            #[cfg(test)]
            Kind::Exists => &mut self.exists,
            Kind::Children => &mut self.children,
        }
    }

    fn is_empty(&self) -> bool {
        self.data.is_empty() && self.exists.is_empty() && self.children.is_empty()
    }

    /// To the server, a watch set by `exists` is one on the data.
    fn remove(&mut self, id: WatchId) -> Option<i32> {
        let out_of = |watches: &mut Vec<Watch>| {
            let before = watches.len();
            watches.retain(|watch| watch.id != id);
            watches.len() < before
        };
        if out_of(&mut self.children) {
            return self.children.is_empty().then_some(WatchKind::CHILDREN);
        }
        let found = out_of(&mut self.data) || out_of(&mut self.exists);
        let idle = self.data.is_empty() && self.exists.is_empty();
        (found && idle).then_some(WatchKind::DATA)
    }

    fn take(&mut self, kind: EventKind) -> Vec<Watch> {
        let mut taken = Vec::new();
        if matches!(
            kind,
            EventKind::Created | EventKind::DataChanged | EventKind::Deleted
        ) {
            taken.append(&mut self.data);
            taken.append(&mut self.exists);
        }
        if matches!(kind, EventKind::ChildrenChanged | EventKind::Deleted) {
            taken.append(&mut self.children);
        }
        taken
    }
}

/// Lists that are cut before they become too long for a frame.
struct Parts {
    done: Vec<WatchLists>,
    open: WatchLists,
    used: usize,
}

impl Parts {
    fn new(since_zxid: i64) -> Self {
        let open = WatchLists {
            since_zxid,
            ..WatchLists::default()
        };
        Self {
            done: Vec::new(),
            open,
            used: 0,
        }
    }

    fn room_for(&mut self, path: &str) -> &mut WatchLists {
        let bytes = 4 + path.len();
        if self.used > 0 && self.used + bytes > PART_BYTES {
            let fresh = Self::new(self.open.since_zxid).open;
            self.done.push(mem::replace(&mut self.open, fresh));
            self.used = 0;
        }
        self.used += bytes;
        &mut self.open
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::system::channel::{Receiver, unbounded};

    use super::*;

    fn watch(id: u64) -> (Watch, Receiver<Fired>) {
        let (to, fired) = unbounded();
        (Watch::new(WatchId(id), to), fired)
    }

    fn heard(fired: &Receiver<Fired>) -> Vec<(u64, EventKind)> {
        fired
            .try_iter()
            .map(|fired| (fired.id.0, fired.kind))
            .collect()
    }

    #[test]
    fn an_event_goes_to_those_who_wait_for_its_kind() {
        use EventKind::{ChildrenChanged, Created, DataChanged, Deleted, None, Other};
        #[rustfmt::skip]
        let table = [
            // watch          event             hears it
            (Kind::Data,      DataChanged,      true),
            (Kind::Data,      Deleted,          true),
            (Kind::Data,      Created,          true),
            (Kind::Data,      ChildrenChanged,  false),
            (Kind::Data,      Other(5),         false),
            (Kind::Data,      None,             false),
            (Kind::Exists,    Created,          true),
            (Kind::Exists,    ChildrenChanged,  false),
            (Kind::Children,  ChildrenChanged,  true),
            (Kind::Children,  Deleted,          true),
            (Kind::Children,  DataChanged,      false),
        ];
        for (kind, event, hears) in table {
            let mut watches = Watches::default();
            let (to, fired) = watch(1);
            watches.add("/a".to_owned(), kind, to);
            watches.fire("/b", event);
            assert_eq!(heard(&fired), []);
            watches.fire("/a", event);
            let expected = if hears { vec![(1, event)] } else { vec![] };
            assert_eq!(heard(&fired), expected, "{kind:?} {event:?}");
            assert_eq!(watches.is_empty(), hears, "{kind:?} {event:?}");
        }
    }

    #[test]
    fn one_event_goes_to_all_and_only_once() {
        let mut watches = Watches::default();
        let ((a, at_a), (b, at_b)) = (watch(1), watch(2));
        watches.add("/a".to_owned(), Kind::Data, a);
        watches.add("/a".to_owned(), Kind::Data, b);
        watches.fire("/a", EventKind::Deleted);
        watches.fire("/a", EventKind::Deleted);
        assert_eq!(heard(&at_a), [(1, EventKind::Deleted)]);
        assert_eq!(heard(&at_b), [(2, EventKind::Deleted)]);
    }

    #[test]
    fn a_prefetch_takes_the_place_of_the_event_only_when_the_node_is_deleted() {
        for (event, sent) in [(EventKind::DataChanged, 0), (EventKind::Deleted, 1)] {
            let mut watches = Watches::default();
            let (mut watch, told) = watch(1);
            watch.prefetch = Some(Arc::default());
            watches.add("/a".to_owned(), Kind::Data, watch);
            assert_eq!(watches.fire("/a", event).len(), sent);
            assert_eq!(heard(&told).len(), 1 - sent, "{event:?}");
        }
    }

    #[test]
    fn the_server_forgets_a_watch_when_the_last_local_one_goes() {
        let mut watches = Watches::default();
        for (id, kind) in [(1, Kind::Data), (2, Kind::Exists), (3, Kind::Children)] {
            watches.add("/a".to_owned(), kind, watch(id).0);
        }
        assert_eq!(watches.remove("/a", WatchId(9)), None);
        assert_eq!(watches.remove("/a", WatchId(1)), None);
        assert_eq!(watches.remove("/a", WatchId(1)), None);
        assert_eq!(watches.remove("/a", WatchId(2)), Some(WatchKind::DATA));
        assert_eq!(watches.remove("/a", WatchId(3)), Some(WatchKind::CHILDREN));
        assert!(watches.is_empty());
    }

    #[test]
    fn a_watch_for_a_missing_node_is_set_again_as_such() {
        let mut watches = Watches::default();
        watches.add("/a".to_owned(), Kind::Data, watch(1).0);
        watches.awaits_creation("/a", WatchId(1));
        watches.add("/b".to_owned(), Kind::Data, watch(2).0);
        watches.add("/c".to_owned(), Kind::Children, watch(3).0);
        let lists = watches.lists(77);
        let expected = WatchLists {
            since_zxid: 77,
            data: vec!["/b".to_owned()],
            exists: vec!["/a".to_owned()],
            children: vec!["/c".to_owned()],
            ..WatchLists::default()
        };
        assert_eq!(lists, [expected]);
    }

    #[test]
    fn many_watches_are_set_again_in_several_frames() {
        let mut watches = Watches::default();
        assert_eq!(watches.lists(1), []);
        let path = |i: usize| format!("/{i:0>999}");
        for i in 0..300 {
            watches.add(path(i), Kind::Data, watch(1).0);
        }
        let lists = watches.lists(1);
        assert_eq!(lists.len(), 3);
        assert!(lists.iter().all(|list| list.since_zxid == 1));
        assert_eq!(lists.iter().map(|list| list.data.len()).sum::<usize>(), 300);
    }
}
