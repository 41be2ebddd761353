//! When the locks that a session holds are proven again, watched, and looked at.
//!
//! ```text
//!  begin ─► looked at ──► asked about, together with others ──► confirmed ─┐
//!               ▲              (every T/8)                                 │
//!               └──────────────────────────────────────────────────────────┘
//! ```
//!
//! A look tells a guard about a change of its state, and says what is due: a check that names up to
//! [`NODES_A_CHECK`] nodes, or a watch on a node that is held for longer than [`WATCH_AFTER`]. With the watch, an
//! eviction or a revoke request is noticed at once; shorter locks pay nothing for it. The cost of one lease does
//! not depend on the number of others: each is looked at when its time comes or something has happened to it.
//!
//! What is known of a lease is in its guard, which can be asked without a lock. The driver reports it as [`Trust`].

mod answers;
mod verdict;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use crate::validity::PROVEN_EVERY;

pub use self::verdict::{Check, Due, Look, NODES_A_CHECK, REVOKE, Trust, Verdict, ask_why, watch};

/// How long a lock must be held to get a watch.
pub const WATCH_AFTER: Duration = Duration::from_millis(50);
/// Stands for the time of the next look, whenever that comes.
const AT_ONCE: Duration = Duration::ZERO;
/// The shortest time between two looks at one lease.
const SOON: Duration = Duration::from_millis(1);
/// After which part of the session timeout a check is sent again that a server has thrown away: eight times before
/// the guard is suspect.
const AGAIN_PART: u32 = 48;

/// The leases of one session by their numbers, each with what its driver adds.
///
/// Whatever concerns one lease finds it without going through the others.
#[derive(Debug)]
pub struct Renewals<L> {
    leases: BTreeMap<u64, Entry<L>>,
    /// When to look at which lease; a lease that has changed is due [`AT_ONCE`].
    looks: BTreeSet<(Duration, u64)>,
    /// When the quorum was last asked about which lease, the longest ago first.
    asks: BTreeSet<(Duration, u64)>,
    unwatched: BTreeSet<u64>,
    /// How many leases have begun, which is also the number of the next one.
    begun: u64,
    /// How many leases had begun when last nothing was held.
    begun_at_rest: u64,
    /// How many connections there had been at the last look.
    connects: u64,
    /// When the last check was sent.
    checked: Duration,
    /// Whether a check is due, however recent the proofs are.
    urgent: bool,
}

#[derive(Debug)]
struct Entry<L> {
    lease: L,
    /// When it began, or was read last; zero if it is to be read again at once.
    since: Duration,
    /// When the quorum was last asked about the lease; at first, when it was asked for the grant.
    asked: Duration,
    /// Whether the server threw that request away.
    is_thrown_away: bool,
    /// When to look at the lease.
    look: Option<Duration>,
}

impl<L> Default for Renewals<L> {
    fn default() -> Self {
        Self {
            leases: BTreeMap::new(),
            looks: BTreeSet::new(),
            asks: BTreeSet::new(),
            unwatched: BTreeSet::new(),
            begun: 0,
            begun_at_rest: 0,
            connects: 0,
            checked: Duration::ZERO,
            urgent: false,
        }
    }
}

impl<L: Clone> Renewals<L> {
    /// Begins the lease of a lock that is held since `now`, and about which the quorum was asked at
    /// `asked`. Returns the number of the lease.
    pub fn begin(&mut self, lease: L, asked: Duration, now: Duration) -> u64 {
        let id = self.begun;
        self.begun += 1;
        let entry = Entry {
            lease,
            since: now,
            asked,
            is_thrown_away: false,
            look: Some(AT_ONCE),
        };
        self.leases.insert(id, entry);
        self.looks.insert((AT_ONCE, id));
        self.asks.insert((asked, id));
        self.unwatched.insert(id);
        id
    }

