//! The requests that each action of an attempt sends.

use alloc::string::String;
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use super::state::{Step, Watches};
use super::{Acquisition, Note, Wire};
use crate::attempt::{Action, Event, Patience};
use crate::connection::sync;
use crate::dialect::Role;
use crate::name::may_be_hold;
use crate::path::node_in;
use crate::proof::{self, Next};
use crate::queue::{Blocked, Place};
use crate::validity::Stamp;
use zklock_jute::{ErrorCode, Names, Reply, Request};

/// How long a waiter relies on the watch on a directory. A server does not tell a client of changes that it may not
/// see any more, and not that it may not see them either.
const LOOKS_AGAIN: Duration = Duration::from_secs(15);

impl Acquisition {
    /// Sends what this action needs, unless that is on its way. Returns whether an answer was already there.
    pub(super) fn step(&mut self, action: Action, wire: &mut dyn Wire) -> bool {
        match action {
            Action::Create(_) if self.only_looks => {
                self.has_ended = true;
                return true;
            }
            Action::Create(prefix) => self.create(&prefix, wire),
            Action::MakeParents => return self.make_parents(wire),
            Action::Sync | Action::CatchUp => self.sync(wire),
            Action::List => return self.list(wire),
            Action::ListAndWatch(queued) => return self.list_and_watch(queued, wire),
            Action::Inspect(name) => self.inspect(&name, wire),
            Action::Births(names) => self.ask_births(&names, wire),
            Action::Watch(blocked, mine) => self.watch(&blocked, &mine, wire),
            Action::Prove(_) if self.look_under(false, wire) => {}
            Action::Prove(_) if self.is_proven(wire) => {
                self.attempt.handle(Event::Proved);
                return true;
            }
            Action::Prove(_) => self.proves(wire),
            Action::Wait | Action::Rename | Action::Finish(_) => {}
        }
        false
    }

    pub(super) fn send(&mut self, request: Request, step: Step, wire: &mut dyn Wire) {
        let call = wire.send(&self.path, request);
        self.flight.push((call, step));
    }

    /// Sends the create and the listing together, so that a free lock costs one round trip. The listing is
    /// left out if nobody is expected.
    fn create(&mut self, prefix: &str, wire: &mut dyn Wire) {
        if self.is_on_its_way(|step| matches!(step, Step::Create(_))) {
            return;
        }
        let (stamp, path) = (wire.stamp(), self.path.clone());
        let call = wire.create(&path, prefix);
        self.note_create(call, stamp);
        self.forget_listings();
        if self.contest.role == Role::Permit {
            self.ask_for_the_crowd(true, wire);
            self.look_under(true, wire);
        } else if !self.attempt.expects_nobody() {
            self.list_too(wire);
        }
    }

    /// Returns the prefix of the contender's first node, if it begins with a create. Somebody else may send
    /// that create; see [`note_create`](Self::note_create).
    pub fn begins_with_create(&self) -> Option<String> {
        match self.attempt.action() {
            Action::Create(prefix) => Some(prefix),
            _ => None,
        }
    }

    /// Lists the queue, in addition to what is on its way.
    pub fn list_too(&mut self, wire: &mut dyn Wire) {
        self.send(Request::list(&self.path), Step::List, wire);
        self.forget_reads();
        for read in self.reads.clone() {
            self.send(read, Step::Read, wire);
        }
    }

    /// Sends these reads behind each listing. A server answers in order, so the answers are as new as a grant by the
    /// listing. A contender that waits for others does not read: the answers may be older than the last write of the
    /// holder before.
    pub fn read_behind(&mut self, reads: Vec<Request>) {
        self.reads = reads;
    }

    /// Takes the answers to the reads behind the listing that granted the lock, if all of them have arrived.
    pub fn take_read(&mut self) -> Option<Vec<Result<Reply, ErrorCode>>> {
        self.read.take()
    }

    /// Returns whether a grant waits for such a read. Its answer arrives together with that to the listing.
    pub(super) fn is_reading(&self, wire: &dyn Wire) -> bool {
        let is_asked = self.is_on_its_way(|step| *step == Step::Read);
        is_asked && wire.is_connected() && !self.is_cancelled
    }

    /// Forgets the reads behind an earlier listing.
    pub(super) fn forget_reads(&mut self) {
        self.flight.retain(|(_, step)| *step != Step::Read);
        self.answers.retain(|(step, _)| *step != Step::Read);
        self.read = None;
    }

