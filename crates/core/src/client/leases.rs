//! The locks that are held: what their guards may believe, and the proofs that this rests on.
//!
//! [`Renewals`] says when the quorum is asked about which of them, and [`Belief`] what one of them
//! is worth. A look does what is due. It comes before anything that happens at the same time is taken
//! in: a lock whose time is over is lost, whatever an answer says that arrives late.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use core::slice;

use super::ask::{GuardId, LOST, Loss, Notice, Ticket, Time};
use super::calls::Purpose;
use super::link::Link;
use crate::answer::{Answered, Failure};
use crate::guard_state::{Belief, News};
use crate::proof::{self, Proof};
use crate::renewals::{Look, Renewals, Trust, in_one_check};
use crate::validity::{GuardState, Stamp, Validity};
use zklock_jute::{ErrorCode, EventKind, Reply, Request};

/// What other clients write into a holder's node to ask it to release the lock.
const REVOKE: [&[u8]; 2] = [b"__REVOKE__", b"unlock"];

/// One lock that is held.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    pub(super) path: Arc<str>,
    pub(super) node: Arc<str>,
    pub(super) token: i64,
    pub(super) session: i64,
    pub(super) belief: Belief,
    /// Why it is lost, if it is.
    pub(super) loss: Option<Loss>,
    is_suspect: bool,
    is_revoked: bool,
    /// How many transactions under it may still be carried out.
    unanswered: u32,
    /// What its guard was told last.
    told: Notice,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Leases {
    renewals: Renewals<()>,
    held: BTreeMap<u64, Lease>,
    /// When to look next.
    pub(super) next: Option<Time>,
    /// Something has changed that a look is to see.
    is_due: bool,
    /// The checks that threads asked for and that could not be sent yet.
    pub(super) unsent: Vec<(Ticket, GuardId)>,
    watches: u64,
    pub(super) notices: VecDeque<(GuardId, Notice)>,
    /// How many were lost.
    pub(super) losses: u64,
    /// How many times one became suspect.
    pub(super) suspicions: u64,
}

