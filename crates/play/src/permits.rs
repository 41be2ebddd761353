//! The calls for permits of semaphores. [`Permit`] decides; this carries out what it says, as the threads of the client
//! that ships do.
//!
//! A call has up to two nodes: its place in the line, for which the threads of one client stand in line as for a mutex,
//! and the permit. Both have a lease. That of the place is none of the user's, and ends with the call.

use alloc::vec::Vec;

use super::Core;
use super::ask::{Outcome, Thread, Ticket};
use super::asked::Wants;
use super::line::{Line, LineId};
use super::permit_call::{Asks, Call};
use zklock_core::permit_attempt::{self as attempt, Event, Layout, Permit, Wish};
use zklock_jute::ErrorCode;

impl Core {
    /// Takes in that a thread wants a permit.
    pub(super) fn wants_permit(&mut self, (ticket, thread): (Ticket, Thread), asks: Asks) {
        self.note(ticket, Wants::Permit, asks.until);
        if let Some(why) = self.link.over {
            return self.wake(ticket, Outcome::Over(why));
        }
        let dialect = self.link.settings.dialect;
        let wish = Wish {
            patience: asks.patience,
            limited: asks.until.is_some(),
            agreed: self.permits.known.get(&asks.path) == Some(&asks.permits),
            count: 1,
        };
        let path = &asks.path;
        let layout = Layout { path, dialect };
        let call = Call {
            thread,
            machine: Permit::new(dialect, asks.permits as usize, wish),
            until_if_taken: None,
            line: LineId::of_semaphore(layout.line(), asks.permits, None),
            seats: LineId::of_semaphore(layout.permits(), asks.permits, Some(ticket)),
            stands: false,
            has_turn: false,
            place: None,
            sits_down: None,
            permit: None,
            batch: None,
            read: None,
            is_taken: false,
            has_looked: false,
            asks,
        };
        self.permits.calls.insert(ticket, call);
        self.drive(ticket);
    }

    /// Passes an event on to a call.
    pub(super) fn permit_event(&mut self, ticket: Ticket, event: Event) {
        if let Some(call) = self.permits.calls.get_mut(&ticket) {
            call.batch = None;
            call.has_looked = matches!(event, Event::Looked(_));
            call.machine.handle(event);
            self.drive(ticket);
        }
    }

    /// Carries out what a call has to do, until it has to wait.
    pub(super) fn drive(&mut self, ticket: Ticket) {
        use attempt::Action;
        let Some(call) = self.permits.calls.get(&ticket) else {
            return;
        };
        let event = match call.machine.action() {
            Action::Finish(outcome) => return self.finish(ticket, outcome),
            Action::Line => self.stand_in_line(ticket),
            Action::Permit(has_room) => self.sit_down(ticket, has_room),
            Action::Check => Some(self.check_place(ticket)),
            action => {
                if call.batch.is_none() {
                    self.begin_batch(ticket, action);
                }
                None
            }
        };
        if let Some(event) = event {
            self.permit_event(ticket, event);
        }
    }

    fn finish(&mut self, ticket: Ticket, outcome: attempt::Outcome) {
        let Some(call) = self.permits.calls.get_mut(&ticket) else {
            return;
        };
        call.is_taken |= call.has_looked;
        if !outcome.leaves_agreed() {
            self.permits.known.remove(&call.asks.path);
        }
        let place = call.place.as_ref().map(|place| &*place.node);
        let outcome = match outcome {
            attempt::Outcome::Held => match call.permit.take() {
                Some(grant) => {
                    self.counts.grants += 1;
                    self.counts.waits += u64::from(call.is_taken);
                    Outcome::Held(grant)
                }
                None => return,
            },
            attempt::Outcome::Gone => Outcome::GaveUp {
                taken: call.is_taken,
            },
            attempt::Outcome::Evicted(name) => Outcome::Evicted(place.unwrap_or(&name).into()),
            attempt::Outcome::Foreign(foreign) => Outcome::Foreign(foreign),
            attempt::Outcome::NoAuth => Outcome::Refused(ErrorCode::NO_AUTH),
            attempt::Outcome::Unmarked => Outcome::Unmarked,
            attempt::Outcome::Disagrees(others) => Outcome::PermitsDisagree(others.number),
        };
        self.end_call(ticket, outcome);
    }

    /// Ends a call, which leaves the line first.
    pub(super) fn end_call(&mut self, ticket: Ticket, outcome: Outcome) {
        self.give_nodes_back(ticket);
        let Some(call) = self.permits.calls.remove(&ticket) else {
            return;
        };
        if let Some(line) = self.lines.get_mut(&call.line).filter(|_| call.stands) {
            line.waiting.retain(|waiter| waiter.ticket != ticket);
        }
        self.wake(ticket, outcome);
        if call.has_turn {
            self.leave_line(&call.line);
        }
    }

    fn leave_line(&mut self, id: &LineId) {
        if let Some(line) = self.lines.get_mut(id) {
            line.turn = None;
        }
        self.next_turn(id, None);
    }

    /// Gives up the permit of a call, and then the place.
    pub(super) fn give_nodes_back(&mut self, ticket: Ticket) {
        let Some(call) = self.permits.calls.get_mut(&ticket) else {
            return;
        };
        let (permit, place) = (call.permit.take(), call.place.take());
        if let Some(permit) = permit {
            self.give_back(permit.guard, None, Vec::new());
        }
        let lease = place.and_then(|place| self.leases.end(place.guard));
        // The node of another session went with that session.
        if let Some(lease) = lease.filter(|lease| lease.session == self.link.session) {
            let id = self
                .releases
                .begin(&lease.node, Vec::new(), None, &self.link);
            self.releases.send(id, &mut self.link);
        }
    }

    /// Gives up a call, at its limit or because it is cancelled.
    pub(super) fn gives_up_permit(&mut self, ticket: Ticket) {
        let Some(call) = self.permits.calls.get(&ticket) else {
            return;
        };
        for id in [call.line.clone(), call.seats.clone()] {
            self.cancel_acquisition(&id, ticket);
        }
        let Some(call) = self.permits.calls.get(&ticket) else {
            return;
        };
        let is_in_line = call.stands && !call.has_turn;
        let taken = is_in_line && self.is_shown_taken(&call.line);
        let is_over = call.asks.until.is_some_and(|until| until <= self.link.now);
        let event = match is_over {
            true => Event::TimeOut,
            false => Event::Cancel,
        };
        if let Some(call) = self.permits.calls.get_mut(&ticket) {
            call.is_taken |= taken;
        }
        self.permit_event(ticket, event);
    }

    pub(super) fn cancel_acquisition(&mut self, id: &LineId, ticket: Ticket) {
        let acquires = self.lines.get_mut(id).and_then(Line::acquires);
        if let Some(acquires) = acquires.filter(|acquires| acquires.ticket == ticket) {
            acquires.acquisition.cancel(&mut self.link.on(id));
            self.advance(id);
        }
    }
}
