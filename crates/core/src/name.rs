//! Node names: `_c_6f9c..-lock-0000000042` and what they mean.

use alloc::string::String;
use alloc::vec::Vec;

use super::dialect::{Dialect, Kind, Role, Sharing};

/// The number from which on a directory's numbers say nothing about the order: ZooKeeper 3.6 and later
/// repeat the last number, earlier versions continue with negative numbers.
pub const LAST_SEQUENCE: i64 = i32::MAX as i64;

/// The least number of digits that ZooKeeper writes; a minus sign takes the place of one.
const DIGITS: usize = 10;

/// The beginning of a hold's id. One other id in 2^32 begins the same: the node's owner decides.
const HOLD: &str = "401d401d";

/// The tokens of all kinds, the most common ones first.
#[rustfmt::skip]
const TOKENS: [(&str, Kind); 9] = [
    ("lock-",     Kind::Lock),
    ("__lock__",  Kind::KazooLock),
    ("__rlock__", Kind::KazooRead),
    ("__READ__",  Kind::CuratorRead),
    ("__WRIT__",  Kind::CuratorWrite),
    ("-read-",    Kind::RecipeRead),
    ("-write-",   Kind::RecipeWrite),
    ("latch-",    Kind::Latch),
    ("lease-",    Kind::Lease),
];

/// The name of one contender's node, taken apart.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct NodeName<'a> {
    /// The name as it stands in ZooKeeper.
    pub text: &'a str,
    /// The kind of the contender, which the name shows.
    pub kind: Kind,
    /// The number that ZooKeeper chose; 0 where there is none.
    pub sequence: i64,
}

impl<'a> NodeName<'a> {
    /// Reads a name, or returns `None` if it is not a contender's in any dialect.
    pub fn parse(text: &'a str) -> Option<Self> {
        if is_hex_id(text) {
            return Some(Self {
                text,
                kind: Kind::KazooLease,
                sequence: 0,
            });
        }
        let count = text.bytes().rev().take_while(u8::is_ascii_digit).count();
        let (stem, digits) = text.split_at(text.len() - count);
        let (kind, number) = match kind_of(stem) {
            Some(kind) if DIGITS <= digits.len() => (kind, digits),
            Some(_) => return None,
            None if DIGITS <= digits.len() + 1 => {
                (kind_of(stem.strip_suffix('-')?)?, &text[stem.len() - 1..])
            }
            None => return None,
        };
        let sequence = number.parse().ok()?;
        Some(Self {
            text,
            kind,
            sequence,
        })
    }

    /// Returns what created such a name, for messages.
    pub fn maker(&self) -> &'static str {
        match (self.is_ours(), self.kind.role()) {
            (false, _) => self.kind.library(),
            (true, Role::Exclusive) => "a mutex of this library",
            (true, Role::Read | Role::Write) => "a read-write lock of this library",
            (true, Role::Permit) => "a semaphore of this library",
        }
    }

    /// Returns whether this library created the name: nobody else writes ids of version 8.
    pub fn is_ours(&self) -> bool {
        // go-zookeeper's ids are 16 random bytes, of any version.
        let random = matches!(self.kind, Kind::Apache | Kind::GoLock);
        let id = self.text.strip_prefix("_c_").unwrap_or(self.text);
        let id = id
            .bytes()
            .take_while(|b| b.is_ascii_hexdigit() || *b == b'-');
        let digits: Vec<_> = id.filter(|b| *b != b'-').collect();
        let [version, variant] = [12, 16].map(|place| digits.get(place).copied());
        let marked = version == Some(b'8') && matches!(variant, Some(b'8' | b'9' | b'a' | b'b'));
        !random && digits.len() == 32 && marked
    }

    /// Returns whether this may be the name of a hold, which has no session.
    pub fn is_hold(&self) -> bool {
        may_be_hold(self.text) && self.is_ours()
    }

    /// Returns the name with this prefix that gives a node the same place, although it is created later; `None` if the
    /// number does not decide the place. Where the numbers are used up, births decide.
    pub fn in_its_place(&self, prefix: &str) -> Option<String> {
        let is_decided = (0..LAST_SEQUENCE / 2).contains(&self.sequence);
        is_decided.then(|| format!("{prefix}{:010}", self.sequence))
    }

    /// Returns whether the number says nothing about the contender's place.
    pub fn is_exhausted(&self) -> bool {
        self.sequence < 0 || LAST_SEQUENCE <= self.sequence
    }
}

/// Returns the prefix of the name to ask ZooKeeper for. ZooKeeper appends the sequence number, if the node has one.
///
/// `id` is a UUID of version 8 in its usual form, with dashes. [`NodeName::is_ours`] recognises the version.
pub fn prefix(dialect: Dialect, role: Role, id: &str) -> String {
    let token = dialect.token(role);
    match dialect {
        Dialect::Curator | Dialect::LeaderLatch => ["_c_", id, token].concat(),
        Dialect::Recipe => [id, token].concat(),
        Dialect::Kazoo => format!("{}{token}", id.replace('-', "")),
    }
}