    /// Ends a lease.
    pub fn end(&mut self, id: u64) {
        self.unwatched.remove(&id);
        let Some(entry) = self.leases.remove(&id) else {
            return;
        };
        if let Some(look) = entry.look {
            self.looks.remove(&(look, id));
        }
        self.asks.remove(&(entry.asked, id));
    }

    /// Returns the lease with this number, if it has not ended.
    pub fn get(&mut self, id: u64) -> Option<&mut L> {
        self.leases.get_mut(&id).map(|entry| &mut entry.lease)
    }

    /// Returns all leases that have not ended.
    pub fn iter(&self) -> impl Iterator<Item = &L> {
        self.leases.values().map(|entry| &entry.lease)
    }

    /// Returns whether all leases have ended.
    pub fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    /// Takes the leases that are due for a look; [`settle`](Self::settle) says when to look again.
    pub fn take_due(&mut self, now: Duration) -> Vec<(u64, L)> {
        let mut due = Vec::new();
        while let Some((_, id)) = self.looks.first().copied().filter(|(at, _)| *at <= now) {
            self.looks.pop_first();
            if let Some(entry) = self.leases.get_mut(&id) {
                entry.look = None;
                due.push((id, entry.lease.clone()));
            }
        }
        due
    }

    /// Returns what is due after a look at these, of which none is lost.
    pub fn settle(&mut self, look: &Look, seen: &[Trust]) -> Due<L> {
        // On a new connection, every lock is proven anew.
        self.urgent |= mem::replace(&mut self.connects, look.connects) != look.connects;
        if self.is_empty() {
            self.urgent = false;
        }
        // Without a connection, the only task is to report locks whose proofs age.
        let (checks, watches) = match look.connected {
            true => (self.checks(look, seen), self.watches(look.now)),
            false => (Vec::new(), Vec::new()),
        };
        for trust in seen {
            let proof = self.next_proof(trust, look).filter(|_| look.connected);
            let next = proof.into_iter().chain(trust.changes_at).min();
            self.look_at(trust.id, next.map(|next| next.max(look.now + SOON)));
        }
        Due { checks, watches }
    }

    /// Returns the locks to ask the quorum about: those whose proofs are due, and others ahead of time,
    /// because one request proves many.
    fn checks(&mut self, look: &Look, seen: &[Trust]) -> Vec<(u64, L)> {
        let is_late = |trust: &&Trust| {
            let proof = self.next_proof(trust, look);
            proof.is_some_and(|proof| proof <= look.now)
        };
        let late: Vec<_> = seen.iter().filter(is_late).map(|trust| trust.id).collect();
        let of_many = self.next_of_many(look.timeout);
        if mem::take(&mut self.urgent) {
            self.ask(&[], usize::MAX, look.now)
        } else if !late.is_empty() || of_many.is_some_and(|next| next <= look.now) {
            self.ask(&late, NODES_A_CHECK, look.now)
        } else {
            Vec::new()
        }
    }

    /// Notes that the quorum is asked about these leases, and about those it was asked about the longest
    /// ago, up to `most` together.
    fn ask(&mut self, these: &[u64], most: usize, now: Duration) -> Vec<(u64, L)> {
        self.checked = now;
        let mut asked = Vec::with_capacity(most.min(self.leases.len()));
        for id in these {
            asked.extend(self.ask_about(*id, now));
        }
        while asked.len() < most {
            let oldest = self.asks.first().filter(|(before, _)| *before < now);
            let Some((_, id)) = oldest.copied() else {
                break;
            };
            asked.extend(self.ask_about(id, now));
        }
        asked
    }

    fn ask_about(&mut self, id: u64, now: Duration) -> Option<(u64, L)> {
        let entry = self.leases.get_mut(&id)?;
        self.asks.remove(&(entry.asked, id));
        (entry.asked, entry.is_thrown_away) = (now, false);
        self.asks.insert((now, id));
        Some((id, entry.lease.clone()))
    }