    fn make_parents(&mut self, wire: &mut dyn Wire) -> bool {
        if self.is_on_its_way(|step| *step == Step::Parent) {
            return false;
        }
        let requests = wire.parents(&self.path);
        if requests.is_none() {
            self.has_ended = true;
            return true;
        }
        for request in requests.into_iter().flatten() {
            self.send(request, Step::Parent, wire);
        }
        false
    }

    /// Makes the server catch up, and lists the queue in the same write.
    fn sync(&mut self, wire: &mut dyn Wire) {
        if !self.is_on_its_way(|step| *step == Step::Sync) {
            self.forget_listings();
            self.send(sync(&self.path), Step::Sync, wire);
            self.list_too(wire);
        }
    }

    /// Forgets earlier listings: they are older than the answer to what is sent now.
    pub(super) fn forget_listings(&mut self) {
        self.listing = None;
        self.flight
            .retain(|(_, step)| !matches!(step, Step::List | Step::Crowd(_)));
    }

    /// Lists the queue. If the queue has moved, the proof that a grant may need leaves with the listing.
    fn list(&mut self, wire: &mut dyn Wire) -> bool {
        if self.looks_closer() {
            return false;
        }
        if let Some(names) = self.listing.take() {
            self.takes_in(names, wire);
            return !self.looks_closer();
        }
        if !self.is_on_its_way(|step| *step == Step::List) {
            self.list_too(wire);
            if mem::take(&mut self.has_moved) {
                self.stays_proven(wire);
            }
        }
        false
    }

    /// Lists a directory where every child counts, and leaves a watch on it.
    fn list_and_watch(&mut self, queued: bool, wire: &mut dyn Wire) -> bool {
        if self.looks_closer() || self.is_on_its_way(|step| matches!(step, Step::Crowd(_))) {
            return false;
        }
        if let Some(names) = self.listing.take().filter(|_| self.watches.around) {
            self.takes_in_crowd(queued, names, wire);
            return !self.looks_closer();
        }
        self.ask_for_the_crowd(queued, wire);
        if queued && mem::take(&mut self.has_moved) {
            self.stays_proven(wire);
        }
        false
    }

    fn ask_for_the_crowd(&mut self, queued: bool, wire: &mut dyn Wire) {
        self.unwatch(wire);
        self.ask_around(Step::Crowd(queued), wire);
    }

    /// Lists the directory and leaves a watch on it.
    pub(super) fn ask_around(&mut self, step: Step, wire: &mut dyn Wire) {
        self.watches.look_at = wire.now().saturating_add(LOOKS_AGAIN);
        self.send(Request::list(&self.path).and_watch(), step, wire);
    }

    /// Drops the watches on other nodes, which are not needed any more.
    pub(super) fn unwatch(&mut self, wire: &mut dyn Wire) {
        let mine = self.attempt.node();
        self.events.retain(|(name, _)| Some(&**name) == mine);
        let Watches {
            nearest,
            beyond,
            around,
            ..
        } = &mut self.watches;
        for name in nearest.take().into_iter().chain(beyond.take()) {
            wire.unwatch(&node_in(&self.path, &name));
        }
        if mem::take(around) {
            wire.unwatch(&self.path);
        }
        self.flight
            .retain(|(_, step)| !matches!(step, Step::Nearest | Step::Beyond | Step::Around));
    }

    /// Looks at our own node. A contender whose listing is on its way waits for that: if it shows others
    /// ahead, the watches on them leave together with the look.
    fn inspect(&mut self, name: &str, wire: &mut dyn Wire) {
        let looked = self.is_on_its_way(|step| *step == Step::Own);
        let waits = self.patience == Patience::Waits;
        if looked || waits && self.is_on_its_way(|step| *step == Step::List) {
            return;
        }
        // Holds are read before the contender waits for the queue.
        let is_plain = |names: &&Names| waits && !names.iter().any(may_be_hold);
        let names = self.listing.as_ref().filter(is_plain);
        match names.map(|names| self.contest.place(names, name)) {
            Some(Place::Blocked(blocked)) => self.watch(&blocked, name, wire),
            _ => self.look_at_own(name, wire),
        }
    }

    fn look_at_own(&mut self, name: &str, wire: &mut dyn Wire) {
        let node = node_in(&self.path, name);
        // A watch that is set stands until the node goes. If the node is gone already, a read sets none, and `exists`
        // one that would stay for ever.
        let look = match mem::replace(&mut self.watches.own, true) {
            true => Request::exists(&node),
            false => Request::get(&node).and_watch(),
        };
        self.send(look, Step::Own, wire);
    }

