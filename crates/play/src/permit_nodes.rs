//! The two nodes of a call for a permit: its place in the line, and the permit.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Core;
use super::ask::{Grant, GuardId, Outcome, Ticket, Time};
use super::line::{LineId, Turn, Waiter};
use super::permit_call::Place;
use super::turns::code_of;
use zklock_core::acquisition::{Acquisition, Reached};
use zklock_core::attempt::{OwnNode, Patience};
use zklock_core::dialect::Role;
use zklock_core::path::node_in;
use zklock_core::permit_attempt::{Event, passing};
use zklock_core::validity::Stamp;

impl Core {
    pub(super) fn stand_in_line(&mut self, ticket: Ticket) -> Option<Event> {
        if self.permits.calls.get(&ticket)?.stands {
            return None;
        }
        self.give_nodes_back(ticket);
        let call = self.permits.calls.get_mut(&ticket)?;
        call.stands = true;
        call.until_if_taken = None;
        let (has_turn, id, thread) = (call.has_turn, call.line.clone(), call.thread);
        let waiter = Waiter::new((ticket, thread), Role::Exclusive, Patience::Waits);
        let line = self.lines.entry(id.clone()).or_default();
        if has_turn || line.turn.is_none() {
            self.begin_turn(&id, waiter, None);
        } else if line.has(thread) {
            self.end_call(ticket, Outcome::WouldDeadlock);
        } else {
            line.waiting.push_back(waiter);
            let ahead = line.waiting.len();
            self.limit_if_taken(ticket, Some((ahead, Time::ZERO)));
        }
        None
    }

    /// Makes a call that does not wait give up soon, if a server has said that so many are ahead, or if threads of its
    /// client are; a write takes this long.
    pub(super) fn limit_if_taken(&mut self, ticket: Ticket, ahead: Option<(usize, Time)>) {
        let now = self.link.now;
        if let Some(call) = self.permits.calls.get_mut(&ticket) {
            let tries = call.asks.patience == Patience::Tries;
            if let Some((ahead, write)) = ahead.filter(|_| tries) {
                call.until_if_taken
                    .get_or_insert_with(|| now + passing(ahead, write));
            }
            let soon = call.until_if_taken.filter(|_| ahead.is_some());
            let until = soon.into_iter().chain(call.asks.until).min();
            self.limit_anew(ticket, until);
        }
    }

    pub(super) fn sit_down(&mut self, ticket: Ticket, has_room: bool) -> Option<Event> {
        let call = self.permits.calls.get_mut(&ticket)?;
        if call.sits_down.is_some() {
            return None;
        }
        let (path, permits) = (call.asks.path.clone(), call.asks.permits);
        self.permits.known.insert(path, permits);
        if !self.has_place(ticket) {
            return Some(Event::Permit(false));
        }
        let call = self.permits.calls.get_mut(&ticket)?;
        call.sits_down = Some(has_room);
        let (id, by) = (call.seats.clone(), (ticket, call.thread));
        let waiter = Waiter::new(by, Role::Permit, call.asks.patience);
        self.lines.entry(id.clone()).or_default();
        self.begin_turn(&id, waiter, None);
        None
    }

    fn has_place(&self, ticket: Ticket) -> bool {
        let call = self.permits.calls.get(&ticket);
        let place = call.and_then(|call| call.place.as_ref());
        let lease = place.and_then(|place| self.leases.get(place.guard));
        lease.is_some_and(|lease| lease.is_believed(&self.link))
    }

    // Of one permit, the guard itself reports whether that is held.
    pub(super) fn check_place(&self, ticket: Ticket) -> Event {
        match self.has_place(ticket) {
            true => Event::IsFirst,
            false => Event::Lost,
        }
    }

