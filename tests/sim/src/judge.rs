//! A second opinion on who held what: the linearizability checker of `todc-utils`, with a
//! lock as its specification.
//!
//! A path is an object. A hold acquires it at some moment between its request and its grant,
//! and releases or loses it at some moment after the last `check()` that passed. The holds
//! of a path are right if such moments exist at which [`Path`] allows each of these steps.
//! The library searches for them with Wing and Gong's algorithm, with Lowe's memoization.
//! The calls are read from the history as for the checker, in `ops`.

use std::collections::BTreeMap;
use std::mem;

use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::{Action, History};
use todc_utils::specifications::Specification;

use crate::history::{Entry, Kind, Time};
use crate::ops::gather;

/// The least number of holds that are judged together, if a path has that many.
const WINDOW: usize = 32;
/// The most grants between a step and its own moment in the search.
const NEAR: usize = 4;

/// A step of a path; holds are numbered.
#[derive(Clone, Copy, Debug)]
enum Step {
    Acquire(usize, Kind),
    Release(usize),
}

/// The specification: which holds a path may have at a time.
struct Path;

impl Specification for Path {
    type State = BTreeMap<usize, Kind>;
    type Operation = Step;

    fn init() -> Self::State {
        BTreeMap::new()
    }

    fn apply(step: &Step, holds: &Self::State) -> (bool, Self::State) {
        let mut then = holds.clone();
        let allowed = match *step {
            Step::Acquire(_, Kind::Exclusive) => holds.is_empty(),
            Step::Acquire(_, Kind::Read) => holds.values().all(|kind| *kind == Kind::Read),
            Step::Acquire(_, Kind::Permit(of)) => {
                holds.len() < of && holds.values().all(|kind| *kind == Kind::Permit(of))
            }
            Step::Release(hold) => holds.contains_key(&hold),
        };
        match *step {
            _ if !allowed => {}
            Step::Acquire(hold, kind) => drop(then.insert(hold, kind)),
            Step::Release(hold) => drop(then.remove(&hold)),
        }
        (allowed, then)
    }
}

/// A hold that was valid at least from its grant to the last check that passed.
#[derive(Clone, Debug)]
struct Hold {
    name: String,
    kind: Kind,
    requested: Time,
    granted: Time,
    last_valid: Time,
}

/// Judges who held what in a history; the error names the first hold that cannot have been.
pub(crate) fn judge(entries: &[Entry]) -> Result<(), String> {
    for (path, holds) in holds(entries) {
        for window in windows(holds) {
            if !is_linearizable(&window) {
                return Err(story(&path, &window));
            }
        }
    }
    Ok(())
}

/// Returns the holds of each path, in the order of their grants.
fn holds(entries: &[Entry]) -> BTreeMap<String, Vec<Hold>> {
    let mut holds: BTreeMap<String, Vec<Hold>> = BTreeMap::new();
    for op in gather(entries) {
        // A hold that no check has confirmed may have been lost before it was granted.
        let (Some(grant), Some(last_valid)) = (&op.granted, op.last_valid) else {
            continue;
        };
        for path in &op.paths {
            holds.entry(path.clone()).or_default().push(Hold {
                name: op.name(),
                kind: op.kind,
                requested: op.requested,
                granted: grant.at,
                last_valid,
            });
        }
    }
    for holds in holds.values_mut() {
        holds.sort_by_key(|hold| hold.granted);
    }
    holds
}

/// Cuts the holds of a path at moments when none is known to be valid.
///
/// The search is exponential in how many steps may be taken at a time, so it is bounded here
/// and in [`is_linearizable`]. This changes no verdict: a shorter hold excludes no more than a
/// longer one, so if there is any order, there is one in which each hold acquires at its grant
/// and ends at its last check, and these moments are never cut off.
fn windows(holds: Vec<Hold>) -> Vec<Vec<Hold>> {
    let mut windows = Vec::new();
    let (mut window, mut begin, mut end) = (Vec::new(), 0, 0);
    for mut hold in holds {
        if WINDOW <= window.len() && end <= hold.granted {
            windows.push(mem::take(&mut window));
            begin = end;
        }
        end = end.max(hold.last_valid);
        hold.requested = hold.requested.max(begin);
        window.push(hold);
    }
    windows.push(window);
    windows
}

