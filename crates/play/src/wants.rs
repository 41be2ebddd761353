//! What users want.

use alloc::vec::Vec;

use super::Core;
use super::ask::{Ask, GuardId, Thread, Ticket, Time};
use super::asked::Wants;
use super::line::{LineId, Waiter};
use super::permit_call::Asks;

impl Core {
    /// Asks for something for a thread, which is woken once, with the outcome.
    pub fn ask(&mut self, now: Time, by: Thread, ask: Ask) -> Ticket {
        self.pass(now);
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.asks((ticket, by), ask);
        self.settle();
        ticket
    }

    fn asks(&mut self, (ticket, by): (Ticket, Thread), ask: Ask) {
        match ask {
            Ask::Lock {
                path,
                role,
                patience,
                until,
            } => {
                let line = LineId::of(&path, role, ticket);
                self.note(ticket, Wants::Lock(line.clone()), until);
                self.lock(&line, Waiter::new((ticket, by), role, patience));
            }
            Ask::Permit {
                path,
                permits,
                patience,
                until,
            } => {
                let asks = Asks {
                    path,
                    permits,
                    patience,
                    until,
                };
                self.wants_permit((ticket, by), asks);
            }
            Ask::Verify { guard, until } => {
                self.note(ticket, Wants::Verify(guard), until);
                self.verify(ticket, guard);
            }
            Ask::Commit { guard, ops } => {
                self.note(ticket, Wants::Commit(guard), None);
                self.commits((ticket, guard), ops);
            }
            Ask::Unlock { guard, ops } => {
                self.note(ticket, Wants::Unlock, None);
                self.give_back(guard, Some(ticket), ops);
            }
        }
    }

    /// Gives up what a thread asked for.
    pub fn cancel(&mut self, now: Time, ticket: Ticket) {
        self.pass(now);
        self.give_up(ticket);
        self.settle();
    }

    /// Releases the lock of a guard that is dropped.
    pub fn release(&mut self, now: Time, guard: GuardId) {
        self.pass(now);
        self.give_back(guard, None, Vec::new());
        self.settle();
    }
}
