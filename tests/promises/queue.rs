//! The properties of every queue, whichever contenders are in it.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::Index;
use zklock::Dialect;
use zklock_core::Names;
use zklock_core::dialect::Role;
use zklock_core::name::NodeName;
use zklock_core::queue::{Blocked, Contest, Place, own};

/// A contender in a queue.
#[derive(Clone, Debug)]
struct Contender {
    node: String,
    contest: Contest,
    /// The order of arrival, which is also the order of the transactions.
    born: i64,
}

/// Nodes that contend with each other: their dialects, roles and names. `ID` stands for a UUID, and
/// `HEX` for a UUID without dashes.
type Family = &'static [(Dialect, Role, &'static str)];

const FAMILIES: [Family; 6] = [
    &[
        (Dialect::Curator, Role::Exclusive, "_c_ID-lock-"),
        (Dialect::Curator, Role::Exclusive, "_c_HEX-lock-"),
        (Dialect::Curator, Role::Exclusive, "x-HEX-"),
        (Dialect::Curator, Role::Exclusive, "lock-"),
    ],
    &[
        (Dialect::Curator, Role::Read, "_c_ID-__READ__"),
        (Dialect::Curator, Role::Write, "_c_ID-__WRIT__"),
    ],
    &[
        (Dialect::Kazoo, Role::Exclusive, "HEX__lock__"),
        (Dialect::Kazoo, Role::Write, "HEX__lock__"),
        (Dialect::Kazoo, Role::Read, "HEX__rlock__"),
        (Dialect::Kazoo, Role::Exclusive, "_c_HEX-lock-"),
    ],
    &[
        (Dialect::Recipe, Role::Read, "ID-read-"),
        (Dialect::Recipe, Role::Write, "ID-write-"),
    ],
    &[
        (Dialect::Recipe, Role::Exclusive, "ID-lock-"),
        (Dialect::Recipe, Role::Exclusive, "_c_ID-lock-"),
    ],
    // These are all kinds of this library's own.
    &[
        (Dialect::Curator, Role::Exclusive, "_c_ID-lock-"),
        (Dialect::Curator, Role::Read, "_c_ID-__READ__"),
        (Dialect::Curator, Role::Write, "_c_ID-__WRIT__"),
        (Dialect::Kazoo, Role::Exclusive, "HEX__lock__"),
        (Dialect::Kazoo, Role::Read, "HEX__rlock__"),
        (Dialect::Recipe, Role::Exclusive, "ID-lock-"),
        (Dialect::Recipe, Role::Read, "ID-read-"),
        (Dialect::Recipe, Role::Write, "ID-write-"),
        (Dialect::LeaderLatch, Role::Exclusive, "_c_ID-latch-"),
    ],
];

/// Returns a queue in the order of arrival, with the numbers from `number`.
fn queue(
    length: impl Into<proptest::collection::SizeRange>,
    number: impl Fn(i64, i64) -> i64 + 'static,
) -> impl Strategy<Value = Vec<Contender>> {
    let kinds = prop::collection::vec((any::<Index>(), any::<u128>(), 1_i64..4), length);
    let start = prop_oneof![0_i64..3, 5_i64..12, 999_999_990_i64..1_000_000_000];
    (any::<Index>(), start, kinds).prop_map(move |(family, start, kinds)| {
        let kinds_there = *family.get(&FAMILIES);
        let mut arrival = 0;
        let contenders = kinds.iter().map(|(kind, id, gap)| {
            arrival += gap;
            let (dialect, role, name) = *kind.get(kinds_there);
            // The id is of the version that our names have.
            let id = uuid::Builder::from_custom_bytes(id.to_be_bytes()).into_uuid();
            let stem = name
                .replace("ID", &id.to_string())
                .replace("HEX", &id.simple().to_string());
            Contender {
                node: format!("{stem}{:010}", number(start, arrival)),
                contest: Contest {
                    dialect,
                    role,
                    permits: 0,
                },
                born: 1000 + arrival,
            }
        });
        contenders.collect()
    })
}

/// Returns queues whose numbers show the order.
fn numbered() -> impl Strategy<Value = Vec<Contender>> {
    queue(1..9, |start, arrival| start + arrival)
}

