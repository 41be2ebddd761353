//! The thread in the background, which proves to every guard of a client that its lock still exists, and
//! deletes what is left.
//!
//! While there is a guard, the thread asks the quorum every sixth of the session timeout, once for all guards,
//! and renews their leases with the answer. [`Renewals`](zklock_core::renewals::Renewals) decides what is due,
//! and when. The [`Cleaner`] deletes.
//!
//! The thread sleeps while nothing is due, and never blocks on an answer: it sends requests, and the
//! answers arrive through channels.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use crate::error::LostReason;
use crate::metrics::Counters;
use crate::session::cleaner::Cleaner;
use crate::session::lease::Lease;
use crate::session::leases::Leases;
use crate::system::channel::{Receiver, Sender, Waitable, bounded, unbounded, wait_any};
use crate::system::clock;
use crate::system::sync::Mutex;
use crate::system::thread::{self, JoinHandle};
use crate::time::limit::from_now;
use crate::transport::session_state::SessionState;
use crate::transport::status::Status;
use crate::transport::{Answered, Call, Fired, Transport, Watch, WatchId, gather};
use zklock_core::renewals::{self, Check, Look, Trust, Verdict};
use zklock_core::validity::Stamp;
use zklock_jute::Request;

/// How many messages of a kind are handled before the next look at what is due.
const AT_ONCE: usize = 1_000;

/// The handle of the thread.
#[derive(Debug)]
pub(crate) struct Background {
    thread: Mutex<Option<JoinHandle<()>>>,
    stop: Sender<()>,
    stopped: Receiver<()>,
}

impl Background {
    /// Starts the thread, which looks for work whenever `woken` is filled.
    pub(crate) fn start(
        heartbeat: Heartbeat,
        cleaner: Arc<Cleaner>,
        status: &Arc<Status>,
        woken: Receiver<()>,
    ) -> std::io::Result<Self> {
        let (stop, stopping) = bounded::<()>(1);
        let (ended, stopped) = bounded::<()>(0);
        let changes = status.changes();
        let run = move || {
            // Dropped when the thread ends, which `stopped` reports.
            let _ended = ended;
            run(&heartbeat, &cleaner, changes.receiver(), &woken, &stopping);
        };
        let thread = thread::spawn("zklock-background", run)?;
        Ok(Self {
            thread: Mutex::new(Some(thread)),
            stop,
            stopped,
        })
    }

    /// Ends the thread; waits at most `limit` for it.
    pub(crate) fn stop(&self, limit: Duration) {
        let _ = self.stop.try_send(());
        let _ = self.stopped.recv_timeout(limit);
        if let Some(thread) = self.thread.lock().take_if(|thread| thread.is_finished()) {
            let _ = thread.join();
        }
    }

    /// Leaks the handle in a forked child, where the thread does not exist.
    pub(crate) fn forget(&mut self) {
        mem::forget(self.thread.get_mut().take());
        mem::forget((self.stop.clone(), self.stopped.clone()));
    }
}

fn run(
    heartbeat: &Heartbeat,
    cleaner: &Arc<Cleaner>,
    changes: &Receiver<()>,
    woken: &Receiver<()>,
    stopping: &Receiver<()>,
) {
    loop {
        let pause = heartbeat.look();
        let retry = cleaner.push();
        cleaner.tell();
        let until = [pause.map(from_now), retry].into_iter().flatten().min();
        let calls: [&dyn Waitable; 3] = [stopping, woken, changes];
        wait_any(&[calls, heartbeat.answers()].concat(), until);
        let stops = !stopping.try_recv().is_err_and(|error| error.is_empty());
        let _ = woken.try_recv();
        if changes.try_recv().is_ok() {
            heartbeat.leases.renewals().look_at_all();
        }
        if stops {
            // The client may have been closed since the last look: the guards must be told.
            heartbeat.look();
            return cleaner.tell();
        }
        heartbeat.drain();
    }
}

/// Sends what is due, and owns the channels for the answers.
pub(crate) struct Heartbeat {
    status: Arc<Status>,
    transport: Arc<dyn Transport>,
    leases: Arc<Leases>,
    counters: Arc<Counters>,
    checks: Channel<(Check, Vec<Answered>)>,
    fired: Channel<Fired>,
    read: Channel<(u64, Answered)>,
}

/// Both ends of a channel.
type Channel<T> = (Sender<T>, Receiver<T>);

