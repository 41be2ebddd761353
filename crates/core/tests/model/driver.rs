//! A client's driver, which carries out what the protocol asks for.
//!
//! This is the contract between the protocol and its driver. A driver must ensure:
//!
//! - a create is reported as lost before a cancellation or a new session is reported,
//! - instead of a reply from a session other than the attempt's, `NewSession` is reported. Only an
//!   attempt that does not know its node yet may go on for a while, since the node's owner shows
//!   the session. Meanwhile it must not be told that a node is not there,
//! - a subscriber is woken after every reconnect,
//! - only events of the watches that were set last are reported, in the order in which they
//!   happened: `Deleted` after the own node's deletion is no grant,
//! - an attempt that lists again while its watches are set is told if they are lost with the
//!   connection,
//! - events that a new connection delivers late come in any order: they are `Woken`,
//! - the deletion of the own node is `Woken`, since a server that closes the session reports
//!   it too; only an answer to a request, in the session, is `Evicted`,
//! - a deletion is repeated until it is answered; where the transport knows its session,
//!   a deletion ends with the session in which it was begun, which may be a later one
//!   than the attempt's.

use zklock_core::attempt::{Action, Event, Outcome};
use zklock_core::queue::Blocked;

use super::client::{Change, Place, RawGuard, deletion_of};
use super::mutant::{Mutant, births_by_number};
use super::property::{Property, id};
use super::world::{Step, World};

impl World {
    pub(crate) fn run(&mut self, i: usize) {
        let event = self.serve(i);
        self.report(i, event);
    }

    /// Carries out the attempt's action and returns the reply.
    fn serve(&mut self, i: usize) -> Event {
        let action = self.clients[i].action().expect("there is an attempt");
        let mutant = self.rules.mutant;
        if let (Action::Sync, Mutant::FindsWithoutSync) = (&action, mutant) {
            return Event::Synced;
        }
        self.clients[i].unseen = None;
        match action {
            Action::Create(prefix) => self.create(i, &prefix),
            Action::MakeParents => {
                self.make_parents();
                Event::ParentsMade
            }
            Action::Sync | Action::CatchUp => Event::Synced,
            Action::List => self.list(i, None),
            Action::Inspect(name) => self.inspect(i, &name, None),
            Action::Births(names) => match mutant {
                Mutant::OrdersByNumberOnly => births_by_number(&names),
                _ => self.births(&names),
            },
            Action::Watch(blocked, mine) => self.watch_around(i, &blocked, mine),
            Action::Prove(name) => match self.directory.find(&name) {
                None if mutant != Mutant::OverlooksOwnAbsence => Event::NoNode,
                _ => Event::Proved,
            },
            Action::ListAndWatch(_) | Action::Wait | Action::Rename | Action::Finish(_) => {
                unreachable!("nothing to serve")
            }
        }
    }

    fn create(&mut self, i: usize, prefix: &str) -> Event {
        let (maker, session) = (self.maker(i), self.clients[i].session);
        match self.directory.create(prefix, session, maker) {
            Some((name, origin)) => {
                let origin = self.rules.create_tells.then_some(origin);
                Event::Created(name, origin)
            }
            None => Event::NoNode,
        }
    }

    fn list(&self, i: usize, until: Option<i64>) -> Event {
        match self.directory.names(until) {
            Some(names) => Event::Children(self.shown(i, names)),
            None => Event::NoNode,
        }
    }

    fn inspect(&self, i: usize, name: &str, until: Option<i64>) -> Event {
        let node = self.directory.find(name);
        match node.filter(|node| until.is_none_or(|until| node.origin.czxid < until)) {
            Some(node) => Event::Inspected(node.origin),
            None if self.clients[i].untold => Event::NewSession,
            None => Event::NoNode,
        }
    }

    pub(crate) fn births(&self, names: &[String]) -> Event {
        let nodes = names.iter().filter_map(|name| self.directory.find(name));
        Event::Births(nodes.map(|n| (n.name.clone(), n.origin.czxid)).collect())
    }

    fn watch(&mut self, i: usize, nearest: &str) -> Event {
        self.clients[i].lose_watches();
        let node = self.meant(i, nearest);
        match self.directory.find(&node) {
            Some(_) => {
                self.clients[i].watch = Some(node);
                Event::Watching
            }
            None if self.rules.mutant == Mutant::SleepsOnAbsence => Event::Watching,
            None => Event::NoNode,
        }
    }

