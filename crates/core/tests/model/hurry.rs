//! A waiting thread that hurries the head of its queue.
//!
//! A step of time is the period between two looks of the thread. The machine is [`Overdue`].

use std::mem;
use std::time::Duration;

use zklock_core::Names;
use zklock_core::dialect::{Dialect, Role};
use zklock_core::overdue_holder::{Action, Event, Overdue, Rule};
use zklock_core::queue::Contest;

use super::explore::Model;
use super::property::{Property, Violation};

/// The length of a step.
const STEP: Duration = Duration::from_secs(1);
/// How many steps a holder may hold, and how many it has after it was asked.
const HOLDS: u8 = 4;
const GRACE: u8 = 2;
/// How many steps the question may be on its way, because the connection breaks.
const OUTAGE: u8 = 1;
/// The thread's own node.
const OWN: &str = "me-lock-0000000099";

/// Wrong ways to hurry.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Haste {
    /// The right way.
    None,
    GoesByTheName,
    GoesByAFastClock,
    AsksNobody,
    AsksItself,
    AsksTheNext,
    OversleepsTheGrace,
    CountsTheGraceFromTheSending,
}

/// A contender ahead of the thread.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Holder {
    name: String,
    born: i64,
    /// Since when it has been the head.
    since: u8,
    asked: Option<u8>,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Hurry {
    haste: Haste,
    now: u8,
    end: u8,
    /// The contenders ahead, the head first.
    ahead: Vec<Holder>,
    /// How many more will come, and the birth of the next one.
    comers: u8,
    next: i64,
    overdue: Overdue,
    wakes_at: Option<u8>,
    /// How much of the outage is left.
    outage: u8,
    violations: Vec<Violation>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    Tick,
    /// The question is on its way while a step passes.
    Break,
    /// The thread carries out what the machine says.
    Run,
    /// The head releases.
    Leave,
    /// The head releases and comes back under the same name, before the thread looks.
    Return,
    /// Another contender gets ahead, as one that already has a node may.
    Come,
}

impl Hurry {
    pub(crate) fn new(end: u8, comers: u8, haste: Haste) -> Self {
        let rule = Rule {
            held_longer_than: u32::from(HOLDS) * STEP,
            grace: u32::from(GRACE) * STEP,
        };
        let mut hurry = Self {
            haste,
            now: 0,
            end,
            ahead: Vec::new(),
            comers,
            next: 0,
            overdue: Overdue::new(rule),
            wakes_at: None,
            outage: OUTAGE,
            violations: Vec::new(),
        };
        hurry.come();
        hurry.sleep();
        hurry
    }

    fn come(&mut self) {
        self.ahead.push(Holder {
            name: format!("a-lock-{:010}", self.next),
            born: 100 + self.next,
            since: self.now,
            asked: None,
        });
        self.next += 1;
    }

    fn leave(&mut self) -> Holder {
        let gone = self.ahead.remove(0);
        if let Some(head) = self.ahead.first_mut() {
            head.since = self.now;
        }
        gone
    }

    fn sleep(&mut self) {
        let Action::Sleep(time) = self.overdue.action() else {
            return;
        };
        let steps = time.as_millis().div_ceil(STEP.as_millis());
        let steps = u8::try_from(steps).expect("it is short");
        let more = match self.haste {
            Haste::OversleepsTheGrace => 2 * GRACE,
            _ => 0,
        };
        self.wakes_at = Some(self.now + steps + more);
    }

    fn run(&mut self) {
        let now = u32::from(self.now) * STEP;
        match self.overdue.action() {
            Action::Sleep(_) => {
                self.wakes_at = None;
                self.overdue.handle(Event::Elapsed);
            }
            Action::List => self.list(),
            Action::Look(name, _) => {
                let head = self.ahead.iter().find(|head| head.name == name);
                self.overdue.handle(match head {
                    Some(_) if self.haste == Haste::GoesByTheName => Event::Born(7, now),
                    Some(head) if self.haste == Haste::GoesByAFastClock => {
                        Event::Born(head.born, 2 * now)
                    }
                    Some(head) => Event::Born(head.born, now),
                    None => Event::Failed,
                });
            }
            Action::Ask(name) => {
                if self.haste != Haste::AsksNobody {
                    self.ask(&name);
                }
                let under_way = match self.haste {
                    Haste::CountsTheGraceFromTheSending => OUTAGE - self.outage,
                    _ => 0,
                };
                self.overdue
                    .handle(Event::Asked(now - u32::from(under_way) * STEP));
            }
            Action::Evict(name) => {
                self.evict(&name);
                self.overdue.handle(Event::Failed);
            }
        }
        self.sleep();
    }

