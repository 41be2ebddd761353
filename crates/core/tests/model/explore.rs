//! Visits every reachable world, breadth first, so that each counterexample is a shortest one.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::mem;

use super::property::{Property, Violation};

/// A model that can be explored.
pub(crate) trait Model: Clone + Hash {
    type Step: Copy + fmt::Debug;

    /// Returns the steps that can happen next.
    fn steps(&self) -> Vec<Self::Step>;

    /// Returns the model after `step`.
    fn take(&self, step: Self::Step) -> Self;

    /// Returns whether `step` happens eventually; a mishap need never happen.
    fn is_progress(step: Self::Step) -> bool;

    /// Returns how many times `step` waits for a server's answer.
    fn exchanges(_step: Self::Step) -> u32 {
        0
    }

    /// Returns whether every client has a result, and no node is left.
    fn is_finished(&self) -> bool;

    /// Checks the properties; `stuck` says that nothing but a mishap can happen any more.
    fn check(&mut self, stuck: bool);

    /// Takes the violations out.
    fn violations(&mut self) -> Vec<Violation>;
}

/// The result of an exploration.
#[derive(Clone, Debug)]
pub(crate) struct Explored {
    pub(crate) worlds: usize,
    pub(crate) steps: usize,
    /// How many times all clients together wait for an answer on the longest way; `None` if a way
    /// has no end.
    pub(crate) exchanges: Option<u32>,
    /// The first counterexample to each property that does not hold.
    pub(crate) counterexamples: Vec<Counterexample>,
}

/// A way into a world that must not exist.
#[derive(Clone, Debug)]
pub(crate) struct Counterexample {
    pub(crate) violation: Violation,
    path: String,
}

/// The part of the worlds that is kept: the worlds themselves are too large.
struct Graph<Step> {
    numbers: HashMap<u128, usize>,
    /// The world and the step by which each world was first reached.
    parents: Vec<Option<(usize, Step)>>,
    /// The steps that need no mishap, as (to, from).
    ways: Vec<(usize, usize)>,
    /// All steps, as (from, to, exchanges).
    prices: Vec<(usize, usize, u32)>,
    finished: Vec<usize>,
    steps: usize,
    counterexamples: Vec<Counterexample>,
}

/// Tries all that can happen from `start` on.
pub(crate) fn explore<M: Model>(start: M) -> Explored {
    let mut graph = Graph::new();
    let mut queue = VecDeque::new();
    graph.number(&start, None);
    queue.push_back((0, start));
    while let Some((here, mut world)) = queue.pop_front() {
        let steps = world.steps();
        world.check(!world.is_finished() && !steps.iter().any(|step| M::is_progress(*step)));
        graph.note(here, None, world.violations());
        if world.is_finished() {
            graph.finished.push(here);
        }
        for step in steps {
            let mut next = world.take(step);
            graph.note(here, Some(step), next.violations());
            let (there, new) = graph.number(&next, Some((here, step)));
            graph.steps += 1;
            graph.prices.push((here, there, M::exchanges(step)));
            if M::is_progress(step) {
                graph.ways.push((there, here));
            }
            if new {
                queue.push_back((there, next));
            }
        }
    }
    if let Some(world) = graph.hopeless() {
        let violation = Violation {
            property: Property::Liveness,
            text: "no way leads to the end from here".to_owned(),
        };
        graph.note(world, None, vec![violation]);
    }
    Explored {
        worlds: graph.parents.len(),
        steps: graph.steps,
        exchanges: graph.most_exchanges(),
        counterexamples: graph.counterexamples,
    }
}

impl<Step: Copy + fmt::Debug> Graph<Step> {
    fn new() -> Self {
        Self {
            numbers: HashMap::new(),
            parents: Vec::new(),
            ways: Vec::new(),
            prices: Vec::new(),
            finished: Vec::new(),
            steps: 0,
            counterexamples: Vec::new(),
        }
    }

