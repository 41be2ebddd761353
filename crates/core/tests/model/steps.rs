//! The steps that can happen next in a world.

use std::mem;

use zklock_core::attempt::Action;
use zklock_jute::Request;

use super::client::{Client, RawGuard, request_of};
use super::explore::Model;
use super::mutant::Mutant;
use super::property::Violation;
use super::world::{Budget, Step, Transport, Watches, World};

impl Model for World {
    type Step = Step;

    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (i, client) in self.clients.iter().enumerate() {
            if !client.crashed {
                self.attempt_steps(i, client, &mut steps);
                self.farewell_steps(i, client, &mut steps);
                self.session_steps(i, client, &mut steps);
            }
        }
        self.server_steps(&mut steps);
        steps
    }

    fn take(&self, step: Step) -> Self {
        let mut next = self.clone();
        next.go(step);
        next
    }

    fn is_progress(step: Step) -> bool {
        matches!(
            step,
            Step::Run(_)
                | Step::Batch(_)
                | Step::Wake(_)
                | Step::WakeAfterReconnect(_)
                | Step::Land(_)
                | Step::Release(_)
                | Step::Part(..)
                | Step::Hear(_)
                | Step::Tell(_)
                | Step::Reap(_)
        )
    }

    fn exchanges(step: Step) -> u32 {
        u32::from(matches!(
            step,
            Step::Run(_) | Step::Batch(_) | Step::Part(..)
        ))
    }

    fn is_finished(&self) -> bool {
        self.clients.iter().all(Client::is_done) && self.directory.nodes.is_empty()
    }

    fn check(&mut self, stuck: bool) {
        self.look(stuck);
    }

    fn violations(&mut self) -> Vec<Violation> {
        mem::take(&mut self.violations)
    }
}

impl World {
    fn attempt_steps(&self, i: usize, client: &Client, steps: &mut Vec<Step>) {
        let Some(action) = client.action() else {
            steps.extend(client.raw.as_ref().map(|_| Step::Release(i)));
            let there = |raw: &RawGuard| self.directory.find(&raw.node.name).is_some();
            let holds = 0 < self.budget.holds && client.is_served();
            steps
                .extend((holds && client.raw.as_ref().is_some_and(there)).then_some(Step::Hold(i)));
            return;
        };
        if 0 < self.budget.cancels {
            steps.push(Step::Cancel(i));
        }
        if action == Action::Wait {
            let hears = !client.reconnected || self.rules.mutant == Mutant::HearsWhatIsSetAgain;
            steps.extend((hears && !client.events.is_empty()).then_some(Step::Wake(i)));
            steps.extend(client.reconnected.then_some(Step::WakeAfterReconnect(i)));
        } else if client.is_served() && self.may_go_on(client, &action) {
            self.request_steps(i, client, &action, steps);
        } else if matches!(action, Action::Prove(_)) && self.rules.mutant == Mutant::HoldsUnproved {
            steps.push(Step::Recall(i));
        }
    }

    /// Returns the steps of an attempt that has a request for the server.
    fn request_steps(&self, i: usize, client: &Client, action: &Action, steps: &mut Vec<Step>) {
        steps.push(Step::Run(i));
        match action {
            Action::Create(_) => self.create_steps(i, steps),
            Action::MakeParents if 0 < self.budget.faults => steps.push(Step::LoseReply(i)),
            Action::List | Action::Inspect(_) if client.unseen.is_some() => {
                steps.push(Step::Lag(i));
            }
            Action::Prove(_) => steps.push(Step::Recall(i)),
            _ => {}
        }
    }

    fn create_steps(&self, i: usize, steps: &mut Vec<Step>) {
        let Budget {
            faults,
            cancels,
            crashes,
            ..
        } = self.budget;
        let handle = self.rules.transport == Transport::Handle;
        let batches = self.rules.create_tells && self.directory.there;
        steps.extend(batches.then_some(Step::Batch(i)));
        steps.extend((0 < cancels).then_some(Step::CancelCreate(i)));
        steps.extend((0 < crashes).then_some(Step::CrashAfterCreate(i)));
        steps.extend((0 < faults).then_some(Step::LoseReply(i)));
        steps.extend((handle && 0 < faults).then_some(Step::LosePatience(i)));
    }

    /// Returns whether the attempt may go on: if it knows its node, not in another session, not
    /// even once.
    fn may_go_on(&self, client: &Client, action: &Action) -> bool {
        let knows_node = client.queued.is_some() || matches!(action, Action::Prove(_));
        !client.untold || !knows_node || self.rules.mutant == Mutant::CarriesOnInNewSession
    }

    fn farewell_steps(&self, i: usize, client: &Client, steps: &mut Vec<Step>) {
        if !client.is_served() {
            return;
        }
        for (nth, farewell) in client.farewells.iter().enumerate() {
            steps.push(Step::Part(i, nth));
            match request_of(farewell) {
                Request::GetChildren { .. } if client.unseen.is_some() => {
                    steps.push(Step::LagPart(i, nth));
                }
                Request::Delete { .. } if 0 < self.budget.faults => {
                    steps.extend([false, true].map(|applied| Step::LoseFarewell {
                        client: i,
                        nth,
                        applied,
                    }));
                }
                _ => {}
            }
        }
    }

    fn session_steps(&self, i: usize, client: &Client, steps: &mut Vec<Step>) {
        if client.expired {
            steps.push(Step::Hear(i));
        } else if client.under_way.is_some() {
            steps.push(Step::Land(i));
        }
        if client.untold {
            steps.push(Step::Tell(i));
        }
        if client.is_done() {
            return;
        }
        if 0 < self.budget.faults && !client.expired {
            self.connection_steps(i, client, steps);
        }
        if 0 < self.budget.expiries && !client.expired && !client.untold {
            steps.push(Step::Expire(i));
        }
        if 0 < self.budget.crashes {
            steps.push(Step::Crash(i));
        }
    }

    fn connection_steps(&self, i: usize, client: &Client, steps: &mut Vec<Step>) {
        // The step changes nothing for a client that waits for nothing.
        let waits = client.attempt.is_some() || client.under_way.is_some();
        if waits || self.rules.transport == Transport::Handle {
            steps.push(Step::LoseRequest(i, Watches::Lost));
            let watches = client.watch.is_some() || !client.events.is_empty();
            if watches && self.rules.transport == Transport::Wire {
                steps.push(Step::LoseRequest(i, Watches::SetAgain));
            }
        }
    }

    fn server_steps(&self, steps: &mut Vec<Step>) {
        let mut owners: Vec<_> = self
            .directory
            .nodes
            .iter()
            .map(|n| n.origin.owner)
            .collect();
        owners.sort_unstable();
        owners.dedup();
        let dead = owners.into_iter().filter(|owner| !self.is_live(*owner));
        steps.extend(dead.map(Step::Reap));
        let nodes = 0..self.directory.nodes.len();
        if 0 < self.budget.evictions {
            steps.extend(nodes.clone().map(Step::Evict));
        }
        if 0 < self.budget.touches {
            let watched = |n: &usize| {
                let name = &self.directory.nodes[*n].name;
                let seen =
                    |c: &Client| [&c.watch, &c.beyond, &c.guard].contains(&&Some(name.clone()));
                self.clients.iter().any(seen)
            };
            steps.extend(nodes.filter(watched).map(Step::Touch));
        }
        let idle = self.directory.there && self.directory.nodes.is_empty();
        if 0 < self.budget.vanishings && idle {
            steps.push(Step::Vanish);
        }
    }
}