impl Leases {
    /// The lock of this node is held, on the strength of a proof.
    pub(super) fn begin(
        &mut self,
        (path, node, token): (Arc<str>, Arc<str>, i64),
        stamp: Stamp,
        link: &Link,
    ) -> (GuardId, Validity) {
        let mut lease = Lease {
            path,
            node,
            token,
            session: link.session,
            belief: Belief::new(stamp),
            loss: None,
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

    /// The same lock for the next thread; `None` unless it is beyond doubt, nobody asks for it, and nothing
    /// may still be done in its former holder's name.
    pub(super) fn succeed(&mut self, lease: &Lease, link: &Link) -> Option<(GuardId, Validity)> {
        let mut belief = lease.belief;
        let held = belief.state(link.lifetime.terms(), link.now) == GuardState::Held;
        let is_free = !lease.is_revoked && lease.unanswered == 0;
        let stamp = belief.stamp.filter(|_| held && is_free)?;
        let lock = (lease.path.clone(), lease.node.clone(), lease.token);
        Some(self.begin(lock, stamp, link))
    }

    /// The guard is given up.
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
        self.renewals.follow(link.news(), link.connects);
        let look = Look {
            now: link.now,
            timeout: link.timeout(),
            connected: link.is_connected(),
            begun: self.renewals.begun(),
        };
        let mut seen = Vec::new();
        for (id, ()) in self.renewals.take_due(link.now) {
            if let Some(lease) = self.held.get_mut(&id) {
                lease.hear(self.renewals.news(), link);
                seen.extend(lease.seen(id, link));
                self.suspicions += u64::from(lease.turns_suspect(link));
                self.losses += u64::from(tell(&mut self.notices, id, lease, link));
            }
        }
        let watches = &mut self.watches;
        let due = self.renewals.settle(&look, &seen, || {
            *watches += 1;
            *watches
        });
        self.next = self.renewals.pause(&look).map(|pause| link.now + pause);
        let checks: Vec<_> = due.checks.into_iter().map(|(id, ())| id).collect();
        self.check(&checks, link);
        for (id, (), _) in due.watches {
            self.watch(id, link);
        }
    }

    /// Asks the quorum about those of these that are not lost.
    fn check(&mut self, ids: &[u64], link: &mut Link) {
        let node = |id: &u64| {
            let lease = self.held.get(id)?;
            lease.belief.stamp.map(|_| (*id, lease.node.to_string()))
        };
        let (ids, nodes): (Vec<_>, Vec<String>) = ids.iter().filter_map(node).unzip();
        let (mut ids, mut nodes) = (ids.as_slice(), nodes.as_slice());
        while !nodes.is_empty() {
            let (now, later) = nodes.split_at(in_one_check(nodes));
            let (whose, others) = ids.split_at(now.len());
            let stamp = link.stamp();
            for request in proof::requests(link.knows, now) {
                link.send(request, Purpose::Check(whose.to_vec(), stamp));
            }
            (ids, nodes) = (others, later);
        }
    }

    fn watch(&mut self, id: u64, link: &mut Link) {
        if let Some(lease) = self.held.get(&id) {
            let read = Request::GetData {
                path: lease.node.to_string(),
                watch: true,
            };
            link.send(read, Purpose::Watch(id));
        }
    }

    /// A check is answered.
    pub(super) fn checked(&mut self, ids: &[u64], stamp: Stamp, answered: &Answered, link: &Link) {
        match proof::judge(link.knows, slice::from_ref(answered)) {
            Proof::Confirmed => {
                for id in ids {
                    if let Some(lease) = self.held.get_mut(id) {
                        lease.belief.confirm(stamp, link.lifetime.terms(), link.now);
                    }
                }
                self.renewals.look_at_these(ids);
            }
            Proof::Gone(at) => {
                if let Some(id) = ids.get(at) {
                    self.lose(GuardId(*id), link.gone(), link);
                }
                // A failed check confirms none of the others.
                self.renewals.failed();
            }
            Proof::Unanswered => {}
        }
        self.is_due = true;
    }

    /// The node of a guard was read, and is watched if it is there.
    pub(super) fn was_read(&mut self, id: u64, answered: &Answered, link: &Link) {
        match answered {
            Ok(Reply::Data { data, .. }) if REVOKE.contains(&&data[..]) => self.revoke(id),
            Err(Failure::Refused(ErrorCode::NO_NODE)) => self.lose(GuardId(id), link.gone(), link),
            Err(Failure::Lost | Failure::NotSent) => self.renewals.unwatch(id),
            _ => {}
        }
    }

    fn revoke(&mut self, id: u64) {
        if let Some(lease) = self.held.get_mut(&id).filter(|lease| !lease.is_revoked) {
            lease.is_revoked = true;
            self.notices.push_back((GuardId(id), Notice::Revoked));
        }
    }

    /// A watch on the node of this guard has fired.
    pub(super) fn happened(&mut self, guard: GuardId, kind: EventKind, link: &mut Link) {
        match kind {
            EventKind::Deleted => {
                self.lose(guard, Loss::NodeGone, link);
                self.asks_why(guard, link);
            }
            // The next look reads it again.
            _ => {
                self.renewals.unwatch(guard.0);
                self.is_due = true;
            }
        }
    }

    fn lose(&mut self, guard: GuardId, why: Loss, link: &Link) {
        if let Some(lease) = self.held.get_mut(&guard.0) {
            lease.lost(why);
            self.losses += u64::from(tell(&mut self.notices, guard.0, lease, link));
        }
    }

    /// The node of this guard went: asks whether the session lasts, or the node went with it.
    fn asks_why(&mut self, guard: GuardId, link: &mut Link) {
        if let Some(lease) = self.held.get(&guard.0).filter(|_| link.is_connected()) {
            let look = Request::exists(&lease.node);
            link.send(look, Purpose::Watch(guard.0));
        }
    }

    /// A transaction under the lock of this guard is sent, or it is known how it ended.
    pub(super) fn writes(&mut self, guard: GuardId, begins: bool) {
        if let Some(lease) = self.held.get_mut(&guard.0) {
            match begins {
                true => lease.unanswered += 1,
                false => lease.unanswered -= 1,
            }
        }
    }

    /// The connection has changed: the next look is at all guards.
    pub(super) fn link_changed(&mut self) {
        self.renewals.look_at_all();
        self.is_due = true;
    }

    /// The watches of the former connection are gone.
    pub(super) fn connected(&mut self) {
        for id in self.held.keys() {
            self.renewals.unwatch(*id);
        }
        self.link_changed();
    }

    /// Asks the quorum for a thread that wants to know; `false` if the lock is lost.
    pub(super) fn verify(&mut self, ticket: Ticket, guard: GuardId, link: &mut Link) -> bool {
        let Some(lease) = self.get(guard).filter(|lease| lease.is_believed(link)) else {
            return false;
        };
        if !link.is_connected() {
            self.unsent.push((ticket, guard));
            return true;
        }
        let stamp = link.stamp();
        for request in proof::requests(link.knows, &[lease.node.to_string()]) {
            link.send(request, Purpose::Verify(ticket, guard, stamp));
        }
        true
    }

    /// The answer to a check that a thread has asked for. Returns whether the lock is held, if that is
    /// known now.
    pub(super) fn verified(
        &mut self,
        (ticket, guard, stamp): (Ticket, GuardId, Stamp),
        answered: &Answered,
        link: &Link,
    ) -> Option<bool> {
        let is_proof = proof::judge(link.knows, slice::from_ref(answered));
        self.checked(&[guard.0], stamp, answered, link);
        if is_proof == Proof::Unanswered {
            self.unsent.push((ticket, guard));
            return None;
        }
        Some(self.get(guard).is_some_and(|lease| lease.is_believed(link)))
    }
}

impl Lease {
    /// Whether its guard may be trusted now.
    pub(super) fn is_believed(&self, link: &Link) -> bool {
        let mut belief = self.belief;
        belief.look(link.lifetime.terms(), link.now).is_some() && self.session == link.session
    }

