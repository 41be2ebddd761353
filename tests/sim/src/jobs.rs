//! The judge of the job's runs: what its callers were told, by what the servers have written.

use std::time::Duration;

use zklock::Error;
use zklock::sim::ensemble::{Arrival, Change, What};
use zklock_core::journal::{self, Outcome};

use crate::client::{Journal, ms};
use crate::history::Process;
use crate::known_slots::known_slots;
use crate::plan::{ClientEnd, Once, Plan};
use crate::troubles::ensemble;

const BY_ITSELF: &str = "by-itself ";
const ONCE_MORE: &str = "once-more ";

/// The job's path.
pub(crate) const JOB: &str = "/sim/job";

/// Returns the name of a slot.
pub(crate) fn slot(number: u8) -> String {
    format!("{number:03}")
}

/// A call that runs the job, if it is due.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) who: Process,
    pub(crate) slot: String,
    pub(crate) attempts: u32,
    pub(crate) any_order: bool,
    pub(crate) again: bool,
    pub(crate) asked: Duration,
    pub(crate) ran: Option<Ran>,
    pub(crate) told: Option<(Duration, Told)>,
}

/// The run that a call made.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    pub(crate) began: Duration,
    pub(crate) ended: Duration,
    pub(crate) token: i64,
    pub(crate) slot: String,
    pub(crate) attempt: u32,
    pub(crate) retry_of: Option<i64>,
    /// How many runs were done before, by the state that the last of them left.
    pub(crate) count: u64,
    /// Whether the work was done, once it has ended.
    pub(crate) well: Option<bool>,
}

/// What a call was told.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    Done,
    Failed,
    Panicked,
    DoneBefore(i64),
    NoAttemptsLeft(i64),
    NotNow,
    Lost,
    Unconfirmed,
    Error(String),
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Summary {
    pub(crate) begun: usize,
    pub(crate) done: usize,
    /// Runs whose process was killed before it was told how they ended.
    pub(crate) killed: usize,
    /// Answers to the writes of a begin or an end that never came.
    pub(crate) unanswered: usize,
}

/// A run, as the servers have recorded it.
#[derive(Clone, Debug)]
struct Written {
    at: Duration,
    token: i64,
    slot: String,
    attempt: u32,
    owner: String,
    session: i64,
    by_itself: bool,
    again: bool,
    count: u64,
    /// When its end was written down, and whether it was done.
    end: Option<(Duration, bool)>,
}

impl Call {
    pub(crate) fn new(who: Process, once: Once, asked: Duration) -> Self {
        Self {
            who,
            slot: slot(once.slot),
            attempts: once.attempts.unwrap_or(u32::MAX),
            any_order: once.any_order,
            again: once.again,
            asked,
            ran: None,
            told: None,
        }
    }

    /// Drops what a dead process says.
    fn before(mut self, died: Duration) -> Self {
        self.told = self.told.filter(|(at, _)| *at < died);
        self.ran = self.ran.filter(|ran| ran.began < died);
        if let Some(ran) = &mut self.ran
            && died <= ran.ended
        {
            ran.well = None;
        }
        self
    }
}

pub(crate) fn judge(plan: &Plan, journal: &Journal) -> Result<Summary, String> {
    let written = ensemble(|ensemble, _| written(ensemble.history()))?;
    let died = |who: Process| match plan.clients[who.slot].end {
        ClientEnd::CrashAt(at) => ms(at),
        _ => Duration::MAX,
    };
    let calls: Vec<_> = journal.calls().drain(..).collect();
    let (killed, unanswered) = hits(&calls, &written, died);
    for call in calls.into_iter().filter(|call| call.asked < died(call.who)) {
        let until = died(call.who);
        let call = call.before(until);
        let wrong = call
            .ran
            .as_ref()
            .and_then(|ran| misrun(&call, ran, &written));
        let wrong = wrong.or_else(|| misled(&call, &written));
        let calm = plan.is_calm().then(|| unwritten(&call, &written)).flatten();
        if let Some(wrong) = wrong.or(calm) {
            return Err(format!("{wrong}: {call:#?}\n{written:#?}"));
        }
    }
    Ok(Summary {
        begun: written.len(),
        done: written.iter().filter(|run| run.is_done()).count(),
        killed,
        unanswered,
    })
}