fn is_linearizable(holds: &[Hold]) -> bool {
    let mut actions = Vec::new();
    for (number, hold) in holds.iter().enumerate() {
        let before = number
            .checked_sub(NEAR)
            .map_or(0, |other| holds[other].granted);
        let after = holds.partition_point(|other| other.granted < hold.last_valid) + NEAR;
        let after = holds.get(after).map_or(Time::MAX, |other| other.granted);
        let acquire = Step::Acquire(number, hold.kind);
        let release = Step::Release(number);
        // At the same moment, a beginning comes first: holds that touch do not overlap.
        actions.push((
            (hold.requested.max(before), 0),
            2 * number,
            Action::Call(acquire),
        ));
        actions.push(((hold.granted, 1), 2 * number, Action::Response(acquire)));
        actions.push(((hold.last_valid, 0), 2 * number + 1, Action::Call(release)));
        actions.push(((after, 1), 2 * number + 1, Action::Response(release)));
    }
    actions.sort_by_key(|(at, ..)| *at);
    let actions = actions.into_iter().map(|(_, who, action)| (who, action));
    WGLChecker::<Path>::is_linearizable(History::from_actions(actions.collect()))
}

/// Names the first hold that fits no order, and those that were valid when it was granted.
fn story(path: &str, window: &[Hold]) -> String {
    let first = (1..=window.len()).find(|count| !is_linearizable(&window[..*count]));
    let (last, before) = window[..first.unwrap_or(window.len())]
        .split_last()
        .expect("no holds are in order");
    let beside = before.iter().filter(|hold| last.granted < hold.last_valid);
    let beside: Vec<_> = beside.map(|hold| hold.name.as_str()).collect();
    format!(
        "by the second judge, {} cannot have held {path} at {}, beside {}",
        last.name,
        last.granted,
        beside.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::parse_all;

    /// Returns the history of a crowd that waits all the time: every fifth is a writer, and the
    /// others read together.
    fn crowd(writers_at: impl Fn(usize) -> usize) -> Vec<Entry> {
        let mut text = String::new();
        for round in 0..100 {
            for slot in 0..5 {
                let (kind, granted) = match slot {
                    0 => ("exclusive", writers_at(round)),
                    _ => ("read", 100 * round + 50 + slot),
                };
                let (asked, valid) = ((100 * round).saturating_sub(300), granted + 20);
                text += &format!(
                    "{asked} c{slot}.0 {round} request {kind} /m -
                     {granted} c{slot}.0 {round} granted {slot}
                     {valid} c{slot}.0 {round} valid\n"
                );
            }
        }
        let mut entries = parse_all(&text);
        entries.sort_by_key(|entry| entry.at);
        entries
    }

    #[test]
    fn a_long_history_is_judged_in_windows() {
        let usual = crowd(|round| 100 * round + 10);
        let holds = holds(&usual).remove("/m").expect("a path");
        let windows = windows(holds);
        assert!(10 < windows.len());
        assert!(windows.iter().all(|window| window.len() < 2 * WINDOW));
        assert_eq!(judge(&usual), Ok(()));
    }

    #[test]
    fn one_writer_among_readers_is_found_and_named() {
        let early = crowd(|round| 100 * round + if round == 70 { 35 } else { 10 });
        let reader = "c1.0 (operation 70) cannot have held /m at 7051, beside c0.0 (operation 70)";
        let story = judge(&early).expect_err("a reader beside a writer");
        assert!(story.contains(reader), "{story}");
    }
}
