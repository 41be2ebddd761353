//! The locks that are held: what their guards may believe, and the proofs that this rests on.
//!
//! [`Renewals`] says when the quorum is asked about which lock, and [`Terms`] how far one lock may be
//! trusted. A look does what is due. It comes before anything that happens at the same time is taken in: a
//! lock whose time is over is lost, whatever an answer says that arrives late.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use core::slice;

use super::ask::{GuardId, LOST, Loss, Notice, Ticket, Time};
use super::calls::Purpose;
use super::line::LineId;
use super::link::Link;
use zklock_core::answer::Answered;
use zklock_core::proof::{self, Proof};
use zklock_core::renewals::{self, Check, Look, Renewals, Trust, Verdict};
use zklock_core::validity::{GuardState, Stamp, Terms, Validity};
use zklock_jute::EventKind;

/// One lock that is held.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    pub(super) line: LineId,
    pub(super) node: Arc<str>,
    pub(super) token: i64,
    pub(super) session: i64,
    /// The last proof; `None` once the lock is lost, which is final.
    pub(super) stamp: Option<Stamp>,
    /// Why the lock is lost, if it is.
    pub(super) loss: Option<Loss>,
    /// Whether it is only the place in front of a semaphore, of which no user knows.
    is_place: bool,
    is_suspect: bool,
    is_revoked: bool,
    /// How many transactions under the lock may still be carried out.
    unanswered: u32,
    /// The notice that the guard was last given.
    told: Notice,
}

/// The locks that are held; see the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Leases {
    renewals: Renewals<()>,
    held: BTreeMap<u64, Lease>,
    /// When to look next.
    pub(super) next: Option<Time>,
    /// Whether something has changed that a look has to see.
    is_due: bool,
    /// The checks that threads asked for and that could not be sent yet.
    pub(super) unsent: Vec<(Ticket, GuardId)>,
    pub(super) notices: VecDeque<(GuardId, Notice)>,
    /// How many locks were lost.
    pub(super) losses: u64,
    /// How many times a lock became suspect.
    pub(super) suspicions: u64,
}

impl Leases {
    /// Begins the lease of the lock with this node, on the strength of a proof.
    pub(super) fn begin(
        &mut self,
        (line, node, token): (LineId, Arc<str>, i64),
        stamp: Stamp,
        link: &Link,
    ) -> (GuardId, Validity) {
        let mut lease = Lease {
            line,
            node,
            token,
            session: link.session,
            stamp: Some(stamp),
            loss: None,
            is_place: false,
            is_suspect: false,
            is_revoked: false,
            unanswered: 0,
            told: Notice::Trust(LOST),
        };
        let trust = lease.trust(link);
        lease.told = Notice::Trust(trust);
        let id = self.renewals.begin((), stamp.sent, link.now);
        self.held.insert(id, lease);
        self.is_due = true;
        (GuardId(id), trust)
    }

    /// Tells nobody of the lease of this guard.
    pub(super) fn keep_to_itself(&mut self, guard: GuardId) {
        if let Some(lease) = self.held.get_mut(&guard.0) {
            lease.is_place = true;
        }
    }

    /// Begins a lease of the same lock for the next thread. Returns `None` unless the lock is beyond doubt,
    /// nobody asks for it, and nothing may still be done in its former holder's name.
    pub(super) fn succeed(&mut self, lease: &Lease, link: &Link) -> Option<(GuardId, Validity)> {
        let held = lease.state(link) == GuardState::Held;
        let is_free = !lease.is_revoked && lease.unanswered == 0;
        let stamp = lease.stamp.filter(|_| held && is_free)?;
        let lock = (lease.line.clone(), lease.node.clone(), lease.token);
        Some(self.begin(lock, stamp, link))
    }

    /// Ends the lease of a guard.
    pub(super) fn end(&mut self, guard: GuardId) -> Option<Lease> {
        self.renewals.end(guard.0);
        self.held.remove(&guard.0)
    }

    pub(super) fn get(&self, guard: GuardId) -> Option<&Lease> {
        self.held.get(&guard.0)
    }

    /// Looks, if something has changed or a look is due.
    pub(super) fn look_if_due(&mut self, link: &mut Link) {
        if self.is_due || self.next.is_some_and(|next| next <= link.now) {
            self.look(link);
        }
    }

