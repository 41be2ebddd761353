//! What must hold on every journey.

use zklock::recipe::attempt::{Action, Event, Outcome};
use zklock::recipe::dialect::{Dialect, Role};

use super::{Goal, Journey, Last, Stage, Traveller};
use crate::property::{Property, Violation, excludes, name};

impl Journey {
    /// Looks at this journey; if it is `stuck`, nothing can happen any more but a mishap.
    pub(crate) fn look(&mut self, stuck: bool) {
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
            let (one, other) = (self.travellers[*j].held(), self.travellers[i].held());
            one.is_some_and(|one| other.is_some_and(|other| excludes(one, other)))
        };
        if let Some(j) = (0..i).find(clash) {
            let text = format!("{} and {} raw at once", name(j), name(i));
            self.blame(Property::Exclusion, text);
        }
    }

    /// Never more than so many permits are out.
    fn check_permits(&mut self) {
        let out = |t: &&Traveller| {
            let inside = t.stage == Stage::Inside && matches!(t.goal, Goal::Permit(..));
            inside && t.holds.iter().all(|raw| raw.trusted)
        };
        let out = self.travellers.iter().filter(out).count();
        let few = |t: &Traveller| matches!(t.goal, Goal::Permit(_, permits) if permits < out);
        if self.travellers.iter().any(few) {
            self.blame(Property::Exclusion, format!("{out} permits are out"));
        }
        self.check_room();
    }

    /// kazoo counts before it makes a node, and not again: to it each one is a permit.
    fn check_room(&mut self) {
        let nodes = self.dirs[1].nodes.len();
        let kazoo = |permits| Goal::Permit(Dialect::Kazoo, permits);
        if self
            .travellers
            .iter()
            .any(|t| (1..nodes).any(|few| t.goal == kazoo(few)))
        {
            self.blame(Property::Exclusion, format!("{nodes} permits are taken"));
        }
    }

    fn check_sleep(&mut self, i: usize) {
        let traveller = &self.travellers[i];
        let stirred = !traveller.events.is_empty() || traveller.reconnected || traveller.expired;
        let (Stage::Queue(dir), true, false) = (traveller.stage, traveller.is_asleep(), stirred)
        else {
            return;
        };
        let watches_own = traveller.guard.is_some();
        let mut attempt = traveller.attempt.clone().expect("a subscriber has one");
        attempt.handle(Event::Woken);
        let names = self.dirs[dir].names(None).unwrap_or_default();
        attempt.handle(Event::Children(names));
        match attempt.action() {
            Action::Watch(_) | Action::WatchAround(..) | Action::Wait => {}
            // It cannot go on anyway, and learns why when somebody ahead goes.
            Action::Finish(Outcome::Evicted(_)) if !watches_own => {}
            action => {
                let text = format!("{} sleeps instead of {action:?}", name(i));
                self.blame(Property::Sleep, text);
            }
        }
    }

    /// Who is granted something has its nodes.
    pub(crate) fn check_nodes(&mut self, i: usize) {
        let mut holds = self.travellers[i].holds.iter();
        if holds.any(|raw| self.dirs[raw.dir].find(&raw.mine.name).is_none()) {
            let text = format!("{} is granted a node that is not there", name(i));
            self.blame(Property::Exclusion, text);
        }
    }

    /// The client enters, having been told how the last one went, or not.
    pub(crate) fn check_told(&mut self, i: usize) {
        let told = self.travellers[i].told;
        let text = match (self.last, told) {
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
    /// What it holds of the first directory's lock.
    fn held(&self) -> Option<Role> {
        let role = match (self.goal, self.stage) {
            (_, Stage::Place(_) | Stage::Queue(_) | Stage::Prove | Stage::Done)
            | (Goal::Permit(..), _) => None,
            (Goal::Downgrade, Stage::Inside) => Some(Role::Read),
            (Goal::Downgrade, _) => Some(Role::Write),
            (Goal::Lock(role), _) => Some(role),
            (Goal::All | Goal::Tracked, _) => Some(Role::Exclusive),
        };
        role.filter(|_| self.holds.iter().all(|raw| raw.trusted))
    }
}
