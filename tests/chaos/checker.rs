//! Judges a history: was every promise kept?
//!
//! A hold counts as valid from the moment when its call returned to the last `check()` that passed,
//! measured when that check began, and no longer: the checker judges what the holder could know. So
//! an overlap that it finds is certain. It tells the first violation in order of time as a story.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use crate::history::{Entry, Kind, Process, Time, What, nanos};
use crate::ops::{Op, TIMEOUT, conflict, gather};
use crate::story::Story;

/// The limits of the checker; every value is far beyond what is promised.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// How much longer than its limit a call may take on a busy machine.
    pub(crate) slack: Duration,
    /// How long a release may take.
    pub(crate) release: Duration,
    /// How long a fault may have effects after it was mended.
    pub(crate) settle: Duration,
    /// How long a queue may stand still for no reason.
    pub(crate) patience: Duration,
    /// Whether a lock may pass from thread to thread of a process, and its token with it.
    pub(crate) hands_on: bool,
}

impl Rules {
    pub(crate) fn for_sessions_of(timeout: Duration) -> Self {
        Self {
            slack: Duration::from_secs(3),
            release: timeout + Duration::from_secs(3),
            settle: 2 * timeout,
            patience: Duration::from_secs(10),
            hands_on: false,
        }
    }
}

/// The counts of a history without a violation.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Summary {
    pub(crate) faults: usize,
    pub(crate) requests: usize,
    pub(crate) grants: usize,
    pub(crate) timeouts: usize,
    pub(crate) errors: usize,
    pub(crate) suspected: usize,
    pub(crate) lost: usize,
    pub(crate) written: usize,
    pub(crate) refused_writes: usize,
    pub(crate) paused: usize,
    pub(crate) died: usize,
    pub(crate) longest_wait: Duration,
}

/// A violation: what is wrong, since when it can be seen, and which entries take part in it.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) at: Time,
    pub(crate) what: String,
    pub(crate) ops: Vec<(Process, usize)>,
    pub(crate) paths: Vec<String>,
}

/// Checks a history; the error is the story of the first violation.
pub(crate) fn check(entries: &[Entry], rules: &Rules) -> Result<Summary, Story> {
    let case = Case::new(entries, rules);
    let found = [
        case.overlaps(),
        case.token_order(),
        case.stale_writes(),
        case.queue_order(),
        case.calls(),
        case.releases(),
        case.standstills(),
        case.leftovers(),
    ];
    let first = found.into_iter().flatten().min_by_key(|found| found.at);
    match first {
        Some(violation) => Err(Story::new(violation, entries)),
        None => Ok(case.summary()),
    }
}

/// A hold that `check()` reported as valid throughout this time.
#[derive(Clone, Copy, Debug)]
struct Span<'a> {
    start: Time,
    end: Time,
    token: Option<i64>,
    op: &'a Op,
}

struct Case<'a> {
    entries: &'a [Entry],
    rules: &'a Rules,
    ops: Vec<Op>,
    died: HashMap<Process, Time>,
    /// When each process was paused.
    pauses: HashMap<Process, Vec<(Time, Time)>>,
    /// When anything was broken, or its effects may have been felt.
    troubles: Vec<(Time, Time)>,
    /// Whether the servers' data diverged: then calls may wait and nodes may stay for ever.
    diverged: bool,
    end: Time,
}

impl<'a> Case<'a> {
    fn new(entries: &'a [Entry], rules: &'a Rules) -> Self {
        let end = entries.last().map_or(0, |entry| entry.at);
        let died = entries.iter().filter(|entry| entry.what == What::Died);
        let mut case = Self {
            entries,
            rules,
            ops: gather(entries),
            died: died.map(|entry| (entry.who, entry.at)).collect(),
            pauses: HashMap::new(),
            troubles: Vec::new(),
            diverged: entries
                .iter()
                .any(|entry| matches!(entry.what, What::Diverged { .. })),
            end,
        };
        case.find_troubles();
        case
    }

