//! What can happen next on a journey.

use std::mem;

use zklock::recipe::attempt::Action;
use zklock::recipe::cleanup;

use super::{Journey, Stage, Traveller};
use crate::explore::Model;
use crate::property::Violation;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    /// The traveller's request is carried out and answered.
    Run(usize),
    /// The subscriber is told what its watch saw.
    Wake(usize),
    /// The subscriber is told that the connection was made anew.
    WakeAfterReconnect(usize),
    /// The guard is dropped.
    Release(usize),
    /// A cleanup's action is carried out and answered.
    Part(usize, usize),
    /// The client hears that its session is over, and has another.
    Hear(usize),
    /// The nodes of a closed session go.
    Reap(i64),

    /// The connection breaks and is made anew; an open request was not carried out.
    LoseRequest(usize),
    /// So it is, and an open request was carried out.
    LoseReply(usize),
    /// The connection breaks after a cleanup's action was carried out.
    LosePart(usize, usize),
    Cancel(usize),
    Expire(usize),
    Crash(usize),
    /// Somebody deletes this node of this directory.
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
                | Step::Evict(..)
        )
    }

    fn is_finished(&self) -> bool {
        let empty = self.dirs.iter().all(|dir| dir.nodes.is_empty());
        empty && self.travellers.iter().all(Traveller::is_done)
    }

    fn check(&mut self, stuck: bool) {
        self.look(stuck);
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
            if traveller.attempt.is_some() {
                steps.push(Step::LoseRequest(i));
            }
            steps.extend(traveller.loses().then_some(Step::LoseReply(i)));
            let deletes = |nth: &usize| {
                let action = traveller.partings[*nth].cleanup.action();
                matches!(action, cleanup::Action::Delete(_))
            };
            let deletes = (0..traveller.partings.len()).filter(deletes);
            steps.extend(deletes.map(|nth| Step::LosePart(i, nth)));
        }
        let waits = traveller.attempt.is_some() || matches!(traveller.stage, Stage::Place(_));
        steps.extend((0 < budget.cancels && waits).then_some(Step::Cancel(i)));
        steps.extend((0 < budget.expiries && !traveller.expired).then_some(Step::Expire(i)));
        steps.extend((0 < budget.crashes).then_some(Step::Crash(i)));
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
        self.action() == Some(Action::Wait)
    }

    /// It has something to ask of the server.
    fn asks(&self) -> bool {
        !matches!(self.stage, Stage::Inside | Stage::Done)
    }

    /// It asks for a write, whose reply may be lost.
    fn loses(&self) -> bool {
        match self.stage {
            Stage::Place(_) | Stage::Downgrade | Stage::Mark => true,
            _ => matches!(self.action(), Some(Action::Create(_))),
        }
    }
}
