//! How an acquisition advances, waits, starts over and ends.

use core::mem;

use super::state::{Beside, Watches};
use super::{Acquisition, Reached, Wire};
use crate::attempt::{Action, Attempt, Event, Outcome};
use crate::dialect::Role;
use crate::name::may_be_hold;
use crate::path::node_in;
use crate::proof::{GrantProof, Next};
use crate::queue::Blocked;
use crate::validity::Stamp;
use zklock_jute::EventKind;

impl Acquisition {
    /// Advances as far as possible: sends what is due, unless it is on its way. Returns how the acquisition ends.
    pub fn advance(&mut self, wire: &mut dyn Wire) -> Option<Reached> {
        loop {
            if self.has_ended {
                return Some(Reached::Restart);
            }
            let action = self.attempt.action();
            match &action {
                Action::CatchUp | Action::Wait | Action::Watch(..) => {
                    self.is_taken = true;
                }
                _ => {}
            }
            let goes_on = match action {
                Action::Finish(Outcome::Restart) if !self.is_cancelled => {
                    self.restart(wire);
                    true
                }
                Action::Finish(Outcome::Evicted(name))
                    if !self.is_evicted && !self.is_cancelled =>
                {
                    self.asks_why(&name, wire);
                    false
                }
                Action::Finish(Outcome::Held(_)) if self.is_reading(wire) => false,
                Action::Finish(outcome) => return Some(self.reached(outcome)),
                Action::Rename => self.renames(wire),
                Action::Wait => self.waits(wire),
                _ if !wire.is_connected() => false,
                Action::CatchUp if self.own_is_left => false,
                action => self.step(action, wire),
            };
            if !goes_on {
                return None;
            }
        }
    }

    fn renames(&mut self, wire: &mut dyn Wire) -> bool {
        self.attempt.rename(&wire.fresh_id());
        self.left.extend(self.attempt.orphans());
        true
    }

    /// Takes in what happened during the wait. Returns `false` if nothing did.
    fn waits(&mut self, wire: &mut dyn Wire) -> bool {
        self.has_waited = true;
        self.reads.clear();
        self.forget_reads();
        while let Some((name, kind)) = self.events.pop_front() {
            if let Some(event) = self.event(&name, kind) {
                self.attempt.handle(event);
                return true;
            }
        }
        // Without transactions a proof costs two requests, so it is requested only when the turn has come.
        if self.is_next() && wire.transacts() {
            self.stays_proven(wire);
        }
        self.watch_elsewhere(wire);
        self.hurries(wire);
        self.doubts(wire);
        let due = self.is_hold_due(wire) | self.is_look_due(wire);
        if due {
            self.attempt.handle(Event::Woken);
        }
        due
    }

    /// Returns whether the directory that this contender watches is to be listed again; if not, schedules that.
    fn is_look_due(&mut self, wire: &dyn Wire) -> bool {
        let Watches {
            around, look_at, ..
        } = self.watches;
        if around && wire.now() < look_at {
            self.rest_at(look_at);
        }
        around && look_at <= wire.now() && wire.is_connected()
    }

    /// Returns what an event of a watched node tells the attempt.
    fn event(&mut self, name: &str, kind: EventKind) -> Option<Event> {
        let gone = kind == EventKind::Deleted;
        if self.attempt.node() == Some(name) {
            // A server that closes our session sends this first: the listing tells.
            return Some(Event::Woken);
        }
        if name.is_empty() && mem::take(&mut self.watches.around) {
            self.has_moved = true;
            return Some(Event::Woken);
        }
        let nearest = &mut self.watches.nearest;
        if nearest.take_if(|nearest| nearest == name).is_some() {
            self.has_moved |= gone;
            return Some(match gone {
                true => Event::Deleted,
                false => Event::Woken,
            });
        }
        self.watches.beyond.take_if(|beyond| beyond == name)?;
        self.has_moved |= gone;
        Some(match gone {
            true if self.watches.is_seen => Event::BeyondDeleted,
            // A watch of the previous connection may report this too, for a node that a hold has replaced.
            true => Event::BeyondMissing,
            false => Event::Woken,
        })
    }

    /// Returns whether this contender's turn, and nobody else's, comes when one node goes. Many readers may
    /// wait for the same node.
    fn is_next(&self) -> bool {
        let role = self.contest.role;
        let alone = matches!(role, Role::Exclusive | Role::Write);
        let is_next = |blocked: &Blocked| {
            let may_be_next = alone && blocked.ahead == 1 && !may_be_hold(&blocked.nearest);
            (blocked.last && role != Role::Read) || may_be_next
        };
        self.attempt.blocked().is_some_and(is_next)
    }

    /// Returns whether the lock may be granted on what the quorum has confirmed.
    pub(super) fn is_proven(&self, wire: &dyn Wire) -> bool {
        wire.next_for_a_grant(&self.proof) == Next::Grant
    }

    /// Starts over at the end of the queue, because the session is another, or the node is another session's.
    pub(super) fn restart(&mut self, wire: &mut dyn Wire) {
        self.attempt.handle(Event::NewSession);
        // A request that was lost with the session may have been carried out in the next one.
        self.left.extend(self.attempt.orphans());
        self.broke();
        // A client of the semaphore that came after the former node was gone has seen nobody here.
        self.beside = Beside::default();
        if let Some(seen) = &mut self.seen {
            seen.lose_sight();
        }
        self.has_ended = self.stood;
        let id = wire.fresh_id();
        self.attempt = Attempt::enter(self.contest, &id, wire.session(), self.patience);
        self.proof = GrantProof::default();
        self.is_evicted = false;
    }

    fn reached(&mut self, outcome: Outcome) -> Reached {
        if let Some(node) = self.elsewhere.evicted.take() {
            return Reached::Evicted(node);
        }
        match (outcome, self.refused.take()) {
            (_, Some(refused)) => Reached::Refused(refused),
            (Outcome::Held(mine), None) => {
                Reached::Held(mine, self.proof.stamp.unwrap_or(Stamp::NEVER))
            }
            (Outcome::Evicted(name), None) if !self.is_cancelled => {
                Reached::Evicted(node_in(&self.path, &name))
            }
            // Unless it is cancelled, only an attempt that does not wait ends like this.
            (Outcome::Gone | Outcome::Evicted(_) | Outcome::Restart, None) => {
                self.is_taken |= !self.is_cancelled;
                Reached::GaveUp
            }
            (Outcome::Foreign(foreign), None) => Reached::Foreign(foreign),
        }
    }
}