/// Returns whether this may be the name of a hold, judging by its beginning alone.
pub fn may_be_hold(text: &str) -> bool {
    text.strip_prefix("_c_").unwrap_or(text).starts_with(HOLD)
}

/// Returns whom a contender can hold the lock beside, judging by its name or the beginning of it.
pub(crate) fn sharing_of(text: &str) -> Sharing {
    let stem = text.trim_end_matches(|c: char| c.is_ascii_digit());
    kind_of(stem).map_or(Sharing::Alone, |kind| kind.role().sharing())
}

/// Returns whether the contender with this name may be asked to release its lock. One that waits for a
/// latch looks again only at its deletion: a change of its data would use up the watch.
pub fn may_ask(name: &str) -> bool {
    NodeName::parse(name).is_none_or(|name| name.kind != Kind::Latch)
}

/// Marks an id as a hold's.
pub fn mark_as_hold(id: &mut [u8; 16]) {
    id[..4].copy_from_slice(&[0x40, 0x1d, 0x40, 0x1d]);
}

fn kind_of(stem: &str) -> Option<Kind> {
    let known = TOKENS.iter().find(|(token, _)| stem.ends_with(token));
    match known.map(|(_, kind)| *kind) {
        Some(Kind::Lock) if is_go(stem) => Some(Kind::GoLock),
        None if is_apache(stem) => Some(Kind::Apache),
        kind => kind,
    }
}

/// `_c_<32 hex digits>-lock-`
fn is_go(stem: &str) -> bool {
    let id = stem
        .strip_prefix("_c_")
        .and_then(|rest| rest.strip_suffix("-lock-"));
    id.is_some_and(is_hex_id)
}