/// Returns queues of a directory whose numbers are used up: they repeat, or turn negative.
fn exhausted() -> impl Strategy<Value = Vec<Contender>> {
    let repeat = |_, arrival: i64| 2_147_483_643_i64.saturating_add(arrival).min(2_147_483_647);
    let turn = |_, arrival: i64| i64::from((2_147_483_643_i64 + arrival) as i32);
    prop_oneof![queue(4..9, repeat), queue(4..9, turn)].prop_filter("distinct names", |queue| {
        let mut names = names(queue);
        names.sort();
        let distinct = names.windows(2).all(|pair| pair[0] != pair[1]);
        distinct && !names.iter().any(|name| goes_by_numbers(name))
    })
}

/// Returns whether the name is not ours: once the numbers are used up, there is no queue with
/// clients that know only the order of the numbers.
fn goes_by_numbers(name: &str) -> bool {
    NodeName::parse(name).is_none_or(|name| !name.is_ours())
}

fn names(queue: &[Contender]) -> Vec<String> {
    queue.iter().map(|c| c.node.clone()).collect()
}

/// Returns whether two contenders exclude each other, by the promise and not by the protocol's
/// table.
fn excludes(one: &Contender, other: &Contender) -> bool {
    one.contest.role != Role::Read || other.contest.role != Role::Read
}

/// Returns the contender's place, as an attempt finds it: by numbers, or else by creation.
fn place(queue: &[Contender], listing: &[String], me: &Contender) -> Place {
    match me.contest.place(&listing.iter().collect(), &me.node) {
        Place::Exhausted(asked) => {
            let births: BTreeMap<_, _> = queue
                .iter()
                .filter(|c| asked.contains(&c.node))
                .map(|c| (c.node.clone(), c.born))
                .collect();
            me.contest.place_by_birth(&births, &me.node)
        }
        place => place,
    }
}

/// Returns for whom each contender waits, by position; `None` for those whose turn it is.
fn waits(queue: &[Contender], listing: &[String]) -> Vec<Option<(usize, Blocked)>> {
    let wait = |me: &Contender| match place(queue, listing, me) {
        Place::First => None,
        Place::Blocked(behind) => {
            let at = queue.iter().position(|c| c.node == behind.nearest);
            Some((at.expect("it is in the queue"), behind))
        }
        place => panic!("{} in {listing:?}: {place:?}", me.node),
    };
    queue.iter().map(wait).collect()
}

