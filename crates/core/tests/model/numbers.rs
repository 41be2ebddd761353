//! Holders of permits that ask for a number, the directory of their claims, and a server that may lag.
//!
//! The machine is [`PermitNumber`]. The semaphore itself is taken for granted: any holder gets a
//! permit while fewer are out.

use std::collections::BTreeSet;
use std::mem;

use zklock_core::Names;
use zklock_core::permit_number::{Action, Event, Outcome, PermitNumber, prefix};

use super::explore::Model;
use super::property::{Property, Violation, name};

/// Wrong ways to find a number.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Slip {
    /// The right way.
    None,
    ClaimsUnversioned,
    ListsThePermitsFirst,
    OverlooksItsOwn,
    CountsTheDead,
    LeavesItsClaim,
}

/// The mishaps, and how often each may happen.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub(crate) struct Mishaps {
    /// Replies that are lost.
    pub(crate) faults: u8,
    pub(crate) expiries: u8,
    pub(crate) evictions: u8,
    /// Reads at a server that lags.
    pub(crate) lags: u8,
}

/// The nodes at one moment.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
struct Nodes {
    /// The version of the permits' directory.
    version: i32,
    permits: BTreeSet<String>,
    /// The claims; absent if their directory does not exist.
    claims: Option<BTreeSet<String>>,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Holder {
    /// How many permits the holder has had.
    round: u8,
    stage: Stage,
    /// The last change that its server has shown.
    view: usize,
    /// A claim whose reply was lost, and that may still be carried out.
    straggler: Option<(String, i32)>,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Stage {
    Away,
    Asks(PermitNumber, Look),
    Has(u32),
    /// The holder gives up its claim.
    Leaves,
    Done,
}

/// The nodes that have been read.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
struct Look {
    version: Option<i32>,
    claims: Option<Option<BTreeSet<String>>>,
    permits: Option<BTreeSet<String>>,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Numbers {
    slip: Slip,
    permits: u32,
    rounds: u8,
    left: Mishaps,
    /// All states of the directories; the last one is the present state.
    row: Vec<Nodes>,
    holders: Vec<Holder>,
    violations: Vec<Violation>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    Come(usize),
    /// The next of the reads of a look.
    Read(usize),
    ReadOld(usize),
    Make(usize),
    Claim(usize),
    /// The reply is lost; the claim is carried out now, perhaps later, or never.
    Lose(usize, bool),
    Straggle(usize),
    Leave(usize),
    Expire(usize),
    Evict(usize),
}

impl Numbers {
    /// Returns a model of this many holders, each of which comes this many times, and this many
    /// permits.
    pub(crate) fn new(
        (holders, rounds, permits): (usize, u8, u32),
        left: Mishaps,
        slip: Slip,
    ) -> Self {
        let holder = Holder {
            round: 0,
            stage: Stage::Away,
            view: 0,
            straggler: None,
        };
        Self {
            slip,
            permits,
            rounds,
            left,
            row: vec![Nodes::default()],
            holders: vec![holder; holders],
            violations: Vec::new(),
        }
    }

    fn now(&self) -> &Nodes {
        self.row.last().expect("there is a first")
    }

    fn change(&mut self, change: impl FnOnce(&mut Nodes)) {
        let mut nodes = self.now().clone();
        change(&mut nodes);
        self.row.push(nodes);
    }

    /// Forgets the states that no server can show any more, so that there are fewer worlds.
    fn forget(&mut self) {
        let asks = |holder: &&Holder| matches!(holder.stage, Stage::Asks(..));
        let last = self.row.len() - 1;
        let oldest = match self.left.lags {
            0 => None,
            _ => self
                .holders
                .iter()
                .filter(asks)
                .map(|holder| holder.view)
                .min(),
        };
        let oldest = oldest.unwrap_or(last);
        self.row.drain(..oldest);
        for holder in &mut self.holders {
            holder.view = match holder.stage {
                Stage::Asks(..) => holder.view.saturating_sub(oldest),
                _ => 0,
            };
        }
    }

    fn lease(&self, i: usize) -> String {
        format!("{}{}", name(i), self.holders[i].round)
    }

    /// Returns whether its permit exists.
    fn holds(&self, i: usize) -> bool {
        self.now().permits.contains(&self.lease(i))
    }

    fn come(&mut self, i: usize) {
        self.holders[i].round += 1;
        let lease = self.lease(i);
        self.change(|nodes| {
            nodes.permits.insert(lease.clone());
        });
        let machine = PermitNumber::new(&lease, self.permits);
        self.holders[i].stage = Stage::Asks(machine, Look::default());
        // Its server has shown its own node.
        self.holders[i].view = self.row.len() - 1;
    }

    fn read(&mut self, i: usize) {
        let nodes = self.row[self.holders[i].view].clone();
        let slip = self.slip;
        let Stage::Asks(machine, look) = &mut self.holders[i].stage else {
            return;
        };
        let permits_first = slip == Slip::ListsThePermitsFirst;
        if permits_first && look.permits.is_none() {
            look.permits = Some(nodes.permits);
        } else if look.version.is_none() {
            look.version = Some(nodes.version);
        } else if look.claims.is_none() {
            look.claims = Some(nodes.claims);
        } else {
            look.permits = Some(nodes.permits);
        }
        let Look {
            version: Some(version),
            claims: Some(claims),
            permits: Some(permits),
        } = look.clone()
        else {
            return;
        };
        *look = Look::default();
        let Action::Look = machine.action() else {
            return;
        };
        let own = |claim: &&String| slip == Slip::OverlooksItsOwn && claim.starts_with(name(i));
        let claims = claims.map(|claims| -> BTreeSet<String> {
            claims.iter().filter(|claim| !own(claim)).cloned().collect()
        });
        let mut permits = permits;
        if slip == Slip::CountsTheDead {
            let dead = claims.iter().flatten();
            permits.extend(dead.map(|claim| claim.split('.').next().unwrap_or("").to_owned()));
        }
        let names = |names: &BTreeSet<String>| names.iter().map(String::as_str).collect::<Names>();
        machine.handle(Event::Looked(
            version,
            claims.as_ref().map(names),
            names(&permits),
        ));
        self.settle(i);
    }

    /// Commits a transaction; returns whether it was carried out.
    fn commit(&mut self, i: usize, (claim, version): &(String, i32)) -> bool {
        let (now, lease) = (self.now(), claim.split('.').next().unwrap_or(""));
        let same = now.version == *version || self.slip == Slip::ClaimsUnversioned;
        let absent = now.claims.as_ref().is_some_and(|all| !all.contains(claim));
        if !now.permits.contains(lease) || !same || !absent {
            return false;
        }
        self.change(|nodes| {
            nodes.version += 1;
            nodes.claims.get_or_insert_default().insert(claim.clone());
        });
        self.holders[i].view = self.row.len() - 1;
        true
    }

    fn claim(&mut self, i: usize, lost: Option<bool>) {
        let Stage::Asks(machine, _) = &self.holders[i].stage else {
            return;
        };
        let Action::Claim(claim, version) = machine.action() else {
            return;
        };
        let claim = (claim, version);
        let event = match lost {
            None => match self.commit(i, &claim) {
                true => Event::Claimed,
                false => {
                    self.holders[i].view = self.row.len() - 1;
                    Event::Changed
                }
            },
            Some(carried_out) => {
                self.left.faults -= 1;
                if carried_out {
                    let view = self.holders[i].view;
                    self.commit(i, &claim);
                    // The next server need not have heard of the claim.
                    self.holders[i].view = view;
                } else {
                    self.holders[i].straggler = Some(claim);
                }
                Event::ReplyLost
            }
        };
        self.tell(i, event);
    }

    fn tell(&mut self, i: usize, event: Event) {
        if let Stage::Asks(machine, _) = &mut self.holders[i].stage {
            machine.handle(event);
        }
        self.settle(i);
    }

    /// Goes on if the machine has finished.
    fn settle(&mut self, i: usize) {
        let Stage::Asks(machine, _) = &self.holders[i].stage else {
            return;
        };
        match machine.action() {
            Action::Finish(Outcome::Held(number)) => self.holders[i].stage = Stage::Has(number),
            Action::Finish(Outcome::Lost) if !self.holds(i) => self.leave(i),
            Action::Finish(outcome) => {
                self.blame(Property::Truth, format!("{} is told {outcome:?}", name(i)));
                self.holders[i].stage = Stage::Done;
            }
            _ => {}
        }
    }

    /// Gives up the claim, and then the permit.
    fn leave(&mut self, i: usize) {
        let (lease, kept) = (self.lease(i), self.slip == Slip::LeavesItsClaim);
        if mem::replace(&mut self.holders[i].stage, Stage::Leaves) == Stage::Leaves {
            self.change(|nodes| {
                nodes.permits.remove(&lease);
            });
            return self.end(i);
        }
        self.change(|nodes| {
            let claims = nodes.claims.iter_mut();
            claims.for_each(|all| all.retain(|one| kept || !one.starts_with(&prefix(&lease))));
        });
    }

    fn end(&mut self, i: usize) {
        let holder = &mut self.holders[i];
        holder.stage = match holder.round < self.rounds {
            true => Stage::Away,
            false => Stage::Done,
        };
    }

    fn blame(&mut self, property: Property, text: String) {
        self.violations.push(Violation { property, text });
    }

    fn steps_of(&self, i: usize) -> Vec<Step> {
        let holder = &self.holders[i];
        let mut steps = Vec::new();
        match &holder.stage {
            Stage::Away if self.now().permits.len() < self.permits as usize => {
                steps.push(Step::Come(i));
            }
            Stage::Asks(machine, _) => match machine.action() {
                Action::Look => {
                    steps.push(Step::Read(i));
                    if 0 < self.left.lags && holder.view + 1 < self.row.len() {
                        steps.push(Step::ReadOld(i));
                    }
                }
                Action::Make => steps.push(Step::Make(i)),
                Action::Claim(..) => {
                    steps.push(Step::Claim(i));
                    if 0 < self.left.faults && holder.straggler.is_none() {
                        steps.extend([Step::Lose(i, true), Step::Lose(i, false)]);
                    }
                }
                Action::Finish(_) => {}
            },
            Stage::Has(_) | Stage::Leaves => steps.push(Step::Leave(i)),
            Stage::Away | Stage::Done => {}
        }
        if holder.straggler.is_some() {
            steps.push(Step::Straggle(i));
        }
        let lives = !matches!(holder.stage, Stage::Away | Stage::Done | Stage::Leaves);
        if lives && 0 < self.left.expiries {
            steps.push(Step::Expire(i));
        }
        if lives && 0 < self.left.evictions && self.holds(i) {
            steps.push(Step::Evict(i));
        }
        steps
    }
}

impl Model for Numbers {
    type Step = Step;

    fn steps(&self) -> Vec<Step> {
        (0..self.holders.len())
            .flat_map(|i| self.steps_of(i))
            .collect()
    }

    fn take(&self, step: Step) -> Self {
        let mut next = self.clone();
        match step {
            Step::Come(i) => next.come(i),
            Step::Read(i) => {
                next.holders[i].view = next.row.len() - 1;
                next.read(i);
            }
            Step::ReadOld(i) => {
                next.left.lags -= 1;
                next.read(i);
            }
            Step::Make(i) => {
                next.change(|nodes| {
                    nodes.claims.get_or_insert_default();
                });
                next.tell(i, Event::Made);
            }
            Step::Claim(i) => next.claim(i, None),
            Step::Lose(i, carried_out) => next.claim(i, Some(carried_out)),
            Step::Straggle(i) => {
                if let Some(claim) = next.holders[i].straggler.take() {
                    let view = next.holders[i].view;
                    next.commit(i, &claim);
                    next.holders[i].view = view;
                }
            }
            Step::Leave(i) => next.leave(i),
            Step::Expire(i) => {
                next.left.expiries -= 1;
                let lease = next.lease(i);
                next.change(|nodes| {
                    nodes.permits.remove(&lease);
                    let claims = nodes.claims.iter_mut();
                    claims.for_each(|all| all.retain(|one| !one.starts_with(&prefix(&lease))));
                });
                next.end(i);
            }
            Step::Evict(i) => {
                next.left.evictions -= 1;
                let lease = next.lease(i);
                next.change(|nodes| {
                    nodes.permits.remove(&lease);
                });
            }
        }
        next.forget();
        next
    }

    fn is_progress(step: Step) -> bool {
        !matches!(
            step,
            Step::Lose(..) | Step::Expire(_) | Step::Evict(_) | Step::ReadOld(_)
        )
    }

    fn is_finished(&self) -> bool {
        self.holders
            .iter()
            .all(|holder| holder.stage == Stage::Done && holder.straggler.is_none())
    }

    fn check(&mut self, stuck: bool) {
        let has = |i: usize| match self.holders[i].stage {
            Stage::Has(number) if self.holds(i) => Some(number),
            _ => None,
        };
        let count = self.holders.len();
        let pairs = (0..count).flat_map(|i| (0..i).map(move |j| (i, j)));
        let clash = pairs.filter(|(i, j)| has(*i).is_some() && has(*i) == has(*j));
        let clashes: Vec<_> = clash.collect();
        for (i, j) in clashes {
            let text = format!("{} and {} have one number", name(i), name(j));
            self.blame(Property::Exclusion, text);
        }
        let left = self
            .now()
            .claims
            .as_ref()
            .is_some_and(|all| !all.is_empty());
        if self.is_finished() && left {
            self.blame(Property::Orphan, "a claim is left".to_owned());
        }
        if stuck {
            self.blame(Property::Progress, "somebody waits for ever".to_owned());
        }
    }

    fn violations(&mut self) -> Vec<Violation> {
        mem::take(&mut self.violations)
    }
}
