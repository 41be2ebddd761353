//! How a contender that comes back to a queue knows that nobody has joined it since.
//!
//! A contender that is granted a lock has nobody ahead of it, and every later contender uses up a number:
//! the directory counts every child that is created, whatever its name. So if a contender releases a lock
//! and comes back with the very next number, nobody has come in between, nobody can be ahead, and the queue
//! need not be listed. By then its own last node must be known to be gone: while that node is being
//! deleted, an operation in doubt under it may still be carried out.
//!
//! A directory that was deleted and created again counts from 0. The number of transactions since tells
//! whether it is the same directory: counting as far takes as many, as long as nobody creates several
//! children of one lock's directory in a single transaction, which no client does for a lock.

use super::attempt::action_and_event::{Origin, OwnNode};
use super::name::NodeName;

/// How many times in a row nobody must have come for nobody to be expected the next time.
///
/// A wrong guess costs one round trip; a right one saves the server a listing.
const HABIT: u32 = 16;

/// The last grant of a lock to a contender that has released it since.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct LastGrant {
    number: i64,
    origin: Origin,
    /// How often in a row nobody had come since the previous grant.
    alone: u32,
}

impl LastGrant {
    /// Creates the record of the grant to `mine`, after the one `before`.
    pub fn new(mine: &OwnNode, before: Option<Self>) -> Option<Self> {
        let followed = before.filter(|before| before.is_followed_by(mine));
        Some(Self {
            number: number(mine)?,
            origin: mine.origin,
            alone: followed.map_or(0, |before| before.alone.saturating_add(1)),
        })
    }

    /// Returns the number of the node that was granted the lock.
    pub fn number(&self) -> i64 {
        self.number
    }

    /// Returns whether nobody joined the queue between this grant and the creation of `mine`.
    ///
    /// Transaction ids can be compared within one session. If more transactions lie in between than this
    /// grant's number, the directory may be another one.
    pub fn is_followed_by(&self, mine: &OwnNode) -> bool {
        let transactions = mine.origin.czxid.checked_sub(self.origin.czxid);
        let same = mine.origin.owner == self.origin.owner
            && transactions.is_some_and(|count| (1..=self.number).contains(&count));
        same && number(mine) == self.number.checked_add(1)
    }

    /// Returns whether nobody else seems to use the lock.
    pub fn is_habit(&self) -> bool {
        HABIT <= self.alone
    }
}

fn number(mine: &OwnNode) -> Option<i64> {
    let name = NodeName::parse(&mine.name).filter(|name| !name.is_exhausted());
    name.map(|name| name.sequence)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: i64 = 7;

    fn node(number: i64, czxid: i64, owner: i64) -> OwnNode {
        OwnNode {
            name: format!("_c_6f9c1c9e-5a0b-8b57-9a3e-0123456789ab-lock-{number:010}"),
            origin: Origin { owner, czxid },
        }
    }

    #[test]
    fn only_the_next_number_of_the_same_directory_follows() {
        #[rustfmt::skip]
        let table = [
            // Alone, and with other transactions in between.
            (node(42, 1001, OWNER), true),
            (node(42, 1002, OWNER), true),
            (node(42, 1041, OWNER), true),
            // In a directory made again, 42 others may have come before it.
            (node(42, 1042, OWNER), false),
            (node(42, 1043, OWNER), false),
            (node(42, 1 << 40, OWNER), false),
            // The servers lost their history, or the session is another one.
            (node(42, 1000, OWNER), false),
            (node(42, 900, OWNER), false),
            (node(42, i64::MIN, OWNER), false),
            (node(42, 1001, OWNER + 1), false),
            // Somebody has come in between, or the directory is another one.
            (node(43, 1002, OWNER), false),
            (node(41, 1002, OWNER), false),
            (node(0, 1003, OWNER), false),
        ];
        let last = LastGrant::new(&node(41, 1000, OWNER), None).unwrap();
        for (mine, follows) in table {
            assert_eq!(last.is_followed_by(&mine), follows, "{mine:?}");
        }
    }

    #[test]
    fn numbers_that_are_used_up_follow_nothing() {
        let last = LastGrant::new(&node(i64::from(i32::MAX) - 1, 1000, OWNER), None).unwrap();
        let end = node(i64::from(i32::MAX), 1001, OWNER);
        assert!(!last.is_followed_by(&end));
        assert_eq!(LastGrant::new(&end, Some(last)), None);
        assert_eq!(LastGrant::new(&node(-5, 1001, OWNER), None), None);
    }

    #[test]
    fn a_habit_takes_a_while_and_ends_at_once() {
        let grant = |number| node(number, 1000 + 2 * number, OWNER);
        let mut last = LastGrant::new(&grant(10), None);
        for number in 11..=25 {
            last = LastGrant::new(&grant(number), last);
            assert!(!last.unwrap().is_habit(), "{number}");
        }
        last = LastGrant::new(&grant(26), last);
        assert!(last.unwrap().is_habit());
        last = LastGrant::new(&grant(28), last);
        assert!(!last.unwrap().is_habit());
    }
}
