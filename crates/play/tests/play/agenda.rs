//! What is going to happen, by its time.

use crate::servers::Time;
use crate::world::Happening;

/// When something happens, and its number: of two at the same time, the one that was planned first comes first.
type Due = (u64, u64);

/// What is going to happen, by its time; the last one comes next.
///
/// Most of what is planned comes sooner than the few dozen limits and rounds that are planned already, so a sorted
/// list is faster than a heap.
#[derive(Debug)]
pub(crate) struct Agenda(Vec<(Due, Happening)>);

impl Agenda {
    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(64))
    }

    pub(crate) fn put(&mut self, at: Time, number: u64, happening: Happening) {
        let due = (nanos(at), number);
        let sooner = self.0.iter().rev().take_while(|(other, _)| *other < due);
        let place = self.0.len() - sooner.count();
        self.0.insert(place, (due, happening));
    }

    /// Takes what happens next, with its time and its number.
    pub(crate) fn next(&mut self) -> Option<(Time, u64, Happening)> {
        let ((at, number), happening) = self.0.pop()?;
        Some((Time::from_nanos(at), number, happening))
    }
}

fn nanos(time: Time) -> u64 {
    time.as_secs() * 1_000_000_000 + u64::from(time.subsec_nanos())
}
