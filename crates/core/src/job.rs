//! Runs a job once: at most one finished run per slot.
//!
//! ```text
//!  Look ──► Line ──► Read ◄──► Touch (to learn the servers' time, and that nothing is missing)
//!   │        ▲        │  ▲
//!   │ done   │ lost   ▼  │
//!   │        └────── Begin
//!   │                 │ begun, as the answer tells, or else Read
//!   │ done, or no     ▼
//!   │ attempts left  Run ──► End ──► Confirm ──► Finish(Done | Lost)
//!   ▼
//!  Finish(DoneBefore | Forgotten | NoAttemptsLeft)
//!
//!  Somebody holds the lock, and the caller does not wait: Finish(Taken).
//!  Cancel, before the run: Finish(Gone).
//! ```
//!
//! The lock decides which client runs the job, and the [`Journal`] in the lock's directory says what is
//! left to run. One transaction checks the run's node in the queue and records the run before it begins;
//! another deletes the node and records the end. So a run is done if its holder held to the end, and a run
//! that has begun and whose lock is free has failed.
//!
//! A server that lags may show the holder an old journal. No run begins on an old journal, because the
//! transaction that begins it checks the version of the directory's data.

pub mod action_and_event;

use alloc::{borrow::ToOwned, string::String, vec::Vec};
use core::mem;

pub use self::action_and_event::{Action, Event, Outcome};
use super::journal::{End, Journal, Outcome as Ending, PastRun, Standing};

/// The state machine of one call that runs a job.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Once {
    wish: Wish,
    state: State,
}

/// A job to run.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Wish {
    /// When the job is to be run.
    pub due: Due,
    /// The terms on which the job is run.
    pub terms: Terms,
    /// The client that runs the job, as written in a contender's node.
    pub owner: String,
}

/// The terms on which a job is run.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Terms {
    /// How often a run may begin.
    pub attempts: u32,
    /// Whether the slot is done by itself, whatever other slots are.
    pub any_order: bool,
    /// Whether the job is run although it is done.
    pub again: bool,
    /// How many runs to keep; `None` keeps as many as before.
    pub keep: Option<u32>,
}

impl Wish {
    /// Returns the slot; empty if the job runs at intervals.
    fn slot(&self) -> &str {
        match &self.due {
            Due::Slot(slot) => slot,
            Due::Every(_) => "",
        }
    }

    /// Returns the run that begins under the lock with this token.
    fn run(&self, token: i64, attempt: u32) -> PastRun {
        PastRun {
            slot: self.slot().to_owned(),
            attempt,
            token,
            started: None,
            ended: None,
            outcome: Ending::Unknown,
            owner: self.owner.clone(),
            message: None,
        }
    }
}

/// When a run is due.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Due {
    /// Due until this slot, or one above it, is done.
    Slot(String),
    /// Due this long after the last finished run began, in milliseconds.
    Every(i64),
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum State {
    Look,
    Line,
    /// The token of our lock, and whether we have just written what is read.
    Read(i64, bool),
    Touch(i64, Journal, i32),
    Begin(i64, Journal, i32),
    Run(i64, Journal, i32),
    End(i64, Journal, i32),
    Confirm(i64),
    Finish(Outcome),
}

impl Once {
    /// Creates a machine for this wish.
    pub fn new(wish: Wish) -> Self {
        Self {
            wish,
            state: State::Look,
        }
    }

    /// Creates a machine for the same wish.
    pub fn anew(&self) -> Self {
        Self::new(self.wish.clone())
    }

    /// Returns the next step for the driver.
    pub fn action(&self) -> Action {
        match &self.state {
            State::Look | State::Read(..) | State::Confirm(_) => Action::Read,
            State::Line => Action::Line,
            State::Touch(_, journal, version) | State::Begin(_, journal, version) => {
                Action::Write(journal.text(), *version)
            }
            State::Run(..) => Action::Run,
            State::End(_, journal, version) => Action::End(journal.text(), *version),
            State::Finish(outcome) => Action::Finish(outcome.clone()),
        }
    }

