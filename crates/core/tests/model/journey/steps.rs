//! The steps that can happen next on a journey.

use std::mem;

use zklock_core::attempt::Action;
use zklock_core::{downgrade, multi, permit_attempt, predecessor_mark};
use zklock_jute::Request;

use super::{Goal, Journey, Plan, Stage, Traveller};
use crate::client::request_of;
use crate::explore::Model;
use crate::property::Violation;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    /// The traveller's request is carried out and answered.
    Run(usize),
    /// The subscriber gets the event of its watch.
    Wake(usize),
    /// The subscriber is told of a new connection.
    WakeAfterReconnect(usize),
    /// The guard of the line reports that it is lost.
    Learn(usize),
    /// The guard is dropped.
    Release(usize),
    /// A deletion's action is carried out and answered.
    Part(usize, usize),
    /// The client hears that its session has ended, and has another.
    Hear(usize),
    /// The nodes of a closed session go.
    Reap(i64),

    /// The connection breaks and is made anew; an open request was not carried out.
    LoseRequest(usize),
    /// The same, but an open request was carried out.
    LoseReply(usize),
    /// The connection breaks after a deletion's action was carried out.
    LosePart(usize, usize),
    Cancel(usize),
    Expire(usize),
    Crash(usize),
    /// The guard is dropped by a panic.
    Panic(usize),
    /// An operator deletes this node of this directory.
    Evict(usize, usize),
}

impl Model for Journey {
    type Step = Step;

    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (i, traveller) in self.travellers.iter().enumerate() {
            if !traveller.crashed {
                self.way(i, traveller, &mut steps);
                self.mishaps(i, traveller, &mut steps);
            }
        }
        if 0 < self.budget.evictions {
            for (dir, directory) in self.dirs.iter().enumerate() {
                let nodes = 0..directory.nodes.len();
                steps.extend(nodes.map(|nth| Step::Evict(dir, nth)));
            }
        }
        let nodes = self.dirs.iter().flat_map(|dir| &dir.nodes);
        let mut owners: Vec<_> = nodes.map(|node| node.origin.owner).collect();
        owners.sort_unstable();
        owners.dedup();
        let dead = owners.into_iter().filter(|owner| !self.is_live(*owner));
        steps.extend(dead.map(Step::Reap));
        steps
    }

    fn take(&self, step: Step) -> Self {
        let mut next = self.clone();
        next.go(step);
        next
    }

    fn is_progress(step: Step) -> bool {
        !matches!(
            step,
            Step::LoseRequest(_)
                | Step::LoseReply(_)
                | Step::LosePart(..)
                | Step::Cancel(_)
                | Step::Expire(_)
                | Step::Crash(_)
                | Step::Panic(_)
                | Step::Evict(..)
        )
    }

    fn exchanges(step: Step) -> u32 {
        u32::from(matches!(step, Step::Run(_) | Step::Part(..)))
    }

    fn is_finished(&self) -> bool {
        let empty = self.dirs.iter().all(|dir| dir.nodes.is_empty());
        empty && self.travellers.iter().all(Traveller::is_done)
    }

    fn check(&mut self, stuck: bool) {
        self.look_around(stuck);
    }

    fn violations(&mut self) -> Vec<Violation> {
        mem::take(&mut self.violations)
    }
}

impl Journey {
    fn way(&self, i: usize, traveller: &Traveller, steps: &mut Vec<Step>) {
        if traveller.is_asleep() {
            let hears = !traveller.reconnected && !traveller.events.is_empty();
            steps.extend(hears.then_some(Step::Wake(i)));
            steps.extend(traveller.reconnected.then_some(Step::WakeAfterReconnect(i)));
        } else if traveller.asks() && !traveller.expired {
            steps.push(Step::Run(i));
        }
        let learns = traveller.may_learn() && !self.detour.trusts_the_line();
        steps.extend(learns.then_some(Step::Learn(i)));
        steps.extend((traveller.stage == Stage::Inside).then_some(Step::Release(i)));
        if traveller.expired {
            steps.push(Step::Hear(i));
        } else {
            steps.extend((0..traveller.partings.len()).map(|nth| Step::Part(i, nth)));
        }
    }

    fn mishaps(&self, i: usize, traveller: &Traveller, steps: &mut Vec<Step>) {
        if traveller.is_done() {
            return;
        }
        let budget = self.budget;
        if 0 < budget.faults && !traveller.expired {
            if traveller.attempt.is_some() || traveller.stage == Stage::Await {
                steps.push(Step::LoseRequest(i));
            }
            steps.extend(traveller.loses().then_some(Step::LoseReply(i)));
            let deletes = |nth: &usize| {
                let request = request_of(&traveller.partings[*nth].deletion);
                matches!(request, Request::Delete { .. })
            };
            let deletes = (0..traveller.partings.len()).filter(deletes);
            steps.extend(deletes.map(|nth| Step::LosePart(i, nth)));
        }
        steps.extend((0 < budget.cancels && traveller.asks()).then_some(Step::Cancel(i)));
        steps.extend((0 < budget.expiries && !traveller.expired).then_some(Step::Expire(i)));
        steps.extend((0 < budget.crashes).then_some(Step::Crash(i)));
        let inside = traveller.stage == Stage::Inside && traveller.goal == Goal::Tracked;
        steps.extend((0 < budget.panics && inside).then_some(Step::Panic(i)));
    }

    pub(crate) fn is_live(&self, session: i64) -> bool {
        let mut live = self.travellers.iter().filter(|t| !t.crashed && !t.expired);
        live.any(|traveller| traveller.session == session)
    }
}

impl Traveller {
    pub(crate) fn action(&self) -> Option<Action> {
        self.attempt.as_ref().map(|attempt| attempt.action())
    }

    pub(crate) fn is_asleep(&self) -> bool {
        self.stage == Stage::Await || self.action() == Some(Action::Wait)
    }

    /// Returns whether the client goes on in vain, as its place in the line is lost.
    fn may_learn(&self) -> bool {
        let waits = matches!(self.stage, Stage::Queue(1) | Stage::Await);
        waits && self.line_lost && !self.expired && matches!(self.plan, Plan::Permit(_))
    }

    /// Returns whether the client has a request for the server, or something to wait for.
    fn asks(&self) -> bool {
        !matches!(self.stage, Stage::Inside | Stage::Done)
    }

    /// Returns whether the client requests a write, whose reply may be lost.
    fn loses(&self) -> bool {
        if self.stage != Stage::Ask {
            return matches!(self.action(), Some(Action::Create(_)));
        }
        match &self.plan {
            Plan::Attempt => false,
            Plan::Multi(multi) => matches!(multi.action(), multi::Action::Place(_)),
            Plan::Permit(permit) => matches!(permit.action(), permit_attempt::Action::Write(..)),
            Plan::Downgrade(downgrade) => {
                matches!(downgrade.action(), downgrade::Action::Make(_))
            }
            Plan::Mark(mark) => matches!(mark.action(), predecessor_mark::Action::Set(..)),
        }
    }
}