    fn find_troubles(&mut self) {
        let settle = nanos(self.rules.settle);
        let mut stopped: HashMap<Process, Time> = HashMap::new();
        let mut broken = None;
        for entry in self.entries {
            match &entry.what {
                What::Fault { .. } => broken = broken.or(Some(entry.at)),
                What::Healed => {
                    let since = broken.take().unwrap_or(entry.at);
                    self.troubles.push((since, entry.at + settle));
                }
                What::Paused => drop(stopped.insert(entry.who, entry.at)),
                What::Resumed => {
                    let since = stopped.remove(&entry.who).unwrap_or(entry.at);
                    let pauses = self.pauses.entry(entry.who).or_default();
                    pauses.push((since, entry.at));
                    self.troubles.push((since, entry.at + settle));
                }
                What::Died => self.troubles.push((entry.at, entry.at + settle)),
                _ => {}
            }
        }
        let unhealed = broken.into_iter().map(|since| (since, Time::MAX));
        self.troubles.extend(unhealed);
    }

    /// Checks that two valid holds that exclude each other never overlap.
    fn overlaps(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        for (path, spans) in self.spans() {
            let mut open: Vec<Span<'_>> = Vec::new();
            for span in spans {
                open.retain(|other| span.start < other.end);
                let is_permit = |op: &Op| matches!(op.kind, Kind::Permit(_));
                let rivals = open.iter().filter(|other| {
                    conflict(other.op, span.op) || is_permit(other.op) != is_permit(span.op)
                });
                let rival = match span.op.kind {
                    Kind::Permit(of) => {
                        // Permits under another number, and locks of other kinds, exclude this one.
                        let other = open.iter().find(|other| other.op.kind != span.op.kind);
                        let first = || (of <= open.len()).then(|| open.first()).flatten();
                        other.or_else(first)
                    }
                    _ => rivals.min_by_key(|other| other.start),
                };
                if let Some(other) = rival {
                    let mut what = format!(
                        "{} and {} both had a valid hold of {path} for {:?} at least",
                        other.op.name(),
                        span.op.name(),
                        Duration::from_nanos(other.end.min(span.end) - span.start),
                    );
                    if let Kind::Permit(of) = span.op.kind {
                        what = format!("{} permits of {path} were out, of {of}", open.len() + 1);
                    }
                    found.push(Violation::new(
                        span.start,
                        what,
                        &[other.op, span.op],
                        &path,
                    ));
                }
                open.push(span);
            }
        }
        found
    }