    fn ask_births(&mut self, names: &[String], wire: &mut dyn Wire) {
        if self.is_on_its_way(|step| *step == Step::Birth) {
            return;
        }
        for name in names {
            let look = Request::exists(&node_in(&self.path, name));
            self.send(look, Step::Birth, wire);
        }
    }

    /// Watches our own node `mine`, the nearest node ahead and, if the attempt needs it, the node beyond the
    /// nearest.
    fn watch(&mut self, blocked: &Blocked, mine: &str, wire: &mut dyn Wire) {
        let Blocked {
            nearest, beyond, ..
        } = blocked;
        let is_asked = self.watches.nearest.as_ref() == Some(nearest)
            && self.watches.beyond == *beyond
            && self.is_on_its_way(|step| *step == Step::Nearest || *step == Step::Around);
        if is_asked {
            return;
        }
        self.unwatch(wire);
        self.found = Default::default();
        self.look_at_own(mine, wire);
        self.watch_elsewhere(wire);
        let read = |name: &str, path: &str| Request::get(&node_in(path, name)).and_watch();
        self.send(read(nearest, &self.path), Step::Nearest, wire);
        if let Some(beyond) = beyond {
            self.send(read(beyond, &self.path), Step::Beyond, wire);
        }
        self.watches = Watches {
            nearest: Some(nearest.clone()),
            beyond: beyond.clone(),
            is_seen: false,
            around: false,
            own: self.watches.own,
            look_at: Duration::ZERO,
        };
    }

    /// Asks the quorum to confirm our node if that is due, or waits until asking can help.
    fn proves(&mut self, wire: &mut dyn Wire) {
        if self.is_on_its_way(|step| matches!(step, Step::Proof(..))) {
            return;
        }
        match wire.next_for_a_grant(&self.proof) {
            Next::Grant => {}
            Next::Ask { counts } => {
                wire.tell(Note::HeldBack(None));
                self.ask_quorum(counts, wire);
            }
            Next::Pause(pause) => {
                wire.tell(Note::HeldBack(Some(pause)));
                self.rest_at(wire.now() + pause);
            }
        }
    }

    /// Schedules an [`advance`](Self::advance) for this time at the latest.
    pub(super) fn rest_at(&mut self, at: Duration) {
        self.rests_until = Some(self.rests_until.map_or(at, |until| until.min(at)));
    }

    /// Renews the proof that a grant may need soon. With a fresh proof, the release ahead is the grant. Where answers
    /// take long, the next proof leaves before the last one is answered, as with those of a guard.
    pub(super) fn stays_proven(&mut self, wire: &mut dyn Wire) {
        if !wire.is_connected() {
            return;
        }
        let (asked, now) = (self.last_asked(), wire.now());
        let due = wire.renews_at(&asked.map_or(self.proof, |stamp| self.proof.with(stamp)));
        let counts = match wire.next_for_a_grant(&self.proof) {
            _ if asked.is_some() && now < due => return self.rest_at(due),
            _ if asked.is_some() => false,
            Next::Pause(pause) => return self.rest_at(now + pause),
            Next::Ask { counts } => counts,
            Next::Grant if now < due => return self.rest_at(due),
            Next::Grant => false,
        };
        let again = wire.renews_at(&self.proof.with(wire.stamp()));
        self.rest_at(again);
        self.ask_quorum(counts, wire);
    }

    /// Returns the stamp of the last proof that is on its way.
    fn last_asked(&self) -> Option<Stamp> {
        let asked = self.flight.iter().filter_map(|(_, step)| match step {
            Step::Proof(stamp, _) => Some(*stamp),
            _ => None,
        });
        asked.max_by_key(|stamp| stamp.sent)
    }

    fn ask_quorum(&mut self, counts: bool, wire: &mut dyn Wire) {
        let Some(node) = self.attempt.node().map(|name| node_in(&self.path, name)) else {
            return;
        };
        let stamp = wire.stamp();
        for request in proof::requests(wire.transacts(), &[node]) {
            self.send(request, Step::Proof(stamp, counts), wire);
        }
    }

    /// Asks whether the session of our node, which is gone, still exists.
    pub(super) fn asks_why(&mut self, name: &str, wire: &mut dyn Wire) {
        if wire.is_connected() && !self.is_on_its_way(|step| *step == Step::Evicted) {
            let look = Request::exists(&node_in(&self.path, name));
            self.send(look, Step::Evicted, wire);
        }
    }
}