/// Counts the kills of processes that had a run, and the answers to their writes that were lost: after
/// the write was carried out and before its caller went on, there was another handshake or no session.
fn hits(calls: &[Call], written: &[Written], died: impl Fn(Process) -> Duration) -> (usize, usize) {
    let (mut killed, mut unanswered) = (0, 0);
    for run in written {
        let of_run = |call: &&Call| call.ran.as_ref().is_some_and(|ran| ran.token == run.token);
        let call = calls.iter().find(of_run);
        let Some((call, ran)) = call.and_then(|call| Some((call, call.ran.as_ref()?))) else {
            let dies = run.client().is_some_and(|who| died(who) < Duration::MAX);
            *if dies { &mut killed } else { &mut unanswered } += 1;
            continue;
        };
        let died = died(call.who);
        let told = call.told.as_ref().filter(|(at, _)| *at < died);
        killed += usize::from(told.is_none() && run.at < died && died < Duration::MAX);
        unanswered += usize::from(run.resumed(run.at, ran.began.min(died)));
        if let (Some((end, _)), Some((at, told))) = (run.end, told) {
            let in_doubt = matches!(told, Told::Unconfirmed);
            unanswered += usize::from(in_doubt || run.resumed(end, *at));
        }
    }
    (killed, unanswered)
}

/// Reads the runs from the history: each run begins while its node exists, and ends with it.
fn written(history: &[Change]) -> Result<Vec<Written>, String> {
    let mut runs: Vec<Written> = Vec::new();
    let mut before = journal::Journal::default();
    for (place, change) in history.iter().enumerate() {
        let What::Set { path, data } = &change.what else {
            continue;
        };
        if path != JOB {
            continue;
        }
        let now = journal::Journal::parse(data, 0).ok_or("the job has no journal any more")?;
        let token = |run: &Option<journal::PastRun>| run.as_ref().map(|run| run.token);
        if let Some(run) = now
            .running
            .as_ref()
            .filter(|run| token(&before.running) != Some(run.token))
        {
            let (by_itself, again) = noted(&run.owner);
            if !again && is_done(&runs, &run.slot, by_itself) {
                return Err(format!("{run:?} began after its slot was done"));
            }
            if node_gone(&history[..place], run.token) {
                return Err(format!("{run:?} began without its node"));
            }
            runs.push(Written {
                at: change.at,
                token: run.token,
                slot: run.slot.clone(),
                attempt: run.attempt,
                owner: run.owner.to_string(),
                session: session(history, run.token),
                by_itself,
                again,
                count: count(before.state.as_deref()),
                end: None,
            });
        }
        for (old, new) in [(&before.done, &now.done), (&before.failed, &now.failed)] {
            let Some(run) = new
                .as_ref()
                .filter(|run| token(old) != Some(run.token) && run.outcome != Outcome::Unknown)
            else {
                continue;
            };
            let end = (change.at, run.outcome == Outcome::Done);
            let last = runs.last_mut().filter(|last| last.token == run.token);
            let last = last.ok_or_else(|| format!("{run:?} ended, and had not begun"))?;
            last.end = Some(end);
            let with_its_node = history.iter().any(|other| {
                other.zxid == change.zxid && deletes(other, &node(history, run.token))
            });
            if !with_its_node {
                return Err(format!("{run:?} ended without its node"));
            }
        }
        let done = runs.iter().filter(|run| run.is_done()).count() as u64;
        if count(now.state.as_deref()) != done {
            return Err(format!("{done} runs are done, and the last left {now:?}"));
        }
        before = now;
    }
    Ok(runs)
}