    /// Checks that a later holder has a greater token.
    fn token_order(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        for (path, spans) in self.spans() {
            let mut greatest: Option<Span<'_>> = None;
            let mut exclusive: Option<Span<'_>> = None;
            for span in spans.into_iter().filter(|span| span.token.is_some()) {
                let before = match span.op.kind {
                    Kind::Exclusive => greatest,
                    _ => exclusive,
                };
                let handed_on = |other: &Span<'_>| {
                    self.rules.hands_on && span.token == other.token && span.op.who == other.op.who
                };
                let before = before.filter(|other| !handed_on(other));
                if let Some(other) = before.filter(|other| span.token <= other.token) {
                    let what = format!(
                        "{} was granted {path} after {}, but its token is not greater",
                        span.op.name(),
                        other.op.name()
                    );
                    found.push(Violation::new(
                        span.start,
                        what,
                        &[other.op, span.op],
                        &path,
                    ));
                }
                if span.op.kind == Kind::Exclusive {
                    exclusive = greater(exclusive, span);
                }
                greatest = greater(greatest, span);
            }
        }
        found
    }

    /// Checks that the store never accepts a write under an older token than it has seen, and never
    /// refuses a holder whose hold is valid.
    fn stale_writes(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        let mut newest: HashMap<&str, i64> = HashMap::new();
        for entry in self.entries {
            let What::Write {
                path,
                token,
                accepted,
            } = &entry.what
            else {
                continue;
            };
            let op = self.ops.iter().find(|op| op.id() == (entry.who, entry.op));
            let Some(op) = op else { continue };
            let newest = newest.entry(path).or_insert(*token);
            if *accepted && token < newest {
                let what = format!(
                    "the store took a write of {} under token {token} after it had seen {newest}",
                    op.name()
                );
                found.push(Violation::new(entry.at, what, &[op], path));
            }
            if !*accepted && op.last_valid.is_some_and(|valid| entry.at <= valid) {
                let what = format!(
                    "the store refused token {token} of {}, whose hold was valid",
                    op.name()
                );
                found.push(Violation::new(entry.at, what, &[op], path));
            }
            *newest = (*newest).max(*token);
        }
        found
    }

    /// Checks that no later request overtakes a waiter in a queue.
    fn queue_order(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        for (path, mut ops) in self.by_path(|op| op.last_valid.is_some()) {
            ops.sort_by_key(|op| op.granted_at());
            for (i, early) in ops.iter().enumerate() {
                // Only the calls that have waited longest after `early` can have been overtaken.
                let late = ops[i + 1..]
                    .iter()
                    .find(|late| conflict(early, late) && late.queued_before(early.requested));
                if let Some(late) = late {
                    let what = format!(
                        "{} waited for {path} before {} asked for it, but was served after it",
                        late.name(),
                        early.name()
                    );
                    let at = early.granted_at();
                    found.push(Violation::new(at, what, &[late, early], &path));
                }
            }
        }
        found
    }

    /// Checks that every call is served or told why not, within its limit.
    fn calls(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        for op in &self.ops {
            let over = op.over_at();
            if over.is_none() && !self.diverged && !self.died.contains_key(&op.who) {
                let what = format!("{} was neither served nor told why not", op.name());
                found.push(op.violation(self.end, what));
            }
            let (Some(limit), Some(over)) = (op.limit, over) else {
                continue;
            };
            let stood_still = self.stood_still(op.who, op.requested, over);
            let allowed = nanos(limit) + nanos(self.rules.slack) + stood_still;
            if op.requested + allowed < over {
                let took = Duration::from_nanos(over - op.requested);
                let what = format!(
                    "{} had {limit:?} for its call, which took {took:?}",
                    op.name()
                );
                found.push(op.violation(op.requested + allowed, what));
            }
        }
        found
    }

    /// Checks that every release ends.
    fn releases(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        for op in self.ops.iter().filter(|op| op.granted.is_some()) {
            let died = self.died.get(&op.who).copied();
            let Some(since) = op.release.or_else(|| died.is_none().then_some(self.end)) else {
                continue;
            };
            let end = op.released.or(died).unwrap_or(self.end);
            let allowed = nanos(self.rules.release) + self.stood_still(op.who, since, end);
            if since + allowed < end || op.released.or(died).is_none() {
                let what = format!("{} did not come to the end of its release", op.name());
                found.push(op.violation(since, what));
            }
        }
        found
    }

    /// Checks that nobody waits without a reason for a lock that is free.
    fn standstills(&self) -> Vec<Violation> {
        let waiting = self.ops.iter();
        let waiting = waiting.filter(|op| op.queued.is_some() && !self.diverged);
        let found = waiting.filter_map(|op| {
            let (queued, _) = op.queued?;
            let died = self.died.get(&op.who).copied();
            let until = op.over_at().or(died).unwrap_or(self.end);
            let mut busy = self.busy(op);
            busy.push((until, until));
            busy.sort_unstable();
            let mut free_since = queued;
            for (from, to) in busy {
                let from = from.min(until);
                let enough = free_since.saturating_add(nanos(self.rules.patience));
                if enough < from {
                    let free = Duration::from_nanos(from - free_since);
                    let what =
                        format!("{} waited for a lock that was free for {free:?}", op.name());
                    return Some(op.violation(enough, what));
                }
                free_since = free_since.max(to);
            }
            None
        });
        found.collect()
    }

    /// Checks that no node is left when all have gone.
    fn leftovers(&self) -> Vec<Violation> {
        let nodes = self.entries.iter().filter_map(|entry| match &entry.what {
            What::Leftover { node } if !self.diverged => Some((entry.at, node)),
            _ => None,
        });
        let found = nodes.map(|(at, node)| Violation {
            at,
            what: format!("the node {node} was left behind"),
            ops: Vec::new(),
            paths: vec![node.clone()],
        });
        found.collect()
    }

    /// Returns when a lock that `op` waits for was held, or something was wrong.
    fn busy(&self, op: &Op) -> Vec<(Time, Time)> {
        let settle = nanos(self.rules.settle);
        let shared = |other: &&Op| other.paths.iter().any(|path| op.call.contains(path));
        let holds = self.ops.iter().filter(shared).filter_map(|other| {
            // A call for several locks holds some of them before it holds all.
            let from = match other.call.len() > 1 && other.id() != op.id() {
                true => other.requested,
                false => other.granted.as_ref()?.at,
            };
            let refused = other.refused.as_ref().map(|(at, _)| *at);
            let died = self.died.get(&other.who).map(|died| died + settle);
            let end = other.released.or(refused).or(died).unwrap_or(Time::MAX);
            Some((from, end))
        });
        holds.chain(self.troubles.iter().copied()).collect()
    }

    fn stood_still(&self, who: Process, from: Time, to: Time) -> Time {
        let pauses = self.pauses.get(&who).into_iter().flatten();
        pauses
            .map(|(since, until)| (*until).min(to).saturating_sub((*since).max(from)))
            .sum()
    }

    /// Returns the holds of each path that were valid, ordered by their beginning.
    fn spans(&self) -> BTreeMap<String, Vec<Span<'_>>> {
        let mut spans: BTreeMap<String, Vec<Span<'_>>> = BTreeMap::new();
        for op in &self.ops {
            let (Some(grant), Some(end)) = (&op.granted, op.last_valid) else {
                continue;
            };
            for (i, path) in op.paths.iter().enumerate() {
                spans.entry(path.clone()).or_default().push(Span {
                    start: grant.at,
                    end,
                    token: grant.tokens.get(i).copied(),
                    op,
                });
            }
        }
        for spans in spans.values_mut() {
            spans.sort_by_key(|span| span.start);
        }
        spans
    }

    fn by_path(&self, keep: impl Fn(&Op) -> bool) -> BTreeMap<String, Vec<&Op>> {
        let mut ops: BTreeMap<String, Vec<&Op>> = BTreeMap::new();
        for op in self.ops.iter().filter(|op| keep(op)) {
            for path in &op.paths {
                ops.entry(path.clone()).or_default().push(op);
            }
        }
        ops
    }

    fn summary(&self) -> Summary {
        let count = |counts: fn(&What) -> bool| {
            let entries = self.entries.iter().filter(|entry| counts(&entry.what));
            entries.count()
        };
        let refused = |timeout: bool| {
            let refused = self.ops.iter().filter_map(|op| op.refused.as_ref());
            refused
                .filter(|(_, why)| (why == TIMEOUT) == timeout)
                .count()
        };
        let waits = self.ops.iter().filter_map(|op| {
            let grant = op.granted.as_ref()?;
            Some(grant.at.saturating_sub(op.requested))
        });
        Summary {
            faults: count(|what| matches!(what, What::Fault { .. })),
            requests: self.ops.len(),
            grants: self.ops.iter().filter(|op| op.granted.is_some()).count(),
            timeouts: refused(true),
            errors: refused(false),
            suspected: count(|what| matches!(what, What::Told { event } if event == "Suspect")),
            lost: self.ops.iter().filter(|op| op.lost).count(),
            written: count(|what| matches!(what, What::Write { accepted: true, .. })),
            refused_writes: count(|what| {
                matches!(
                    what,
                    What::Write {
                        accepted: false,
                        ..
                    }
                )
            }),
            paused: count(|what| *what == What::Paused),
            died: count(|what| *what == What::Died),
            longest_wait: Duration::from_nanos(waits.max().unwrap_or(0)),
        }
    }
}

impl Violation {
    fn new(at: Time, what: String, ops: &[&Op], path: &str) -> Self {
        Self {
            at,
            what,
            ops: ops.iter().map(|op| op.id()).collect(),
            paths: vec![path.to_owned()],
        }
    }
}

fn greater<'a>(old: Option<Span<'a>>, new: Span<'a>) -> Option<Span<'a>> {
    Some(old.filter(|old| new.token <= old.token).unwrap_or(new))
}