    /// Returns when to send the next check of more locks than one check names: each of them has its turn
    /// before the first one is due again.
    fn next_of_many(&self, timeout: Duration) -> Option<Duration> {
        let checks = self.leases.len() / NODES_A_CHECK + 1;
        (checks > 1).then(|| self.checked + timeout / PROVEN_EVERY / checks as u32)
    }

    /// Returns when the next check is due: each lock is proven again before it is suspect.
    fn next_proof(&self, trust: &Trust, look: &Look) -> Option<Duration> {
        let (stamp, entry) = (trust.stamp?, self.leases.get(&trust.id)?);
        Some(match stamp.sent < entry.asked {
            true if entry.is_thrown_away => entry.asked + look.timeout / AGAIN_PART,
            // A check is under way; if its answer takes long, ask again.
            true => entry.asked + look.timeout / 12,
            false => stamp.due(trust.better_at, look.timeout),
        })
    }

    /// Gives a watch to each lock that has none and is held for longer than [`WATCH_AFTER`].
    fn watches(&mut self, now: Duration) -> Vec<(u64, L)> {
        let mut given = Vec::new();
        let leases = &mut self.leases;
        self.unwatched.retain(|id| {
            let due = |entry: &&mut Entry<L>| entry.since + WATCH_AFTER <= now;
            let Some(entry) = leases.get_mut(id).filter(due) else {
                return true;
            };
            // A server that has too many requests is not asked at once again.
            entry.since = now;
            given.push((*id, entry.lease.clone()));
            false
        });
        given
    }

    /// Returns how long nothing will be due after a look; `None` if nothing is held and nothing was since
    /// the last call.
    pub fn pause(&mut self, look: &Look) -> Option<Duration> {
        if self.is_empty() {
            // Where locks come and go, a look now and then is cheaper than a wake-up by each of them. In a
            // short session the look comes before they are suspect.
            let idle = mem::replace(&mut self.begun_at_rest, self.begun) == self.begun;
            return (!idle).then(|| WATCH_AFTER.min(look.timeout / 12));
        }
        let later = self.looks.range((AT_ONCE, u64::MAX)..).next();
        let next_look = later.map(|(time, _)| time.saturating_sub(look.now));
        let unwatched = look.connected && !self.unwatched.is_empty();
        let next_check = self.next_of_many(look.timeout).filter(|_| look.connected);
        let next_check = next_check.map(|next| next.saturating_sub(look.now));
        let next_watch = unwatched.then_some(WATCH_AFTER);
        let pauses = [next_look, next_watch, next_check].into_iter().flatten();
        Some(pauses.min().unwrap_or(look.timeout / 6))
    }

    /// Makes these leases due at the next look.
    pub fn look_at_these(&mut self, ids: &[u64]) {
        for id in ids {
            self.look_at(*id, Some(AT_ONCE));
        }
    }

    /// Makes all leases due at the next look.
    pub fn look_at_all(&mut self) {
        self.looks = self.leases.keys().map(|id| (AT_ONCE, *id)).collect();
        for entry in self.leases.values_mut() {
            entry.look = Some(AT_ONCE);
        }
    }

    fn look_at(&mut self, id: u64, time: Option<Duration>) {
        let Some(entry) = self.leases.get_mut(&id) else {
            return;
        };
        // A lease that has changed meanwhile stays due at once.
        if entry.look == Some(AT_ONCE) {
            return;
        }
        if let Some(look) = mem::replace(&mut entry.look, time) {
            self.looks.remove(&(look, id));
        }
        if let Some(time) = time {
            self.looks.insert((time, id));
        }
    }

    /// Notes that a node of the lock has no watch any more.
    pub fn unwatch(&mut self, id: u64) {
        if self.leases.contains_key(&id) {
            self.unwatched.insert(id);
        }
    }
}

#[cfg(test)]
mod tests;
