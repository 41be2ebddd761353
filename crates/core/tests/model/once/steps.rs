//! The steps that can happen next to a job.

use std::mem;

use zklock_core::job::{Action, Event, Once};
use zklock_core::journal::{End, Journal, Outcome as Ending};

use super::{Adrift, Job, Runner, Shortcut, Stage, Told};
use crate::explore::Model;
use crate::property::Violation;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    /// The client comes.
    Come(usize),
    /// The client's request is carried out and answered, or its work ends.
    Run(usize),
    /// A transaction that nobody waits for any more arrives at the server.
    Arrive(usize),
    /// The client hears that its session has ended, and has another.
    Hear(usize),
    /// The session of a dead client ends.
    Reap(usize),

    /// A server that lags shows the journal as it was.
    Lag(usize, usize),
    /// The answer is lost, and the request will be carried out, now or later.
    Lose(usize),
    /// The caller gives up, or the request that ends its run gets no answer for too long.
    Cancel(usize),
    Fail(usize),
    Panic(usize),
    Expire(usize),
    Crash(usize),
    Evict(usize),
    Tick,
}

impl Model for Job {
    type Step = Step;

    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.over {
            return steps;
        }
        for (i, runner) in self.runners.iter().enumerate() {
            match runner.stage {
                Stage::Away => steps.push(Step::Come(i)),
                Stage::Here => self.way(i, runner, &mut steps),
                Stage::Gone(_) => {}
                Stage::Crashed => {
                    let left = self.line.iter().any(|place| place.runner == i)
                        || self.adrift.iter().any(|adrift| adrift.runner == i);
                    steps.extend(left.then_some(Step::Reap(i)));
                }
            }
        }
        let adrift = 0..self.adrift.len();
        steps.extend(adrift.map(Step::Arrive));
        if 0 < self.budget.evictions {
            steps.extend((0..self.line.len()).map(Step::Evict));
        }
        steps.extend((0 < self.budget.ticks).then_some(Step::Tick));
        steps
    }

    fn take(&self, step: Step) -> Self {
        let mut next = self.clone();
        next.go(step);
        next.forget();
        next
    }

    fn is_progress(step: Step) -> bool {
        use Step::{Arrive, Come, Hear, Reap, Run};
        matches!(step, Come(_) | Run(_) | Arrive(_) | Hear(_) | Reap(_))
    }

    fn is_finished(&self) -> bool {
        let over = |runner: &Runner| matches!(runner.stage, Stage::Gone(_) | Stage::Crashed);
        let empty = self.line.is_empty() && self.adrift.is_empty();
        self.over || empty && self.runners.iter().all(over)
    }

    fn check(&mut self, stuck: bool) {
        self.look_around(stuck);
    }

    fn violations(&mut self) -> Vec<Violation> {
        mem::take(&mut self.violations)
    }
}

impl Job {
    fn way(&self, i: usize, runner: &Runner, steps: &mut Vec<Step>) {
        let budget = self.budget;
        let action = runner.action();
        let works = action == Action::Run;
        if runner.expired {
            steps.push(Step::Hear(i));
            steps.extend(works.then_some(Step::Run(i)));
        } else if self.may_go_on(runner, &action) {
            steps.push(Step::Run(i));
        }
        let reads = action == Action::Read && !runner.expired;
        if reads && 0 < budget.lags {
            let shown = runner.seen..self.journal.len();
            steps.extend(shown.map(|shown| Step::Lag(i, shown)));
        }
        let writes = matches!(action, Action::Write(..) | Action::End(..));
        let loses = 0 < budget.faults && writes && !runner.expired;
        steps.extend(loses.then_some(Step::Lose(i)));
        steps.extend((0 < budget.cancels && !works).then_some(Step::Cancel(i)));
        steps.extend((0 < budget.failures && works).then_some(Step::Fail(i)));
        steps.extend((0 < budget.panics && works).then_some(Step::Panic(i)));
        let expires = 0 < budget.expiries && !runner.expired && runner.token.is_some();
        steps.extend(expires.then_some(Step::Expire(i)));
        steps.extend((0 < budget.crashes).then_some(Step::Crash(i)));
    }

    /// Returns whether the client has a request to make: in the line it waits until its node is the
    /// first.
    fn may_go_on(&self, runner: &Runner, action: &Action) -> bool {
        let Some(token) = runner.token.filter(|_| !runner.renewed) else {
            return true;
        };
        let first = self.line.first().is_some_and(|place| place.token == token);
        *action != Action::Line || first || !self.is_there(token)
    }

    fn go(&mut self, step: Step) {
        self.pay(step);
        match step {
            Step::Come(i) => self.come(i),
            Step::Run(i) => self.serve(i),
            Step::Arrive(nth) => self.arrive(nth),
            Step::Hear(i) => self.hear(i),
            Step::Reap(i) => self.close_session(i),
            Step::Lag(i, shown) => self.read(i, shown),
            Step::Lose(i) => self.lose(i),
            Step::Cancel(i) => self.cancel(i),
            Step::Fail(i) => self.work(i, Ending::Failed),
            Step::Panic(i) => self.panic(i),
            Step::Expire(i) => {
                self.close_session(i);
                self.runners[i].expired = true;
            }
            Step::Crash(i) => {
                let runner = &mut self.runners[i];
                runner.once = None;
                runner.stage = Stage::Crashed;
                self.adrift
                    .retain(|adrift| adrift.runner != i || !adrift.lasts);
            }
            Step::Evict(nth) => {
                let place = self.line.remove(nth);
                self.runners[place.runner].evicted = true;
            }
            Step::Tick => self.now += 1,
        }
    }

