//! The leases of all locks that a client holds.
//!
//! Guards register from their threads. While there is a guard, the background thread asks the quorum every
//! eighth of the session timeout, once for all guards, and renews their leases with the answer. [`Renewals`]
//! decides what is due, and when.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::LostReason;
use crate::metrics::Counters;
use crate::path::parent;
use crate::session::lease::Lease;
use crate::system::channel::{Receiver, Sender, Waitable, unbounded};
use crate::system::clock;
use crate::system::sync::Mutex;
use crate::time::nanos;
use crate::transport::session_state::SessionState;
use crate::transport::status::Status;
use crate::transport::{Call, Fired, Transport, Watch, WatchId, gather};
use zklock_core::renewals::{self, Check, Look, Renewals, Trust, Verdict, WATCH_AFTER};
use zklock_core::validity::Stamp;
use zklock_jute::Request;

/// How many messages of a kind are handled before the next look at what is due.
const AT_ONCE: usize = 1_000;

/// See the module's documentation.
pub(crate) struct Leases {
    open: Arc<Mutex<Renewals<Arc<Lease>>>>,
    status: Arc<Status>,
    transport: Arc<dyn Transport>,
    counters: Arc<Counters>,
    /// When the background thread looks next; a lease that is due later need not wake it.
    next_look: AtomicU64,
    next_watch: AtomicU64,
    wake: Sender<()>,
    fired: Channel<Fired>,
    said: Channel<Said>,
}

/// Both ends of a channel.
type Channel<T> = (Sender<T>, Receiver<T>);
/// What an answer says about locks; it makes the background thread look, even if that is nothing.
type Said = Vec<(u64, Verdict)>;

