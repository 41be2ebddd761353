use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use super::*;
use crate::name::prefix;

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

/// `w3 r1 l7 h2` is a writer with the number 3, a reader with 1, a mutex with 7 and a hold with 2.
fn children(spec: &str) -> Names {
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

/// Returns an id as we write them.
fn id(spec: &str) -> String {
    let (number, length) = (number(spec), spec.len());
    let begin = if spec.starts_with('h') {
        0x401d_401d
    } else {
        number
    };
    format!("{begin:08x}-0000-8000-8000-{length:012x}")
}

fn blocked(spec: &str, ahead: usize, holds: bool, last: bool) -> Place {
    Place::Blocked(Blocked {
        nearest: node(spec),
        ahead,
        holds,
        last,
        ..Blocked::default()
    })
}

/// Returns the place of a waiter behind the holder and other waiters.
fn behind_two(nearest: &str, beyond: &str, ahead: usize) -> Place {
    Place::Blocked(Blocked {
        nearest: node(nearest),
        ahead,
        holds: false,
        last: false,
        beyond: Some(node(beyond)),
        last_but_one: ahead == 2 && beyond.starts_with('l'),
    })
}

#[test]
fn each_role_waits_for_the_nearest_node_it_cannot_share_with() {
    #[rustfmt::skip]
    let table = [
        // queue           me     contest  place
        ("l1",            "l1",  MUTEX,   Place::First),
        ("l2 l1",         "l2",  MUTEX,   blocked("l1", 1, true, true)),
        ("l3 l1 l2",      "l3",  MUTEX,   behind_two("l2", "l1", 2)),
        ("l1 l2 l3 l4",   "l4",  MUTEX,   behind_two("l3", "l2", 3)),
        // A writer's number may soon be a reader's, and a waiter is told until when a hold stands.
        ("w1 l2 l3",      "l3",  MUTEX,   behind_two("l2", "w1", 2)),
        ("h1 l2 l3",      "l3",  MUTEX,   behind_two("l2", "h1", 2)),
        ("l1 l3",         "l9",  MUTEX,   Place::Missing),
        ("w1",            "w1",  WRITE,   Place::First),
        ("r1 r2",         "r2",  READ,    Place::First),
        ("w1 r2 r3",      "r3",  READ,    blocked("w1", 1, true, true)),
        ("r1 w2 r3",      "r3",  READ,    blocked("w2", 1, false, true)),
        ("w1 w2 r3",      "r3",  READ,    blocked("w2", 2, false, false)),
        ("r1 w2 w3 r4",   "r4",  READ,    blocked("w3", 2, false, false)),
        ("w1 r2 w3 r4",   "r4",  READ,    blocked("w3", 2, false, false)),
        ("w1 w2",         "w2",  WRITE,   blocked("w1", 1, true, false)),
        ("w1 r2 w3",      "w3",  WRITE,   blocked("r2", 2, false, false)),
        ("r1 w2",         "w2",  WRITE,   blocked("r1", 1, true, true)),
        ("r1 r2 w3",      "w3",  WRITE,   blocked("r2", 2, true, false)),
        ("r1 w2 r3",      "r1",  READ,    Place::First),
        // A writer that has just downgraded has two nodes with one number.
        ("w5 r5 w6",      "w6",  WRITE,   blocked("r5", 2, true, false)),
        ("w5 r5 r7",      "r7",  READ,    blocked("w5", 1, true, true)),
        ("r5 w6",         "r5",  READ,    Place::First),
    ];
    for (queue, me, contest, expected) in table {
        let place = contest.place(&children(queue), &node(me));
        // Two nodes with one number are equally near.
        let place = match (place, queue) {
            (Place::Blocked(found), "w5 r5 w6") => {
                blocked("r5", found.ahead, found.holds, found.last)
            }
            (place, _) => place,
        };
        assert_eq!(place, expected, "{me} in {queue}");
    }
}

#[test]
fn used_up_numbers_are_ordered_by_birth() {
    let queue = children("l2147483647 l2147483647' l2147483646");
    let nodes: Vec<_> = queue.iter().collect();
    let Place::Exhausted(names) = MUTEX.place(&queue, nodes[0]) else {
        panic!("two nodes have the same number");
    };
    assert_eq!(names, nodes);
    let births = names.into_iter().zip([30, 20, 10]).collect();
    let last = |nearest: &str, ahead| {
        Place::Blocked(Blocked {
            nearest: nearest.to_owned(),
            ahead,
            holds: ahead == 1,
            ..Blocked::default()
        })
    };
    assert_eq!(MUTEX.place_by_birth(&births, nodes[2]), Place::First);
    assert_eq!(MUTEX.place_by_birth(&births, nodes[1]), last(nodes[2], 1));
    assert_eq!(MUTEX.place_by_birth(&births, nodes[0]), last(nodes[1], 2));
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
            let [mine, other] = queue.map(|(name, digit)| format!("{name}214748364{digit}"));
            let queue = [&mine, &other].into_iter().collect();
            let expected = Foreign {
                node: other.clone(),
                library: NodeName::parse(&other).unwrap().kind.library(),
                dialect: None,
                by_number: true,
            };
            let used_up = 7 <= ours.max(theirs);
            let place = contest.place(&queue, &mine);
            let refused = place == Place::Foreign(expected.clone());
            assert_eq!(refused, used_up, "{queue:?}: {place:?}");
            // A newcomer gets such a number too, as soon as one was given out.
            let taken = contest.is_taken(&queue);
            assert_eq!(taken == Err(expected), used_up, "{queue:?}: {taken:?}");
        }
    }
}