    /// Forgets the versions that no server will show any more.
    fn forget(&mut self) {
        let coming = self.runners.iter().filter(|runner| runner.reads());
        let oldest = coming.map(|runner| runner.seen).min().unwrap_or(usize::MAX);
        let last = self.journal.len();
        let from = if 0 < self.budget.lags { oldest } else { last };
        let gone = from.min(last).saturating_sub(1);
        self.journal[..gone]
            .iter_mut()
            .for_each(|old| *old = Default::default());
    }

    fn pay(&mut self, step: Step) {
        let budget = &mut self.budget;
        let purse = match step {
            Step::Lag(..) => &mut budget.lags,
            Step::Lose(_) => &mut budget.faults,
            Step::Cancel(_) => &mut budget.cancels,
            Step::Fail(_) => &mut budget.failures,
            Step::Panic(_) => &mut budget.panics,
            Step::Expire(_) => &mut budget.expiries,
            Step::Crash(_) => &mut budget.crashes,
            Step::Evict(_) => &mut budget.evictions,
            Step::Tick => &mut budget.ticks,
            _ => return,
        };
        *purse -= 1;
    }

    pub(super) fn come(&mut self, i: usize) {
        let runner = &mut self.runners[i];
        runner.once = Some(Once::new(runner.wish()));
        runner.stage = Stage::Here;
        runner.since = self.now;
    }

    pub(super) fn tell(&mut self, i: usize, event: Event) {
        let once = self.runners[i].once.as_mut().expect("it is here");
        once.handle(event);
        match once.action() {
            Action::Run => self.check_begin(i),
            Action::Finish(outcome) => self.leave(i, Told::Outcome(outcome)),
            _ => {}
        }
    }

    pub(super) fn work(&mut self, i: usize, ending: Ending) {
        let token = self.runners[i].token.expect("it had the lock");
        self.past.worked.push((token, ending == Ending::Done));
        let marked = match self.shortcut {
            Shortcut::MarksAFailure => Ending::Done,
            _ => ending,
        };
        // Each run leaves its name, also the ones that fail.
        let end = End {
            outcome: marked,
            message: None,
            state: Some(left_by(token)),
        };
        self.tell(i, Event::Ran(end));
    }

    /// Gives the caller its result, and deletes the node that it leaves in the line.
    pub(super) fn leave(&mut self, i: usize, told: Told) {
        self.check_told(i, &told);
        let runner = &mut self.runners[i];
        runner.once = None;
        runner.stage = Stage::Gone(told);
        let token = runner.token.take();
        let known = |adrift: &Adrift| Some(adrift.token) == token && adrift.lasts;
        if let Some(token) = token
            && !self.adrift.iter().any(known)
        {
            self.let_go(i, token, None);
        }
    }

    fn let_go(&mut self, i: usize, token: i64, data: Option<Vec<u8>>) {
        if self.is_there(token) {
            self.adrift.push(Adrift {
                runner: i,
                token,
                ends: true,
                writes: data.map(|data| (data, None)),
                lasts: true,
            });
        }
    }

    fn lose(&mut self, i: usize) {
        let runner = &self.runners[i];
        let (ends, data, version) = match runner.action() {
            Action::Write(data, version) => (false, data, Some(version)),
            Action::End(data, _) => (true, data, None),
            _ => unreachable!("it asks for no transaction"),
        };
        self.adrift.push(Adrift {
            runner: i,
            token: runner.token.expect("it had the lock"),
            ends,
            writes: Some((data, version)),
            lasts: false,
        });
    }

    fn cancel(&mut self, i: usize) {
        let runner = &mut self.runners[i];
        runner.cancelled = true;
        let (action, token) = (runner.action(), runner.token);
        if let (Action::End(data, _), Some(token)) = (action, token) {
            self.let_go(i, token, Some(data));
            if self.shortcut == Shortcut::ReadsWhileItIsAdrift {
                return self.tell(i, Event::Gone);
            }
        }
        self.tell(i, Event::Cancel);
    }

    fn panic(&mut self, i: usize) {
        let runner = &self.runners[i];
        let token = runner.token.expect("it had the lock");
        let data = runner.once.as_ref().and_then(Once::panicked);
        let data = data.map(|(data, _)| data);
        let data = match self.shortcut {
            Shortcut::MarksAPanic => data.map(|data| as_done(&data)),
            _ => data,
        };
        self.past.worked.push((token, false));
        self.let_go(i, token, data);
        self.leave(i, Told::Panicked);
    }

    fn close_session(&mut self, i: usize) {
        self.line.retain(|place| place.runner != i);
        let late = |adrift: &Adrift| !adrift.ends && adrift.lasts;
        self.adrift
            .retain(|adrift| adrift.runner != i || late(adrift));
    }

    fn hear(&mut self, i: usize) {
        let runner = &mut self.runners[i];
        (runner.expired, runner.renewed) = (false, true);
        self.catch_up(i);
    }
}

impl Runner {
    pub(super) fn action(&self) -> Action {
        self.once.as_ref().expect("it is here").action()
    }

    fn reads(&self) -> bool {
        matches!(self.stage, Stage::Away | Stage::Here)
    }

    pub(super) fn wants(&self, slot: &str) -> bool {
        matches!(&self.due, zklock_core::job::Due::Slot(own) if own == slot)
    }
}

/// Returns the state that the run with this token leaves for the next one.
pub(super) fn left_by(token: i64) -> Vec<u8> {
    token.to_string().into_bytes()
}

/// Returns these data with the failed run marked as done, in the wrong way.
fn as_done(data: &[u8]) -> Vec<u8> {
    let mut journal = Journal::parse(data, 0).expect("it is a journal");
    journal.done = journal.failed.take();
    journal.text()
}
