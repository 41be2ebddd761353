//! Who is ahead of whom, and who has to wait for which node.

use std::collections::HashMap;

use super::dialect::{Dialect, Kind, Role, Sharing, Stance};
use super::name::NodeName;

/// What we ask of a queue, and in whose words.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Contest {
    /// The names we use.
    pub dialect: Dialect,
    /// What we ask for.
    pub role: Role,
    /// How many may hold at once, for permits.
    pub permits: usize,
}

/// Where a contender stands.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Place {
    /// It is not in the queue.
    Missing,
    /// Nothing it cannot share with is ahead of it.
    First,
    /// It has to wait.
    Behind(Behind),
    /// It has to wait until the directory has so many children less.
    Crowded(usize),
    /// The numbers are used up: the order is that of these nodes' creation ids.
    Exhausted(Vec<String>),
    /// There is no exclusion with somebody in this queue.
    Foreign(Foreign),
}

/// What is ahead of a contender that has to wait.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Behind {
    /// The nearest node whose departure can help.
    pub nearest: String,
    /// How many are ahead that we cannot share with.
    pub ahead: usize,
    /// When `nearest` is deleted, nothing can be ahead any more.
    ///
    /// So it is if `nearest` was the only node ahead and nobody turns it into another
    /// node with the same number, which holders of a read-write lock may do.
    pub last: bool,
}

/// A contender that would not wait for us.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Foreign {
    /// Its node.
    pub node: String,
    /// The library it looks like.
    pub library: &'static str,
    /// The dialect that excludes with it, if there is one.
    pub dialect: Option<Dialect>,
    /// It goes by numbers where they are used up; until then it did wait for us.
    pub by_number: bool,
}

/// One contender, with the key that orders it.
struct Entry<'a> {
    name: NodeName<'a>,
    sharing: Sharing,
    order: i64,
}

impl Contest {
    /// Says where the contender with the node `mine` stands.
    pub fn place(self, children: &[String], mine: &str) -> Place {
        if self.role == Role::Permit {
            return self.place_in_crowd(children, mine);
        }
        let entries = match self.entries(children) {
            Ok(entries) => entries,
            Err(foreign) => return Place::Foreign(foreign),
        };
        if entries.iter().any(|entry| entry.name.is_exhausted()) {
            let names = entries.iter().map(|entry| entry.name.text.to_owned());
            return match entries.iter().any(|entry| entry.name.text == mine) {
                true => Place::Exhausted(names.collect()),
                false => Place::Missing,
            };
        }
        self.stand(&entries, mine, true)
    }

    /// Any child stands for a permit: the others count them, too.
    fn place_in_crowd(self, children: &[String], mine: &str) -> Place {
        if let Err(foreign) = self.is_taken(children) {
            return Place::Foreign(foreign);
        }
        match children.len().saturating_sub(self.permits) {
            _ if !children.iter().any(|name| name == mine) => Place::Missing,
            0 => Place::First,
            more => Place::Crowded(more),
        }
    }

    /// Whether a permit's node is made only where there is room for it.
    ///
    /// Curator creates it and counts then; to kazoo every node is a permit that is out.
    pub fn looks_first(self) -> bool {
        (self.dialect, self.role) == (Dialect::Kazoo, Role::Permit)
    }

    /// As [`place`](Self::place), ordered by creation ids.
    ///
    /// A node without one is gone.
    pub fn place_by_birth(self, births: &HashMap<String, i64>, mine: &str) -> Place {
        let names: Vec<_> = births.keys().cloned().collect();
        let mut entries = match self.entries(&names) {
            Ok(entries) => entries,
            Err(foreign) => return Place::Foreign(foreign),
        };
        for entry in &mut entries {
            entry.order = births[entry.name.text];
        }
        self.stand(&entries, mine, false)
    }

    /// Says whether somebody who came now would have to wait, without being in the queue.
    pub fn is_taken(self, children: &[String]) -> Result<bool, Foreign> {
        if self.looks_first()
            && let Some(foreign) = beside_semaphore(self.dialect, children)
        {
            return Err(foreign);
        }
        if self.role == Role::Permit {
            return Ok(self.permits <= children.len());
        }
        let sharing = self.role.sharing();
        let entries = self.entries(children)?;
        Ok(entries.iter().any(|entry| entry.sharing.conflicts(sharing)))
    }

