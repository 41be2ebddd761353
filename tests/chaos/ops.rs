//! The calls in a history: the locks that they asked for, and the outcome.

use std::collections::HashMap;
use std::time::Duration;

use crate::checker::Violation;
use crate::history::{Entry, Kind, NOBODY, Process, Time, What};

/// One call that takes a lock, and its outcome.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) who: Process,
    pub(crate) number: usize,
    pub(crate) kind: Kind,
    pub(crate) paths: Vec<String>,
    /// The paths of its whole call, which may ask for locks of several kinds.
    pub(crate) call: Vec<String>,
    pub(crate) limit: Option<Duration>,
    pub(crate) requested: Time,
    pub(crate) queued: Option<(Time, i64)>,
    pub(crate) granted: Option<Grant>,
    pub(crate) refused: Option<(Time, String)>,
    pub(crate) last_valid: Option<Time>,
    pub(crate) lost: bool,
    pub(crate) release: Option<Time>,
    pub(crate) released: Option<Time>,
}

#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) at: Time,
    pub(crate) session: i64,
    pub(crate) tokens: Vec<i64>,
}

/// The reason for a refused call whose time was up.
pub(crate) const TIMEOUT: &str = "timeout";

impl Op {
    pub(crate) fn id(&self) -> (Process, usize) {
        (self.who, self.number)
    }

    pub(crate) fn name(&self) -> String {
        format!("{} (operation {})", self.who, self.number)
    }

    pub(crate) fn violation(&self, at: Time, what: String) -> Violation {
        Violation {
            at,
            what,
            ops: vec![self.id()],
            paths: self.paths.clone(),
        }
    }

    pub(crate) fn granted_at(&self) -> Time {
        self.granted.as_ref().map_or(Time::MAX, |grant| grant.at)
    }

    /// Returns when the call returned.
    pub(crate) fn over_at(&self) -> Option<Time> {
        let granted = self.granted.as_ref().map(|grant| grant.at);
        granted.or_else(|| self.refused.as_ref().map(|(at, _)| *at))
    }

    /// Returns whether the call had its place before `time` and kept it: a new session means a new
    /// place.
    pub(crate) fn queued_before(&self, time: Time) -> bool {
        let Some((queued, session)) = self.queued else {
            return false;
        };
        let kept = self
            .granted
            .as_ref()
            .is_some_and(|grant| grant.session == session);
        kept && queued < time && !matches!(self.kind, Kind::Permit(_))
    }
}

/// Returns whether these two calls exclude each other on a path that both name.
pub(crate) fn conflict(a: &Op, b: &Op) -> bool {
    a.kind == Kind::Exclusive || b.kind == Kind::Exclusive
}

/// Gathers the entries that belong to one call.
///
/// A call that asks for locks of several kinds has a request for each kind, and counts as an
/// operation for each. The tokens of its grant are in the order of its requests.
pub(crate) fn gather(entries: &[Entry]) -> Vec<Op> {
    let mut ops: Vec<Op> = Vec::new();
    let mut at: HashMap<(Process, usize), Vec<usize>> = HashMap::new();
    for entry in entries.iter().filter(|entry| entry.who != NOBODY) {
        let id = (entry.who, entry.op);
        if let What::Request { kind, paths, limit } = &entry.what {
            at.entry(id).or_default().push(ops.len());
            ops.push(Op {
                who: entry.who,
                number: entry.op,
                kind: *kind,
                paths: paths.clone(),
                call: paths.clone(),
                limit: *limit,
                requested: entry.at,
                queued: None,
                granted: None,
                refused: None,
                last_valid: None,
                lost: false,
                release: None,
                released: None,
            });
            continue;
        }
        let mut before = 0;
        for place in at.get(&id).into_iter().flatten() {
            let op = &mut ops[*place];
            op.take_in(entry, before);
            before += op.paths.len();
        }
    }
    for places in at.values().filter(|places| 1 < places.len()) {
        let all: Vec<_> = places
            .iter()
            .flat_map(|at| ops[*at].paths.clone())
            .collect();
        places.iter().for_each(|at| ops[*at].call.clone_from(&all));
    }
    ops
}

impl Op {
    /// Adds an entry; the tokens of the first `before` paths belong to other operations.
    fn take_in(&mut self, entry: &Entry, before: usize) {
        let at = entry.at;
        match &entry.what {
            // The first look at a place is the one that counts in its session.
            What::Queued { session }
                if self.queued.is_none_or(|(_, before)| before != *session) =>
            {
                self.queued = Some((at, *session));
            }
            What::Granted { session, tokens } => {
                self.granted = Some(Grant {
                    at,
                    session: *session,
                    tokens: tokens.iter().skip(before).copied().collect(),
                });
            }
            What::Refused { why } => self.refused = Some((at, why.clone())),
            What::Valid => self.last_valid = self.last_valid.max(Some(at)),
            What::Lost => self.lost = true,
            What::Release => self.release = Some(at),
            What::Released { .. } => self.released = Some(at),
            _ => {}
        }
    }
}