impl Heartbeat {
    pub(crate) fn new(
        status: Arc<Status>,
        transport: Arc<dyn Transport>,
        leases: Arc<Leases>,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            status,
            transport,
            leases,
            counters,
            checks: unbounded(),
            fired: unbounded(),
            read: unbounded(),
        }
    }

    /// Returns the channels that have something to drain once they are filled.
    fn answers(&self) -> [&dyn Waitable; 3] {
        [&self.fired.1, &self.checks.1, &self.read.1]
    }

    /// Does what is due; returns how long nothing more is due. During the look, every registration wakes the
    /// background thread.
    fn look(&self) -> Option<Duration> {
        self.leases.next_look(None);
        let snapshot = self.status.snapshot();
        let look = Look {
            now: clock::since_boot(),
            timeout: snapshot.timeout,
            connected: snapshot.state == SessionState::Connected,
            connects: snapshot.connects,
        };
        let due = self.leases.renewals().take_due(look.now);
        let mut seen = Vec::with_capacity(due.len());
        for (id, lease) in due {
            // A lost lock needs no proof.
            if self.is_held_as_told(&lease) {
                seen.push(self.trust(id, &lease, look.now));
            }
        }
        let next = || self.leases.next_watch().0;
        let mut renewals = self.leases.renewals();
        let due = renewals.settle(&look, &seen, next);
        let pause = renewals.pause(&look);
        drop(renewals);
        self.check(due.checks);
        self.watch(due.watches);
        if let Some(pause) = pause {
            self.leases.next_look(Some(look.now + pause));
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

    /// Reports a change of state to the guard; returns whether the lock is held. The lock may be
    /// lost right after the report, which takes another one.
    fn is_held_as_told(&self, lease: &Lease) -> bool {
        lease.tell(&self.counters);
        let held = lease.check().is_ok();
        if !held {
            lease.tell(&self.counters);
        }
        held
    }

    /// Handles all messages that have arrived, so that one look serves many of them.
    fn drain(&self) {
        let fired = self.fired.1.clone();
        let (checks, reads) = (self.checks.1.clone(), self.read.1.clone());
        fired
            .try_iter()
            .take(AT_ONCE)
            .for_each(|fired| self.node_changed(fired));
        for (check, answers) in checks.try_iter().take(AT_ONCE) {
            let transacts = self.transport.transacts();
            let said = self.leases.renewals().checked(&check, &answers, transacts);
            said.into_iter().for_each(|said| self.apply(said));
        }
        for (id, answered) in reads.try_iter().take(AT_ONCE) {
            let said = self.leases.renewals().was_read(id, &answered);
            said.into_iter().for_each(|said| self.apply(said));
        }
    }

    /// Handles what an answer or an event says about a lock. The next look reports a loss to the guard.
    fn apply(&self, (id, said): (u64, Verdict)) {
        let lease = self.leases.renewals().get(id).cloned();
        let Some(lease) = lease else {
            return;
        };
        match said {
            Verdict::Confirmed(stamp) => lease.confirm(stamp),
            Verdict::Missing => lease.lose(self.status.snapshot().why_missing()),
            Verdict::Deleted => {
                lease.lose(LostReason::NodeGone);
                self.ask_why(id, &lease);
            }
            Verdict::RevokeRequested => lease.note_revoke_request(),
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
                self.leases.renewals().look_at_these(&[id]);
            } else if lease.stamp().is_some() {
                nodes.extend(lease.all_nodes().map(|node| (id, node.clone())));
            }
        }
        for (check, requests) in Check::of_all(nodes, stamp, self.transport.transacts()) {
            let requests = requests.into_iter().map(|request| (request, None));
            let to = self.checks.0.clone();
            let calls = gather(requests.collect(), move |answers| {
                let _ = to.send((check, answers));
            });
            self.transport.send(calls);
        }
    }

    /// Reads and watches the nodes of these leases.
    fn watch(&self, leases: Vec<(u64, Arc<Lease>, u64)>) {
        let mut calls = Vec::new();
        for (id, lease, watch) in leases {
            calls.extend(lease.all_nodes().map(|node| {
                let watch = Watch::new(WatchId(watch), self.fired.0.clone());
                self.read(id, renewals::watch(node), Some(watch))
            }));
        }
        if !calls.is_empty() {
            self.transport.send(calls);
        }
    }

    /// Handles the event of a watch on a held node.
    fn node_changed(&self, fired: Fired) {
        let mut renewals = self.leases.renewals();
        let watched = renewals.watched_by(fired.id.0);
        let said = watched.and_then(|id| renewals.happened(id, fired.kind));
        drop(renewals);
        said.into_iter().for_each(|said| self.apply(said));
    }

    /// Asks after a deletion whether the session is alive, or the node went with it.
    fn ask_why(&self, id: u64, lease: &Lease) {
        let calls = lease
            .all_nodes()
            .map(|node| self.read(id, renewals::ask_why(node), None));
        self.transport.send(calls.collect());
    }

    fn read(&self, id: u64, request: Request, watch: Option<Watch>) -> Call {
        let read = self.read.0.clone();
        Call {
            request,
            watch,
            answer: Box::new(move |answered| {
                let _ = read.send((id, answered));
            }),
        }
    }
}
