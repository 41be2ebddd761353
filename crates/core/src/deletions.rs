//! All that a session still has to delete: the nodes of guards and attempts that have ended.
//!
//! ```text
//!            request()           the answer
//!  due ───────────────► asked ───────────────► due again, paused, or ended
//!   ▲                                              │
//!   └──────────(the pause or the delay is over)────┘
//! ```
//!
//! Each [`Deletion`] has at most one request under way: with two, the answer to one would be taken for the
//! answer to the other. It ends when the servers have said that its nodes are gone, or when the session
//! that owns them ends, which deletes them.

mod closing;
mod deletion;
mod leftover;
mod progress;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

pub use self::closing::close;
pub use self::deletion::Deletion;
use self::deletion::Turn;
pub use self::leftover::PASSING;
pub use self::progress::{Ended, Progress};
use crate::attempt::Orphan;
use crate::dialect::Sharing;

/// With so many nodes in a directory that attempts have left and that are looked for, the next attempt waits for
/// servers to delete some.
const MOST_LEFT: usize = 8;

/// With fewer looks that wait for another connection, those that are in vain by now stay.
const CROWD: usize = 64;

/// The deletions of one session by their numbers, each with what its user adds.
#[derive(Debug)]
pub struct Deletions<X> {
    last: u64,
    open: BTreeMap<u64, (Deletion, X)>,
    /// Looks that wait for another connection.
    late: Vec<Deletion>,
    /// The number of these looks at which those are forgotten that are in vain.
    crowd: usize,
    /// The latest connection through which the late nodes were looked for.
    connection: u64,
}

impl<X> Default for Deletions<X> {
    fn default() -> Self {
        Self {
            last: 0,
            open: BTreeMap::new(),
            late: Vec::new(),
            crowd: CROWD,
            connection: 0,
        }
    }
}

impl<X: Default> Deletions<X> {
    /// Takes a deletion over. Returns its number.
    pub fn begin(&mut self, deletion: Deletion, with: X) -> u64 {
        self.last += 1;
        self.open.insert(self.last, (deletion, with));
        self.last
    }

    /// Returns the deletion with this number, if it has not ended.
    pub fn get(&mut self, id: u64) -> Option<&mut (Deletion, X)> {
        self.open.get_mut(&id)
    }

    /// Finds a deletion by what its user has added.
    pub fn find(&mut self, is_it: impl Fn(&X) -> bool) -> Option<&mut (Deletion, X)> {
        self.open.values_mut().find(|(_, with)| is_it(with))
    }

    /// Takes out the deletion with this number.
    pub fn take(&mut self, id: u64) -> Option<X> {
        Some(self.open.remove(&id)?.1)
    }

    /// Takes out a deletion that has ended. A node that it has looked for and not found is looked for again
    /// through the next connections.
    pub fn ended(&mut self, id: u64, now: Duration, timeout: Duration) -> Option<X> {
        let (deletion, with) = self.open.remove(&id)?;
        if let Some(look) = deletion.once_more(now, timeout) {
            self.keep(look, now);
        }
        Some(with)
    }

    /// Keeps a look for the next connection, which may come in months.
    fn keep(&mut self, look: Deletion, now: Duration) {
        if self.crowd <= self.late.len() {
            self.late.retain(|look| look.may_come(now));
            self.crowd = CROWD.max(2 * self.late.len());
            self.late.shrink_to(self.crowd);
        }
        self.late.push(look);
    }

    /// Notes which connection there is now, by a number that no other has.
    pub fn connected(&mut self, connection: u64, now: Duration) {
        if mem::replace(&mut self.connection, connection) == connection {
            return;
        }
        for (deletion, _) in self.open.values_mut() {
            deletion.changes_connection();
        }
        let looks = mem::take(&mut self.late).into_iter();
        for look in looks.filter(|look| look.may_come(now)) {
            self.begin(look, X::default());
        }
    }

    /// Returns what attempts have left to find or to delete, and what was not found and may still come, each with
    /// its directory; `None` while a guard's nodes are to be deleted.
    pub fn left(&self, now: Duration) -> Option<impl Iterator<Item = (&str, Orphan)>> {
        let late = self.late.iter().filter(move |look| look.may_come(now));
        let all = self.open.values().map(|(entry, _)| entry).chain(late);
        let left = all.flat_map(|entry| entry.left().into_iter().map(|left| (entry.dir(), left)));
        let mut open = self.open.values();
        open.all(|(entry, _)| entry.is_leftover).then_some(left)
    }

