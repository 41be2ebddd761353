//! Which member owns which shards.
//!
//! Every member computes this by itself from the members' names alone, so all of them come to the same
//! result as soon as they see the same members. Each shard goes to the member that has the highest score
//! for it and has room, as in highest random weight hashing (Thaler and Ravishankar, 1998); the room makes
//! the numbers of shards differ by one at most. A member that comes takes shards from all others, and those
//! of a member that goes are divided among the rest: few others move.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Returns the shards below `count` that `mine` owns among these members, each named once; none if `mine`
/// is not among them.
pub fn shards_of(members: &[&str], mine: &str, count: u32) -> BTreeSet<u32> {
    let mut members: Vec<_> = members.iter().map(|name| (hash(name), *name, 0)).collect();
    members.sort_unstable();
    members.dedup();
    let most = u32::try_from(members.len()).unwrap_or(u32::MAX).max(1);
    let (least, mut larger) = (count / most, count % most);
    let mut owned = BTreeSet::new();
    for shard in 0..count {
        let has_room = |had: u32| had < least || (had == least && 0 < larger);
        let open = members.iter_mut().filter(|(.., had)| has_room(*had));
        let Some((_, name, had)) = open.max_by_key(|(member, ..)| score(*member, shard)) else {
            break;
        };
        if *had == least {
            larger -= 1;
        }
        *had += 1;
        if *name == mine {
            owned.insert(shard);
        }
    }
    owned
}

/// FNV-1a. All versions of this library must agree on this hash.
fn hash(name: &str) -> u64 {
    let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// The last steps of MurmurHash3, which spread close numbers.
fn score(member: u64, shard: u32) -> u64 {
    let mut mixed = member ^ u64::from(shard).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    mixed ^ (mixed >> 33)
}

#[cfg(test)]
mod tests {
    use proptest::collection::btree_set;
    use proptest::prelude::*;

    use super::*;

    fn owners<'a>(members: &[&'a str], count: u32) -> Vec<&'a str> {
        let owned: Vec<_> = members
            .iter()
            .map(|mine| (*mine, shards_of(members, mine, count)))
            .collect();
        let owner = |shard| {
            let of: Vec<_> = owned.iter().filter(|one| one.1.contains(&shard)).collect();
            assert_eq!(of.len(), 1, "shard {shard} of {members:?}");
            of[0].0
        };
        (0..count).map(owner).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn every_shard_has_one_owner_and_no_member_has_two_more_than_another(
            members in btree_set("[a-z0-9-]{1,12}", 1..12),
            count in 0..60_u32,
            turned in any::<prop::sample::Index>(),
        ) {
            let members: Vec<_> = members.iter().map(String::as_str).collect();
            let owners_of = owners(&members, count);
            let number = |member| owners_of.iter().filter(|owner| *owner == member).count();
            let numbers: BTreeSet<_> = members.iter().map(number).collect();
            prop_assert!(numbers.last().unwrap() - numbers.first().unwrap() <= 1);
            // The order of a listing means nothing.
            let mut other = members.clone();
            other.rotate_left(turned.index(members.len()));
            prop_assert_eq!(owners(&other, count), owners_of);
        }

        #[test]
        fn who_is_no_member_owns_nothing(count in 0..20_u32) {
            prop_assert!(shards_of(&[], "a", count).is_empty());
            prop_assert!(shards_of(&["b", "c"], "a", count).is_empty());
        }
    }

    /// Members that run different versions must come to the same result.
    #[test]
    fn the_owners_stay_what_they_are() {
        let owners = owners(&["a", "b", "c"], 9);
        assert_eq!(owners.concat(), "aacbaccbb");
    }

    /// A member that comes must get its part; twice as much may move, not everything.
    #[test]
    fn who_comes_or_goes_moves_few_shards_of_others() {
        let names: Vec<_> = (0..10).map(|at| format!("_c_{at}-READ-{at:010}")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        for members in 2..10 {
            let [before, after] = [members, members + 1].map(|all| owners(&names[..all], 120));
            let moved = before
                .iter()
                .zip(&after)
                .filter(|(one, other)| one != other);
            let part = 120 / (members + 1);
            let moved = moved.count();
            assert!(
                (part..=2 * part).contains(&moved),
                "{members}: {moved}, not {part}"
            );
        }
    }
}
