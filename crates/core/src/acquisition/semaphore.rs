//! Why a semaphore that nobody uses any more is no obstacle for another kind of lock.
//!
//! The directories of its permits and its queue stay until the server removes them. While they are empty,
//! the path may become a mutex or a read-write lock. Neither kind can overlook the other: each contender
//! creates its own node before it looks for the other kind, so of two that come at the same time, at least
//! the later one sees the earlier one.

use alloc::vec::Vec;

use super::state::Step;
use super::{Acquisition, Wire};
use crate::answer::{Answered, Failure};
use crate::dialect::Role;
use crate::permits;
use zklock_jute::Names;

impl Acquisition {
    /// Returns whether a semaphore has directories here. Its clients use up no numbers of the queue.
    pub fn is_beside_semaphore(&self) -> bool {
        self.beside.was_idle.is_some()
    }

    /// Starts a look at the semaphore that a listing shows. Returns the listing if it shows none.
    pub(super) fn past_semaphore(&mut self, names: Names, wire: &mut dyn Wire) -> Option<Names> {
        if self.contest.role == Role::Permit || !names.contains("leases") {
            return Some(names);
        }
        for look in permits::looks(&self.path) {
            self.send(look, Step::Semaphore, wire);
        }
        self.beside.look = Some(names);
        None
    }

    /// Takes in the answers to the looks.
    pub(super) fn semaphore_read(
        &mut self,
        answers: Vec<Answered>,
        wire: &mut dyn Wire,
    ) -> Result<(), Failure> {
        let Some(names) = self.beside.look.take() else {
            return Ok(());
        };
        let told = |answered| match answered {
            Err(Failure::Refused(code)) => Ok(Err(code)),
            Err(failure) => Err(failure),
            Ok(reply) => Ok(Ok(reply)),
        };
        let answers = answers.into_iter().map(told).collect::<Result<_, _>>()?;
        let stood = self.beside.was_idle == Some(true);
        let idle = permits::is_idle_by(answers, stood);
        self.beside.was_idle = Some(idle && self.attempt.node().is_some());
        let names = match idle {
            true => names.without(&["leases"]),
            false => names,
        };
        self.takes_in_contenders(names, wire);
        Ok(())
    }
}