    /// Returns whether anything in this directory is not known to be deleted.
    pub fn are_in(&self, dir: &str) -> bool {
        self.open.values().any(|(entry, _)| entry.dir() == dir)
    }

    /// Returns until when a try waits for deletions in this directory, if it does, and notes that with each of them.
    pub fn awaited(
        &mut self,
        try_in: (&str, Sharing),
        now: Duration,
        mut note: impl FnMut(&mut X),
    ) -> Option<Duration> {
        let awaited = self.open.values_mut().filter_map(|(entry, with)| {
            let until = entry.awaited_until(try_in, now)?;
            note(with);
            Some(until)
        });
        awaited.max()
    }

    /// Returns whether the client looks for many nodes that attempts may have left in this directory, except where a
    /// server has refused that. A node that is known is deleted by a request that is ahead of all later ones.
    pub fn are_many_sought_in(&self, dir: &str) -> bool {
        let all = self.open.values().filter(|(entry, _)| {
            let is_open = matches!(entry.turn, Turn::Due | Turn::Asked);
            entry.dir() == dir && is_open && entry.is_leftover && entry.sought().is_some()
        });
        MOST_LEFT <= all.count()
    }

    /// Returns whether the client lacks the right to delete a node that it has left in this directory: another one
    /// would be left too. Whoever asks may have been given the right, and waits for no long pause.
    pub fn is_forbidden_in(&mut self, dir: &str) -> bool {
        let open = self.open.values_mut().map(|(entry, _)| entry);
        let forbidden = open.filter(|entry| entry.is_forbidden && entry.dir() == dir);
        forbidden.map(Deletion::hasten).count() != 0
    }

    /// Returns whether the client lacks the right to delete this node, which it has left.
    pub fn is_forbidden(&self, dir: &str, name: &str) -> bool {
        let mut open = self.open.values().map(|(entry, _)| entry);
        open.any(|entry| entry.is_forbidden && entry.dir() == dir && entry.name() == Some(name))
    }

    /// Returns a directory in which the client lacks the right to delete a node that it has left.
    pub fn forbidden(&self) -> Option<&str> {
        let mut all = self.open.values().map(|(entry, _)| entry);
        all.find(|entry| entry.is_forbidden).map(Deletion::dir)
    }

    /// Returns how many deletions have not ended.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Returns whether all deletions have ended.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Notes which session is served. The ends of other sessions have deleted their nodes, except holds; one that
    /// the client has `given_up` may last until the time beside it. Returns the deletions that are over with that, with
    /// what their users have added.
    pub fn serves(
        &mut self,
        session: i64,
        given_up: Option<(i64, Duration)>,
    ) -> Vec<(Deletion, X)> {
        let open = self.open.values_mut().map(|(deletion, _)| deletion);
        open.chain(&mut self.late)
            .for_each(|deletion| deletion.goes_on_in(session, given_up));
        self.late.retain(|late| late.session() == session);
        let of_another =
            |(id, (entry, _)): (&u64, &(Deletion, X))| (entry.session() != session).then_some(*id);
        let ended: Vec<_> = self.open.iter().filter_map(of_another).collect();
        let ended = ended.iter().filter_map(|id| self.open.remove(id));
        ended.collect()
    }

    /// Forgets all deletions, because every session has ended.
    pub fn clear(&mut self) {
        self.open.clear();
        self.late.clear();
    }

    /// Returns the deletions whose requests are to be sent by now.
    pub fn due(&self, now: Duration) -> Vec<u64> {
        let due = self.open.iter().filter(|(_, (entry, _))| entry.is_due(now));
        due.map(|(id, _)| *id).collect()
    }

    /// Returns when the next request is due that is not due yet.
    pub fn next_tick(&self, now: Duration) -> Option<Duration> {
        let later = |(entry, _): &(Deletion, X)| match entry.turn {
            Turn::Paused(time) | Turn::Delayed(time) => Some(time).filter(|time| now < *time),
            Turn::Due | Turn::Asked => None,
        };
        self.open.values().filter_map(later).min()
    }

    /// Returns the latest time to which a user has put off a deletion, except for ever.
    pub fn delayed_until(&self) -> Option<Duration> {
        let delayed = |(entry, _): &(Deletion, X)| match entry.turn {
            Turn::Delayed(time) => Some(time).filter(|time| *time != Duration::MAX),
            _ => None,
        };
        self.open.values().filter_map(delayed).max()
    }
}

#[cfg(test)]
mod tests;