    /// Takes in what happened to the connection, and that time has passed.
    fn hear(&mut self, news: News, link: &Link) {
        self.belief.hear(self.session, news);
        if self.belief.look(link.lifetime.terms(), link.now).is_none() {
            let ended = link.ended(self.session);
            self.lost(ended.unwrap_or(Loss::NotConfirmed));
        }
    }

    /// Whether it is suspect, and was not before.
    fn turns_suspect(&mut self, link: &Link) -> bool {
        let state = self.belief.state(link.lifetime.terms(), link.now);
        let before = mem::replace(&mut self.is_suspect, state == GuardState::Suspect);
        self.is_suspect && !before
    }

    fn seen(&mut self, id: u64, link: &Link) -> Option<Trust> {
        let terms = link.lifetime.terms();
        let stamp = self.belief.look(terms, link.now)?;
        Some(Trust {
            id,
            stamp: Some(stamp),
            better_at: link.lifetime.better_at(stamp),
            changes_at: self.belief.changes_at(terms, link.now),
        })
    }

    /// How long its guard may be trusted if nothing more arrives.
    pub(super) fn trust(&self, link: &Link) -> Validity {
        let Some(stamp) = self.belief.stamp else {
            return LOST;
        };
        let trust = link.lifetime.terms().validity(stamp);
        match self.belief.shaken {
            true => Validity {
                suspect_from: Time::ZERO,
                ..trust
            },
            false => trust,
        }
    }
}

/// Tells a guard what has changed. Returns whether the lock is lost, and was not before.
fn tell(
    notices: &mut VecDeque<(GuardId, Notice)>,
    id: u64,
    lease: &mut Lease,
    link: &Link,
) -> bool {
    let trust = lease.trust(link);
    let notice = lease.loss.map_or(Notice::Trust(trust), Notice::Lost);
    let told = mem::replace(&mut lease.told, notice);
    if notice != told {
        notices.push_back((GuardId(id), notice));
    }
    lease.loss.is_some() && !matches!(told, Notice::Lost(_))
}