/// Returns how a call that makes a run out of order describes itself.
pub(crate) fn note(any_order: bool, again: bool) -> String {
    let words = [(any_order, BY_ITSELF), (again, ONCE_MORE)];
    words.map(|(is, word)| if is { word } else { "" }).concat()
}

fn noted(owner: &str) -> (bool, bool) {
    (owner.contains(BY_ITSELF), owner.contains(ONCE_MORE))
}

fn known(runs: &[Written]) -> (Vec<&str>, bool) {
    let done = runs.iter().filter(|run| run.is_done());
    known_slots(done.map(|run| (&*run.slot, run.by_itself)))
}

/// Returns whether a slot is known to be done for a call that looks at the slot alone, or at its
/// order.
fn is_done(runs: &[Written], slot: &str, by_itself: bool) -> bool {
    let by_order = |run: &Written| run.is_done() && !run.by_itself && slot <= run.slot.as_str();
    known(runs).0.contains(&slot) || !by_itself && runs.iter().any(by_order)
}

/// Returns how often this slot was begun since it was done.
fn attempts(runs: &[Written], slot: &str) -> u32 {
    let of_slot = runs.iter().rev().filter(|run| run.slot == slot);
    of_slot.take_while(|run| !run.is_done()).count() as u32
}

/// Reads the state that a run leaves for the next one: how many were done by then.
pub(crate) fn count(state: Option<&[u8]>) -> u64 {
    let text = state.and_then(|state| std::str::from_utf8(state).ok());
    text.map_or(0, |text| text.parse().expect("a number"))
}

/// Returns the node whose creation gave this token.
fn node(history: &[Change], token: i64) -> Option<String> {
    history.iter().find_map(|change| match &change.what {
        What::Created { path, .. }
            if change.zxid == token && path.starts_with(JOB) && path != JOB =>
        {
            Some(path.clone())
        }
        _ => None,
    })
}

/// Returns the session of that node.
fn session(history: &[Change], token: i64) -> i64 {
    let owners = history.iter().find_map(|change| match &change.what {
        What::Created { owner, .. } if change.zxid == token && *owner != 0 => Some(*owner),
        _ => None,
    });
    owners.unwrap_or(0)
}

fn deletes(change: &Change, node: &Option<String>) -> bool {
    matches!(&change.what, What::Deleted { path, .. } if Some(path) == node.as_ref())
}

fn node_gone(history: &[Change], token: i64) -> bool {
    let node = node(history, token);
    // Where the numbers have come to their end, a node that is created later has the name of the
    // first.
    let gone = |change: &Change| token < change.zxid && deletes(change, &node);
    node.is_none() || history.iter().any(gone)
}

/// Returns what is wrong with a run.
fn misrun(call: &Call, ran: &Ran, written: &[Written]) -> Option<&'static str> {
    let Some(at) = written.iter().position(|run| run.token == ran.token) else {
        return Some("it ran, and that was not written down before");
    };
    let (before, run) = (&written[..at], &written[at]);
    let same = attempts(before, &run.slot);
    let last = before.iter().rposition(|old| !old.is_done());
    let again = |old: &usize| {
        let since = before[*old..].iter();
        let done = since
            .filter(|old| old.is_done())
            .any(|old| old.slot == run.slot);
        before[*old].slot == run.slot && !(done && known(before).0.contains(&&*run.slot))
    };
    let repeated = last.filter(again).map(|old| before[old].token);
    // Of a failure before those of other slots, only the count is kept.
    let repeated = repeated.or_else(|| (0 < same).then_some(0));
    [
        (
            ran.slot != call.slot || run.slot != call.slot,
            "it ran for another slot",
        ),
        (ran.began < run.at, "it ran before that was written down"),
        (
            run.attempt != ran.attempt || ran.attempt != same + 1,
            "it counts its attempts wrong",
        ),
        (call.attempts <= same, "it ran too often"),
        (ran.retry_of != repeated, "it repeats another run"),
        (ran.count != run.count, "it got what another run has left"),
        (
            run.is_done() && ran.well == Some(false),
            "it is done, and failed",
        ),
        (
            run.end.is_some_and(|(_, done)| !done) && ran.well == Some(true),
            "it failed, and is done",
        ),
    ]
    .into_iter()
    .find_map(|(wrong, what)| wrong.then_some(what))
}

