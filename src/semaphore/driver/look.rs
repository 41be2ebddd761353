//! The requests of a look at a semaphore, and what the answers mean.

use super::super::Semaphore;
use super::PermitDriver;
use crate::error::Result;
use crate::lock::raw_guard::RawGuard;
use crate::lock::request::LetsPass;
use crate::session::call_error::{CallError, refused};
use crate::session::caller::Replies;
use crate::time::limit::Limit;
use zklock_core::dialect::Sharing;
use zklock_core::permit_attempt::{Event, Refusal, inspected};
use zklock_jute::Request;

impl PermitDriver<'_, '_> {
    /// Reads the number and lists the permits, at a server that `catches_up` if asked for.
    pub(super) fn look(&mut self, catches_up: bool) -> Result<Event> {
        let path = &*self.semaphore.path;
        let look = match self.answers(catches_up) {
            Ok(answers) => self.layout.looked(answers),
            Err(error) => return error.or(path, Event::Cancel),
        };
        let look = look.map_err(|Refusal { path, code }| refused(&path, code))?;
        if let Some(seen) = self.seen.as_mut().filter(|_| !look.unready) {
            seen.add(look.out.iter());
        }
        Ok(Event::Looked(look))
    }

    /// Looks at a server that has caught up, because no permit seemed to be free. A node that an earlier call of this
    /// client has left would look like another's permit.
    pub(super) fn look_again(&mut self) -> Result<Event> {
        self.request.taken = true;
        let (cleaner, leases) = (&self.session().cleaner, self.layout.permits());
        cleaner.finish((&leases, Sharing::Alone), &self.request.limit);
        self.look(true)
    }

    /// Returns how a call that does not wait lets others pass: a permit that is out when the call looks again is none
    /// for it.
    pub(super) fn lets_pass(&self) -> LetsPass {
        let (semaphore, permit) = (self.semaphore.clone(), self.permit.clone());
        let is_of_use = move |limit: &Limit| {
            let (session, layout) = (&semaphore.locks.session, semaphore.layout());
            let permits = layout.permits();
            session.cleaner.finish((&permits, Sharing::Alone), limit);
            let answers = ask(&semaphore, true, limit).ok();
            let look = answers.and_then(|answers| layout.looked(answers).ok());
            look.is_some_and(|look| permit.may_have_room(&look))
        };
        LetsPass {
            is_of_use: Box::new(is_of_use),
            ahead: None,
        }
    }

    /// Returns the answers that came with the place in the queue, or asks now.
    fn answers(&mut self, catches_up: bool) -> Result<Replies, CallError> {
        if let Some(read) = self.request.read.take() {
            return Ok(read);
        }
        match &self.first {
            Some(first) if !catches_up => {
                first.ask_for_what_was_left(|again| ask(self.semaphore, again, &self.request.limit))
            }
            _ => ask(self.semaphore, catches_up, &self.request.limit),
        }
    }

    /// Finds out whether another client deleted this client's node in the queue, or the node went
    /// with its session.
    pub(super) fn inspect(&self) -> Result<Event> {
        let looked = self.answer(&Request::exists(self.first()), self.first());
        let lease = self.first.as_ref().map(RawGuard::lease);
        let same = || {
            let current = self.session().status.snapshot().known_session();
            lease.is_some_and(|lease| Some(lease.session()) == current)
        };
        match looked {
            Ok(answer) => Ok(inspected(answer, same())),
            Err(error) => error.or(self.first(), Event::Cancel),
        }
    }

    /// Gives up the place in the queue; returns whether it was the first, from which the client has looked.
    pub(super) fn has_lost_its_place(&mut self) -> bool {
        let was_first = self.first.take().is_some();
        if let Some(seen) = self.seen.as_mut().filter(|_| was_first) {
            seen.lose_sight();
        }
        was_first
    }
}

fn ask(semaphore: &Semaphore, catches_up: bool, limit: &Limit) -> Result<Replies, CallError> {
    let (requests, synced) = semaphore.layout().looks(catches_up);
    let mut caller = semaphore.locks.session.caller();
    let mut answers = caller.call_all(&requests, &semaphore.path, limit)?;
    Ok(answers.split_off(synced))
}
