//! The contenders that a waiter has seen ahead, and whether all of them are known to have released in order.
//!
//! Only what may have held the lock counts. A contender that left while another that it had to wait for was
//! still there never held the lock.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::iter;

use super::dialect::Role;
use super::name::NodeName;
use super::queue::Contest;
use super::release_note::Note;
use zklock_jute::Names;

/// The contenders that a waiter has seen ahead; see the module's documentation.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SeenAhead {
    names: Vec<String>,
}

impl SeenAhead {
    /// Takes in a listing of the queue, in which our node is called `mine` if it is there.
    pub fn look(&mut self, contest: Contest, children: &Names, mine: Option<&str>) {
        match (contest.role, mine) {
            (Role::Permit, mine)
                if contest.permits < children.len() + usize::from(mine.is_none()) =>
            {
                let others = children.iter().filter(|name| Some(*name) != mine);
                self.add(others);
            }
            // A client that still has a permit has not made way.
            (Role::Permit, _) => self.names.retain(|name| !children.contains(name)),
            (_, Some(mine)) => self.stand(contest, children, mine),
            _ => {}
        }
    }

    /// Adds the holders of permits that may have to make way.
    pub fn add<'n>(&mut self, names: impl Iterator<Item = &'n str>) {
        for name in names {
            if !self.names.iter().any(|known| known == name) {
                self.names.push(name.to_owned());
            }
        }
    }

    /// Notes that others may have had the lock meanwhile without being seen, so no note tells of all of them.
    pub fn lose_sight(&mut self) {
        if !self.is_empty() {
            self.add(iter::once(""));
        }
    }

    /// Returns whether nobody was ahead.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns the last contender in the queue; empty if others may have come after it without being seen.
    pub fn last(&self) -> Option<&str> {
        let number = |name: &&String| NodeName::parse(name).map_or(i64::MAX, |name| name.sequence);
        let last = self.names.iter().max_by_key(number);
        last.map(String::as_str)
    }

    /// Returns whether the directory's note tells of all contenders seen ahead.
    pub fn released(&self, note: &Note) -> bool {
        self.names.iter().all(|name| note.tells_of(name))
    }

    fn stand(&mut self, contest: Contest, children: &Names, mine: &str) {
        let all = contest.contenders(children);
        let Some(me) = all.iter().find(|name| name.text == mine) else {
            return;
        };
        let conflicts = |one: &NodeName<'_>, other: &NodeName<'_>| {
            let [one, other] = [one, other].map(|name| name.kind.role().sharing());
            one.conflicts(other)
        };
        // Numbers that are used up do not tell the order.
        let used_up = all.iter().any(NodeName::is_exhausted);
        let is_ahead = |name: &&NodeName<'_>| {
            (used_up || name.sequence < me.sequence) && name.text != mine && conflicts(name, me)
        };
        let ahead: Vec<_> = all.iter().filter(is_ahead).collect();
        self.names.retain(|seen| {
            let Some(seen) = NodeName::parse(seen) else {
                return true;
            };
            let held_back =
                |other: &&NodeName<'_>| other.sequence < seen.sequence && conflicts(other, &seen);
            used_up || children.contains(seen.text) || !ahead.iter().any(held_back)
        });
        self.add(ahead.iter().map(|name| name.text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::Dialect;
    use crate::name::of_short as name;

    fn listing(names: &str) -> Names {
        let names: Vec<_> = names.split_whitespace().map(name).collect();
        names.iter().map(String::as_str).collect()
    }

    /// Returns whether a contender with this role, whose node is number 9 and which has seen these
    /// listings, knows from a note of these releases that nobody runs any more.
    fn knows(role: Role, listings: &[&str], released: &str) -> bool {
        let contest = Contest {
            dialect: Dialect::Curator,
            role,
            permits: 2,
        };
        let mine = name(match role {
            Role::Read => "r9",
            Role::Permit => "p9",
            _ => "m9",
        });
        let mut seen = SeenAhead::default();
        for names in listings {
            seen.look(contest, &listing(names), Some(&mine));
        }
        let note = released
            .split_whitespace()
            .map(name)
            .fold(Vec::new(), |data, node| {
                Note::parse(&data).unwrap().with(&node).unwrap()
            });
        seen.released(&Note::parse(&note).unwrap())
    }

    #[test]
    fn who_loses_sight_of_somebody_does_not_know_who_came_last() {
        let mut seen = SeenAhead::default();
        seen.lose_sight();
        assert!(seen.is_empty());
        let alone = Contest {
            dialect: Dialect::Curator,
            role: Role::Exclusive,
            permits: 0,
        };
        seen.look(alone, &listing("m1 m9"), Some(&name("m9")));
        assert_eq!(seen.last(), Some(&*name("m1")));
        seen.lose_sight();
        // The contender queues again, and nobody is ahead.
        seen.look(alone, &listing("m11"), Some(&name("m11")));
        let note = Note::default().with(&name("m1")).unwrap();
        assert!(!seen.released(&Note::parse(&note).unwrap()));
        assert_eq!(seen.last(), Some(""));
    }

    #[test]
    fn all_who_may_have_held_have_to_have_said_that_they_released() {
        let table: [(Role, &[&str], &str, bool); 17] = [
            (Role::Exclusive, &["m1 m9"], "m1", true),
            (Role::Exclusive, &["m1 m9"], "", false),
            (Role::Exclusive, &["m1 m2 m9"], "m2", true),
            (Role::Exclusive, &["m1 m2 m9"], "m1", false),
            // The second one gave up while the first one held.
            (Role::Exclusive, &["m1 m2 m9", "m1 m9"], "m1", true),
            // The second one may have held.
            (Role::Exclusive, &["m1 m2 m9", "m9"], "m1", false),
            (Role::Exclusive, &["r1 r2 m9", "r1 m9"], "r2 r1", true),
            (Role::Exclusive, &["r1 r2 m9", "r1 m9"], "r1", false),
            (Role::Exclusive, &["m1 r2 m9"], "m1 r2", true),
            (Role::Exclusive, &["m1 r2 m9"], "r2", true),
            (Role::Exclusive, &["m1 r2 m9"], "m1", false),
            // A reader does not wait for readers.
            (Role::Read, &["m1 r2 r9"], "m1", true),
            (Role::Read, &["m1 r2 r9", "r2 r9"], "r2", true),
            (Role::Permit, &["p1 p2 p9", "p2 p9"], "p1", true),
            (Role::Permit, &["p1 p2 p9", "p2 p9"], "p2", false),
            (
                Role::Permit,
                &["p1 p2 p9", "p2 p3 p9", "p3 p9"],
                "p1",
                false,
            ),
            (Role::Permit, &["p2 p9"], "", true),
        ];
        for (role, listings, released, expected) in table {
            let knows = knows(role, listings, released);
            assert_eq!(knows, expected, "{role:?} {listings:?}: {released}");
        }
    }
}