    fn look(&mut self, link: &mut Link) {
        self.is_due = false;
        let look = Look {
            now: link.now,
            timeout: link.timeout(),
            connected: link.is_connected(),
            connects: link.connects,
        };
        let mut seen = Vec::new();
        for (id, ()) in self.renewals.take_due(link.now) {
            if let Some(lease) = self.held.get_mut(&id) {
                let trust = lease.look(link);
                let state = trust.state(link.now);
                seen.extend(lease.seen(id, (trust, state), link));
                self.suspicions += u64::from(lease.turns_suspect(state));
                self.losses += u64::from(tell(&mut self.notices, id, lease, trust));
            }
        }
        let due = self.renewals.settle(&look, &seen);
        self.next = self.renewals.pause(&look).map(|pause| link.now + pause);
        let checks: Vec<_> = due.checks.into_iter().map(|(id, ())| id).collect();
        self.check(&checks, link);
        for (id, ()) in due.watches {
            self.watch(id, link);
        }
    }

    /// Asks the quorum about those of these locks that are not lost.
    fn check(&mut self, ids: &[u64], link: &mut Link) {
        if ids.is_empty() {
            return;
        }
        let node = |id: &u64| {
            let lease = self.held.get(id)?;
            lease.stamp.map(|_| (*id, lease.node.to_string()))
        };
        let nodes = ids.iter().filter_map(node);
        for (check, requests) in Check::of_all(nodes, link.stamp(), link.transacts()) {
            for request in requests {
                link.send(request, Purpose::Check(check.clone()));
            }
        }
    }

    fn watch(&mut self, id: u64, link: &mut Link) {
        if let Some(lease) = self.held.get(&id) {
            link.send(renewals::watch(&lease.node), Purpose::Watch(id));
        }
    }

    /// Takes in the answer to a check.
    pub(super) fn checked(&mut self, check: &Check, answered: &Answered, link: &mut Link) {
        let answers = slice::from_ref(answered);
        for said in self.renewals.checked(check, answers, link.transacts()) {
            self.apply(said, link);
        }
        self.is_due = true;
    }

    /// Takes in that the node of a guard was read. The node is watched if it is there.
    pub(super) fn was_read(&mut self, id: u64, answered: &Answered, link: &mut Link) {
        if let Some(said) = self.renewals.was_read(id, answered) {
            self.apply(said, link);
        }
    }

    /// Takes in that a watch on the node of this guard has fired.
    pub(super) fn happened(&mut self, guard: GuardId, kind: EventKind, link: &mut Link) {
        if let Some(said) = self.renewals.happened(guard.0, kind) {
            self.apply(said, link);
        }
        self.is_due = true;
    }

    fn apply(&mut self, (id, said): (u64, Verdict), link: &mut Link) {
        match said {
            Verdict::Confirmed(stamp) => {
                if let Some(lease) = self.held.get_mut(&id) {
                    lease.confirm(stamp, link);
                }
            }
            Verdict::Missing => self.lose(id, Loss::Evicted, link),
            Verdict::Deleted => {
                self.lose(id, Loss::NodeGone, link);
                self.asks_why(id, link);
            }
            Verdict::RevokeRequested => self.revoke(id),
        }
    }

    fn revoke(&mut self, id: u64) {
        let lease = self.held.get_mut(&id);
        if let Some(lease) = lease.filter(|lease| !lease.is_revoked && !lease.is_place) {
            lease.is_revoked = true;
            self.notices.push_back((GuardId(id), Notice::Revoked));
        }
    }

    fn lose(&mut self, id: u64, why: Loss, link: &Link) {
        if let Some(lease) = self.held.get_mut(&id) {
            lease.lost(why);
            let trust = lease.trust(link);
            self.losses += u64::from(tell(&mut self.notices, id, lease, trust));
        }
    }

    fn asks_why(&mut self, id: u64, link: &mut Link) {
        if let Some(lease) = self.held.get(&id).filter(|_| link.is_connected()) {
            link.send(renewals::ask_why(&lease.node), Purpose::Watch(id));
        }
    }

    /// Notes that a transaction under the lock of this guard is sent, or that its end is known.
    pub(super) fn writes(&mut self, guard: GuardId, begins: bool) {
        if let Some(lease) = self.held.get_mut(&guard.0) {
            match begins {
                true => lease.unanswered += 1,
                false => lease.unanswered -= 1,
            }
        }
    }