/// Checks each contender's place in a listing of the queue.
fn check(queue: &[Contender], listing: &[String]) -> Result<(), TestCaseError> {
    let waits = waits(queue, listing);
    for (i, me) in queue.iter().enumerate() {
        let ahead: Vec<_> = (0..i).filter(|j| excludes(&queue[*j], me)).collect();
        match &waits[i] {
            None => prop_assert!(ahead.is_empty(), "{} is not the first", me.node),
            Some((nearest, behind)) => {
                // So nobody waits for a later contender, and no ring of waiters can form.
                prop_assert_eq!(Some(nearest), ahead.last());
                prop_assert_eq!(behind.ahead, ahead.len());
                prop_assert!(!behind.last || ahead.len() == 1, "somebody else is ahead");
            }
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn everyone_waits_for_the_nearest_that_excludes_it(
        (queue, listing) in numbered().prop_flat_map(|queue| {
            let listing = Just(names(&queue)).prop_shuffle();
            (Just(queue), listing)
        })
    ) {
        check(&queue, &listing)?;
    }

    #[test]
    fn so_it_is_when_the_numbers_are_used_up(
        (queue, listing) in exhausted().prop_flat_map(|queue| {
            let listing = Just(names(&queue)).prop_shuffle();
            (Just(queue), listing)
        })
    ) {
        check(&queue, &listing)?;
    }

    #[test]
    fn the_heads_can_hold_together_and_nobody_else_with_them(queue in numbered()) {
        let waits = waits(&queue, &names(&queue));
        let heads: Vec<_> = (0..queue.len()).filter(|i| waits[*i].is_none()).collect();
        prop_assert_eq!(heads.first(), Some(&0));
        for (i, me) in queue.iter().enumerate() {
            let excluded = |them: &[usize]| them.iter().any(|j| excludes(&queue[*j], me));
            let others: Vec<_> = heads.iter().copied().filter(|j| *j != i).collect();
            let ahead: Vec<_> = (0..i).collect();
            match heads.contains(&i) {
                true => prop_assert!(!excluded(&others), "{} holds beside others", me.node),
                false => prop_assert!(excluded(&ahead), "{} waits for nobody", me.node),
            }
        }
    }

    #[test]
    fn only_the_departure_of_the_nearest_changes_anything(
        queue in prop_oneof![numbered(), exhausted()],
        me in any::<Index>(),
    ) {
        let me = me.index(queue.len());
        let before = waits(&queue, &names(&queue));
        for gone in (0..queue.len()).filter(|gone| *gone != me) {
            let mut rest = queue.clone();
            rest.remove(gone);
            let after = place(&rest, &names(&rest), &queue[me]);
            match (&before[me], after) {
                (None, after) => prop_assert_eq!(after, Place::First),
                (Some((nearest, behind)), Place::Blocked(after)) if *nearest != gone => {
                    prop_assert_eq!(&after.nearest, &behind.nearest);
                }
                (Some((nearest, behind)), after) => {
                    prop_assert_eq!(*nearest, gone);
                    prop_assert_eq!(after == Place::First, behind.ahead == 1);
                }
            }
        }
    }

    #[test]
    fn after_the_last_one_ahead_it_is_my_turn_whoever_comes(
        queue in numbered(),
        me in any::<Index>(),
    ) {
        let me = me.index(queue.len());
        let known = &queue[..=me];
        if let Some((nearest, Blocked { last: true, .. })) = &waits(known, &names(known))[me] {
            let mut rest = queue.clone();
            rest.remove(*nearest);
            prop_assert_eq!(place(&rest, &names(&rest), &queue[me]), Place::First);
        }
    }

    #[test]
    fn when_the_one_beyond_has_gone_the_nearest_is_the_last_if_there_were_two(
        queue in numbered(),
        me in any::<Index>(),
    ) {
        let me = me.index(queue.len());
        let Some((_, behind)) = &waits(&queue, &names(&queue))[me] else {
            return Ok(());
        };
        let Some(beyond) = &behind.beyond else {
            return Ok(());
        };
        let mut rest = queue.clone();
        rest.retain(|contender| contender.node != *beyond);
        let Place::Blocked(after) = place(&rest, &names(&rest), &queue[me]) else {
            return Err(TestCaseError::fail("the nearest is still ahead"));
        };
        prop_assert_eq!(&after.nearest, &behind.nearest);
        let ahead = rest[..me - 1].iter();
        let ahead = ahead.filter(|other| excludes(other, &queue[me])).count();
        prop_assert_eq!(after.last, ahead == 1);
        prop_assert!(!behind.last_but_one || (after.last && after.holds));
    }

    #[test]
    fn a_queue_is_taken_if_a_newcomer_would_have_to_wait(queue in numbered()) {
        let (newcomer, there) = queue.split_last().expect("it is not empty");
        let taken = newcomer.contest.is_taken(&names(there).iter().collect());
        let waits = place(&queue, &names(&queue), newcomer) != Place::First;
        prop_assert_eq!(taken, Ok(waits));
    }

    #[test]
    fn strangers_change_nothing(
        queue in numbered(),
        strangers in prop::collection::vec("[a-z]{1,8}(-[0-9]{1,9})?", 0..4),
    ) {
        let mut listing = names(&queue);
        listing.splice(0..0, strangers);
        prop_assert_eq!(waits(&queue, &listing), waits(&queue, &names(&queue)));
    }

    #[test]
    fn who_is_not_listed_is_missing(queue in numbered(), me in any::<Index>()) {
        let me = me.index(queue.len());
        let mut rest = queue.clone();
        rest.remove(me);
        prop_assert_eq!(place(&rest, &names(&rest), &queue[me]), Place::Missing);
    }

    #[test]
    fn only_nodes_with_our_prefix_are_ours(queue in numbered(), me in any::<Index>()) {
        let me = me.get(&queue);
        let prefix = &me.node[..me.node.len() - 10];
        let listing: Names = names(&queue).iter().collect();
        let found = own(&listing, prefix);
        prop_assert!(found.iter().any(|name| name.text == me.node));
        prop_assert!(found.iter().all(|name| name.text.starts_with(prefix)));
        prop_assert!(found.windows(2).all(|pair| pair[0].sequence <= pair[1].sequence));
    }

    #[test]
    fn contenders_are_listed_first_come_first(queue in numbered()) {
        let listing: Names = names(&queue).iter().rev().collect();
        let found = queue[0].contest.contenders(&listing);
        let found: Vec<_> = found.iter().map(|name| name.text).collect();
        prop_assert_eq!(found, names(&queue));
    }
}
