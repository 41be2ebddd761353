//! The leases of all locks that a client holds.
//!
//! Guards register from their threads, and the heartbeat renews the leases on the background
//! thread. [`Renewals`] decides what is due, and when.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::path::parent;
use crate::session::lease::Lease;
use crate::system::channel::Sender;
use crate::system::clock;
use crate::system::sync::{Mutex, MutexGuard};
use crate::time::clock::nanos;
use crate::transport::{Transport, WatchId};
use zklock_core::renewals::{Renewals, WATCH_AFTER};

/// See the module's documentation.
pub(crate) struct Leases {
    open: Arc<Mutex<Renewals<Arc<Lease>>>>,
    transport: Arc<dyn Transport>,
    /// When the background thread looks next; a lease that is due later need not wake it.
    next_look: AtomicU64,
    next_watch: AtomicU64,
    wake: Sender<()>,
}

impl Leases {
    pub(crate) fn new(transport: Arc<dyn Transport>, wake: Sender<()>) -> Self {
        Self {
            open: Arc::default(),
            transport,
            next_look: AtomicU64::new(u64::MAX),
            next_watch: AtomicU64::new(0),
            wake,
        }
    }

    /// Registers a lease; returns the id to end it with.
    pub(crate) fn begin(&self, lease: Arc<Lease>) -> u64 {
        let since = clock::since_boot();
        // The proof behind a grant need not be the latest one, and a short session leaves little
        // time for the next proof.
        let steady = lease.steady_for().unwrap_or(Duration::MAX);
        let look = WATCH_AFTER.min(steady / 2);
        let asked = lease.stamp().map_or(Duration::ZERO, |stamp| stamp.sent);
        lease.belongs(true);
        let id = self.open.lock().begin(lease, asked, since);
        if nanos(since + look) < self.next_look.load(Ordering::Acquire) {
            self.wake(look);
        }
        id
    }

    /// Makes the background thread look, which takes a wake-up. If there is time, a lock that is
    /// released within a moment causes no wake-up.
    fn wake(&self, look: Duration) {
        if look < WATCH_AFTER {
            let _ = self.wake.try_send(());
            return;
        }
        let (open, wake) = (self.open.clone(), self.wake.clone());
        self.transport.soon(Box::new(move || {
            if !open.lock().is_empty() {
                let _ = wake.try_send(());
            }
        }));
    }

    /// Passes a lease on to another guard, if the lock is held and no revoke is requested.
    pub(crate) fn succeed(&self, id: u64) -> Option<Arc<Lease>> {
        let mut open = self.open.lock();
        let lease = open.get(id)?;
        // Checks in progress for the old lease confirm the new one.
        *lease = Arc::new(lease.succeed()?);
        Some(lease.clone())
    }

    /// Returns the nodes of the guards that the calling thread has.
    pub(crate) fn of_this_thread(&self) -> Vec<String> {
        let open = self.open.lock();
        let mine = open.iter().filter(|lease| lease.is_of_this_thread());
        mine.flat_map(|lease| lease.nodes().to_vec()).collect()
    }

    /// Returns whether a guard of this client holds the lock at `path`, or one of its permits.
    pub(crate) fn is_held(&self, path: &str) -> bool {
        let open = self.open.lock();
        let here = |lease: &Lease| lease.nodes().iter().any(|node| parent(node) == path);
        open.iter()
            .any(|lease| here(lease) && lease.check().is_ok())
    }

    /// Makes the background thread look at a lease again, which may end sooner than was known.
    pub(crate) fn look_again(&self, id: u64) {
        self.open.lock().look_at_these(&[id]);
        let _ = self.wake.try_send(());
    }

    pub(crate) fn end(&self, id: u64) {
        self.open.lock().end(id);
    }

    /// Returns the number of guards.
    pub(crate) fn len(&self) -> usize {
        let open = self.open.lock();
        open.iter().filter(|lease| !lease.waits()).count()
    }

    /// Notes that the lock is no longer watched.
    pub(crate) fn unwatch(&self, id: u64) {
        self.open.lock().unwatch(id);
    }

    /// Returns the renewals, which decide what the background thread does.
    pub(super) fn renewals(&self) -> MutexGuard<'_, Renewals<Arc<Lease>>> {
        self.open.lock()
    }

    /// Returns the number of a watch that nobody has had.
    pub(crate) fn next_watch(&self) -> WatchId {
        WatchId(self.next_watch.fetch_add(1, Ordering::Relaxed))
    }

    /// Notes when the background thread looks next; before it looks, every registration wakes it.
    pub(super) fn next_look(&self, at: Option<Duration>) {
        let at = at.map_or(u64::MAX, nanos);
        self.next_look.store(at, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::channel::bounded;
    use crate::transport::native;
    use crate::transport::session_state::SessionValidity;
    use crate::transport::status::Status;
    use zklock_core::lifetime::Lifetime;
    use zklock_core::validity::Stamp;

    /// In a session of 300 ms, a lock that is granted on a proof of 40 ms ago is suspect before the
    /// background thread's next look. The simulation's seed 200167049 plays this.
    #[test]
    fn a_lease_that_begins_on_an_old_proof_wakes_the_background_thread_in_a_short_session() {
        const SHORT: Duration = Duration::from_millis(300);
        for (age, wakes) in [(40, true), (0, false)] {
            let (wake, woken) = bounded(1);
            let config = native::Config::plain("127.0.0.1:1", SHORT);
            let transport = native::open(config, Arc::new(Status::new(SHORT, true))).unwrap();
            let leases = Leases::new(transport, wake);
            let now = clock::since_boot();
            let next = now + Duration::from_millis(45);
            leases.next_look(Some(next));
            let sent = now.saturating_sub(Duration::from_millis(age));
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
