//! Proves to every guard of a client that its lock still exists.
//!
//! While there is a guard, the background thread asks the quorum every sixth of the session
//! timeout, once for all guards, and renews their leases with the answer. It also sets a
//! watch on each node that is held for longer than [`WATCH_AFTER`], so that an eviction and
//! a revoke request are noticed at once, and shorter locks cost nothing.

mod held_nodes;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::metrics::Counters;
use crate::session::lease::Lease;
use crate::session::leases::{Due, Leases, WATCH_AFTER};
use crate::session::proof::{self, Proof};
use crate::system::channel::{Receiver, Sender, Waitable, unbounded};
use crate::time::clock::Moment;
use crate::transport::Answered;
use crate::transport::gather::gather;
use crate::transport::session_state::SessionState;
use crate::transport::status::{Snapshot, Status};
use crate::transport::{Fired, Transport};
use zklock_core::guard_state::News;
use zklock_core::validity::Stamp;

/// How many nodes one check names, to stay far below the frame limit. Above that, checks are spread
/// over the time in which each lock is proven once.
const NODES_A_CHECK: usize = 500;
/// How many bytes their names may take: a fraction of the smallest frame limit that a client
/// can set.
const BYTES_A_CHECK: usize = 64 * 1024;
/// How many messages of a kind are handled between two looks.
const AT_ONCE: usize = 1_000;

/// What other clients write into a holder's node to ask it to release the lock.
pub(crate) const REVOKE: [&[u8]; 2] = [b"__REVOKE__", b"unlock"];

