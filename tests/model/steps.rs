//! What can happen next in a world.

use zklock::protocol::attempt::Action;
use zklock::protocol::farewell;

use super::client::Client;
use super::mutant::Mutant;
use super::world::{Step, Transport, Watches, World};

impl Step {
    /// Whether it happens in the end, if one waits; a mishap need never happen.
    pub(crate) fn is_progress(self) -> bool {
        matches!(
            self,
            Self::Run(_)
                | Self::Batch(_)
                | Self::Wake(_)
                | Self::WakeAfterReconnect(_)
                | Self::Land(_)
                | Self::Release(_)
                | Self::Part(..)
                | Self::Hear(_)
                | Self::Tell(_)
                | Self::Reap(_)
        )
    }
}

impl World {
    pub(crate) fn steps(&self) -> Vec<Step> {
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

    fn attempt_steps(&self, i: usize, client: &Client, steps: &mut Vec<Step>) {
        let Some(action) = client.action() else {
            if client.hold.is_some() {
                steps.push(Step::Release(i));
            }
            return;
        };
        if action == Action::Wait {
            steps.extend(client.fired.map(|_| Step::Wake(i)));
            steps.extend(client.reconnected.then_some(Step::WakeAfterReconnect(i)));
        }
        let runs = action != Action::Wait && client.is_served() && self.may_go_on(client, &action);
        if runs {
            steps.push(Step::Run(i));
            match action {
                Action::Create(_) if self.rules.create_tells && self.directory.there => {
                    steps.push(Step::Batch(i));
                }
                Action::List | Action::Inspect(_) if client.unseen.is_some() => {
                    steps.push(Step::Lag(i));
                }
                Action::Prove(_) => steps.push(Step::Recall(i)),
                _ => {}
            }
        } else if matches!(action, Action::Prove(_)) && self.rules.mutant == Mutant::HoldsUnproved {
            steps.push(Step::Recall(i));
        }
        if 0 < self.budget.cancels {
            steps.push(Step::Cancel(i));
            if runs && matches!(action, Action::Create(_)) {
                steps.push(Step::CancelCreate(i));
            }
        }
        if 0 < self.budget.crashes && runs && matches!(action, Action::Create(_)) {
            steps.push(Step::CrashAfterCreate(i));
        }
        let writes = matches!(action, Action::Create(_) | Action::MakeParents);
        if 0 < self.budget.faults && runs && writes {
            steps.push(Step::LoseReply(i));
        }
    }

    /// An attempt that knows its node may not go on in another session, not even once.
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
            match farewell.action() {
                farewell::Action::List if client.unseen.is_some() => {
                    steps.push(Step::LagPart(i, nth));
                }
                farewell::Action::Delete(_) if 0 < self.budget.faults => {
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

    /// A question that is lost is asked again, so nothing comes of that; what matters is
    /// a lost create, a lost watch, and a transport that loses its session with it.
    fn connection_steps(&self, i: usize, client: &Client, steps: &mut Vec<Step>) {
        if client.is_asleep() || self.rules.transport == Transport::Handle {
            steps.push(Step::LoseRequest(i, Watches::Lost));
            if client.watch.is_some() && self.rules.transport == Transport::Wire {
                steps.push(Step::LoseRequest(i, Watches::SetAgain));
            }
        } else if client.under_way.is_some() || matches!(client.action(), Some(Action::Create(_))) {
            steps.push(Step::LoseRequest(i, Watches::Lost));
        }
    }

    fn server_steps(&self, steps: &mut Vec<Step>) {
        let mut owners: Vec<_> = self.directory.nodes.iter().map(|n| n.born.owner).collect();
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
                self.clients.iter().any(|c| c.watch.as_ref() == Some(name))
            };
            steps.extend(nodes.filter(watched).map(Step::Touch));
        }
        let idle = self.directory.there && self.directory.nodes.is_empty();
        if 0 < self.budget.vanishings && idle {
            steps.push(Step::Vanish);
        }
    }
}