    /// Returns the contenders that this contest is about, first come first.
    pub fn contenders(self, children: &[String]) -> Vec<NodeName<'_>> {
        let names = children.iter().filter_map(|text| NodeName::parse(text));
        let ours = |name: &NodeName<'_>| {
            matches!(
                self.dialect.stance(self.role, name.kind),
                Stance::Contends(_)
            )
        };
        let mut names: Vec<_> = names.filter(ours).collect();
        names.sort_by_key(|name| name.sequence);
        names
    }

    /// Says whether nobody is ahead of this node that it cannot share with.
    ///
    /// `false` where numbers are used up and the names do not tell.
    pub fn holds(self, children: &[String], node: &str) -> bool {
        let Ok(entries) = self.entries(children) else {
            return false;
        };
        let Some(of) = entries.iter().find(|entry| entry.name.text == node) else {
            return false;
        };
        let blocks = |entry: &Entry<'_>| {
            entry.name.is_exhausted()
                || (entry.order < of.order && entry.sharing.conflicts(of.sharing))
        };
        !entries.iter().any(blocks)
    }

    fn entries(self, children: &[String]) -> Result<Vec<Entry<'_>>, Foreign> {
        if self.role != Role::Permit
            && let Some(foreign) = curators_semaphore(children)
        {
            return Err(foreign);
        }
        let mut entries = Vec::with_capacity(children.len());
        for name in children.iter().filter_map(|text| NodeName::parse(text)) {
            match self.dialect.stance(self.role, name.kind) {
                Stance::Contends(sharing) => entries.push(Entry {
                    name,
                    sharing,
                    order: name.sequence,
                }),
                Stance::Ignored => {}
                Stance::Refused(dialect) => {
                    return Err(Foreign {
                        node: name.text.to_owned(),
                        library: name.kind.library(),
                        dialect,
                        by_number: false,
                    });
                }
            }
        }
        match by_number(&entries) {
            Some(foreign) => Err(foreign),
            None => Ok(entries),
        }
    }

    fn stand(self, entries: &[Entry<'_>], mine: &str, numbered: bool) -> Place {
        let Some(me) = entries.iter().find(|entry| entry.name.text == mine) else {
            return Place::Missing;
        };
        let conflicts = |entry: &&Entry<'_>| entry.sharing.conflicts(self.role.sharing());
        let ahead = entries.iter().filter(|entry| entry.order < me.order);
        let Some(nearest) = ahead
            .clone()
            .filter(conflicts)
            .max_by_key(|entry| entry.order)
        else {
            return Place::First;
        };
        let plain = matches!(nearest.name.kind, Kind::Lock | Kind::GoLock);
        Place::Behind(Behind {
            nearest: nearest.name.text.to_owned(),
            ahead: ahead.clone().filter(conflicts).count(),
            last: numbered && plain && ahead.count() == 1,
        })
    }
}

/// Finds somebody in the directory of a semaphore who is not one of its own.
///
/// He counts otherwise, and would not wait for us. The permits of most are counted below,
/// and nobody is to stand here; kazoo's stand here.
pub fn beside_semaphore(dialect: Dialect, children: &[String]) -> Option<Foreign> {
    let named = children.iter().filter_map(|text| NodeName::parse(text));
    let other = |name: &NodeName<'_>| dialect != Dialect::Kazoo || name.kind != Kind::KazooLease;
    let mut named = named.filter(other).map(|name| Foreign {
        node: name.text.to_owned(),
        library: name.kind.library(),
        dialect: (name.kind == Kind::KazooLease).then_some(Dialect::Kazoo),
        by_number: false,
    });
    let curators = || {
        let foreign = curators_semaphore(children).filter(|_| dialect == Dialect::Kazoo)?;
        Some(Foreign {
            dialect: Some(Dialect::Curator),
            ..foreign
        })
    };
    named.next().or_else(curators)
}

/// Finds the folders of Curator's semaphore in a directory that is to be something else's.
fn curators_semaphore(children: &[String]) -> Option<Foreign> {
    let has = |name: &str| children.iter().any(|child| child == name);
    (has("locks") && has("leases")).then(|| Foreign {
        node: "leases".to_owned(),
        library: Kind::Lease.library(),
        dialect: None,
        by_number: false,
    })
}

