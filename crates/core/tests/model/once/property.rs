//! The properties that must hold for a job.

use zklock_core::job::{Action, Due, Outcome};
use zklock_core::journal::{Journal, PastRun};

use super::known_slots::known_slots;
use super::steps::left_by;
use super::{Begun, EVERY, Job, Past, Told};
use crate::property::{Property, Violation, name};

impl Job {
    /// Checks this world; if it is `stuck`, nothing can happen any more but a mishap.
    pub(super) fn look_around(&mut self, stuck: bool) {
        let runs = |i: &usize| {
            let runner = &self.runners[*i];
            let held = runner.token.is_some_and(|token| self.is_there(token));
            held && runner.once.is_some() && runner.action() == Action::Run
        };
        let running: Vec<_> = (0..self.runners.len()).filter(runs).collect();
        if let [one, other, ..] = running[..] {
            let text = format!("{} and {} run at once", name(one), name(other));
            self.blame(Property::Exclusion, text);
        }
        if stuck {
            self.blame(Property::Progress, "somebody waits for ever".to_owned());
        }
    }

    /// Checks a write of the journal by the client with this token.
    pub(super) fn check_write(&mut self, i: usize, token: i64, data: &[u8]) {
        let then = Journal::parse(data, self.now).unwrap_or_default();
        let now = self.present();
        if then.running.as_ref().is_some_and(|run| run.token == token) {
            self.check_attempt(i, token);
        }
        if then.done != now.done {
            self.check_done(token);
        }
        self.check_state(token, &then, &now);
        let slot = |journal: &Journal| journal.slot.clone();
        if slot(&then) < slot(&now) {
            self.blame(Property::Once, "a slot is not done any more".to_owned());
        }
        if then.running.is_none() && now.running.is_some() && self.past.lost.contains(&token) {
            let text = format!("{} was told that its run is lost", name(i));
            self.blame(Property::Truth, text);
        }
    }

    /// Checks a run that is about to begin.
    fn check_attempt(&mut self, i: usize, token: i64) {
        let runner = &self.runners[i];
        let (past, now) = (&self.past, self.now);
        let due = match &runner.due {
            _ if runner.again => true,
            Due::Slot(slot) => !past.is_done(slot, runner.by_itself),
            Due::Every(every) => past.last_done().is_none_or(|run| run.at + every <= now),
        };
        let left = match &runner.due {
            Due::Slot(slot) => past.attempts(slot) < runner.attempts,
            Due::Every(_) => true,
        };
        let first = self.line.first().map(|place| place.token);
        if !due {
            self.blame(Property::Once, format!("{} begins what is done", name(i)));
        }
        if !left {
            self.blame(Property::Attempts, format!("{} begins again", name(i)));
        }
        if first != Some(token) {
            let text = format!("{} begins without the lock", name(i));
            self.blame(Property::Exclusion, text);
        }
    }

    /// Checks the run with this token, which is about to be marked as done.
    fn check_done(&mut self, token: i64) {
        let past = &self.past;
        let run = past.begun.last().filter(|run| run.token == token);
        let again = self.runners.iter().any(|runner| runner.again);
        let due = |run: &Begun| again || !past.is_done(&run.slot, run.by_itself);
        let held = run.is_some_and(|run| due(run) || run.slot.is_empty());
        if !held || !past.worked.contains(&(token, true)) {
            let text = format!("the run {token} is done");
            self.blame(Property::Once, text);
        }
    }

    /// Checks that the state for the next run changes with the mark of the run that left it, and
    /// with no other write.
    fn check_state(&mut self, token: i64, then: &Journal, now: &Journal) {
        let left = match then.done == now.done {
            true => now.state.clone(),
            false => Some(left_by(token)),
        };
        if then.state != left {
            let text = format!("{token} leaves {:?}, not {left:?}", then.state);
            self.blame(Property::Once, text);
        }
    }

    /// Checks a client that is about to do the work.
    pub(super) fn check_begin(&mut self, i: usize) {
        let runner = &self.runners[i];
        let once = runner.once.as_ref().expect("it is here");
        let (run, before) = once.run().expect("it runs");
        let begun = &self.past.begun;
        let at = begun.iter().position(|begun| begun.token == run.token);
        let own = runner.token == Some(run.token) && runner.asks_for(&run.slot);
        let Some(at) = at.filter(|_| own) else {
            let text = format!("{} runs what it has not begun", name(i));
            return self.blame(Property::Once, text);
        };
        let mut failed = begun[..at].iter().rev().filter(|before| !before.done);
        let newest = failed.clone().next().map(|before| before.token);
        let last = failed.find(|before| before.slot == run.slot);
        let last = last.map(|before| before.token);
        // Of a failure before others, only the count is left.
        let kept = last.map(|token| if Some(token) == newest { token } else { 0 });
        let told = before.map(|before| before.token);
        let left = begun[..at].iter().rev().find(|run| run.done);
        if once.state() != left.map(|run| left_by(run.token)).as_deref() && !runner.evicted {
            let text = format!("{} got {:?}, not of {left:?}", name(i), once.state());
            return self.blame(Property::Once, text);
        }
        // A run that was done since need not be repeated.
        let by_slot = matches!(runner.due, Due::Slot(_)) && !runner.again;
        let later = begun[at + 1..].iter().any(|other| other.done);
        if told != kept && (by_slot || told.is_some()) {
            let text = format!("{} is told to repeat {told:?}, not {kept:?}", name(i));
            self.blame(Property::Truth, text);
        } else if later && !runner.evicted {
            self.blame(Property::Once, format!("{} runs what is done", name(i)));
        }
    }