/// Returns what is wrong with what a caller was told.
fn misled(call: &Call, written: &[Written]) -> Option<&'static str> {
    let (told_at, told) = call.told.as_ref()?;
    let of = |token: i64| written.iter().find(|run| run.token == token);
    let own = call.ran.as_ref().and_then(|ran| of(ran.token));
    let end = own.and_then(|run| run.end);
    let wrong = match told {
        Told::Done => !end.is_some_and(|(at, done)| done && at <= *told_at),
        Told::Lost => end.is_some(),
        Told::DoneBefore(token) => {
            let done = |run: &Written| {
                let in_time = run.end.is_some_and(|(at, done)| done && at <= *told_at);
                // The slot may have been run once more by itself.
                let of_slot = written.iter().filter(|other| other.slot == run.slot);
                let in_order = of_slot
                    .into_iter()
                    .any(|run| run.is_done() && !run.by_itself);
                let is_above = !call.any_order && in_order && call.slot < run.slot;
                in_time && (call.slot == run.slot || is_above)
            };
            call.again || call.ran.is_some() || !of(*token).is_some_and(done)
        }
        Told::NoAttemptsLeft(token) => {
            let count = written
                .iter()
                .filter(|run| run.slot == call.slot && run.at <= *told_at);
            let few = (count.count() as u32) < call.attempts;
            // Attempts at a slot that is done by its order alone still count for who runs it nevertheless.
            let counts = |run: &Written| match call.any_order || call.again {
                true => call.slot == run.slot,
                false => call.slot <= run.slot,
            };
            let done = written.iter().any(|run| {
                counts(run) && run.end.is_some_and(|(at, done)| done && at < call.asked)
            });
            let apart = written.iter().any(|run| run.by_itself || run.again);
            let is_it = |run: &Written| !run.is_done() && run.slot == call.slot;
            let is_kept = *token == 0 || of(*token).is_some_and(is_it);
            !apart && (few || done) || !is_kept || call.ran.is_some()
        }
        Told::NotNow => call.ran.is_some(),
        Told::Failed | Told::Panicked | Told::Unconfirmed => call.ran.is_none(),
        // `sight` judges whether a node may have been deleted.
        Told::Error(why) => {
            let known = [
                &Error::Closed.to_string(),
                "another client deleted the node",
            ];
            !known.iter().any(|known| why.contains(*known))
        }
    };
    wrong.then_some("its caller is told what is not so")
}

/// Checks that every end is written down where nothing breaks.
fn unwritten(call: &Call, written: &[Written]) -> Option<&'static str> {
    let token = call.ran.as_ref()?.token;
    let ends = |run: &Written| run.token == token && run.end.is_some();
    (!written.iter().any(ends)).then_some("its end is not written down")
}

impl Written {
    /// Returns the client whose process wrote the run, by its description.
    fn client(&self) -> Option<Process> {
        let (_, rest) = self.owner.split_once("\"pid\":")?;
        let end = rest.find(|c: char| !c.is_ascii_digit())?;
        // The first process of a run is the test.
        let slot = rest[..end].parse::<usize>().ok()?.checked_sub(1001)?;
        Some(Process { slot, life: 0 })
    }

    /// Returns whether the run's session had another handshake in this time.
    fn resumed(&self, from: Duration, to: Duration) -> bool {
        ensemble(|ensemble, _| {
            let mut arrivals = ensemble.arrivals(self.session).iter();
            arrivals.any(|(at, what)| *what == Arrival::Handshake && from < *at && *at <= to)
        })
    }

    fn is_done(&self) -> bool {
        self.end.is_some_and(|(_, done)| done)
    }
}
