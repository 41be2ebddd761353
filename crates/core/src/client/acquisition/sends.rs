//! What each action of an attempt sends.

use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

use super::several::Births;
use super::{Acquisition, Step, Watches};
use crate::attempt::{Action, Event, Patience};
use crate::client::calls::{Creation, Purpose};
use crate::client::link::Link;
use crate::client::names::node_in;
use crate::grant_proof::Next;
use crate::joined;
use crate::name::may_be_hold;
use crate::path;
use crate::proof;
use crate::queue::{Blocked, Place};
use crate::refusals::Refusals;
use crate::validity::Stamp;
use zklock_jute::{CreateMode, Names, Op, Request};

impl Acquisition {
    /// Sends what this action needs, unless it is on its way. Returns whether an answer was there.
    pub(super) fn step(&mut self, action: Action, link: &mut Link) -> bool {
        match action {
            Action::Create(prefix) => self.create(&prefix, link),
            Action::MakeParents => self.make_parents(link),
            Action::Sync | Action::CatchUp => self.sync(link),
            Action::List | Action::ListAndWatch(_) => return self.list(link),
            Action::Inspect(name) => self.inspect(&name, link),
            Action::Births(names) => self.ask_births(&names, link),
            Action::Watch(blocked) => self.watch(&blocked, None, link),
            Action::WatchAround(blocked, mine) => self.watch(&blocked, Some(&mine), link),
            Action::Prove(_) if self.is_proven(link) => {
                self.attempt.handle(Event::Proved);
                return true;
            }
            Action::Prove(_) => self.proves(link),
            Action::Wait | Action::Finish(_) => {}
        }
        false
    }

    pub(super) fn send(&mut self, request: Request, step: Step, link: &mut Link) {
        let call = link.send(request, Purpose::Step(self.path.clone()));
        self.flight.push((call, step));
    }

    /// The create and the listing leave together, so that a free lock costs one round trip. If
    /// nobody is expected, the listing is left out.
    fn create(&mut self, prefix: &str, link: &mut Link) {
        if self.is_on_its_way(|step| matches!(step, Step::Create(_))) {
            return;
        }
        let (stamp, creation) = (link.stamp(), self.creation(prefix));
        let request = self.creates(prefix, link);
        let call = link.send(request, Purpose::Create(creation));
        self.flight.push((call, Step::Create(stamp)));
        self.forget_listings();
        if !self.attempt.expects_nobody() {
            self.send(Request::list(&self.path), Step::List, link);
        }
    }

    /// Sends the first create in one transaction with those of this deletion. Returns `false` if the
    /// attempt begins with something else.
    pub(in crate::client) fn create_with(
        &mut self,
        (deletion, ops): (u64, &[Op]),
        link: &mut Link,
    ) -> bool {
        let Action::Create(prefix) = self.attempt.action() else {
            return false;
        };
        let (stamp, creation) = (link.stamp(), self.creation(&prefix));
        let joined = joined::request(ops.to_vec(), self.creates(&prefix, link));
        let call = link.send(joined, Purpose::Both(deletion, creation));
        self.flight.push((call, Step::Create(stamp)));
        self.send(Request::list(&self.path), Step::List, link);
        true
    }

    fn creation(&self, prefix: &str) -> Creation {
        Creation {
            path: self.path.clone(),
            prefix: prefix.into(),
            is_wanted: true,
        }
    }

    fn creates(&self, prefix: &str, link: &Link) -> Request {
        Request::Create {
            path: node_in(&self.path, prefix),
            data: link.settings.card.clone().into(),
            acl: link.settings.acl.clone(),
            mode: CreateMode::EphemeralSequential,
            stat: true,
        }
    }

    fn make_parents(&mut self, link: &mut Link) {
        if self.is_on_its_way(|step| *step == Step::Parent) {
            return;
        }
        self.parents = Refusals::default();
        let idle = match link.settings.dialect.takes_containers() {
            true => CreateMode::Container,
            false => CreateMode::Persistent,
        };
        let own = self.path.clone();
        for path in path::ancestors(&own).chain([&*own]) {
            let is_own = path.len() == own.len();
            let request = Request::Create {
                path: path.into(),
                data: Vec::new().into(),
                acl: link.settings.acl.clone(),
                mode: if is_own { idle } else { CreateMode::Persistent },
                stat: false,
            };
            self.send(request, Step::Parent, link);
        }
    }

    /// Has the server catch up, and lists the queue in the same write.
    fn sync(&mut self, link: &mut Link) {
        if !self.is_on_its_way(|step| *step == Step::Sync) {
            self.forget_listings();
            self.send(link.knows.sync(&self.path), Step::Sync, link);
            self.send(Request::list(&self.path), Step::List, link);
        }
    }

    /// What earlier listings show is older than the answer to what is sent now.
    fn forget_listings(&mut self) {
        self.listing = None;
        self.flight.retain(|(_, step)| *step != Step::List);
    }

