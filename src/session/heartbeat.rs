//! Proves to every guard of a client that its lock still exists.
//!
//! While there is a guard, the background thread asks the quorum every sixth of the session
//! timeout, once for all guards, and renews their leases with the answer. What is due, and when, is
//! for [`Renewals`](zklock_core::renewals::Renewals) to say.

mod held_nodes;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::metrics::Counters;
use crate::session::lease::{self, Lease};
use crate::session::leases::{Leases, OpenLease};
use crate::system::channel::{Receiver, Sender, Waitable, unbounded};
use crate::time::clock::Moment;
use crate::transport::Answered;
use crate::transport::gather::gather;
use crate::transport::session_state::SessionState;
use crate::transport::status::{Snapshot, Status};
use crate::transport::{Fired, Transport};
use zklock_core::guard_state::News;
use zklock_core::proof::{self, Proof};
use zklock_core::renewals::{Look, Trust, in_one_check};
use zklock_core::validity::Stamp;

/// How many messages of a kind are handled between two looks.
const AT_ONCE: usize = 1_000;

/// What other clients write into a holder's node to ask it to release the lock.
pub(crate) const REVOKE: [&[u8]; 2] = [b"__REVOKE__", b"unlock"];

/// Sends what is due, and has the channels for the answers.
pub(crate) struct Heartbeat {
    status: Arc<Status>,
    transport: Arc<dyn Transport>,
    leases: Arc<Leases>,
    counters: Arc<Counters>,
    next_watch: Arc<AtomicU64>,
    probes: Channel<Probed>,
    fired: Channel<Fired>,
    read: Channel<(u64, Answered)>,
}

/// Both ends of a channel.
type Channel<T> = (Sender<T>, Receiver<T>);

/// A check and its answers.
pub(crate) type Probed = (Probe, Vec<Answered>);

/// One check that was sent.
pub(crate) struct Probe {
    stamp: Stamp,
    /// The leases whose nodes were checked, in this order.
    nodes: Vec<u64>,
}

impl Heartbeat {
    pub(crate) fn new(
        status: Arc<Status>,
        transport: Arc<dyn Transport>,
        leases: Arc<Leases>,
        counters: Arc<Counters>,
        next_watch: Arc<AtomicU64>,
    ) -> Self {
        Self {
            status,
            transport,
            leases,
            counters,
            next_watch,
            probes: unbounded(),
            fired: unbounded(),
            read: unbounded(),
        }
    }

    /// The channels that are filled when there is something to drain.
    pub(crate) fn answers(&self) -> [&dyn Waitable; 3] {
        [&self.fired.1, &self.probes.1, &self.read.1]
    }

    /// From here on every registration wakes the background thread.
    pub(crate) fn arm(&self) {
        self.leases.next_look(None);
    }

    /// From here on every lease is looked at again.
    pub(crate) fn look_at_all(&self) {
        self.leases.renewals().look_at_all();
    }

    /// Does what is due; returns how long nothing will be due.
    pub(crate) fn look(&self) -> Option<Duration> {
        let begun = self.leases.renewals().begun();
        let snapshot = self.status.snapshot();
        self.look_with(begun, &snapshot)
    }

    /// As above, with what was known when so many leases had begun.
    fn look_with(&self, begun: u64, snapshot: &Snapshot) -> Option<Duration> {
        let look = Look {
            now: Moment::now().since_boot(),
            timeout: snapshot.timeout,
            connected: snapshot.state == SessionState::Connected,
            begun,
        };
        let mut renewals = self.leases.renewals();
        renewals.follow(self.news(snapshot, look.connected), snapshot.connects);
        let (news, due) = (renewals.news(), renewals.take_due(look.now));
        drop(renewals);
        let mut seen = Vec::with_capacity(due.len());
        for (id, OpenLease { lease, .. }) in due {
            // What is older than a lease, even from before its session, is no news for it.
            if id < begun {
                lease.hear(news);
            }
            // A lost lock needs no proof.
            if self.is_held_as_told(&lease) {
                seen.push(self.trust(id, &lease, look.now));
            }
        }
        let next = || self.next_watch.fetch_add(1, Ordering::Relaxed);
        let mut renewals = self.leases.renewals();
        let due = renewals.settle(&look, &seen, next);
        let pause = renewals.pause(&look);
        drop(renewals);
        self.check(due.checks);
        self.watch(due.watches);
        if let Some(pause) = pause {
            self.leases.next_look(Some(Moment::of(look.now + pause)));
        }
        pause
    }

