//! The leases of all locks that a client holds.
//!
//! Guards register from their threads; the heartbeat renews the leases on the background
//! thread.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};
use std::time::Duration;

use crate::path::parent;
use crate::session::lease::Lease;
use crate::system::channel::Sender;
use crate::system::sync::Mutex;
use crate::time::clock::Moment;
use crate::transport::WatchId;

/// A lock that is held for less than this gets no watch.
pub(super) const WATCH_AFTER: Duration = Duration::from_millis(50);

/// See the module's documentation.
pub(crate) struct Leases {
    open: Mutex<Open>,
    /// How many have begun, and so the next one's number.
    pub(super) next: AtomicU64,
    /// When the background thread looks next; a lease that is due later need not wake it.
    pub(super) next_look: AtomicU64,
    wake: Sender<()>,
}

/// The leases by their numbers. What concerns one of them finds it without a look at the others.
#[derive(Default)]
struct Open {
    leases: BTreeMap<u64, OpenLease>,
    /// When to look at which of them; one that has changed is due at [`AT_ONCE`].
    looks: BTreeSet<(Duration, u64)>,
    /// When the quorum was last asked about which of them, the longest ago first.
    asks: BTreeSet<(Duration, u64)>,
    unwatched: BTreeSet<u64>,
    watched: HashMap<WatchId, u64>,
}

/// The next look, whenever it comes.
const AT_ONCE: Duration = Duration::ZERO;

/// A lease to look at.
pub(super) struct Due {
    pub(super) id: u64,
    pub(super) lease: Arc<Lease>,
    /// When the quorum was last asked about it.
    pub(super) asked: Duration,
}

struct OpenLease {
    lease: Arc<Lease>,
    since: Moment,
    /// When the quorum was last asked about it: at first, for its grant.
    asked: Duration,
    /// When to look at it.
    look: Option<Duration>,
    watch: Option<WatchId>,
    /// The thread that has the guard; `None` if the guard may change threads.
    thread: Option<ThreadId>,
}

impl Leases {
    pub(crate) fn new(wake: Sender<()>) -> Self {
        Self {
            open: Mutex::default(),
            next: AtomicU64::new(0),
            next_look: AtomicU64::new(u64::MAX),
            wake,
        }
    }

    /// Registers a lease; returns the id to end it with.
    pub(crate) fn begin(&self, lease: Arc<Lease>) -> u64 {
        let since = Moment::now();
        // A lock may be granted on a proof that is not the youngest, and a short session leaves
        // little time for the next one.
        let steady = lease.steady_for().unwrap_or(Duration::MAX);
        let look = WATCH_AFTER.min(steady / 2);
        let asked = lease.stamp().map_or(Duration::ZERO, |stamp| stamp.sent);
        let entry = OpenLease {
            lease,
            since,
            asked,
            look: Some(AT_ONCE),
            watch: None,
            thread: Some(thread::current().id()),
        };
        let mut open = self.open.lock();
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        open.leases.insert(id, entry);
        open.looks.insert((AT_ONCE, id));
        open.asks.insert((asked, id));
        open.unwatched.insert(id);
        drop(open);
        if (since + look).as_nanos() < self.next_look.load(Ordering::Acquire) {
            let _ = self.wake.try_send(());
        }
        id
    }

    /// Passes a lease on to another guard, if the lock is held and no revoke is requested.
    pub(crate) fn succeed(&self, id: u64) -> Option<Arc<Lease>> {
        let mut open = self.open.lock();
        let entry = open.leases.get_mut(&id)?;
        // Checks that are under way for the old lease confirm the new one.
        let next = Arc::new(entry.lease.succeed()?);
        entry.lease = next.clone();
        entry.thread = None;
        Some(next)
    }

    /// Says whether the guard is the calling thread's, or may change threads.
    pub(crate) fn belongs(&self, id: u64, to_this_thread: bool) {
        if let Some(entry) = self.open.lock().leases.get_mut(&id) {
            entry.thread = to_this_thread.then(|| thread::current().id());
        }
    }