impl Leases {
    pub(crate) fn new(
        status: Arc<Status>,
        transport: Arc<dyn Transport>,
        counters: Arc<Counters>,
        wake: Sender<()>,
    ) -> Self {
        Self {
            open: Arc::default(),
            status,
            transport,
            counters,
            next_look: AtomicU64::new(u64::MAX),
            next_watch: AtomicU64::new(0),
            wake,
            fired: unbounded(),
            said: unbounded(),
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
        open.iter().filter(|lease| !lease.waits).count()
    }

    /// Notes that the lock is no longer watched.
    pub(crate) fn unwatch(&self, id: u64) {
        self.open.lock().unwatch(id);
    }

    /// Returns the number of a watch that nobody has had, and no lease has.
    pub(crate) fn next_watch(&self) -> WatchId {
        WatchId(self.next_watch.fetch_add(1, Ordering::Relaxed))
    }

    pub(super) fn look_at_all(&self) {
        self.open.lock().look_at_all();
    }

    /// Notes when the background thread looks next; before it looks, every registration wakes it.
    fn next_look(&self, at: Option<Duration>) {
        let at = at.map_or(u64::MAX, nanos);
        self.next_look.store(at, Ordering::Release);
    }

    // The methods below are for the background thread.

    /// Returns the channels that have something to drain once they are filled.
    pub(super) fn answers(&self) -> [&dyn Waitable; 2] {
        [&self.fired.1, &self.said.1]
    }

    /// Does what is due; returns how long nothing more is due. During the look, every registration wakes the
    /// background thread.
    pub(super) fn look(&self) -> Option<Duration> {
        self.next_look(None);
        let snapshot = self.status.snapshot();
        let look = Look {
            now: clock::since_boot(),
            timeout: snapshot.timeout,
            connected: snapshot.state == SessionState::Connected,
            connects: snapshot.connects,
        };
        let due = self.open.lock().take_due(look.now);
        let mut seen = Vec::with_capacity(due.len());
        for (id, lease) in due {
            lease.tell(&self.counters);
            match lease.check() {
                Ok(()) => seen.push(self.trust(id, &lease, look.now)),
                // A lost lock needs no proof. It may have been lost right after the report.
                Err(_) => lease.tell(&self.counters),
            }
        }
        let mut renewals = self.open.lock();
        let due = renewals.settle(&look, &seen);
        let pause = renewals.pause(&look);
        drop(renewals);
        self.check(due.checks);
        self.watch(due.watches);
        if let Some(pause) = pause {
            self.next_look(Some(look.now + pause));
        }
        pause
    }

    fn trust(&self, id: u64, lease: &Lease, now: Duration) -> Trust {
        let stamp = lease.stamp();
        Trust {
            id,
            stamp,
            better_at: stamp.and_then(|stamp| self.status.better_at(stamp)),
            changes_at: lease.steady_for().map(|steady| now + steady),
        }
    }

    /// Handles all messages that have arrived, so that one look serves many of them.
    pub(super) fn drain(&self) {
        for fired in self.fired.1.try_iter().take(AT_ONCE) {
            let WatchId(lease) = of_lease(fired.id.0);
            let said = self.open.lock().happened(lease, fired.kind);
            self.apply(said);
        }
        let said = self.said.1.try_iter().take(AT_ONCE);
        self.apply(said.flatten());
    }

    /// Handles what an answer or an event says about locks.
    fn apply(&self, said: impl IntoIterator<Item = (u64, Verdict)>) {
        for (id, said) in said {
            let lease = self.open.lock().get(id).cloned();
            let Some(lease) = lease else {
                continue;
            };
            match said {
                // The thread that reads has confirmed it.
                Verdict::Confirmed(_) => {}
                Verdict::Missing => lease.lose(self.status.snapshot().why_missing()),
                Verdict::Deleted => {
                    lease.lose(LostReason::NodeGone);
                    self.ask_why(id, &lease);
                }
                Verdict::RevokeRequested => lease.note_revoke_request(),
            }
            lease.tell(&self.counters);
        }
    }

    /// Asks the quorum about these leases, except for the lost ones.
    fn check(&self, leases: Vec<(u64, Arc<Lease>)>) {
        let stamp = self.status.stamp();
        let mut nodes = Vec::new();
        for (id, lease) in leases {
            // An answered ping is no proof. The chaos tests compile a client that takes it for one,
            // and must catch it.
            if cfg!(zklock_trust_pings) {
                let touched = stamp.sent;
                lease.confirm(Stamp { touched, ..stamp });
                self.open.lock().look_at_these(&[id]);
            } else if lease.stamp().is_some() {
                nodes.extend(lease.all_nodes().map(|node| (id, node.clone())));
            }
        }
        let transacts = self.transport.transacts();
        for (check, requests) in Check::of_all(nodes, stamp, transacts) {
            let requests = requests.into_iter().map(|request| (request, None));
            let (open, to) = (self.open.clone(), self.said.0.clone());
            let calls = gather(requests.collect(), move |answers| {
                let mut open = open.lock();
                let said = open.checked(&check, &answers, transacts);
                // Where other threads use up the processors, the background thread may run seconds later.
                for (id, said) in &said {
                    if let (Verdict::Confirmed(stamp), Some(lease)) = (said, open.get(*id)) {
                        lease.confirm(*stamp);
                    }
                }
                let _ = to.send(said);
            });
            self.transport.send(calls);
        }
    }

    /// Reads and watches the nodes of these leases.
    fn watch(&self, leases: Vec<(u64, Arc<Lease>)>) {
        let mut calls = Vec::new();
        for (id, lease) in leases {
            calls.extend(lease.all_nodes().map(|node| {
                let watch = Watch::new(of_lease(id), self.fired.0.clone());
                self.read(id, renewals::watch(node), Some(watch))
            }));
        }
        if !calls.is_empty() {
            self.transport.send(calls);
        }
    }

    /// Asks after a deletion whether the session is alive, or the node went with it.
    fn ask_why(&self, id: u64, lease: &Lease) {
        let calls = lease
            .all_nodes()
            .map(|node| self.read(id, renewals::ask_why(node), None));
        self.transport.send(calls.collect());
    }

    fn read(&self, id: u64, request: Request, watch: Option<Watch>) -> Call {
        let (open, to) = (self.open.clone(), self.said.0.clone());
        Call {
            request,
            watch,
            answer: Box::new(move |answered| {
                let said = open.lock().was_read(id, &answered);
                let _ = to.send(said.into_iter().collect());
            }),
        }
    }
}

/// Returns the number of the watches of a lease, or the lease that a watch with this number is of. These numbers
/// count down, those of [`Leases::next_watch`] up.
fn of_lease(number: u64) -> WatchId {
    WatchId(u64::MAX - number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::channel::bounded;
    use crate::transport::mute::Mute;
    use crate::transport::native;
    use crate::transport::session_state::SessionValidity;
    use zklock_core::lifetime::Lifetime;
    use zklock_core::validity::Stamp;
    use zklock_jute::Reply;

    /// Creates the lease of a lock that was confirmed when asked at `sent`.
    fn lease(timeout: Duration, sent: Duration) -> Arc<Lease> {
        let touched = sent.saturating_sub(timeout / 100);
        let bounds = SessionValidity::new(&Lifetime::new(timeout, Duration::ZERO, Duration::ZERO));
        let nodes = vec!["/m/n".to_owned()];
        Arc::new(Lease::new("/m", nodes, 1, bounds, Stamp { sent, touched }))
    }

    /// In a session of 300 ms, a lock that is granted on a proof of 40 ms ago is suspect before the
    /// background thread's next look. The simulation's seed 200167049 plays this.
    #[test]
    fn a_lease_that_begins_on_an_old_proof_wakes_the_background_thread_in_a_short_session() {
        const SHORT: Duration = Duration::from_millis(300);
        for (age, wakes) in [(40, true), (0, false)] {
            let (wake, woken) = bounded(1);
            let config = native::Config::plain("127.0.0.1:1", SHORT);
            let status = Arc::new(Status::new(SHORT, true));
            let transport = native::open(config, status.clone()).unwrap();
            let leases = Leases::new(status, transport, Arc::default(), wake);
            let now = clock::since_boot();
            let next = now + Duration::from_millis(45);
            leases.next_look(Some(next));
            let sent = now.saturating_sub(Duration::from_millis(age));
            leases.begin(lease(SHORT, sent));
            assert_eq!(woken.try_recv().is_ok(), wakes, "after {age} ms");
        }
    }

    #[test]
    fn an_answer_confirms_a_lock_however_late_the_background_thread_takes_it() {
        const LONG: Duration = Duration::from_secs(20);
        let (transport, status) = (Arc::new(Mute::default()), Status::new(LONG, true));
        let leases = Leases::new(
            Arc::new(status),
            transport.clone(),
            Arc::default(),
            bounded(1).0,
        );
        let asked = clock::since_boot().saturating_sub(LONG / 4);
        let lease = lease(LONG, asked);
        let id = leases.begin(lease.clone());
        leases.check(vec![(id, lease.clone())]);
        let answer = transport.answers.lock().pop().expect("a check");
        answer(Ok(Reply::Multi(vec![Ok(Reply::Checked)])));
        let sent = lease.stamp().expect("a proof").sent;
        assert!(asked < sent, "{asked:?} {sent:?}");
    }
}