    fn watch_around(&mut self, i: usize, blocked: &Blocked, mine: String) -> Event {
        self.clients[i].guards = true;
        let event = self.watch(i, &blocked.nearest);
        let watching = matches!(event, Event::Watching);
        if !watching || self.rules.mutant == Mutant::WatchesOnlyTheNearest {
            return event;
        }
        if self.directory.find(&mine).is_none() {
            return Event::Evicted;
        }
        self.clients[i].guard = (!self.clients[i].deaf).then_some(mine);
        match &blocked.beyond {
            Some(beyond) if self.directory.find(beyond).is_none() => self.misses_beyond(i),
            beyond => {
                self.clients[i].beyond.clone_from(beyond);
                Event::Watching
            }
        }
    }

    fn misses_beyond(&mut self, i: usize) -> Event {
        match self.rules.mutant {
            Mutant::TakesAMissForADeletion => {
                self.report(i, Event::Watching);
                Event::BeyondDeleted
            }
            _ => Event::BeyondMissing,
        }
    }

    pub(crate) fn run_lagging(&mut self, i: usize) {
        let client = &self.clients[i];
        let event = match client.action() {
            Some(Action::Inspect(name)) => self.inspect(i, &name, client.unseen),
            _ => self.list(i, client.unseen),
        };
        self.report(i, event);
    }

    /// Answers a proof from memory: the session was alive a moment ago.
    pub(crate) fn recall(&mut self, i: usize) {
        let deluded = self.clients[i].deluded;
        self.report(i, Event::Proved);
        let client = &mut self.clients[i];
        if let (Some(raw), false) = (&mut client.raw, client.expired) {
            // A client that was evicted when its turn came learns that from the next proof.
            let evicted = self.directory.find(&raw.node.name).is_none();
            raw.trusted = deluded || !evicted;
        }
    }

    pub(crate) fn wake(&mut self, i: usize, step: Step) {
        let mutant = self.rules.mutant;
        let client = &mut self.clients[i];
        let nth = match mutant {
            Mutant::HearsOutOfOrder => client.events.len().saturating_sub(1),
            _ => 0,
        };
        let fired = client.events.get(nth).filter(|_| step == Step::Wake(i));
        let deleted = fired.filter(|fired| fired.what == Change::Deleted);
        let event = match deleted.map(|fired| fired.of) {
            Some(Place::Nearest) if mutant != Mutant::TakesADeletionForAnyWake => Event::Deleted,
            Some(Place::Beyond) => Event::BeyondDeleted,
            Some(Place::Own) if mutant == Mutant::TakesOwnEndForEviction => Event::Evicted,
            _ if mutant == Mutant::TakesAnyWakeForADeletion => Event::Deleted,
            _ => Event::Woken,
        };
        let queued = deleted.is_none_or(|fired| fired.queued);
        match event {
            Event::BeyondDeleted if mutant != Mutant::DropsWatchesToRelist => {
                client.events.remove(nth);
            }
            _ => client.stop_watching(),
        }
        self.report(i, event);
        let client = &mut self.clients[i];
        client.deluded = !queued && matches!(client.action(), Some(Action::Prove(_)));
    }

    pub(crate) fn report(&mut self, i: usize, event: Event) {
        let client = &mut self.clients[i];
        let attempt = client.attempt.as_mut().expect("there is an attempt");
        match (&event, attempt.action()) {
            (Event::Created(name, Some(_)), _) => client.queued = Some(name.clone()),
            (Event::Inspected(_), Action::Inspect(name)) => client.queued = Some(name),
            _ => {}
        }
        attempt.handle(event);
        // No create is late here, so the name may stay, and there are fewer worlds.
        if attempt.action() == Action::Rename {
            let attempts = client.attempts - 1;
            attempt.rename(&id(i, attempts));
            attempt.orphans();
        }
        let Action::Finish(outcome) = attempt.action() else {
            return;
        };
        let orphans = attempt.orphans().into_iter();
        let forgets = match self.rules.mutant {
            Mutant::ForgetsLeftovers => true,
            Mutant::AscribesToOldSession => client.untold,
            _ => false,
        };
        if !forgets {
            client.farewells.extend(orphans.map(deletion_of));
        }
        self.finish(i, outcome);
    }

    fn finish(&mut self, i: usize, outcome: Outcome) {
        match outcome {
            Outcome::Held(mine) => {
                self.check_order(i, &mine);
                self.check_turn(i);
                let client = &mut self.clients[i];
                if self.rules.mutant == Mutant::DeletesBeforeRelease {
                    client.bid_farewell(mine.clone());
                }
                client.attempt = None;
                client.forget_attempt();
                client.raw = Some(RawGuard {
                    node: mine,
                    trusted: true,
                });
            }
            Outcome::Gone => {
                self.check_refusal(i);
                self.end_round(i);
            }
            Outcome::Evicted(_) => {
                self.check_eviction(i);
                self.end_round(i);
            }
            Outcome::Foreign(foreign) => {
                self.blame(Property::Truth, format!("nobody is foreign: {foreign:?}"));
                self.end_round(i);
            }
            Outcome::Restart => self.enter(i),
        }
    }
}