    /// Lists the queue. If that has moved, the proof leaves too that a grant may need.
    fn list(&mut self, link: &mut Link) -> bool {
        if self.looks_at_holds() {
            return false;
        }
        if let Some(names) = self.listing.take() {
            self.takes_in(names, link);
            return !self.looks_at_holds();
        }
        if !self.is_on_its_way(|step| *step == Step::List) {
            self.send(Request::list(&self.path), Step::List, link);
            if mem::take(&mut self.has_moved) {
                self.stays_proven(link);
            }
        }
        false
    }

    /// Asks for our own node. If a listing is on its way that may show others ahead, the watches
    /// on them leave together with that.
    fn inspect(&mut self, name: &str, link: &mut Link) {
        let looked = self.is_on_its_way(|step| *step == Step::Own);
        let waits = self.patience == Patience::Waits;
        if looked || waits && self.is_on_its_way(|step| *step == Step::List) {
            return;
        }
        // Holds are read before the queue is waited for.
        let is_plain = |names: &&Names| waits && !names.iter().any(may_be_hold);
        let names = self.listing.as_ref().filter(is_plain);
        match names.map(|names| self.attempt.contest().place(names, name)) {
            Some(Place::Blocked(blocked)) if blocked.watches_around() => {
                self.watch(&blocked, Some(name), link);
            }
            _ => self.look_at_own(name, link),
        }
    }

    fn look_at_own(&mut self, name: &str, link: &mut Link) {
        // Unlike a read, this needs no permission. A watch that is set stands until the node goes.
        let look = Request::Exists {
            path: node_in(&self.path, name),
            watch: !mem::replace(&mut self.watches.own, true),
        };
        self.send(look, Step::Own, link);
    }

    fn ask_births(&mut self, names: &[String], link: &mut Link) {
        if self.is_on_its_way(|step| *step == Step::Birth) {
            return;
        }
        self.births = Births::of(names);
        for name in names {
            let look = Request::exists(&node_in(&self.path, name));
            self.send(look, Step::Birth, link);
        }
    }

    /// Watches the nearest node ahead, and, if the attempt needs them, our own node `mine` and the one
    /// beyond the nearest.
    fn watch(&mut self, blocked: &Blocked, mine: Option<&str>, link: &mut Link) {
        let Blocked {
            nearest, beyond, ..
        } = blocked;
        let is_asked = self.watches.nearest.as_ref() == Some(nearest)
            && self.watches.beyond == *beyond
            && self.is_on_its_way(|step| *step == Step::Nearest || *step == Step::Around);
        if is_asked {
            return;
        }
        self.flight
            .retain(|(_, step)| !matches!(step, Step::Nearest | Step::Beyond | Step::Around));
        self.events.clear();
        self.found = Default::default();
        if let Some(mine) = mine {
            self.look_at_own(mine, link);
        }
        let read = |name: &str, path: &str| Request::GetData {
            path: node_in(path, name),
            watch: true,
        };
        self.send(read(nearest, &self.path), Step::Nearest, link);
        let beyond = mine.and(beyond.as_ref());
        if let Some(beyond) = beyond {
            self.send(read(beyond, &self.path), Step::Beyond, link);
        }
        self.watches = Watches {
            nearest: Some(nearest.clone()),
            beyond: beyond.cloned(),
            around: false,
            own: self.watches.own,
        };
    }

    /// Has the quorum confirm our node, if that is due, or waits until it can help.
    fn proves(&mut self, link: &mut Link) {
        if self.is_on_its_way(|step| matches!(step, Step::Proof(..))) {
            return;
        }
        match self.proof.next(&link.lifetime, link.now) {
            Next::Grant => {}
            Next::Ask { counts } => self.ask_quorum(counts, link),
            Next::Pause(pause) => self.rests_until = Some(link.now + pause),
        }
    }

    /// Keeps the proof young that a grant may need soon: the release ahead is a grant then.
    pub(super) fn stays_proven(&mut self, link: &mut Link) {
        let asked = self.is_on_its_way(|step| matches!(step, Step::Proof(..)));
        if !link.is_connected() || asked {
            return;
        }
        let here = |stamp: &Stamp| link.lifetime.is_of_this_connection(*stamp);
        let stamp = self.proof.stamp.filter(here);
        let due = stamp.map_or(link.now, |stamp| stamp.sent + link.timeout() / 8);
        match self.proof.next(&link.lifetime, link.now) {
            Next::Pause(pause) => self.rests_until = Some(link.now + pause),
            _ if link.now < due => self.rests_until = Some(due),
            Next::Ask { counts } => self.ask_quorum(counts, link),
            Next::Grant => self.ask_quorum(false, link),
        }
    }

    fn ask_quorum(&mut self, counts: bool, link: &mut Link) {
        let Some(node) = self.attempt.node().map(|name| node_in(&self.path, name)) else {
            return;
        };
        let stamp = link.stamp();
        for request in proof::requests(link.knows, &[node]) {
            self.send(request, Step::Proof(stamp, counts), link);
        }
    }

    /// Asks whether the session lasts that our node has gone from.
    pub(super) fn asks_why(&mut self, name: &str, link: &mut Link) {
        if link.is_connected() && !self.is_on_its_way(|step| *step == Step::Evicted) {
            let look = Request::exists(&node_in(&self.path, name));
            self.send(look, Step::Evicted, link);
        }
    }
}