    fn list(&mut self) {
        let skipped = usize::from(self.haste == Haste::AsksTheNext);
        let ahead = self.ahead.iter().skip(skipped);
        let names: Vec<_> = ahead.map(|head| head.name.as_str()).chain([OWN]).collect();
        let names: Names = names.iter().collect();
        let contest = Contest {
            dialect: Dialect::Curator,
            role: Role::Exclusive,
            permits: 0,
        };
        let own = (self.haste != Haste::AsksItself).then_some(OWN);
        self.overdue
            .handle(Event::Children(contest, &names, own, &[]));
        let action = self.overdue.action();
        if self.haste == Haste::AsksItself
            && matches!(&action, Action::Look(name, _) if name == OWN)
        {
            self.blame(Property::Ownership, "it hurries itself");
        }
    }

    fn ask(&mut self, name: &str) {
        let now = self.now;
        let at = self.ahead.iter().position(|head| head.name == name);
        let Some(at) = at else {
            return;
        };
        let head = &mut self.ahead[at];
        head.asked = Some(now);
        let early = now < head.since + HOLDS;
        if 0 < at || early {
            self.blame(
                Property::Truth,
                "somebody is asked who has not held for long",
            );
        }
    }

    fn evict(&mut self, name: &str) {
        let now = self.now;
        let Some(at) = self.ahead.iter().position(|head| head.name == name) else {
            return;
        };
        let asked = self.ahead[at].asked;
        if asked.is_none_or(|asked| now < asked + GRACE) {
            self.blame(Property::Ownership, "somebody is evicted within its grace");
        }
        self.ahead.remove(at);
        if let Some(head) = self.ahead.get_mut(at) {
            head.since = now;
        }
    }

    fn blame(&mut self, property: Property, text: &str) {
        self.violations.push(Violation {
            property,
            text: text.to_owned(),
        });
    }
}

impl Model for Hurry {
    type Step = Step;

    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let due = self.wakes_at.is_none_or(|time| time <= self.now);
        let asks = matches!(self.overdue.action(), Action::Ask(_));
        if due {
            steps.push(Step::Run);
        }
        if asks && 0 < self.outage {
            steps.push(Step::Break);
        } else if !due && self.now < self.end {
            steps.push(Step::Tick);
        }
        if !self.ahead.is_empty() {
            steps.push(Step::Leave);
        }
        if 0 < self.comers {
            steps.push(Step::Come);
            // Between a look and what follows, no contender comes back under the same name.
            let asleep = matches!(self.overdue.action(), Action::Sleep(_));
            steps.extend((asleep && !self.ahead.is_empty()).then_some(Step::Return));
        }
        steps
    }

    fn take(&self, step: Step) -> Self {
        let mut next = self.clone();
        match step {
            Step::Tick => next.now += 1,
            Step::Break => {
                next.now += 1;
                next.outage -= 1;
            }
            Step::Run => next.run(),
            Step::Leave => {
                next.leave();
            }
            Step::Return => {
                next.comers -= 1;
                let head = next.leave();
                next.ahead.insert(
                    0,
                    Holder {
                        born: 100 + next.next,
                        since: next.now,
                        asked: None,
                        ..head
                    },
                );
                next.next += 1;
            }
            Step::Come => {
                next.comers -= 1;
                next.come();
            }
        }
        next
    }

    fn is_progress(_: Step) -> bool {
        true
    }

    fn is_finished(&self) -> bool {
        self.now == self.end || self.ahead.is_empty() && self.comers == 0
    }

    fn check(&mut self, _: bool) {
        // The thread looks at every step, and sees a new head by the next look.
        let most = HOLDS + GRACE + 3 + OUTAGE - self.outage;
        let late = |head: &Holder| most < self.now - head.since;
        if self.ahead.first().is_some_and(late) {
            self.blame(Property::Liveness, "the head is not hurried");
        }
    }

    fn violations(&mut self) -> Vec<Violation> {
        mem::take(&mut self.violations)
    }
}