/// The state of the heartbeat: what was sent, and the channels for the answers.
pub(crate) struct Heartbeat {
    status: Arc<Status>,
    transport: Arc<dyn Transport>,
    leases: Arc<Leases>,
    counters: Arc<Counters>,
    next_watch: Arc<AtomicU64>,
    connects: u64,
    /// What every lease was told last.
    news: News,
    /// How many leases had begun at the last look.
    begun: u64,
    /// When the last check was sent.
    checked: Duration,
    /// A check is due, however recent the proofs are.
    urgent: bool,
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
            connects: 0,
            news: News {
                connected: None,
                broke: false,
                session: None,
                over: false,
                resumes: false,
            },
            begun: 0,
            checked: Duration::ZERO,
            urgent: false,
            probes: unbounded(),
            fired: unbounded(),
            read: unbounded(),
        }
    }

    /// The channels that are filled when there is something to drain.
    pub(crate) fn news(&self) -> [&dyn Waitable; 3] {
        [&self.fired.1, &self.probes.1, &self.read.1]
    }

    /// From here on every registration wakes the background thread.
    pub(crate) fn arm(&self) {
        self.leases.next_look.store(u64::MAX, Ordering::Release);
    }

    /// From here on every lease is looked at again.
    pub(crate) fn look_at_all(&self) {
        self.leases.look_at_all();
    }

    /// Does what is due; returns how long nothing will be due.
    ///
    /// It looks at each lease when its time comes or something has happened to it: what one lease
    /// costs does not depend on how many others there are.
    pub(crate) fn look(&mut self) -> Option<Duration> {
        let begun = self.leases.next.load(Ordering::Acquire);
        let snapshot = self.status.snapshot();
        self.look_with(begun, &snapshot)
    }

    /// As above, with what was known when so many leases had begun.
    fn look_with(&mut self, begun: u64, snapshot: &Snapshot) -> Option<Duration> {
        self.follow(snapshot);
        let now = Moment::now();
        if self.leases.is_empty() {
            self.urgent = false;
            return self.linger(now, snapshot.timeout);
        }
        let connected = snapshot.state == SessionState::Connected;
        let mut due = self.leases.take_due(now.since_boot());
        // What is older than a lease, even from before its session, is no news for it.
        let heard = due.iter().filter(|due| due.id < begun);
        heard.for_each(|due| due.lease.hear(self.news));
        // A lost lock needs no proof.
        due.retain(|due| self.is_held_as_told(&due.lease));
        if connected {
            self.check_what_is_due(&mut due, now, snapshot);
            self.watch_long_holds(now);
        }
        for due in due {
            // Without a connection, the only task is to report locks whose proofs age.
            let proof = self.next_proof(&due, snapshot).filter(|_| connected);
            let steady = due.lease.steady_for();
            let steady = steady.map(|steady| now.since_boot() + steady);
            let again = (begun <= due.id).then_some(now.since_boot());
            let next = proof.into_iter().chain(steady).chain(again).min();
            let soon = now.since_boot() + Duration::from_millis(1);
            self.leases.look_at(due.id, next.map(|next| next.max(soon)));
        }
        Some(self.pause_from(now, snapshot))
    }

    /// Announces the next look, and returns how long it is until then.
    fn pause_from(&self, now: Moment, snapshot: &Snapshot) -> Duration {
        let connected = snapshot.state == SessionState::Connected;
        let next_look = self.leases.next_due();
        let next_look = next_look.map(|next| next.saturating_sub(now.since_boot()));
        let next_watch = (connected && self.leases.any_unwatched()).then_some(WATCH_AFTER);
        let next_check = self.next_of_many(snapshot.timeout).filter(|_| connected);
        let next_check = next_check.map(|next| next.saturating_sub(now.since_boot()));
        let pauses = [next_look, next_watch, next_check].into_iter().flatten();
        let pause = pauses.min().unwrap_or(snapshot.timeout / 6);
        self.leases
            .next_look
            .store((now + pause).as_nanos(), Ordering::Release);
        pause
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

    /// The pause while nothing is held. Where locks come and go, a look now and then is
    /// cheaper than a wake-up by each. In a short session it comes before they are suspect.
    fn linger(&mut self, now: Moment, timeout: Duration) -> Option<Duration> {
        let begun = self.leases.next.load(Ordering::Relaxed);
        if begun == self.begun {
            return None;
        }
        self.begun = begun;
        let pause = WATCH_AFTER.min(timeout / 12);
        let next_look = (now + pause).as_nanos();
        self.leases.next_look.store(next_look, Ordering::Release);
        Some(pause)
    }

    /// Asks the quorum about the locks whose proofs are due, and about others before theirs are: one
    /// request proves many.
    fn check_what_is_due(&mut self, due: &mut [Due], now: Moment, snapshot: &Snapshot) {
        let now = now.since_boot();
        let is_late = |due: &&Due| {
            let proof = self.next_proof(due, snapshot);
            proof.is_some_and(|proof| proof <= now)
        };
        let late: Vec<_> = due.iter().filter(is_late).map(|due| due.id).collect();
        let of_many = self.next_of_many(snapshot.timeout);
        if self.urgent {
            self.probe(&[], usize::MAX);
        } else if !late.is_empty() || of_many.is_some_and(|next| next <= now) {
            self.probe(&late, NODES_A_CHECK);
        } else {
            return;
        }
        for due in due {
            due.asked = self.leases.asked(due.id);
        }
    }

    /// When to send the next check of more locks than one check names: all of them have their turn
    /// before the first one is due again.
    fn next_of_many(&self, timeout: Duration) -> Option<Duration> {
        let checks = self.leases.len() / NODES_A_CHECK + 1;
        (checks > 1).then(|| self.checked + timeout / 6 / checks as u32)
    }

    /// When the next check is due: each lock is proven again before it is suspect.
    fn next_proof(&self, due: &Due, snapshot: &Snapshot) -> Option<Duration> {
        let stamp = due.lease.stamp()?;
        Some(match stamp.sent < due.asked {
            // Under way; if the answer takes long, ask again.
            true => due.asked + snapshot.timeout / 6,
            false => stamp.due(self.status.better_at(stamp), snapshot.timeout),
        })
    }

    /// Handles all that has arrived: one look for many messages, not one each.
    pub(crate) fn drain(&mut self) {
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
    fn probed(&mut self, probe: Probe, answers: &[Answered]) {
        match proof::judge(self.transport.capabilities(), answers) {
            Proof::Confirmed => {
                for lease in probe.nodes.iter().filter_map(|id| self.leases.get(*id)) {
                    lease.confirm(probe.stamp);
                }
                self.leases.look_at_these(&probe.nodes);
            }
            Proof::Gone(at) => {
                let whose = probe.nodes.get(at);
                if let Some((id, lease)) = whose.and_then(|id| Some((id, self.leases.get(*id)?))) {
                    self.lose(*id, &lease, proof::gone(self.transport.capabilities()));
                }
                // A failed check confirms none of the others.
                self.urgent = true;
            }
            Proof::Unanswered => {}
        }
    }

    /// Takes in a change of the connection, which every lease has to hear.
    fn follow(&mut self, snapshot: &Snapshot) {
        let anew = snapshot.connects != self.connects;
        let connected = snapshot.state == SessionState::Connected;
        let news = News {
            connected: connected.then(|| snapshot.since.since_boot()),
            broke: !connected || anew,
            // With 0, the server has said that the session expired.
            session: Some(snapshot.session).filter(|session| *session != 0),
            over: snapshot.is_over(),
            resumes: self.transport.capabilities().resumes,
        };
        if news != self.news {
            self.news = news;
            self.leases.look_at_all();
        }
        if anew && connected {
            self.connects = snapshot.connects;
            self.urgent = true;
        }
    }

    /// Asks the quorum about these, and about those with the oldest proofs up to so many.
    fn probe(&mut self, these: &[u64], most: usize) {
        let stamp = self.status.stamp();
        self.checked = stamp.sent;
        let all = self.leases.ask(these, most, stamp.sent);
        let mut ids = Vec::new();
        let mut nodes = Vec::new();
        for (id, lease) in &all {
            for node in lease.all_nodes() {
                ids.push(*id);
                nodes.push(node.clone());
            }
        }
        // An answered ping is no proof. The chaos tests compile a client that takes it for
        // one, and must catch it.
        if cfg!(zklock_trust_pings) {
            let touched = stamp.sent;
            let stamp = Stamp { touched, ..stamp };
            all.iter().for_each(|(_, lease)| lease.confirm(stamp));
            self.leases.look_at_these(&ids);
            return;
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
        self.urgent = false;
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

/// How many of these nodes go into one check, which must fit into one request.
fn in_one_check(nodes: &[String]) -> usize {
    let mut bytes = 0;
    let fit = nodes.iter().take(NODES_A_CHECK).take_while(|node| {
        bytes += node.len();
        bytes <= BYTES_A_CHECK
    });
    fit.count().max(1)
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