    /// The nodes of the guards that the calling thread has.
    pub(crate) fn of_this_thread(&self) -> Vec<String> {
        let me = Some(thread::current().id());
        let open = self.open.lock();
        let mine = open.leases.values().filter(|entry| entry.thread == me);
        mine.flat_map(|entry| entry.lease.nodes().to_vec())
            .collect()
    }

    /// Whether a guard of this client holds the lock at `path`, or one of its permits.
    pub(crate) fn is_held(&self, path: &str) -> bool {
        let open = self.open.lock();
        let mut leases = open.leases.values().map(|entry| &entry.lease);
        let here = |lease: &Lease| lease.nodes().iter().any(|node| parent(node) == path);
        leases.any(|lease| here(lease) && lease.check().is_ok())
    }

    /// Has a lease looked at again, which may last shorter than was known.
    pub(crate) fn look_again(&self, id: u64) {
        self.look_at(id, Some(AT_ONCE));
        let _ = self.wake.try_send(());
    }

    /// Ends a lease.
    pub(crate) fn end(&self, id: u64) {
        let mut open = self.open.lock();
        open.unwatched.remove(&id);
        let Some(entry) = open.leases.remove(&id) else {
            return;
        };
        if let Some(look) = entry.look {
            open.looks.remove(&(look, id));
        }
        open.asks.remove(&(entry.asked, id));
        if let Some(watch) = entry.watch {
            open.watched.remove(&watch);
        }
    }

    /// Takes the leases to look at by now; each waits for a [`look_at`](Self::look_at) then.
    pub(super) fn take_due(&self, now: Duration) -> Vec<Due> {
        let mut open = self.open.lock();
        let later = open.looks.split_off(&(now, u64::MAX));
        let due = mem::replace(&mut open.looks, later);
        let mut taken = Vec::with_capacity(due.len());
        for (_, id) in due {
            if let Some(entry) = open.leases.get_mut(&id) {
                entry.look = None;
                taken.push(entry.due(id));
            }
        }
        taken
    }

    /// Has the lease looked at then.
    pub(super) fn look_at(&self, id: u64, time: Option<Duration>) {
        self.open.lock().look_at(id, time);
    }

    /// Has all leases looked at when the next look comes.
    pub(super) fn look_at_all(&self) {
        let mut open = self.open.lock();
        let Open { leases, looks, .. } = &mut *open;
        *looks = leases.keys().map(|id| (AT_ONCE, *id)).collect();
        for entry in leases.values_mut() {
            entry.look = Some(AT_ONCE);
        }
    }

    /// Has these looked at when the next look comes.
    pub(super) fn look_at_these(&self, ids: &[u64]) {
        let mut open = self.open.lock();
        for id in ids {
            open.look_at(*id, Some(AT_ONCE));
        }
    }

    /// When the next look is due; those that have begun meanwhile wake the background thread.
    pub(super) fn next_due(&self) -> Option<Duration> {
        let open = self.open.lock();
        let later = open.looks.range((AT_ONCE, u64::MAX)..);
        later.map(|(time, _)| *time).next()
    }

    /// Notes that the quorum is asked about these, and about those it was asked about the longest
    /// ago, up to so many together; returns those that are not lost.
    pub(super) fn ask(&self, these: &[u64], most: usize, now: Duration) -> Vec<(u64, Arc<Lease>)> {
        let mut open = self.open.lock();
        let mut asked = Vec::with_capacity(most.min(open.leases.len()));
        for id in these {
            asked.extend(open.ask(*id, now));
        }
        while asked.len() < most {
            let oldest = open.asks.first().filter(|(before, _)| *before < now);
            let Some((_, id)) = oldest.copied() else {
                break;
            };
            asked.extend(open.ask(id, now));
        }
        asked
    }

    /// When the quorum was last asked about it.
    pub(super) fn asked(&self, id: u64) -> Duration {
        let open = self.open.lock();
        open.leases
            .get(&id)
            .map_or(Duration::ZERO, |entry| entry.asked)
    }

    pub(crate) fn len(&self) -> usize {
        self.open.lock().leases.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.lock().leases.is_empty()
    }

    pub(super) fn any_unwatched(&self) -> bool {
        !self.open.lock().unwatched.is_empty()
    }

