//! The steps that happen without the caller: deletions, the end of sessions, watches.

use zklock_core::answer::{Answered, Failure};
use zklock_core::attempt::Event;
use zklock_core::connection::is_sync;
use zklock_core::dialect::Role;
use zklock_core::path::name;
use zklock_core::skip_listing::LastGrant;
use zklock_jute::{ErrorCode, Reply, Request};

use super::client::{Change, Fired, Place, ends_by, listed, request_of};
use super::directory::Maker;
use super::mutant::Mutant;
use super::world::{Transport, World};

impl World {
    pub(crate) fn release(&mut self, i: usize) {
        let client = &mut self.clients[i];
        let raw = client.raw.take().expect("it holds");
        if client.wish.role == Role::Exclusive {
            client.last = LastGrant::new(&raw.node, client.last);
        }
        client.bid_farewell(raw.node);
        self.end_round(i);
    }

    /// Puts a hold in the place of the lock's node, in one transaction, which writes and deletes
    /// the node.
    pub(crate) fn hold(&mut self, i: usize) {
        self.budget.holds -= 1;
        let client = &mut self.clients[i];
        let raw = client.raw.take().expect("it holds");
        if client.wish.role == Role::Exclusive {
            client.last = LastGrant::new(&raw.node, client.last);
        }
        let maker = Maker {
            attempt: u8::MAX,
            ..self.maker(i)
        };
        self.directory.put_in_place_of(&raw.node.name, maker);
        if self.rules.mutant != Mutant::HoldsUnannounced {
            self.fire(&raw.node.name, Change::Changed);
        }
        self.remove(&raw.node.name);
        self.end_round(i);
    }

    pub(crate) fn part(&mut self, i: usize, nth: usize) {
        let request = request_of(&self.clients[i].farewells[nth]);
        let skips = self.rules.mutant == Mutant::PartsWithoutSync;
        if !(skips && is_sync(&request)) {
            self.clients[i].unseen = None;
        }
        match request {
            request if is_sync(&request) => {
                self.answer_farewell(i, nth, Err(Failure::Refused(ErrorCode::NO_NODE)));
            }
            Request::GetChildren { .. } => self.list_farewell(i, nth, None),
            Request::Delete { path, .. } => {
                self.part_with(i, name(&path));
                self.answer_farewell(i, nth, Ok(Reply::Nothing));
            }
            request => unreachable!("{request:?}"),
        }
    }

    pub(crate) fn part_lagging(&mut self, i: usize, nth: usize) {
        self.list_farewell(i, nth, self.clients[i].unseen);
    }

    /// Deletes the node, in a deletion of client `i`.
    pub(crate) fn part_with(&mut self, i: usize, name: &str) {
        self.check_ownership(i, name);
        self.remove(name);
    }

    fn list_farewell(&mut self, i: usize, nth: usize, until: Option<i64>) {
        let names = self.directory.names(until);
        self.answer_farewell(i, nth, listed(names));
    }

    fn answer_farewell(&mut self, i: usize, nth: usize, answered: Answered) {
        let farewells = &mut self.clients[i].farewells;
        if ends_by(&mut farewells[nth], answered) {
            farewells.remove(nth);
        }
    }

    /// Tells the client that its session has ended, and gives it another.
    pub(crate) fn hear(&mut self, i: usize) {
        let client = &mut self.clients[i];
        let tells = match self.rules.mutant {
            Mutant::SleepsThroughExpiry => !client.is_asleep(),
            Mutant::AdoptsAcrossSessions => client.attempt.is_none() || client.queued.is_some(),
            _ => true,
        };
        client.session += 1;
        client.expired = false;
        client.stop_watching();
        let late = self.rules.late_news || self.rules.mutant == Mutant::CarriesOnInNewSession;
        if late && client.attempt.is_some() {
            client.untold = true;
        } else if tells {
            self.leave_session(i);
        }
        if self.rules.transport == Transport::Wire {
            // The nodes that they were to delete have gone with the session.
            self.clients[i].farewells.clear();
        }
    }

    /// Tells the attempt of the new session, in which it may have created a node already.
    pub(crate) fn tell(&mut self, i: usize) {
        self.clients[i].untold = false;
        self.leave_session(i);
    }

    pub(crate) fn leave_session(&mut self, i: usize) {
        if self.clients[i].attempt.is_some() {
            self.report(i, Event::NewSession);
        } else if self.clients[i].raw.is_some() {
            self.release(i);
        }
    }

    /// Deletes the nodes of a closed session.
    pub(crate) fn reap(&mut self, session: i64) {
        let nodes = self.directory.nodes.iter();
        let theirs = nodes.filter(|node| node.origin.owner == session);
        let names: Vec<_> = theirs.map(|node| node.name.clone()).collect();
        names.iter().for_each(|name| self.remove(name));
    }

    pub(crate) fn remove(&mut self, name: &str) {
        if self.directory.remove(name).is_some() {
            self.fire(name, Change::Deleted);
        }
    }

    /// Tells the clients that watch the node what happened to it.
    pub(crate) fn fire(&mut self, name: &str, what: Change) {
        let deaf = (what, self.rules.mutant) == (Change::Changed, Mutant::SleepsThroughChanges);
        let (mut woken, mut stirred) = (Vec::new(), Vec::new());
        for (i, client) in self.clients.iter_mut().enumerate() {
            let mine = client.queued.as_ref();
            let queued = mine.is_some_and(|mine| self.directory.find(mine).is_some());
            let of = if client.guard.take_if(|watched| watched == name).is_some() {
                Place::Own
            } else if client.watch.take_if(|watched| watched == name).is_some() {
                woken.push(i);
                Place::Nearest
            } else if client.beyond.take_if(|watched| watched == name).is_some() {
                // A client that has another event to read is awake.
                stirred.extend(client.events.is_empty().then_some(i));
                Place::Beyond
            } else {
                continue;
            };
            let fired = Fired { what, of, queued };
            client.events.extend((!deaf).then_some(fired));
        }
        if what == Change::Deleted {
            self.check_herd(woken);
            self.check_herd(stirred);
        }
    }

    pub(crate) fn make_parents(&mut self) {
        self.directory.there |= self.rules.mutant != Mutant::MakesParentsOnce;
    }
}
