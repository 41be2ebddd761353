//! The leases of all locks that a client holds.
//!
//! Guards register from their threads; the heartbeat renews the leases on the background
//! thread.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};
use std::time::Duration;

use crate::recipe::validity::Stamp;
use crate::session::lease::Lease;
use crate::system::channel::Sender;
use crate::system::sync::Mutex;
use crate::time::clock::Moment;
use crate::transport::WatchId;

/// A lock that is held for less than this gets no watch.
pub(super) const WATCH_AFTER: Duration = Duration::from_millis(50);

/// See the module's documentation.
pub(crate) struct Leases {
    pub(super) open: Mutex<BTreeMap<u64, OpenLease>>,
    pub(super) next: AtomicU64,
    /// When the background thread looks next; a lease that is due later need not wake it.
    pub(super) next_look: AtomicU64,
    wake: Sender<()>,
}

pub(super) struct OpenLease {
    pub(super) lease: Arc<Lease>,
    pub(super) since: Moment,
    /// When the quorum was last asked about it.
    pub(super) asked: Duration,
    pub(super) watch: Option<WatchId>,
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
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let since = Moment::now();
        // A lock may be granted on a proof that is not the youngest, and a short session leaves
        // little time for the next one.
        let steady = lease.steady_for().unwrap_or(Duration::MAX);
        let look = WATCH_AFTER.min(steady / 2);
        let entry = OpenLease {
            lease,
            since,
            asked: Duration::ZERO,
            watch: None,
            thread: Some(thread::current().id()),
        };
        self.open.lock().insert(id, entry);
        if (since + look).as_nanos() < self.next_look.load(Ordering::Acquire) {
            let _ = self.wake.try_send(());
        }
        id
    }

    /// Passes a lease on to another guard, if the lock is held and no revoke is requested.
    pub(crate) fn succeed(&self, id: u64) -> Option<Arc<Lease>> {
        let mut open = self.open.lock();
        let entry = open.get_mut(&id)?;
        // Checks that are under way for the old lease confirm the new one.
        let next = Arc::new(entry.lease.succeed()?);
        entry.lease = next.clone();
        entry.thread = None;
        Some(next)
    }

    /// Says whether the guard is the calling thread's, or may change threads.
    pub(crate) fn belongs(&self, id: u64, to_this_thread: bool) {
        if let Some(entry) = self.open.lock().get_mut(&id) {
            entry.thread = to_this_thread.then(|| thread::current().id());
        }
    }

    /// The nodes of the guards that the calling thread has.
    pub(crate) fn of_this_thread(&self) -> Vec<String> {
        let me = Some(thread::current().id());
        let open = self.open.lock();
        let mine = open.values().filter(|entry| entry.thread == me);
        mine.flat_map(|entry| entry.lease.nodes().to_vec())
            .collect()
    }

    /// Ends a lease.
    pub(crate) fn end(&self, id: u64) {
        self.open.lock().remove(&id);
    }

    pub(super) fn all(&self) -> Vec<(u64, Arc<Lease>)> {
        let open = self.open.lock();
        open.iter()
            .map(|(id, entry)| (*id, entry.lease.clone()))
            .collect()
    }

    /// The last proof of each lock that is not lost, and when the quorum was last asked.
    pub(super) fn proofs(&self) -> Vec<(Stamp, Duration)> {
        let open = self.open.lock();
        open.values()
            .filter_map(|entry| Some((entry.lease.stamp()?, entry.asked)))
            .collect()
    }

    /// Notes that the quorum is asked about all of them.
    pub(super) fn asked(&self, now: Duration) {
        for entry in self.open.lock().values_mut() {
            entry.asked = now;
        }
    }

    pub(super) fn any_unwatched(&self) -> bool {
        let open = self.open.lock();
        open.values().any(|entry| entry.watch.is_none())
    }

    pub(super) fn get(&self, id: u64) -> Option<Arc<Lease>> {
        self.open.lock().get(&id).map(|entry| entry.lease.clone())
    }
}

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leases")
            .field("open", &self.open.lock().len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::validity::Lifetime;
    use crate::system::channel::bounded;
    use crate::transport::session_validity::SessionValidity;

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