/// Returns our own nodes, which are those with our prefix, lowest number first.
pub fn own<'a>(children: &'a [String], prefix: &str) -> Vec<NodeName<'a>> {
    let names = children.iter().filter(|text| text.starts_with(prefix));
    let mut names: Vec<_> = names.filter_map(|text| NodeName::parse(text)).collect();
    names.sort_by_key(|name| name.sequence);
    names
}

/// Returns the children that are no contenders of any dialect, for diagnostics.
pub fn strangers(children: &[String]) -> impl Iterator<Item = &String> {
    children
        .iter()
        .filter(|text| NodeName::parse(text).is_none())
}

/// Finds somebody else's contender where numbers are used up: it goes by them and we go by
/// birth, and the two orders differ.
fn by_number(entries: &[Entry<'_>]) -> Option<Foreign> {
    let used_up = entries.iter().any(|entry| entry.name.is_exhausted());
    let other = entries.iter().find(|entry| !entry.name.is_ours());
    let other = other.filter(|_| used_up)?;
    Some(Foreign {
        node: other.name.text.to_owned(),
        library: other.name.kind.library(),
        dialect: None,
        by_number: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::name::prefix;

    const MUTEX: Contest = Contest {
        dialect: Dialect::Curator,
        role: Role::Exclusive,
        permits: 0,
    };
    const READ: Contest = Contest {
        dialect: Dialect::Curator,
        role: Role::Read,
        permits: 0,
    };
    const WRITE: Contest = Contest {
        dialect: Dialect::Curator,
        role: Role::Write,
        permits: 0,
    };

    /// `w3 r1 l7` is a writer with the number 3, a reader with 1 and a mutex with 7.
    fn children(spec: &str) -> Vec<String> {
        spec.split_whitespace().map(node).collect()
    }

    fn node(spec: &str) -> String {
        let role = match spec.as_bytes()[0] {
            b'r' => Role::Read,
            b'w' => Role::Write,
            _ => Role::Exclusive,
        };
        let number = number(spec);
        format!("{}{number:010}", prefix(Dialect::Curator, role, &id(spec)))
    }

    fn number(spec: &str) -> i64 {
        spec[1..].trim_end_matches('\'').parse().unwrap()
    }

    /// An id as we write them.
    fn id(spec: &str) -> String {
        let (number, length) = (number(spec), spec.len());
        format!("{number:08x}-0000-8000-8000-{length:012x}")
    }

    fn behind(spec: &str, ahead: usize, last: bool) -> Place {
        Place::Behind(Behind {
            nearest: node(spec),
            ahead,
            last,
        })
    }

    #[test]
    fn each_role_waits_for_the_nearest_node_it_cannot_share_with() {
        #[rustfmt::skip]
        let table = [
            // queue           me     contest  place
            ("l1",            "l1",  MUTEX,   Place::First),
            ("l2 l1",         "l2",  MUTEX,   behind("l1", 1, true)),
            ("l3 l1 l2",      "l3",  MUTEX,   behind("l2", 2, false)),
            ("l1 l3",         "l9",  MUTEX,   Place::Missing),
            ("w1",            "w1",  WRITE,   Place::First),
            ("r1 r2",         "r2",  READ,    Place::First),
            ("w1 r2 r3",      "r3",  READ,    behind("w1", 1, false)),
            ("r1 w2 r3",      "r3",  READ,    behind("w2", 1, false)),
            ("w1 w2 r3",      "r3",  READ,    behind("w2", 2, false)),
            ("r1 w2",         "w2",  WRITE,   behind("r1", 1, false)),
            ("r1 w2 r3",      "r1",  READ,    Place::First),
            // A writer that has just downgraded has two nodes with one number.
            ("w5 r5 w6",      "w6",  WRITE,   behind("r5", 2, false)),
            ("w5 r5 r7",      "r7",  READ,    behind("w5", 1, false)),
            ("r5 w6",         "r5",  READ,    Place::First),
        ];
        for (queue, me, contest, expected) in table {
            let place = contest.place(&children(queue), &node(me));
            // Two nodes with one number are equally near.
            let place = match (place, queue) {
                (Place::Behind(found), "w5 r5 w6") => behind("r5", found.ahead, found.last),
                (place, _) => place,
            };
            assert_eq!(place, expected, "{me} in {queue}");
        }
    }

    #[test]
    fn used_up_numbers_are_ordered_by_birth() {
        let queue = children("l2147483647 l2147483647' l2147483646");
        let Place::Exhausted(names) = MUTEX.place(&queue, &queue[0]) else {
            panic!("two nodes have the same number");
        };
        assert_eq!(names, queue);
        let births = queue.iter().cloned().zip([30, 20, 10]).collect();
        let last = |nearest: &String, ahead| {
            Place::Behind(Behind {
                nearest: nearest.clone(),
                ahead,
                last: false,
            })
        };
        assert_eq!(MUTEX.place_by_birth(&births, &queue[2]), Place::First);
        assert_eq!(MUTEX.place_by_birth(&births, &queue[1]), last(&queue[2], 1));
        assert_eq!(MUTEX.place_by_birth(&births, &queue[0]), last(&queue[1], 2));
        assert_eq!(MUTEX.place(&queue, "gone"), Place::Missing);
    }

    #[test]
    fn used_up_numbers_exclude_nobody_who_goes_by_them() {
        let kazoo = Contest {
            dialect: Dialect::Kazoo,
            ..MUTEX
        };
        #[rustfmt::skip]
        let table = [
            (MUTEX, "x-12-"),
            (MUTEX, "_c_6f9c1c9e5a0b4b579a3e0123456789ab-lock-"),
            (MUTEX, "_c_6f9c1c9e-5a0b-4b57-9a3e-0123456789ab-lock-"),
            (READ,  "_c_6f9c1c9e-5a0b-4b57-9a3e-0123456789ab-__READ__"),
            (WRITE, "_c_6f9c1c9e-5a0b-4b57-9a3e-0123456789ab-__READ__"),
            (kazoo, "6f9c1c9e5a0b4b579a3e0123456789ab__lock__"),
        ];
        for (contest, other) in table {
            for (ours, theirs) in [(7, 8), (7, 6), (6, 7), (6, 5)] {
                let mine = prefix(contest.dialect, contest.role, &id("l7"));
                let queue = [(mine, ours), (other.to_owned(), theirs)];
                let queue = queue.map(|(name, digit)| format!("{name}214748364{digit}"));
                let expected = Foreign {
                    node: queue[1].clone(),
                    library: NodeName::parse(&queue[1]).unwrap().kind.library(),
                    dialect: None,
                    by_number: true,
                };
                let used_up = 7 <= ours.max(theirs);
                let place = contest.place(&queue, &queue[0]);
                let refused = place == Place::Foreign(expected.clone());
                assert_eq!(refused, used_up, "{queue:?}: {place:?}");
                // Who comes now gets such a number, too, as soon as one was given out.
                let taken = contest.is_taken(&queue);
                assert_eq!(taken == Err(expected), used_up, "{queue:?}: {taken:?}");
            }
        }
    }

    #[test]
    fn nobody_pretends_to_exclude_who_would_not_wait() {
        let mut queue = children("l1");
        assert_eq!(MUTEX.is_taken(&queue), Ok(true));
        queue.push("readme".into());
        assert_eq!(MUTEX.place(&queue, &node("l1")), Place::First);
        queue.push("6f9c1c9e5a0b4b579a3e0123456789ab__lock__0000000003".into());
        let foreign = MUTEX.is_taken(&queue).unwrap_err();
        assert_eq!(foreign.node, queue[2]);
        assert_eq!(foreign.dialect, Some(Dialect::Kazoo));
        assert_eq!(MUTEX.place(&queue, &node("l1")), Place::Foreign(foreign));
        for contest in [READ, WRITE] {
            assert!(matches!(
                contest.place(&queue[..1], "me"),
                Place::Foreign(_)
            ));
        }
    }

    #[test]
    fn a_lock_is_no_neighbour_for_a_semaphore() {
        const LEASE: &str = "6f9c1c9e5a0b4b579a3e0123456789ab";
        let lock = node("l1");
        let (curator, kazoo) = (Dialect::Curator, Dialect::Kazoo);
        #[rustfmt::skip]
        let table = [
            (curator, ["locks", "leases", "readme"], None),
            (curator, ["locks", "leases", &lock],    Some((lock.as_str(), None))),
            (curator, ["locks", "leases", LEASE],    Some((LEASE, Some(kazoo)))),
            (kazoo,   ["readme", "leases", LEASE],   None),
            (kazoo,   [LEASE, "readme", &lock],      Some((lock.as_str(), None))),
            (kazoo,   [LEASE, "locks", "leases"],    Some(("leases", Some(curator)))),
        ];
        for (dialect, names, expected) in table {
            let children = names.map(str::to_owned);
            let found = beside_semaphore(dialect, &children);
            let found = found.as_ref().map(|f| (f.node.as_str(), f.dialect));
            assert_eq!(found, expected, "{dialect:?}: {names:?}");
            let permit = Contest {
                dialect,
                role: Role::Permit,
                permits: 9,
            };
            // Where permits stand beside such neighbours they are seen with every look.
            let refused = permit.is_taken(&children).is_err();
            assert_eq!(refused, dialect == kazoo && expected.is_some());
            let refused = matches!(permit.place(&children, names[0]), Place::Foreign(_));
            assert_eq!(refused, dialect == kazoo && expected.is_some());
        }
    }

    #[test]
    fn a_semaphore_is_no_neighbour_for_a_lock() {
        let table = [
            ("locks leases", Some("leases")),
            (
                "6f9c1c9e5a0b4b579a3e0123456789ab",
                Some("6f9c1c9e5a0b4b579a3e0123456789ab"),
            ),
            // Folders of other locks, whose names mean nothing by themselves.
            ("locks", None),
            ("leases readme", None),
        ];
        for (names, expected) in table {
            let queue: Vec<_> = names.split(' ').map(str::to_owned).collect();
            for contest in [MUTEX, READ, WRITE] {
                let foreign = contest.is_taken(&queue).err();
                assert_eq!(foreign.map(|f| f.node).as_deref(), expected, "{names}");
            }
            let permit = Contest {
                role: Role::Permit,
                ..MUTEX
            };
            assert!(permit.is_taken(&queue).is_ok(), "{names}");
        }
    }

    #[test]
    fn a_reader_is_let_in_beside_readers() {
        assert_eq!(READ.is_taken(&children("r1 r2")), Ok(false));
        assert_eq!(WRITE.is_taken(&children("r1 r2")), Ok(true));
        assert_eq!(READ.is_taken(&children("r1 w2")), Ok(true));
        assert_eq!(WRITE.is_taken(&[]), Ok(false));
    }

    #[test]
    fn holders_are_told_from_those_who_wait() {
        let queue = children("r1 r2 w3 r4");
        let holds = |spec| WRITE.holds(&queue, &node(spec));
        assert_eq!(
            ["r1", "r2", "w3", "r4", "w9"].map(holds),
            [true, true, false, false, false]
        );
    }

    #[test]
    fn a_permit_is_there_while_the_directory_is_not_crowded() {
        let contest = Contest {
            dialect: Dialect::Curator,
            role: Role::Permit,
            permits: 2,
        };
        let children =
            ["_c_a-lease-0000000001", "stray", "_c_b-lease-0000000002"].map(String::from);
        assert_eq!(contest.is_taken(&children[..1]), Ok(false));
        assert_eq!(contest.is_taken(&children[..2]), Ok(true));
        assert_eq!(contest.place(&children[..2], &children[0]), Place::First);
        assert_eq!(contest.place(&children, &children[2]), Place::Crowded(1));
        assert_eq!(contest.place(&children, "gone"), Place::Missing);
    }

    #[test]
    fn our_own_nodes_are_found_lowest_first() {
        let queue = children("l2 l7 l12 l1");
        let mine = |spec: &str| prefix(Dialect::Curator, Role::Exclusive, &id(spec));
        assert_eq!(own(&queue, &mine("l7"))[0].text, node("l7"));
        assert!(own(&queue, &mine("l9")).is_empty());
        let twice = vec![mine("l3") + "0000000012", mine("l3") + "0000000009"];
        assert_eq!(own(&twice, &mine("l3"))[0].sequence, 9);
    }
}