    /// Returns the world's number, and whether it is new.
    fn number(&mut self, world: &impl Hash, from: Option<(usize, Step)>) -> (usize, bool) {
        let mut print = Fingerprint::default();
        world.hash(&mut print);
        let next = self.parents.len();
        let number = *self.numbers.entry(print.whole()).or_insert(next);
        if number == next {
            self.parents.push(from);
        }
        (number, number == next)
    }

    /// Returns a world from which no way leads to the end.
    fn hopeless(&mut self) -> Option<usize> {
        self.ways.sort_unstable();
        let mut hope = vec![false; self.parents.len()];
        let mut stack = self.finished.clone();
        while let Some(world) = stack.pop() {
            if !mem::replace(&mut hope[world], true) {
                let first = self.ways.partition_point(|(to, _)| *to < world);
                let ways = self.ways[first..].iter();
                stack.extend(
                    ways.take_while(|(to, _)| *to == world)
                        .map(|(_, from)| *from),
                );
            }
        }
        hope.iter().position(|hope| !hope)
    }

    /// Returns the price of the dearest way from the first world. Takes worlds off from the end,
    /// once the prices of all that can follow them are known.
    fn most_exchanges(&mut self) -> Option<u32> {
        let worlds = self.parents.len();
        let mut follow = vec![0_usize; worlds];
        self.prices.iter().for_each(|(from, ..)| follow[*from] += 1);
        self.prices.sort_unstable_by_key(|(_, to, _)| *to);
        let mut most = vec![0; worlds];
        let mut known: Vec<_> = (0..worlds).filter(|world| follow[*world] == 0).collect();
        let mut done = 0;
        while let Some(world) = known.pop() {
            done += 1;
            let first = self.prices.partition_point(|(_, to, _)| *to < world);
            let into = self.prices[first..].iter();
            for (from, _, price) in into.take_while(|(_, to, _)| *to == world) {
                most[*from] = most[*from].max(most[world] + price);
                follow[*from] -= 1;
                if follow[*from] == 0 {
                    known.push(*from);
                }
            }
        }
        (done == worlds).then(|| most[0])
    }

    /// Keeps the first violation of each property, with the way that led to it.
    fn note(&mut self, here: usize, last: Option<Step>, violations: Vec<Violation>) {
        for violation in violations {
            let mut known = self.counterexamples.iter().map(|c| c.violation.property);
            if !known.any(|property| property == violation.property) {
                let path = self.path(here, last);
                self.counterexamples
                    .push(Counterexample { violation, path });
            }
        }
    }

    fn path(&self, mut here: usize, last: Option<Step>) -> String {
        let mut path: Vec<_> = last.into_iter().collect();
        while let Some((from, step)) = self.parents[here] {
            path.push(step);
            here = from;
        }
        path.reverse();
        format!("{path:?}")
    }
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { property, text } = &self.violation;
        write!(f, "{property:?}: {text}, after {}", self.path)
    }
}

/// The 128 bits that stand for a world: with a million worlds, two have the same bits in one of
/// 10^26 runs.
struct Fingerprint(u64, u64);

impl Default for Fingerprint {
    fn default() -> Self {
        Self(0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344)
    }
}

impl Fingerprint {
    fn whole(&self) -> u128 {
        u128::from(self.0) << 64 | u128::from(self.1)
    }

    fn mix(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
        self.1 = (self.1.rotate_left(23) ^ word).wrapping_mul(0xd6e8_feb8_6659_fd93);
        self.1 ^= self.1 >> 29;
    }
}

impl Hasher for Fingerprint {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
        self.mix(bytes.len() as u64);
    }

    fn write_u8(&mut self, byte: u8) {
        self.mix(u64::from(byte));
    }

    // A world consists mostly of numbers, which an unoptimised build hashes slowly as slices of
    // bytes.
    fn write_u64(&mut self, word: u64) {
        self.mix(word);
    }

    fn write_i64(&mut self, word: i64) {
        self.mix(word as u64);
    }

    fn write_usize(&mut self, word: usize) {
        self.mix(word as u64);
    }

    fn write_isize(&mut self, word: isize) {
        self.mix(word as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
