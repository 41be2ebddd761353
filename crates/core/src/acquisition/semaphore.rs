//! Why a semaphore that nobody uses any more is no obstacle for another kind of lock.
//!
//! The directories of its permits and its queue stay until the server removes them. While they are empty,
//! the path may become a mutex or a read-write lock. Neither kind can overlook the other: each contender
//! creates its own node before it looks for the other kind, so of two that come at the same time, at least
//! the later one sees the earlier one.

use alloc::vec::Vec;
use core::mem;

use super::state::{SemaphoreLook, Step};
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
        let answers = Vec::new();
        self.beside.look = Some(SemaphoreLook { names, answers });
        None
    }

    /// Takes in the answer to one of the looks.
    pub(super) fn semaphore_read(
        &mut self,
        answered: Answered,
        wire: &mut dyn Wire,
    ) -> Result<(), Failure> {
        let Some(look) = &mut self.beside.look else {
            return Ok(());
        };
        match answered {
            Ok(reply) => look.answers.push(Ok(reply)),
            Err(Failure::Refused(code)) => look.answers.push(Err(code)),
            Err(failure) => {
                self.beside.look = None;
                return Err(failure);
            }
        }
        if self.is_on_its_way(|step| *step == Step::Semaphore) {
            return Ok(());
        }
        let Some(SemaphoreLook { names, answers }) = mem::take(&mut self.beside.look) else {
            return Ok(());
        };
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