    /// Returns the run that is under way, and the failed run that this one repeats.
    pub fn run(&self) -> Option<(&PastRun, Option<PastRun>)> {
        let State::Run(_, journal, _) = &self.state else {
            return None;
        };
        let run = journal.running.as_ref()?;
        let attempts = run.attempt.saturating_sub(1);
        let before = journal.last_attempt(&run.slot, attempts);
        // Without a slot, runs of an earlier interval are not repeated.
        let is_retry = !run.slot.is_empty() || 0 < attempts;
        Some((run, before.filter(|_| is_retry)))
    }

    /// Returns what the last finished run left for the run that is under way.
    pub fn state(&self) -> Option<&[u8]> {
        match &self.state {
            State::Run(_, journal, _) => journal.state.as_deref(),
            _ => None,
        }
    }

    /// Returns whether the run with this token recorded how it ended, before the run that is under way.
    pub fn has_ended(&self, token: i64) -> bool {
        let State::Run(_, journal, _) = &self.state else {
            return false;
        };
        let runs = journal.runs();
        let mut ended = runs.iter().filter(|run| run.outcome != Ending::Unknown);
        ended.any(|run| run.token == token)
    }

    /// Returns what the transaction that deletes our node writes if the work panics, and over which version.
    pub fn panicked(&self) -> Option<(Vec<u8>, i32)> {
        let State::Run(_, journal, version) = &self.state else {
            return None;
        };
        let end = End {
            outcome: Ending::Failed,
            message: Some("it panicked".to_owned()),
            state: None,
        };
        Some((
            journal.clone().end(end, self.wish.terms.any_order).text(),
            *version,
        ))
    }

    /// Takes in the result of the last action, or what happened meanwhile.
    pub fn handle(&mut self, event: Event) {
        let state = mem::replace(&mut self.state, State::Line);
        self.state = match (state, event) {
            (state @ State::Finish(_), _) => state,
            (State::Run(token, journal, version), Event::Ran(end)) => {
                State::End(token, journal.end(end, self.wish.terms.any_order), version)
            }
            (state @ State::Run(..), _) => state,
            (state @ (State::End(..) | State::Confirm(_)), event) => self.ended(state, event),
            (_, Event::Cancel) => State::Finish(Outcome::Gone),

            (State::Look, Event::NoNode) => State::Line,
            (State::Look, Event::Data(data, _, mtime)) => self.looked(&data, mtime),
            (State::Line, Event::Granted(token)) => State::Read(token, false),
            (State::Line, Event::Taken) => State::Finish(Outcome::Taken),
            (State::Read(token, now), Event::Data(data, version, mtime)) => {
                self.read(token, &data, version, now.then_some(mtime), mtime)
            }
            // What was just written need not be read.
            (
                State::Touch(token, journal, _) | State::Begin(token, journal, _),
                Event::Written(Some((version, mtime))),
            ) => self.read(token, &journal.text(), version, Some(mtime), mtime),
            (State::Touch(token, ..), Event::Written(None)) => State::Read(token, true),
            // The writer may be our own request, whose answer was lost.
            (State::Begin(token, ..), Event::Written(None))
            | (State::Touch(token, ..) | State::Begin(token, ..), Event::BadVersion) => {
                State::Read(token, false)
            }
            // Nothing was begun: go through the queue again.
            (
                State::Read(..) | State::Touch(..) | State::Begin(..),
                Event::Lost | Event::NoNode,
            ) => State::Line,

            // A request whose answer was lost is repeated, and a stale event changes nothing.
            (state, _) => state,
        };
    }

    /// Handles the events after the work, to make sure that its end is recorded.
    fn ended(&self, state: State, event: Event) -> State {
        match (state, event) {
            (State::End(..), Event::Recorded) => State::Finish(Outcome::Recorded),
            (State::End(token, ..), Event::Gone) => State::Confirm(token),
            (State::Confirm(token), Event::Data(data, _, mtime)) => {
                self.confirmed(token, &data, mtime)
            }
            (State::Confirm(_), Event::NoNode) => State::Finish(Outcome::Lost),
            (_, Event::Cancel) => State::Finish(Outcome::Unconfirmed),
            (state, _) => state,
        }
    }

