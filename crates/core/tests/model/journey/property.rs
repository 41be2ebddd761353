//! The properties that must hold on every journey.

use zklock_core::attempt::{Action, Event};
use zklock_core::dialect::{Dialect, Role};
use zklock_core::permit_attempt;

use super::{Goal, Journey, Last, Plan, Stage, Traveller, Watch};
use crate::property::{Property, Violation, excludes, name};

impl Journey {
    /// Checks this journey; if it is `stuck`, nothing can happen any more but a mishap.
    pub(crate) fn look_around(&mut self, stuck: bool) {
        for i in 0..self.travellers.len() {
            self.check_exclusion(i);
            self.check_sleep(i);
        }
        self.check_permits();
        if stuck {
            self.check_end();
        }
    }

    fn check_exclusion(&mut self, i: usize) {
        let clash = |j: &usize| {
            let (one, other) = (&self.travellers[*j], &self.travellers[i]);
            let roles = (0..2).filter_map(|dir| Some((one.held(dir)?, other.held(dir)?)));
            roles.into_iter().any(|(one, other)| excludes(one, other))
        };
        if let Some(j) = (0..i).find(clash) {
            let text = format!("{} and {} raw at once", name(j), name(i));
            self.blame(Property::Exclusion, text);
        }
    }

    /// Checks that no more permits are out than exist, and that all of them were given by one
    /// number.
    fn check_permits(&mut self) {
        let given = |t: &Traveller| match t.goal {
            Goal::Permit { permits, count, .. } if t.stage == Stage::Inside => {
                let trusted = t.holds.iter().all(|raw| raw.trusted);
                vec![permits; if trusted { count } else { 0 }]
            }
            _ => Vec::new(),
        };
        let out: Vec<_> = self.travellers.iter().flat_map(given).collect();
        if out
            .iter()
            .any(|permits| *permits < out.len() || *permits != out[0])
        {
            let text = format!("permits are out that were given by the numbers {out:?}");
            self.blame(Property::Exclusion, text);
        }
        self.check_room();
    }

    /// Checks that kazoo's layout has no more nodes than permits: kazoo counts only before it
    /// creates a node, and takes every node for a permit.
    fn check_room(&mut self) {
        let nodes = self.dirs[1].nodes.len();
        let few = |t: &Traveller| match t.goal {
            Goal::Permit {
                dialect, permits, ..
            } => dialect == Dialect::Kazoo && permits < nodes,
            _ => false,
        };
        if self.travellers.iter().any(few) {
            self.blame(Property::Exclusion, format!("{nodes} permits are taken"));
        }
    }

    /// Checks a client that is turned away because others that use this number have permits.
    pub(crate) fn check_disagreement(&mut self, i: usize, number: u32) {
        let Goal::Permit { permits, .. } = self.travellers[i].goal else {
            return;
        };
        if usize::try_from(number) == Ok(permits) {
            let text = format!("{} is told that {number} is another number", name(i));
            self.blame(Property::Truth, text);
        }
    }

    /// Checks that a client that waits for others to give their permits back has a reason to sleep.
    fn check_awaiting(&mut self, i: usize) {
        let Plan::Permit(mut permit) = self.travellers[i].plan.clone() else {
            return;
        };
        permit.handle(permit_attempt::Event::Woken);
        permit.handle(permit_attempt::Event::Looked(self.look(i)));
        match permit.action() {
            permit_attempt::Action::Read(_) if self.travellers[i].line_lost || self.awaits(i) => {}
            action => {
                let text = format!("{} sleeps instead of {action:?}", name(i));
                self.blame(Property::Sleep, text);
            }
        }
    }

    fn check_sleep(&mut self, i: usize) {
        let traveller = &self.travellers[i];
        let stirred = !traveller.events.is_empty() || traveller.reconnected || traveller.expired;
        if traveller.stage == Stage::Await && !stirred {
            return self.check_awaiting(i);
        }
        let (Stage::Queue(dir), true, false) = (traveller.stage, traveller.is_asleep(), stirred)
        else {
            return;
        };
        let mut attempt = traveller.attempt.clone().expect("a subscriber has one");
        attempt.handle(Event::Woken);
        let names = self.dirs[dir].names(None).unwrap_or_default();
        attempt.handle(Event::Children(names));
        match attempt.action() {
            Action::Watch(..) | Action::Wait => {}
            action => {
                let text = format!("{} sleeps instead of {action:?}", name(i));
                self.blame(Property::Sleep, text);
            }
        }
    }

    /// Returns whether the client will hear of the end of a permit.
    fn awaits(&self, i: usize) -> bool {
        match &self.travellers[i].watch {
            Some(Watch::Node(dir, node)) => self.dirs[*dir].find(node).is_some(),
            _ => false,
        }
    }

    /// Checks that a client that is granted something has its nodes.
    pub(crate) fn check_nodes(&mut self, i: usize) {
        let mut holds = self.travellers[i].holds.iter();
        if holds.any(|raw| self.dirs[raw.dir].find(&raw.mine.name).is_none()) {
            let text = format!("{} is granted a node that is not there", name(i));
            self.blame(Property::Exclusion, text);
        }
    }

    /// Checks a client that enters: it was told that the last holder died, or was not told.
    pub(crate) fn check_told(&mut self, i: usize) {
        let told = self.travellers[i].told;
        // The client has set its own mark since.
        let last = self.travellers[i].found.unwrap_or(self.last);
        let text = match (last, told) {
            (Last::Died, None) => "is not told that the last holder died",
            (Last::Released, Some(_)) => "is told that the last holder died",
            _ => return,
        };
        self.blame(Property::Truth, format!("{} {text}", name(i)));
    }

    fn check_end(&mut self) {
        match self.travellers.iter().position(|t| !t.is_done()) {
            Some(i) => self.blame(Property::Progress, format!("{} waits for ever", name(i))),
            None => self.blame(Property::Orphan, "something is left blocked".to_owned()),
        }
    }

    pub(crate) fn blame(&mut self, property: Property, text: String) {
        self.violations.push(Violation { property, text });
    }
}

impl Traveller {
    /// Returns the role in which the client holds this directory's lock.
    fn held(&self, dir: usize) -> Option<Role> {
        let role = match (self.goal, self.stage) {
            (Goal::Permit { .. }, _) => None,
            (Goal::Downgrade { .. }, Stage::Inside) => Some(Role::Read),
            (Goal::Downgrade { .. }, Stage::Ask) => Some(Role::Write),
            (Goal::Tracked, Stage::Ask) => Some(Role::Exclusive),
            (_, Stage::Queue(_) | Stage::Ask | Stage::Await | Stage::Done) => None,
            (Goal::Lock(role), _) => Some(role),
            (Goal::All { second, .. }, _) if dir == 1 => Some(second),
            (Goal::Second | Goal::All { .. } | Goal::Tracked, _) => Some(Role::Exclusive),
        };
        let covers = match self.goal {
            Goal::All { .. } => true,
            Goal::Second => dir == 1,
            _ => dir == 0,
        };
        role.filter(|_| covers && self.holds.iter().all(|raw| raw.trusted))
    }
}
