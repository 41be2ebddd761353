//! The watches that are set, and where their events go.
//!
//! The server keeps one watch for a path and a kind, however many threads of this client set it, and its
//! event is for all of them. A watch is entered when its request is sent, so that an event right behind the
//! reply finds it. It is removed if the reply says that the server did not set it.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

use zklock_jute::{EventKind, Request, WatchKind, WatchLists};

/// The longest part of a setWatches frame: well below the limit of any server.
const PART_BYTES: usize = 128 * 1024;

/// The kind of event that a watch waits for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// A change of the node, or its deletion.
    Data,
    /// The creation of the node.
    Exists,
    /// A change of the list of children, or the deletion of the node.
    Children,
}

const KINDS: [Kind; 3] = [Kind::Data, Kind::Exists, Kind::Children];

/// The watches by their paths, each with its kind, its number and what its user adds.
#[derive(Debug)]
pub struct Watches<W>(BTreeMap<String, Vec<(Kind, u64, W)>>);

impl<W> Default for Watches<W> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl Kind {
    /// Returns the kind of watch that a request sets.
    pub(super) fn of(request: &Request) -> Option<Self> {
        match request {
            Request::GetData { .. } | Request::Exists { .. } => Some(Self::Data),
            Request::GetChildren { .. } => Some(Self::Children),
            _ => None,
        }
    }

    /// Returns the kind of the server's watch. To the server, a watch set by `exists` is one on the data.
    fn at_the_server(self) -> i32 {
        match self {
            Self::Data | Self::Exists => WatchKind::DATA,
            Self::Children => WatchKind::CHILDREN,
        }
    }

    fn is_fired_by(self, event: EventKind) -> bool {
        match event {
            EventKind::Deleted => true,
            EventKind::Created | EventKind::DataChanged => self != Self::Children,
            EventKind::ChildrenChanged => self == Self::Children,
            EventKind::None | EventKind::Other(_) => false,
        }
    }

    fn list(self, lists: &mut WatchLists) -> &mut Vec<String> {
        match self {
            Self::Data => &mut lists.data,
            Self::Exists => &mut lists.exists,
            Self::Children => &mut lists.children,
        }
    }
}

impl<W> Watches<W> {
    /// Returns whether there are no watches.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns how many watches there are, several on one node included.
    pub fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    /// Enters the watch with this number, in place of one with the same number and kind.
    pub fn add(&mut self, path: String, kind: Kind, id: u64, watch: W) {
        let watches = self.0.entry(path).or_default();
        watches.retain(|(other, number, _)| (*other, *number) != (kind, id));
        watches.push((kind, id, watch));
    }

    /// Notes that the node does not exist: the watch that `exists` set waits for its creation.
    pub fn awaits_creation(&mut self, path: &str, id: u64) {
        let mut watches = self.0.get_mut(path).into_iter().flatten();
        let is_it = |(kind, other, _): &&mut (Kind, u64, W)| (*kind, *other) == (Kind::Data, id);
        if let Some((kind, ..)) = watches.find(is_it) {
            *kind = Kind::Exists;
        }
    }

    /// Forgets a watch, first one on the children. Returns the kind of the server's watch if no other needs it.
    pub fn remove(&mut self, path: &str, id: u64) -> Option<i32> {
        let watches = self.0.get_mut(path)?;
        let numbered = watches.iter().filter(|(_, other, _)| *other == id);
        let gone = numbered.map(|(kind, ..)| kind.at_the_server()).min()?;
        watches.retain(|(kind, other, _)| *other != id || kind.at_the_server() != gone);
        let is_needed = watches
            .iter()
            .any(|(kind, ..)| kind.at_the_server() == gone);
        if watches.is_empty() {
            self.0.remove(path);
        }
        (!is_needed).then_some(gone)
    }

    /// Takes out the watches that this event fires.
    pub fn fire(&mut self, path: &str, event: EventKind) -> Vec<W> {
        let Some(watches) = self.0.get_mut(path) else {
            return Vec::new();
        };
        let all = mem::take(watches).into_iter();
        let (fired, left): (Vec<_>, _) = all.partition(|(kind, ..)| kind.is_fired_by(event));
        match left.is_empty() {
            true => drop(self.0.remove(path)),
            false => *watches = left,
        }
        fired.into_iter().map(|(.., watch)| watch).collect()
    }

    /// Forgets all watches, because the session has ended.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns those of these watches that are still set: neither removed nor fired.
    pub fn still_set(&self, mut lists: WatchLists) -> WatchLists {
        for kind in KINDS {
            kind.list(&mut lists).retain(|path| self.has(path, kind));
        }
        lists
    }