    /// Takes in the journal before we have a node.
    fn looked(&self, data: &[u8], mtime: i64) -> State {
        let Some(journal) = Journal::parse(data, mtime) else {
            return State::Finish(Outcome::Unmarked);
        };
        match self.done(&journal, None) {
            Some(outcome) => State::Finish(outcome),
            None => State::Line,
        }
    }

    /// Takes in the journal as the holder of the lock.
    ///
    /// A server may show a journal that is older than the lock. What it contains is true nevertheless, and
    /// beginning on it fails. What it lacks counts only after a write of ours.
    fn read(&self, token: i64, data: &[u8], version: i32, now: Option<i64>, mtime: i64) -> State {
        let Some(mut journal) = Journal::parse(data, mtime) else {
            return State::Finish(Outcome::Unmarked);
        };
        let running = journal.running.as_ref();
        if running.is_some_and(|run| self.is_ours(run, token)) {
            return State::Run(token, journal, version);
        }
        if let Some(keep) = self.wish.terms.keep {
            journal.keep(keep);
        }
        journal.bury();
        if now.is_none() && matches!(self.wish.due, Due::Every(_)) {
            return State::Touch(token, journal, version);
        }
        if let Some(outcome) = self.done(&journal, now) {
            return State::Finish(outcome);
        }
        let slot = self.wish.slot();
        let before = self.attempts(&journal, slot, now);
        let last = journal.last_attempt(slot, before);
        if let Some(last) = last.filter(|_| self.wish.terms.attempts <= before) {
            return match now {
                Some(_) => State::Finish(Outcome::NoAttemptsLeft(last)),
                None => State::Touch(token, journal, version),
            };
        }
        let run = self.wish.run(token, before.saturating_add(1));
        State::Begin(token, journal.begin(run), version)
    }

    /// Returns why there is nothing to run, if so.
    fn done(&self, journal: &Journal, now: Option<i64>) -> Option<Outcome> {
        if self.wish.terms.again {
            return None;
        }
        match &self.wish.due {
            Due::Slot(slot) => match journal.standing(slot, self.wish.terms.any_order) {
                Standing::Due => None,
                Standing::Done(run) => Some(Outcome::DoneBefore(run)),
                Standing::Forgotten(floor) => Some(Outcome::Forgotten(slot.clone(), floor)),
            },
            Due::Every(every) => {
                let done = journal.done.as_ref()?;
                let stands = now? < done.started?.saturating_add(*every);
                stands.then(|| Outcome::DoneBefore(done.clone()))
            }
        }
    }

    /// Returns how often this was begun before.
    fn attempts(&self, journal: &Journal, slot: &str, now: Option<i64>) -> u32 {
        let count = journal.attempts.get(slot).copied().unwrap_or(0);
        let last = journal.failed.as_ref().and_then(|run| run.started);
        match (&self.wish.due, now, last) {
            // Attempts at a run by time count only within one interval.
            (Due::Every(every), Some(now), Some(last)) if last.saturating_add(*every) <= now => 0,
            _ => count,
        }
    }

    /// Takes in the journal after our node is gone, to learn whether the end was recorded.
    fn confirmed(&self, token: i64, data: &[u8], mtime: i64) -> State {
        let Some(journal) = Journal::parse(data, mtime) else {
            return State::Finish(Outcome::Unconfirmed);
        };
        let runs = journal.runs().into_iter().chain(&journal.running);
        let ours: Vec<_> = runs.filter(|run| self.is_ours(run, token)).collect();
        State::Finish(match &journal.running {
            Some(run) if self.is_ours(run, token) => Outcome::Lost,
            _ if ours.iter().any(|run| run.outcome != Ending::Unknown) => Outcome::Recorded,
            _ if !ours.is_empty() => Outcome::Lost,
            _ => Outcome::Unconfirmed,
        })
    }

    /// Returns whether this is the run of our lock. Its token alone does not tell: servers that have
    /// forgotten a lock may give its token again.
    fn is_ours(&self, run: &PastRun, token: i64) -> bool {
        run.token == token && run.owner == self.wish.owner
    }
}