    /// Ends the waits for permits of those that have lost their places.
    pub(super) fn look_at_places(&mut self) {
        let calls = self.permits.calls.iter();
        let sits = calls.filter(|(_, call)| call.sits_down.is_some() || call.awaits());
        let sits: Vec<_> = sits.map(|(ticket, _)| *ticket).collect();
        for ticket in sits {
            if self.has_place(ticket) {
                continue;
            }
            let Some(call) = self.permits.calls.get(&ticket) else {
                continue;
            };
            match call.awaits() {
                true => self.permit_event(ticket, Event::Woken),
                false => self.cancel_acquisition(&call.seats.clone(), ticket),
            }
        }
    }

    /// Takes in how the acquisition of a place or of a permit has ended.
    pub(super) fn permit_reached(
        &mut self,
        id: &LineId,
        (ticket, by): (Ticket, &mut Acquisition),
        reached: Reached,
    ) {
        let is_place = id.only.is_none();
        let node = match reached {
            Reached::Held(mine, stamp) => match is_place {
                true => return self.has_come_first(id, (ticket, by), (mine, stamp)),
                false => return self.has_sat_down(id, ticket, (mine, stamp)),
            },
            Reached::Evicted(node) => Err(Outcome::Evicted(node)),
            Reached::Foreign(foreign) => Err(Outcome::Foreign(foreign)),
            Reached::Refused(refused) => Err(Outcome::Refused(code_of(refused.failure))),
            Reached::Restart if !is_place => Ok(Event::NoNode),
            Reached::GaveUp | Reached::Restart if is_place => Ok(Event::Cancel),
            Reached::GaveUp | Reached::Restart => Ok(Event::Permit(false)),
        };
        if let Some(call) = self.permits.calls.get_mut(&ticket) {
            call.is_taken |= by.is_taken();
            if !is_place {
                call.sits_down = None;
                self.next_turn(id, None);
            }
        }
        match node {
            Ok(event) => self.permit_event(ticket, event),
            Err(outcome) => self.end_call(ticket, outcome),
        }
    }

    fn lease(&mut self, id: &LineId, mine: &OwnNode, stamp: Stamp) -> Grant {
        let (node, token) = (Arc::from(node_in(&id.path, &mine.name)), mine.origin.czxid);
        let lock = (id.clone(), Arc::clone(&node), token);
        let (guard, trust) = self.leases.begin(lock, stamp, &self.link);
        Grant {
            guard,
            node,
            token,
            trust,
        }
    }

    fn has_come_first(
        &mut self,
        id: &LineId,
        (ticket, by): (Ticket, &mut Acquisition),
        (mine, stamp): (OwnNode, Stamp),
    ) {
        let Grant { guard, node, .. } = self.lease(id, &mine, stamp);
        self.leases.keep_to_itself(guard);
        self.holds_line(id, ticket, guard);
        let (session, connects) = (self.link.session, self.link.connects);
        let Some(call) = self.permits.calls.get_mut(&ticket) else {
            return;
        };
        call.is_taken |= by.is_taken();
        call.stands = false;
        call.read = by.take_read();
        call.place = Some(Place {
            guard,
            node,
            session,
            waited: by.has_waited().then_some(connects),
        });
        self.limit_if_taken(ticket, None);
        self.permit_event(ticket, Event::First(mine));
    }

    fn has_sat_down(&mut self, id: &LineId, ticket: Ticket, (mine, stamp): (OwnNode, Stamp)) {
        let grant = self.lease(id, &mine, stamp);
        self.holds_line(id, ticket, grant.guard);
        if let Some(call) = self.permits.calls.get_mut(&ticket) {
            call.sits_down = None;
            call.permit = Some(grant);
        }
        self.permit_event(ticket, Event::Permit(true));
    }

    fn holds_line(&mut self, id: &LineId, ticket: Ticket, guard: GuardId) {
        let call = self.permits.calls.get(&ticket);
        if let (Some(line), Some(call)) = (self.lines.get_mut(id), call) {
            let has_waited = false;
            line.turn = Some((call.thread, Turn::Holds { guard, has_waited }));
        }
    }
}