    fn news(&self, snapshot: &Snapshot, connected: bool) -> News {
        News {
            connected: connected.then(|| snapshot.since.since_boot()),
            broke: !connected,
            // With 0, the server has said that the session expired.
            session: Some(snapshot.session).filter(|session| *session != 0),
            over: snapshot.is_over(),
            resumes: self.transport.capabilities().resumes,
        }
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

    /// Tells the guard of a change of its state. The lock may be lost just after that, and then
    /// its guard is told again.
    fn is_held_as_told(&self, lease: &Lease) -> bool {
        lease.tell(&self.counters);
        let held = lease.check().is_ok();
        if !held {
            lease.tell(&self.counters);
        }
        held
    }

    /// Handles all that has arrived: one look for many messages, not one each.
    pub(crate) fn drain(&self) {
        let fired = self.fired.1.clone();
        let (probes, reads) = (self.probes.1.clone(), self.read.1.clone());
        fired
            .try_iter()
            .take(AT_ONCE)
            .for_each(|fired| self.node_changed(fired));
        for (probe, answers) in probes.try_iter().take(AT_ONCE) {
            self.probed(probe, &answers);
        }
        for (id, answered) in reads.try_iter().take(AT_ONCE) {
            self.node_read(id, &answered);
        }
    }

    /// Handles the answers to a check.
    fn probed(&self, probe: Probe, answers: &[Answered]) {
        match proof::judge(self.transport.capabilities(), answers) {
            Proof::Confirmed => {
                for lease in probe.nodes.iter().filter_map(|id| self.leases.get(*id)) {
                    lease.confirm(probe.stamp);
                }
                self.leases.renewals().look_at_these(&probe.nodes);
            }
            Proof::Gone(at) => {
                let whose = probe.nodes.get(at);
                if let Some((id, lease)) = whose.and_then(|id| Some((id, self.leases.get(*id)?))) {
                    self.lose(*id, &lease, lease::gone(self.transport.capabilities()));
                }
                // A failed check confirms none of the others.
                self.leases.renewals().failed();
            }
            Proof::Unanswered => {}
        }
    }

    /// Asks the quorum about those of these that are not lost.
    fn check(&self, leases: Vec<(u64, OpenLease)>) {
        let stamp = self.status.stamp();
        let (mut ids, mut nodes) = (Vec::new(), Vec::new());
        for (id, OpenLease { lease, .. }) in leases {
            // An answered ping is no proof. The chaos tests compile a client that takes it for
            // one, and must catch it.
            if cfg!(zklock_trust_pings) {
                let touched = stamp.sent;
                lease.confirm(Stamp { touched, ..stamp });
                self.leases.renewals().look_at_these(&[id]);
                continue;
            }
            if lease.stamp().is_none() {
                continue;
            }
            for node in lease.all_nodes() {
                ids.push(id);
                nodes.push(node.clone());
            }
        }
        let (mut ids, mut nodes) = (ids.as_slice(), nodes.as_slice());
        while !nodes.is_empty() {
            let (now, later) = nodes.split_at(in_one_check(nodes));
            let (whose, others) = ids.split_at(now.len());
            let probe = Probe {
                stamp,
                nodes: whose.to_vec(),
            };
            self.send(probe, now);
            (ids, nodes) = (others, later);
        }
    }

    fn send(&self, probe: Probe, nodes: &[String]) {
        let requests = proof::requests(self.transport.capabilities(), nodes);
        let requests = requests.into_iter().map(|request| (request, None));
        let to = self.probes.0.clone();
        let calls = gather(requests.collect(), move |answers| {
            let _ = to.send((probe, answers));
        });
        self.transport.send(calls);
    }
}

impl fmt::Debug for Heartbeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heartbeat")
            .field("leases", &self.leases)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
