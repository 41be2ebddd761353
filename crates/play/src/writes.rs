//! Writes under a guard, as [`guarded_write`] says: when they are sent, and whom their answers wake.

use alloc::vec::Vec;
use core::slice;

use super::Core;
use super::ask::{GuardId, Loss, Outcome, Ticket};
use super::calls::Purpose;
use super::commit::Commit;
use super::refusal::refusal;
use zklock_core::answer::Answered;
use zklock_core::guarded_write::{self, Written};
use zklock_core::renewals::Check;
use zklock_core::validity::Stamp;
use zklock_jute::{ErrorCode, Request};

impl Core {
    /// Carries out these operations under a thread's lock. The thread waits no longer than the lock can be trusted.
    pub(super) fn commits(&mut self, (ticket, guard): (Ticket, GuardId), ops: Vec<Request>) {
        if let Some(lease) = self.leases.get(guard) {
            if let Some(step) = guarded_write::deletes(slice::from_ref(&lease.node), &ops) {
                let outcome = Outcome::StepRefused(step, ErrorCode::BAD_ARGUMENTS);
                return self.wake(ticket, outcome);
            }
            let until = lease.trust(&self.link).until;
            self.limit(ticket, until);
        }
        self.commit(Commit { ticket, guard, ops });
    }

    /// Sends a transaction, or keeps it until there is a connection.
    pub(super) fn commit(&mut self, commit: Commit) {
        let lease = self.leases.get(commit.guard);
        let Some(lease) = lease.filter(|lease| lease.is_believed(&self.link)) else {
            let why = self.leases.why(commit.guard, &self.link);
            return self.wake(commit.ticket, Outcome::Lost(why));
        };
        if !self.link.is_connected() {
            return self.unsent.push(commit);
        }
        if !self.link.transacts() {
            return self.wake(commit.ticket, Outcome::Refused(ErrorCode::UNIMPLEMENTED));
        }
        let request = guarded_write::request(slice::from_ref(&lease.node), &commit.ops);
        let stamp = self.link.stamp();
        self.leases.writes(commit.guard, true);
        self.link.send(request, Purpose::Commit(commit, stamp));
    }

    /// Takes in the answer to a transaction.
    pub(super) fn committed(&mut self, commit: Commit, stamp: Stamp, answered: Answered) {
        let outcome = match guarded_write::judge(1, &answered) {
            Written::Committed => Outcome::Committed,
            Written::Gone => Outcome::Lost(Loss::Evicted),
            Written::NotSent => {
                self.leases.writes(commit.guard, false);
                if self.asks.contains_key(&commit.ticket) {
                    self.unsent.push(commit);
                    self.send_again();
                }
                return;
            }
            other => match refusal(other) {
                Some(refused) => refused,
                // The transaction may have been carried out, or may still be.
                None => return self.wake(commit.ticket, Outcome::InDoubt),
            },
        };
        self.leases.writes(commit.guard, false);
        // The check in front also proves the lock, or that it is gone.
        if matches!(outcome, Outcome::Committed | Outcome::Lost(_)) {
            let check = Check::of_one(commit.guard.0, stamp);
            self.leases.checked(&check, &answered, &mut self.link);
        }
        self.wake(commit.ticket, outcome);
    }

    /// Notes that nobody waits for this transaction any more. Returns what is known of it.
    pub(super) fn gives_up_commit(&mut self, ticket: Ticket, guard: GuardId) -> Outcome {
        let is_its = |commit: &Commit| commit.ticket == ticket;
        let Some(at) = self.unsent.iter().position(is_its) else {
            return Outcome::InDoubt;
        };
        self.unsent.swap_remove(at);
        let lease = self.leases.get(guard);
        match lease.is_some_and(|lease| lease.is_believed(&self.link)) {
            true => Outcome::GaveUp { taken: false },
            false => Outcome::Lost(self.leases.why(guard, &self.link)),
        }
    }
}
