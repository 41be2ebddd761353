//! A semaphore that nobody uses any more is no obstacle for another kind of lock.
//!
//! The directories of its permits and its queue stay until the server removes them. While nobody is
//! in them, the path may become a mutex or a read-write lock. Neither can overlook the other: each
//! creates its own node before it looks for the other's, so of two that come at the same time at
//! least the later one sees the earlier one.

use alloc::vec::Vec;
use core::mem;

use super::beside::Look;
use super::flight::Step;
use super::{Acquisition, Wire};
use crate::answer::{Answered, Failure};
use crate::dialect::Role;
use crate::path::node_in;
use crate::permits;
use zklock_jute::{Data, ErrorCode, Names, Reply, Request};

impl Acquisition {
    /// Whether a semaphore has directories here, whose clients use up no numbers of the queue.
    pub fn is_beside_semaphore(&self) -> bool {
        self.beside.was_idle.is_some()
    }

    /// Looks at the semaphore that a listing shows. Returns the listing if there is none.
    pub(super) fn past_semaphore(&mut self, names: Names, wire: &mut dyn Wire) -> Option<Names> {
        if self.contest.role == Role::Permit || !names.contains("leases") {
            return Some(names);
        }
        // A client leaves the queue when it has its permit, so the queue is listed first.
        let looks = [
            Request::get(&self.path),
            Request::list(&node_in(&self.path, "locks")),
            Request::list(&node_in(&self.path, "leases")),
        ];
        for look in looks {
            self.send(look, Step::Semaphore, wire);
        }
        let answers = Vec::new();
        self.beside.look = Some(Look { names, answers });
        None
    }

    /// Whether a listing waits for a look at the semaphore.
    pub(super) fn looks_at_semaphore(&self) -> bool {
        self.beside.look.is_some()
    }

    /// One of the looks is answered.
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
        let Some(Look { names, answers }) = mem::take(&mut self.beside.look) else {
            return Ok(());
        };
        let stood = self.beside.was_idle == Some(true);
        let idle = is_idle(answers, stood);
        self.beside.was_idle = Some(idle && self.attempt.node().is_some());
        let names = match idle {
            true => names.without(&["leases"]),
            false => names,
        };
        self.takes_in_contenders(names, wire);
        Ok(())
    }
}

/// Whether nobody uses the semaphore; see [`permits::is_idle`].
fn is_idle(answers: Vec<Result<Reply, ErrorCode>>, stood: bool) -> bool {
    let mut answers = answers.into_iter();
    let Some(Ok(Reply::Data { data, .. })) = answers.next() else {
        return false;
    };
    let mut names = || match answers.next() {
        Some(Ok(Reply::Children { names, .. })) => Some(names),
        Some(Err(ErrorCode::NO_NODE)) => Some(Names::default()),
        // Who may not see them must not assume that there are none.
        _ => None,
    };
    let (line, permits) = (names(), names());
    let idle = |(line, out): (Names, Names)| permits::is_idle(&bytes(data), &line, &out, stood);
    line.zip(permits).is_some_and(idle)
}

fn bytes(data: Data) -> Vec<u8> {
    data.into()
}
