//! Which watcher serves which watch, and what its event tells.

use std::sync::Arc;

use zookeeper::{KeeperState, WatchedEvent, WatchedEventType};

use super::{Kind, Watches};
use crate::system::channel::{Receiver, unbounded};
use crate::transport::{Fired, Watch, WatchId};
use zklock_jute::EventKind;

const PATH: &str = "/lock/holder";

impl Watches {
    /// Returns how many watchers the crate has.
    pub(in crate::transport::zookeeper_crate) fn watchers(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }
}

fn watch(id: u64) -> (Watch, Receiver<Fired>) {
    let (to, fired) = unbounded();
    (Watch::new(WatchId(id), to), fired)
}

fn deleted() -> WatchedEvent {
    WatchedEvent {
        event_type: WatchedEventType::NodeDeleted,
        keeper_state: KeeperState::SyncConnected,
        path: Some(PATH.to_owned()),
    }
}

/// Sets a watcher, whose request is answered; returns it, and where its first event goes.
fn set(watches: &Watches, stands: bool) -> (impl Fn(WatchedEvent), Receiver<Fired>) {
    let (first, fired) = watch(1);
    let (number, watcher) = watches.add((PATH, Kind::Data), first);
    watches.answered(PATH, number, stands);
    (watcher, fired)
}

/// Joins the watcher that stands; returns `None` if none stands.
fn join(watches: &Watches, id: u64) -> Option<Receiver<Fired>> {
    let (next, fired) = watch(id);
    watches.join((PATH, Kind::Data), next).ok().map(|()| fired)
}

fn kind(fired: &Receiver<Fired>) -> Option<EventKind> {
    fired.try_recv().ok().map(|fired| fired.kind)
}

#[test]
fn one_watcher_serves_all_and_tells_who_has_joined_it_to_look_again() {
    let watches = Watches::default();
    let (fire, first) = set(&watches, true);
    let second = join(&watches, 2).expect("it stands");
    let gone = join(&watches, 3).expect("it stands");
    watches.remove(PATH, WatchId(3));
    assert_eq!(watches.watchers(), 1);
    fire(deleted());
    assert_eq!(kind(&first), Some(EventKind::Deleted));
    assert_eq!(kind(&second), Some(EventKind::None));
    assert_eq!(kind(&gone), None);
    assert!(join(&watches, 4).is_none(), "it has fired");
    assert!(watches.0.lock().nodes.is_empty());
}

#[test]
fn a_watcher_that_the_crate_may_not_have_serves_nobody_else() {
    let watches = Watches::default();
    let (first, _first) = watch(1);
    let (number, fire) = watches.add((PATH, Kind::Data), first);
    assert!(join(&watches, 2).is_none(), "not answered");
    fire(deleted());
    watches.answered(PATH, number, true);
    assert!(join(&watches, 3).is_none(), "it has fired");
    let _failed = set(&watches, false);
    assert!(join(&watches, 4).is_none(), "not set");
    let _set = set(&watches, true);
    let (other, _other) = watch(5);
    let is_another = watches.join((PATH, Kind::Exists), other).is_err();
    assert!(is_another, "its event would tell less");
}

/// What was watched through an earlier connection may have gone without an event.
#[test]
fn of_earlier_connections_only_who_waits_is_remembered() {
    let watches = Watches::default();
    let (first, _first) = watch(1);
    let (number, _fire) = watches.add((PATH, Kind::Data), first);
    watches.begin();
    watches.answered(PATH, number, true);
    assert!(join(&watches, 2).is_none(), "of before");
    let (fire, waits) = set(&watches, true);
    watches.begin();
    fire(deleted());
    assert_eq!(kind(&waits), Some(EventKind::Deleted));
    watches.remove(PATH, WatchId(1));
    assert!(watches.0.lock().nodes.is_empty());
}

/// Two calls may set one at the same time. Each event goes to those that its watcher serves.
#[test]
fn of_two_watchers_each_fires_for_its_own() {
    let watches = Watches::default();
    let (fire_first, first) = set(&watches, true);
    let (fire_second, second) = set(&watches, true);
    fire_first(deleted());
    assert_eq!(
        (kind(&first), kind(&second)),
        (Some(EventKind::Deleted), None)
    );
    fire_second(deleted());
    assert_eq!(kind(&second), Some(EventKind::Deleted));
}