    /// Gives each lock that has no watch, and is held for longer than [`WATCH_AFTER`], the watch
    /// that `next` returns.
    pub(super) fn watch_long_holds(
        &self,
        now: Moment,
        next: impl Fn() -> WatchId,
    ) -> Vec<(u64, Arc<Lease>, WatchId)> {
        let mut open = self.open.lock();
        let Open {
            leases,
            unwatched,
            watched,
            ..
        } = &mut *open;
        let mut given = Vec::new();
        unwatched.retain(|id| {
            let due = |entry: &&mut OpenLease| entry.since + WATCH_AFTER <= now;
            let Some(entry) = leases.get_mut(id).filter(due) else {
                return true;
            };
            let watch = next();
            entry.watch = Some(watch);
            watched.insert(watch, *id);
            given.push((*id, entry.lease.clone(), watch));
            false
        });
        given
    }

    /// Notes that the lock has no watch any more.
    pub(crate) fn unwatch(&self, id: u64) {
        let mut open = self.open.lock();
        let Some(entry) = open.leases.get_mut(&id) else {
            return;
        };
        if let Some(watch) = entry.watch.take() {
            open.watched.remove(&watch);
        }
        open.unwatched.insert(id);
    }

    /// The lock that has this watch.
    pub(super) fn watched_by(&self, watch: WatchId) -> Option<(u64, Arc<Lease>)> {
        let open = self.open.lock();
        let id = *open.watched.get(&watch)?;
        Some((id, open.leases.get(&id)?.lease.clone()))
    }

    pub(super) fn get(&self, id: u64) -> Option<Arc<Lease>> {
        let open = self.open.lock();
        open.leases.get(&id).map(|entry| entry.lease.clone())
    }
}

impl Open {
    /// Notes that the quorum is asked about it; returns it unless it is lost.
    fn ask(&mut self, id: u64, now: Duration) -> Option<(u64, Arc<Lease>)> {
        let entry = self.leases.get_mut(&id)?;
        self.asks.remove(&(entry.asked, id));
        entry.asked = now;
        self.asks.insert((now, id));
        entry
            .lease
            .stamp()
            .is_some()
            .then(|| (id, entry.lease.clone()))
    }

    fn look_at(&mut self, id: u64, time: Option<Duration>) {
        let Some(entry) = self.leases.get_mut(&id) else {
            return;
        };
        if let Some(before) = mem::replace(&mut entry.look, time) {
            self.looks.remove(&(before, id));
        }
        self.looks.extend(time.map(|time| (time, id)));
    }
}

impl OpenLease {
    fn due(&self, id: u64) -> Due {
        Due {
            id,
            lease: self.lease.clone(),
            asked: self.asked,
        }
    }
}

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leases")
            .field("open", &self.open.lock().leases.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::channel::bounded;
    use crate::transport::session_validity::SessionValidity;
    use zklock_core::lifetime::Lifetime;
    use zklock_core::validity::Stamp;

    /// In a session of 300 ms, a lock that is granted on a proof of 40 ms ago is suspect before the
    /// background thread's next look. The simulation's seed 200167049 plays this.
    #[test]
    fn a_lease_that_begins_on_an_old_proof_wakes_the_background_thread_in_a_short_session() {
        const SHORT: Duration = Duration::from_millis(300);
        for (age, wakes) in [(40, true), (0, false)] {
            let (wake, woken) = bounded(1);
            let leases = Leases::new(wake);
            let now = Moment::now();
            let next = now + Duration::from_millis(45);
            leases.next_look.store(next.as_nanos(), Ordering::Release);
            let sent = now.since_boot().saturating_sub(Duration::from_millis(age));
            let touched = sent.saturating_sub(SHORT / 100);
            let bounds =
                SessionValidity::new(&Lifetime::new(SHORT, Duration::ZERO, Duration::ZERO));
            let nodes = vec!["/m/n".to_owned()];
            let lease = Lease::new("/m", nodes, 1, bounds, Stamp { sent, touched });
            leases.begin(Arc::new(lease));
            assert_eq!(woken.try_recv().is_ok(), wakes, "after {age} ms");
        }
    }
}