/// `<32 hex digits>`
fn is_hex_id(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// `x-<session id, decimal or hexadecimal, perhaps negative>-`
fn is_apache(stem: &str) -> bool {
    let id = stem
        .strip_prefix("x-")
        .and_then(|rest| rest.strip_suffix('-'));
    let id = id.map(|id| id.strip_prefix('-').unwrap_or(id));
    id.is_some_and(|id| !id.is_empty() && id.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Returns the name that a test calls `m3`, `r3` or `w3`, for a mutex, a reader or a writer, or `p3`, for a permit.
#[cfg(test)]
pub(super) fn of_short(short: &str) -> String {
    let (token, number) = short.split_at(1);
    let token = match token {
        "m" => "-lock-",
        "r" => "-__READ__",
        "w" => "-__WRIT__",
        _ => "-lease-",
    };
    let number: i64 = number.parse().unwrap();
    format!("_c_6f9c1c9e-5a0b-8b57-9a3e-0123456789ab{token}{number:010}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zklock_testkit::fuzz;

    use super::*;

    const ID: &str = "6f9c1c9e-5a0b-4b57-9a3e-0123456789ab";

    const VALID: &[&str] = &[
        "_c_6f9c1c9e-5a0b-4b57-9a3e-0123456789ab-lock-0000000042",
        "_c_6f9c1c9e-5a0b-4b57-9a3e-0123456789ab-__WRIT__0000000007",
        "6f9c1c9e5a0b4b579a3e0123456789ab__rlock__0000000003",
        "6f9c-write--2147483648",
        "x--123-0000000009",
        "_c_6f9c-lease-2147483647",
    ];

    #[rustfmt::skip]
    const WORDS: &[&str] = &[
        "-", "--", "_", "__", "lock", "-lock-", "__READ__", "__rlock__", "x-", "_c_", "0", "9",
        "00000000000", "99999999999", "\u{661}", "é", "\0", "+",
    ];

    #[test]
    fn names_of_every_library_are_recognised() {
        #[rustfmt::skip]
        let table = [
            ("_c_6f9c1c9e-5a0b-4b57-9a3e-0123456789ab-lock-0000000042",     Kind::Lock, 42),
            ("_c_6f9c1c9e5a0b4b579a3e0123456789ab-lock-0000000042",         Kind::GoLock, 42),
            ("6f9c1c9e-5a0b-4b57-9a3e-0123456789ab-lock-0000000042",        Kind::Lock, 42),
            ("lock-0000000001",                                             Kind::Lock, 1),
            ("_c_6f9c1c9e-5a0b-4b57-9a3e-0123456789ab-__READ__0000000007",  Kind::CuratorRead, 7),
            ("_c_6f9c1c9e-5a0b-4b57-9a3e-0123456789ab-__WRIT__0000000007",  Kind::CuratorWrite, 7),
            ("6f9c1c9e5a0b4b579a3e0123456789ab__lock__0000000003",          Kind::KazooLock, 3),
            ("6f9c1c9e5a0b4b579a3e0123456789ab__rlock__0000000003",         Kind::KazooRead, 3),
            ("6f9c-read-0000000003",                                        Kind::RecipeRead, 3),
            ("6f9c-write-0000000003",                                       Kind::RecipeWrite, 3),
            ("x-72057594037927936-0000000009",                              Kind::Apache, 9),
            ("x--123-0000000009",                                           Kind::Apache, 9),
            ("x-0100a1b2c3d4e5f6-0000000009",                               Kind::Apache, 9),
            ("_c_6f9c1c9e-5a0b-4b57-9a3e-0123456789ab-lease-0000000000",    Kind::Lease, 0),
            ("_c_6f9c1c9e-5a0b-4b57-9a3e-0123456789ab-latch-0000000005",    Kind::Latch, 5),
            ("6f9c1c9e5a0b4b579a3e0123456789ab",                            Kind::KazooLease, 0),
            ("12345678901234567890123456789012",                            Kind::KazooLease, 0),
            ("_c_6f9c-lock-2147483648",                                     Kind::Lock, 2_147_483_648),
            ("_c_6f9c-lock--2147483648",                                    Kind::Lock, -2_147_483_648),
            ("_c_6f9c-lock--000000005",                                     Kind::Lock, -5),
            ("6f9c__lock__-2147483647",                                     Kind::KazooLock, -2_147_483_647),
            ("x-123--2147483647",                                           Kind::Apache, -2_147_483_647),
        ];
        for (text, kind, sequence) in table {
            let expected = NodeName {
                text,
                kind,
                sequence,
            };
            assert_eq!(NodeName::parse(text), Some(expected));
        }
    }

    #[test]
    fn our_names_are_told_from_those_of_other_libraries() {
        const OURS: &str = "6f9c1c9e-5a0b-8b57-9a3e-0123456789ab";
        for dialect in [Dialect::Curator, Dialect::Kazoo, Dialect::Recipe] {
            for role in [Role::Exclusive, Role::Read, Role::Write] {
                let is_ours = |id: &str| {
                    let text = format!("{}2147483647", prefix(dialect, role, id));
                    NodeName::parse(&text).is_some_and(|name| name.is_ours())
                };
                assert!(is_ours(OURS), "{dialect:?} {role:?}");
                // Of version 4, as Curator and kazoo make them; of another variant.
                assert!(!is_ours(ID), "{dialect:?} {role:?}");
                assert!(!is_ours("6f9c1c9e-5a0b-8b57-0a3e-0123456789ab"));
            }
        }
        let theirs = [
            "_c_6f9c1c9e5a0b8b579a3e0123456789ab-lock-2147483647",
            "x-6f9c1c9e5a0b8b579a3e0123456789ab-2147483647",
            "6f9c-read-2147483647",
            "lock-2147483647",
        ];
        for text in theirs {
            assert!(!NodeName::parse(text).unwrap().is_ours(), "{text}");
        }
    }

    #[test]
    fn strangers_are_ignored() {
        #[rustfmt::skip]
        let strangers = [
            "", "readme", "locks", "leases", "0-config", "0000000001", "-0000000001", "x-0000000001",
            "x--0000000001", "_c_7f-lock-", "_c_7f-lock-x", "_c_7f-lock-42",
            "6f9c1c9e5a0b4b579a3e0123456789a", "6f9c1c9e5a0b4b579a3e0123456789abc",
            "zlock#7f#0000000001", "lock-99999999999999999999999", "lock-\u{0661}000000000",
            "lock---0000000001", "LOCK-0000000001",
        ];
        for text in strangers {
            assert_eq!(NodeName::parse(text), None, "{text:?}");
        }
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn our_own_names_read_back_as_written(sequence in 0_i64..=LAST_SEQUENCE) {
            for dialect in [Dialect::Curator, Dialect::Kazoo, Dialect::Recipe] {
                for role in [Role::Exclusive, Role::Read, Role::Write, Role::Permit] {
                    let mut text = prefix(dialect, role, ID);
                    if dialect.is_numbered(role) {
                        text += &format!("{sequence:010}");
                    }
                    let name = NodeName::parse(&text).unwrap();
                    prop_assert_eq!(name.sequence == sequence, dialect.is_numbered(role) || sequence == 0);
                    prop_assert_eq!(name.kind.role().sharing(), role.sharing());
                }
            }
        }

        #[test]
        fn a_name_with_mistakes_is_a_strangers_or_has_the_number_at_its_end(
            text in fuzz::texts(VALID, WORDS),
        ) {
            if let Some(name) = NodeName::parse(&text) {
                prop_assert_eq!(name.text, &text);
                if is_hex_id(&text) {
                    // A permit has no number.
                    prop_assert_eq!(name.sequence, 0);
                    return Ok(());
                }
                let digits = name.sequence.unsigned_abs().to_string();
                prop_assert!(text.ends_with(&digits), "{}", digits);
                prop_assert!(0 <= name.sequence || text.contains('-'));
            }
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC*", digits in "-?[0-9]{0,25}") {
            let _ = NodeName::parse(&text);
            for (token, _) in TOKENS {
                let _ = NodeName::parse(&format!("{text}{token}{digits}"));
            }
        }
    }
}
