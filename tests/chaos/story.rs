//! The description of a violation: who, what, when.

use std::fmt;
use std::time::Duration;

use crate::checker::Violation;
use crate::history::{Entry, Time, What};

/// The most lines of a history that are shown.
const LINES: usize = 60;

/// The first violation, and what led to it.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    violation: Violation,
    told: Vec<Entry>,
    start: Time,
}

impl Story {
    pub(crate) fn new(violation: Violation, entries: &[Entry]) -> Self {
        let mut told: Vec<_> = entries
            .iter()
            .filter(|entry| concerns(&violation, entry))
            .cloned()
            .collect();
        told = without_repetition(told);
        // The last entries before the violation are the most telling.
        let seen = told.partition_point(|entry| entry.at <= violation.at);
        told.truncate(seen + LINES / 4);
        told.drain(..told.len().saturating_sub(LINES));
        Self {
            violation,
            told,
            start: entries.first().map_or(0, |entry| entry.at),
        }
    }

    /// Returns what was violated, in one sentence.
    pub(crate) fn moral(&self) -> &str {
        &self.violation.what
    }
}

fn concerns(violation: &Violation, entry: &Entry) -> bool {
    match &entry.what {
        What::Fault { .. } | What::Healed | What::Diverged { .. } => true,
        What::Paused | What::Resumed | What::Died => {
            violation.ops.iter().any(|(who, _)| *who == entry.who)
        }
        What::Write { path, .. } => violation.paths.contains(path),
        What::Leftover { node } => violation.paths.contains(node),
        _ => violation.ops.contains(&(entry.who, entry.op)),
    }
}

/// Keeps only the first and the last of a series of passed checks or of writes.
fn without_repetition(entries: Vec<Entry>) -> Vec<Entry> {
    let dull = |what: &What| matches!(what, What::Valid | What::Write { .. });
    let same =
        |a: &Entry, b: &Entry| (a.who, a.op) == (b.who, b.op) && dull(&a.what) && dull(&b.what);
    let keep = |i: usize| {
        let (Some(before), Some(after)) = (i.checked_sub(1), entries.get(i + 1)) else {
            return true;
        };
        !same(&entries[before], &entries[i]) || !same(&entries[i], after)
    };
    let kept: Vec<_> = (0..entries.len()).filter(|i| keep(*i)).collect();
    kept.into_iter().map(|i| entries[i].clone()).collect()
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "VIOLATION: {}", self.violation.what)?;
        let mut marked = false;
        for entry in &self.told {
            if self.violation.at < entry.at && !marked {
                writeln!(f, "  ---- by now it had happened ----")?;
                marked = true;
            }
            let at = Duration::from_nanos(entry.at.saturating_sub(self.start));
            let Entry { who, op, what, .. } = entry;
            writeln!(
                f,
                "  {:>11.6} s  {who:>6}  {op:>5}  {what}",
                at.as_secs_f64()
            )?;
        }
        Ok(())
    }
}
