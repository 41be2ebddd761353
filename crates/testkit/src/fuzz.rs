//! Input for fuzz runs: random input, and valid input with a few mistakes in it, which gets further
//! into a parser than random bytes do.
//!
//! On a failure proptest prints the smallest input that it found to fail.

use std::fmt::Debug;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Keeps repetitions of repetitions short enough to be parsed at once.
const LONGEST: usize = 10_000;

/// A mistake in a sequence of bytes or of characters.
#[derive(Clone, Debug)]
enum Mistake<T> {
    /// The part between these indices is missing.
    Gap(Index, Index),
    /// The end is missing.
    Cut(Index),
    /// Something is inserted.
    Extra(Index, Vec<T>),
    /// Something replaces another part.
    Swap(Index, Vec<T>),
    /// The part between these indices is repeated.
    Stutter(Index, Index, usize),
}

impl<T: Copy> Mistake<T> {
    fn make(self, mut items: Vec<T>) -> Vec<T> {
        let place = |index: Index| index.index(items.len() + 1);
        let between = |a: Index, b: Index| {
            let (a, b) = (place(a), place(b));
            a.min(b)..a.max(b)
        };
        match self {
            Self::Gap(a, b) => drop(items.drain(between(a, b))),
            Self::Cut(at) => items.truncate(place(at)),
            Self::Extra(at, piece) => {
                let at = place(at);
                drop(items.splice(at..at, piece));
            }
            Self::Swap(at, piece) => {
                let at = place(at);
                let end = items.len().min(at + piece.len());
                drop(items.splice(at..end, piece));
            }
            Self::Stutter(a, b, times) => {
                let range = between(a, b);
                let again = items[range.clone()].repeat(times);
                drop(items.splice(range, again));
            }
        }
        items.truncate(LONGEST);
        items
    }
}

/// Runs as many cases as `PROPTEST_CASES` says, or 5000: parsers are quick, and some mistakes are
/// rare.
pub fn config() -> ProptestConfig {
    let config = ProptestConfig::default();
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => config,
        None => ProptestConfig {
            cases: 5000,
            ..config
        },
    }
}

/// Returns `valid` sequences with up to four mistakes, made of these `pieces`.
pub fn mistaken<T: Copy + Debug + 'static>(
    valid: impl Strategy<Value = Vec<T>>,
    pieces: impl Strategy<Value = Vec<T>> + Clone + 'static,
) -> impl Strategy<Value = Vec<T>> {
    let at = any::<Index>;
    let mistake = prop_oneof![
        (at(), at()).prop_map(|(a, b)| Mistake::Gap(a, b)),
        at().prop_map(Mistake::Cut),
        (at(), pieces.clone()).prop_map(|(at, piece)| Mistake::Extra(at, piece)),
        (at(), pieces).prop_map(|(at, piece)| Mistake::Swap(at, piece)),
        (at(), at(), 2..50usize).prop_map(|(a, b, times)| Mistake::Stutter(a, b, times)),
    ];
    (valid, vec(mistake, 0..5)).prop_map(|(valid, mistakes)| {
        let make = |items, mistake: Mistake<T>| mistake.make(items);
        mistakes.into_iter().fold(valid, make)
    })
}

/// Returns texts: valid ones with mistakes made of these `words` or of any characters, and some
/// that consist of such mistakes alone.
pub fn texts(
    valid: &'static [&'static str],
    words: &'static [&'static str],
) -> impl Strategy<Value = String> {
    let chars = |text: &str| text.chars().collect::<Vec<_>>();
    let any_chars = vec(any::<char>(), 1..4);
    let pieces = prop_oneof![3 => select(words).prop_map(chars), 1 => any_chars].boxed();
    let mistaken = mistaken(select(valid).prop_map(chars), pieces.clone());
    let jumbled = vec(pieces, 0..12).prop_map(|pieces| pieces.concat());
    prop_oneof![4 => mistaken, 1 => jumbled].prop_map(|chars| chars.into_iter().collect())
}

/// Returns frames: valid ones with mistakes made of small numbers and of any bytes.
pub fn frames(valid: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let number = prop_oneof![-2..12i32, any::<i32>()];
    let pieces = prop_oneof![
        number.prop_map(|number| number.to_be_bytes().to_vec()),
        vec(any::<u8>(), 1..4),
    ];
    mistaken(valid, pieces.boxed())
}