    /// Checks the result that the caller is told.
    pub(super) fn check_told(&mut self, i: usize, told: &Told) {
        let runner = &self.runners[i];
        let past = &self.past;
        let token = runner.token.unwrap_or_default();
        let is_true = match told {
            Told::Evicted => runner.evicted,
            Told::Panicked => past.worked.contains(&(token, false)),
            Told::Outcome(outcome) => match outcome {
                Outcome::Recorded => past.ended.contains(&token),
                Outcome::Lost => !past.ended.contains(&token),
                Outcome::Unconfirmed => {
                    let last = past.begun.last().map(|run| run.token);
                    runner.cancelled || last != Some(token)
                }
                Outcome::DoneBefore(run) => {
                    let run = past.begun.iter().find(|begun| begun.token == run.token);
                    run.is_some_and(|run| run.done && runner.is_served_by(run) && !runner.again)
                }
                Outcome::Forgotten(..) => false,
                Outcome::NoAttemptsLeft(last) if !past.has_failed(last) => false,
                Outcome::NoAttemptsLeft(_) if runner.again => true,
                Outcome::NoAttemptsLeft(last) => match &runner.due {
                    Due::Slot(slot) => {
                        let enough = runner.attempts <= past.attempts(slot);
                        let failed = !past.is_done(slot, runner.by_itself) || runner.evicted;
                        enough && failed && last.slot == *slot
                    }
                    Due::Every(_) => false,
                },
                Outcome::Taken => !runner.waits,
                Outcome::Unmarked => false,
                Outcome::Gone => runner.cancelled && !past.worked.iter().any(|run| run.0 == token),
            },
        };
        if *told == Told::Outcome(Outcome::Lost) {
            self.past.lost.push(token);
        }
        if !is_true {
            let text = format!("{} is told {told:?}", name(i));
            self.blame(Property::Truth, text);
        }
    }

    fn blame(&mut self, property: Property, text: String) {
        self.over = true;
        self.violations.push(Violation { property, text });
    }
}

impl super::Runner {
    fn asks_for(&self, slot: &str) -> bool {
        match &self.due {
            Due::Slot(own) => own == slot,
            Due::Every(_) => slot.is_empty(),
        }
    }

    /// Returns whether this run leaves the client nothing to do.
    fn is_served_by(&self, run: &Begun) -> bool {
        match &self.due {
            Due::Slot(slot) if self.by_itself => *slot == run.slot,
            Due::Slot(slot) if run.by_itself => *slot == run.slot,
            Due::Slot(slot) => *slot <= run.slot,
            Due::Every(_) => self.since < run.at + EVERY,
        }
    }
}

impl Past {
    /// Returns whether a slot is known to be done for a client that looks at the slot alone, or at
    /// its order.
    fn is_done(&self, slot: &str, by_itself: bool) -> bool {
        let mut done = self.begun.iter().filter(|run| run.done);
        let by_order = |run: &Begun| !run.by_itself && slot <= run.slot.as_str();
        let known = self.known_by_itself();
        known.contains(&slot) || !by_itself && done.any(by_order)
    }

    fn known_by_itself(&self) -> Vec<&str> {
        let done = self.begun.iter().filter(|run| run.done);
        known_slots(done.map(|run| (&*run.slot, run.by_itself))).0
    }

    fn last_done(&self) -> Option<&Begun> {
        self.begun.iter().rev().find(|run| run.done)
    }

    /// Returns whether this run was begun and is not done; of a failure before others, only the slot is
    /// known.
    fn has_failed(&self, run: &PastRun) -> bool {
        let is_it = |begun: &&Begun| begun.token == run.token || run.token == 0;
        let mut of_slot = self.begun.iter().filter(|begun| begun.slot == run.slot);
        of_slot.any(|begun| !begun.done && is_it(&begun))
    }

    fn attempts(&self, slot: &str) -> u32 {
        let of_slot = self.begun.iter().rev().filter(|run| run.slot == slot);
        of_slot.take_while(|run| !run.done).count() as u32
    }
}
