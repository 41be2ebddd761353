//! The requests of a look at a semaphore, and what the answers mean.

use super::PermitDriver;
use crate::error::Result;
use crate::lock::raw_guard::RawGuard;
use crate::session::call_error::{CallError, refused};
use crate::session::caller::Replies;
use zklock_core::connection::sync;
use zklock_core::permit_attempt::{Event, Look};
use zklock_core::places::permits_of_kazoos;
use zklock_jute::{ErrorCode, Reply, Request};

impl PermitDriver<'_, '_> {
    /// Reads the number and lists the permits, at a server that `catches_up` if asked for.
    pub(super) fn look(&mut self, catches_up: bool) -> Result<Event> {
        let path = &*self.semaphore.path;
        let mut answers = match self.answers(catches_up) {
            Ok(answers) => answers.into_iter(),
            Err(error) => return error.or(path, Event::Cancel),
        };
        let (number, absent) = match answers.next() {
            Some(Ok(Reply::Data { data, stat })) => (Some((data.into(), stat.version)), false),
            Some(Err(ErrorCode::NO_NODE)) => (None, true),
            Some(Err(code)) if code != ErrorCode::NO_AUTH => return Err(refused(path, code)),
            _ => (None, false),
        };
        // A client that may not list the permits must not assume that none are taken.
        let mut names = |dir: &str, permits: bool| match answers.next() {
            Some(Ok(Reply::Children { names, .. })) => Ok(Some(names)),
            Some(Err(ErrorCode::NO_AUTH)) if !permits => Ok(None),
            Some(Err(code)) if code != ErrorCode::NO_NODE => Err(refused(dir, code)),
            _ => Ok(None),
        };
        let kazoo = self.semaphore.speaks_kazoo();
        let own = names(path, kazoo)?.unwrap_or_default();
        let out = match kazoo {
            true => Some(permits_of_kazoos(&own)),
            false => names(&self.semaphore.permits_dir(), true)?,
        };
        if let (Some(seen), Some(out)) = (&mut self.seen, &out) {
            seen.add(out.iter());
        }
        Ok(Event::Looked(Look {
            number,
            absent,
            unready: out.is_none(),
            own,
            out: out.unwrap_or_default(),
        }))
    }

    /// Looks at a server that has caught up, because no permit seemed to be free. A node that an earlier call of this
    /// client has left would look like another's permit.
    pub(super) fn look_again(&mut self) -> Result<Event> {
        self.request.taken = true;
        let (cleaner, leases) = (&self.session().cleaner, self.semaphore.permits_dir());
        cleaner.finish(&leases, &self.request.limit);
        self.look(true)
    }

    /// Returns the answers that came with the place in the queue, or asks now.
    fn answers(&mut self, catches_up: bool) -> Result<Replies, CallError> {
        if let Some(read) = self.request.read.take() {
            return Ok(read);
        }
        match &self.first {
            Some(first) if !catches_up => first.ask_for_what_was_left(|again| self.ask(again)),
            _ => self.ask(catches_up),
        }
    }

    fn ask(&self, catches_up: bool) -> Result<Replies, CallError> {
        let (requests, synced) = self.questions(catches_up);
        let (mut caller, limit) = (self.session().caller(), &self.request.limit);
        let mut answers = caller.call_all(&requests, &self.semaphore.path, limit)?;
        Ok(answers.split_off(synced))
    }

    /// Finds out whether another client deleted this client's node in the queue, or the node went
    /// with its session.
    pub(super) fn inspect(&self) -> Result<Event> {
        let (look, session) = (Request::exists(self.first()), self.session());
        let limit = &self.request.limit;
        let looked = session.caller().call(&look, self.first(), limit);
        let lease = self.first.as_ref().map(RawGuard::lease);
        let same = || {
            let current = session.status.snapshot().known_session();
            lease.is_some_and(|lease| Some(lease.session()) == current)
        };
        match looked {
            Err(CallError::Over(error)) => Err(error),
            Err(CallError::LimitReached) => Ok(Event::Cancel),
            Err(CallError::Refused(ErrorCode::NO_NODE)) if same() => Ok(Event::NoNode),
            Ok(_) | Err(CallError::Refused(_)) => Ok(Event::IsThere),
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

    /// Returns the requests of a look, and how many of the first ones only bring the server up to date.
    pub(super) fn questions(&self, catches_up: bool) -> (Vec<Request>, usize) {
        let path = &*self.semaphore.path;
        let sync = catches_up.then(|| sync(path));
        let mut requests: Vec<_> = sync.into_iter().collect();
        let synced = requests.len();
        requests.extend([Request::get(path), Request::list(path)]);
        if !self.semaphore.speaks_kazoo() {
            requests.push(Request::list(&self.semaphore.permits_dir()));
        }
        (requests, synced)
    }
}