    /// Returns the requests that set all watches again, each short enough for one frame below a chroot that adds this
    /// many bytes to each path.
    pub fn lists(&self, since_zxid: i64, root: usize) -> Vec<WatchLists> {
        let (mut parts, mut used) = (Vec::new(), PART_BYTES);
        for path in self.0.keys() {
            for kind in KINDS.into_iter().filter(|kind| self.has(path, *kind)) {
                let bytes = 4 + root + path.len();
                if PART_BYTES < used + bytes {
                    used = 0;
                    parts.push(WatchLists {
                        since_zxid,
                        ..WatchLists::default()
                    });
                }
                used += bytes;
                let part = parts.last_mut().map(|part| kind.list(part));
                part.into_iter().for_each(|list| list.push(path.clone()));
            }
        }
        parts
    }

    fn has(&self, path: &str, kind: Kind) -> bool {
        let mut watches = self.0.get(path).into_iter().flatten();
        watches.any(|(other, ..)| *other == kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            watches.add("/a".to_owned(), kind, 1, "me");
            assert!(watches.fire("/b", event).is_empty());
            let expected = if hears { vec!["me"] } else { vec![] };
            assert_eq!(watches.fire("/a", event), expected, "{kind:?} {event:?}");
            assert_eq!(watches.is_empty(), hears, "{kind:?} {event:?}");
        }
    }

    #[test]
    fn one_event_goes_to_all_and_only_once() {
        let mut watches = Watches::default();
        watches.add("/a".to_owned(), Kind::Data, 1, "a");
        watches.add("/a".to_owned(), Kind::Data, 2, "b");
        assert_eq!(watches.fire("/a", EventKind::Deleted), ["a", "b"]);
        assert!(watches.fire("/a", EventKind::Deleted).is_empty());
    }

    #[test]
    fn a_watch_that_is_set_again_under_its_number_is_kept_once() {
        let mut watches = Watches::default();
        for word in ["before", "again"] {
            watches.add("/a".to_owned(), Kind::Data, 1, word);
            watches.add("/a".to_owned(), Kind::Children, 1, word);
        }
        assert_eq!(watches.len(), 2);
        assert_eq!(watches.fire("/a", EventKind::DataChanged), ["again"]);
    }

    #[test]
    fn the_server_forgets_a_watch_when_the_last_local_one_goes() {
        let mut watches = Watches::default();
        for (id, kind) in [(1, Kind::Data), (2, Kind::Exists), (3, Kind::Children)] {
            watches.add("/a".to_owned(), kind, id, ());
        }
        assert_eq!(watches.remove("/a", 9), None);
        assert_eq!(watches.remove("/a", 1), None);
        assert_eq!(watches.remove("/a", 1), None);
        assert_eq!(watches.remove("/a", 2), Some(WatchKind::DATA));
        assert_eq!(watches.remove("/a", 3), Some(WatchKind::CHILDREN));
        assert!(watches.is_empty());
    }

    #[test]
    fn a_watch_for_a_missing_node_is_set_again_as_such() {
        let mut watches = Watches::default();
        watches.add("/a".to_owned(), Kind::Data, 1, ());
        watches.awaits_creation("/a", 1);
        watches.add("/b".to_owned(), Kind::Data, 2, ());
        watches.add("/c".to_owned(), Kind::Children, 3, ());
        let lists = watches.lists(77, 0);
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
    fn watches_that_are_gone_by_now_are_not_set_again() {
        let mut watches = Watches::default();
        for path in ["/a", "/b", "/c"] {
            watches.add(path.to_owned(), Kind::Data, 1, ());
            watches.add(path.to_owned(), Kind::Children, 2, ());
        }
        watches.add("/d".to_owned(), Kind::Exists, 3, ());
        let lists = watches.lists(77, 0).remove(0);
        assert_eq!(watches.still_set(lists.clone()), lists);
        watches.remove("/a", 1);
        watches.fire("/b", EventKind::ChildrenChanged);
        watches.fire("/c", EventKind::Deleted);
        watches.fire("/d", EventKind::Created);
        // This one is of a request of its own.
        watches.add("/d".to_owned(), Kind::Data, 4, ());
        let left = WatchLists {
            data: vec!["/b".to_owned()],
            exists: Vec::new(),
            children: vec!["/a".to_owned()],
            ..lists.clone()
        };
        assert_eq!(watches.still_set(lists), left);
    }

    #[test]
    fn many_watches_are_set_again_in_several_frames() {
        assert_eq!(Watches::<()>::default().lists(1, 9), []);
        for root in [0, 900] {
            let mut watches = Watches::default();
            for i in 0..300 {
                let path = format!("/{i:0>width$}", width = 999 - root);
                watches.add(path, Kind::Data, 1, ());
            }
            let lists = watches.lists(1, root);
            assert_eq!(lists.len(), 3, "{root}");
            assert!(lists.iter().all(|list| list.since_zxid == 1));
            assert_eq!(lists.iter().map(|list| list.data.len()).sum::<usize>(), 300);
        }
    }
}