    /// Notes that the connection has changed: the next look is at all guards.
    pub(super) fn link_changed(&mut self) {
        self.renewals.look_at_all();
        self.is_due = true;
    }

    /// Notes that the watches of the former connection are gone.
    pub(super) fn connected(&mut self) {
        for id in self.held.keys() {
            self.renewals.unwatch(*id);
        }
        self.link_changed();
    }

    /// Asks the quorum for a thread that wants to know. Returns `false` if the lock is lost.
    pub(super) fn verify(&mut self, ticket: Ticket, guard: GuardId, link: &mut Link) -> bool {
        let Some(lease) = self.get(guard).filter(|lease| lease.is_believed(link)) else {
            return false;
        };
        if !link.is_connected() {
            self.unsent.push((ticket, guard));
            return true;
        }
        let stamp = link.stamp();
        for request in proof::requests(link.transacts(), &[lease.node.to_string()]) {
            link.send(request, Purpose::Verify(ticket, guard, stamp));
        }
        true
    }

    /// Takes in the answer to a check that a thread has asked for. Returns whether the lock is held, if
    /// that is known now.
    pub(super) fn verified(
        &mut self,
        (ticket, guard, stamp): (Ticket, GuardId, Stamp),
        answered: &Answered,
        link: &mut Link,
    ) -> Option<bool> {
        let is_proof = proof::judge(link.transacts(), slice::from_ref(answered));
        self.checked(&Check::of_one(guard.0, stamp), answered, link);
        if matches!(is_proof, Proof::Hidden(_) | Proof::Unanswered) {
            self.unsent.push((ticket, guard));
            return None;
        }
        Some(self.get(guard).is_some_and(|lease| lease.is_believed(link)))
    }
}

impl Lease {
    /// Returns whether the guard may be trusted now.
    pub(super) fn is_believed(&self, link: &Link) -> bool {
        self.state(link) != GuardState::Lost
    }

    fn state(&self, link: &Link) -> GuardState {
        self.trust(link).state(link.now)
    }

    fn terms(&self, link: &Link) -> Terms {
        Terms {
            over: link.ended(self.session).is_some(),
            ..link.lifetime.terms()
        }
    }

    /// Notes that a quorum confirmed the node when it was asked with this stamp.
    fn confirm(&mut self, stamp: Stamp, link: &Link) {
        self.stamp = self.stamp.filter(|_| self.is_believed(link));
        self.stamp = self.stamp.map(|old| old.or_newer(stamp));
    }

    /// Notes what has become of the session, and that time has passed. Returns how long the guard may be trusted.
    fn look(&mut self, link: &Link) -> Validity {
        let trust = self.trust(link);
        if trust.state(link.now) != GuardState::Lost {
            return trust;
        }
        let ended = link.ended(self.session);
        self.lost(ended.unwrap_or(Loss::NotConfirmed));
        self.trust(link)
    }

    /// Returns whether the lock is suspect, and was not before.
    fn turns_suspect(&mut self, state: GuardState) -> bool {
        let is_suspect = state == GuardState::Suspect;
        let before = mem::replace(&mut self.is_suspect, is_suspect);
        self.is_suspect && !before && !self.is_place
    }

    fn seen(&self, id: u64, (trust, state): (Validity, GuardState), link: &Link) -> Option<Trust> {
        let stamp = self.stamp?;
        Some(Trust {
            id,
            stamp: Some(stamp),
            better_at: link.lifetime.better_at(stamp),
            changes_at: trust.next_change(state),
        })
    }

    /// Returns how long the guard may be trusted if nothing more arrives.
    pub(super) fn trust(&self, link: &Link) -> Validity {
        self.stamp
            .map_or(LOST, |stamp| self.terms(link).validity(stamp))
    }
}

/// Tells a guard what has changed. Returns whether the lock is lost, and was not before.
fn tell(
    notices: &mut VecDeque<(GuardId, Notice)>,
    id: u64,
    lease: &mut Lease,
    trust: Validity,
) -> bool {
    let notice = lease.loss.map_or(Notice::Trust(trust), Notice::Lost);
    let told = mem::replace(&mut lease.told, notice);
    if notice != told && !lease.is_place {
        notices.push_back((GuardId(id), notice));
    }
    lease.loss.is_some() && !lease.is_place && !matches!(told, Notice::Lost(_))
}
