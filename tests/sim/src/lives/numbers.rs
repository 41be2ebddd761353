//! The judge of the numbers of permits: no two holders that trust their permits have the same.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use zklock::sim::ensemble::{Change, SessionEnd, What};

use super::{NUMBERED, Numbered};
use crate::client::{Journal, ms};
use crate::history::Time;
use crate::ops::Op;
use crate::plan::{ClientEnd, Plan};
use crate::play::Ends;
use crate::troubles::ensemble;

/// A number that a holder had from one moment to another.
struct Span<'a> {
    of: &'a Numbered,
    from: Time,
    to: Time,
}

pub(super) fn judge(
    plan: &Plan,
    journal: &Journal,
    ops: &[Op],
    ends: &Ends,
) -> Result<usize, String> {
    let numbers = journal.numbers();
    let mut spans: HashMap<u32, Vec<Span<'_>>> = HashMap::new();
    for of in numbers.iter().filter(|of| is_alive(plan, of)) {
        let op = ops.iter().find(|op| op.id() == (of.who, of.op));
        let Some(valid) = op.and_then(|op| op.last_valid) else {
            continue;
        };
        // An administrator who deletes a claim gives its number away.
        let to = ends.get(&claim(of)).map_or(valid, |end| valid.min(*end));
        let from = of.at.as_nanos() as Time;
        spans
            .entry(of.number)
            .or_default()
            .push(Span { of, from, to });
    }
    for spans in spans.values_mut() {
        spans.sort_by_key(|span| span.from);
        let mut last: Option<&Span<'_>> = None;
        for span in spans.iter() {
            if let Some(other) = last.filter(|other| span.from < other.to) {
                let time = Duration::from_nanos(other.to.min(span.to).saturating_sub(span.from));
                return Err(format!(
                    "two holders had one number for {time:?}: {:?} and {:?}",
                    other.of, span.of
                ));
            }
            last = last.filter(|other| span.to < other.to).or(Some(span));
        }
    }
    let history = ensemble(|ensemble, _| ensemble.history().to_vec());
    are_given_up(plan, &numbers, &history)?;
    Ok(numbers.len())
}

/// Checks that a number goes with its permit, and not only with the session.
fn are_given_up(plan: &Plan, numbers: &[Numbered], history: &[Change]) -> Result<(), String> {
    let (mut gone, mut closed) = (HashMap::new(), HashSet::new());
    for change in history {
        match &change.what {
            What::Deleted { path, .. } => drop(gone.insert(&**path, (change.at, change.zxid))),
            What::SessionEnded {
                why: SessionEnd::Closed,
                ..
            } => drop(closed.insert(change.zxid)),
            _ => {}
        }
    }
    let late = ms(plan.timeout) + Duration::from_secs(1);
    for of in numbers {
        let permit = gone.get(&*of.node).map(|(at, _)| *at);
        let claim = gone
            .get(&*claim(of))
            .filter(|(_, zxid)| closed.contains(zxid));
        if let (Some(released), Some((at, _))) = (permit, claim)
            && released + late < *at
        {
            return Err(format!(
                "{of:?} was released, and its number kept until {at:?}"
            ));
        }
    }
    Ok(())
}

/// Returns the node that stands for the number.
fn claim(of: &Numbered) -> String {
    let (_, lease) = of.node.rsplit_once('/').unwrap_or_default();
    format!("{NUMBERED}/numbers/{lease}.{}", of.number)
}

/// Returns whether the holder's process was alive: what a dead process says does not count.
fn is_alive(plan: &Plan, of: &Numbered) -> bool {
    match plan.clients[of.who.slot].end {
        ClientEnd::CrashAt(at) => of.at < ms(at),
        _ => true,
    }
}