#[test]
fn nobody_pretends_to_exclude_who_would_not_wait() {
    let mut queue = children("l1");
    assert_eq!(MUTEX.is_taken(&queue), Ok(true));
    queue.push("readme");
    assert_eq!(MUTEX.place(&queue, &node("l1")), Place::First);
    const KAZOO: &str = "6f9c1c9e5a0b4b579a3e0123456789ab__lock__0000000003";
    queue.push(KAZOO);
    let foreign = MUTEX.is_taken(&queue).unwrap_err();
    assert_eq!(foreign.node, KAZOO);
    assert_eq!(foreign.dialect, Some(Dialect::Kazoo));
    assert_eq!(MUTEX.place(&queue, &node("l1")), Place::Foreign(foreign));
    // Curator's mutexes do not wait for readers and writers.
    const CURATORS: &str = "_c_6f9c1c9e-5a0b-4b57-9a3e-0123456789ab-lock-0000000001";
    for contest in [READ, WRITE] {
        let foreign = contest.is_taken(&[CURATORS].iter().collect()).unwrap_err();
        assert_eq!(foreign.node, CURATORS);
    }
}

#[test]
fn this_librarys_mutexes_readers_and_writers_share_a_queue_in_every_dialect() {
    use Dialect::{Curator, Kazoo, LeaderLatch, Recipe};
    use Role::{Exclusive, Read, Write};
    let dialects = [Curator, Kazoo, LeaderLatch, Recipe];
    let contests = dialects.map(|dialect| {
        [Exclusive, Read, Write].map(|role| Contest {
            dialect,
            role,
            permits: 0,
        })
    });
    let node = |contest: Contest, number: i64| {
        let id = id(&format!("l{number}"));
        format!("{}{number:010}", prefix(contest.dialect, contest.role, &id))
    };
    for first in contests.iter().flatten() {
        for second in contests.iter().flatten() {
            let [one, two] = [node(*first, 1), node(*second, 2)];
            let queue: Names = [&two, &one].into_iter().collect();
            let shares = (first.role, second.role) == (Read, Read);
            assert_eq!(first.place(&queue, &one), Place::First);
            match second.place(&queue, &two) {
                Place::First => assert!(shares, "{two} beside {one}"),
                Place::Blocked(blocked) => {
                    assert!(!shares && blocked.holds && blocked.nearest == one);
                    // Another library that waits for the first may not wait for the second.
                    let kind = NodeName::parse(&one).unwrap().kind;
                    let known = second.dialect.stance(second.role, kind);
                    let known = matches!(known, Stance::Contends(_));
                    let plain = match (kind, first.role) {
                        (Kind::Lock, _) | (_, Read) => true,
                        (Kind::Latch, _) => false,
                        // It may become a reader.
                        _ => second.role == Read,
                    };
                    assert_eq!(blocked.last, plain && known, "{two} behind {one}");
                }
                place => panic!("{two} behind {one}: {place:?}"),
            }
        }
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
        (kazoo,   ["readme", "locks", LEASE],    None),
        // The line of Curator's semaphore is deleted while nobody waits.
        (kazoo,   ["readme", "leases", LEASE],   Some(("leases", Some(curator)))),
        (kazoo,   [LEASE, "readme", &lock],      Some((lock.as_str(), None))),
        (kazoo,   [LEASE, "locks", "leases"],    Some(("leases", Some(curator)))),
    ];
    for (dialect, names, expected) in table {
        let children: Names = names.iter().collect();
        let found = beside_semaphore(dialect, &children);
        let found = found.as_ref().map(|f| (f.node.as_str(), f.dialect));
        assert_eq!(found, expected, "{dialect:?}: {names:?}");
        let permit = Contest {
            dialect,
            role: Role::Permit,
            permits: 9,
        };
        // Where permits stand beside such neighbours, every look sees them.
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
        // The folder of another lock, whose name means nothing.
        ("locks", None),
        ("leases readme", Some("leases")),
    ];
    for (names, expected) in table {
        let queue: Names = names.split(' ').collect();
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
    assert_eq!(WRITE.is_taken(&Names::default()), Ok(false));
}

#[test]
fn a_permit_is_there_while_the_directory_is_not_crowded() {
    let contest = Contest {
        dialect: Dialect::Curator,
        role: Role::Permit,
        permits: 2,
    };
    let all = ["_c_a-lease-0000000001", "stray", "_c_b-lease-0000000002"];
    let first = |count| all[..count].iter().collect::<Names>();
    assert_eq!(contest.is_taken(&first(1)), Ok(false));
    assert_eq!(contest.is_taken(&first(2)), Ok(true));
    assert_eq!(contest.place(&first(2), all[0]), Place::First);
    assert_eq!(contest.place(&first(3), all[2]), Place::Crowded(1));
    assert_eq!(contest.place(&first(3), "gone"), Place::Missing);
}

#[test]
fn our_own_nodes_are_found_lowest_first() {
    let queue = children("l2 l7 l12 l1");
    let mine = |spec: &str| prefix(Dialect::Curator, Role::Exclusive, &id(spec));
    assert_eq!(own(&queue, &mine("l7"))[0].text, node("l7"));
    assert!(own(&queue, &mine("l9")).is_empty());
    let twice = [12, 9].map(|number| format!("{}{number:010}", mine("l3")));
    let twice = twice.iter().collect();
    assert_eq!(own(&twice, &mine("l3"))[0].sequence, 9);
}
