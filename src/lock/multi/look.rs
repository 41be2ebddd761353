//! What a queue contains before the caller has a node in it.

use super::{MultiDriver, queue_of};
use crate::error::Result;
use crate::hold::Hold;
use crate::session::call_error::CallError;
use crate::time::limit::LimitReached;
use zklock_core::multi::Event;
use zklock_core::permits;
use zklock_jute::{ErrorCode, Names, Reply, Request};

impl MultiDriver<'_, '_> {
    pub(super) fn list(&mut self, at: usize, catch_up: bool) -> Result<Event> {
        self.looks_at(at, None);
        match self.contenders(at, catch_up) {
            Ok(names) => Ok(Event::Children(names)),
            Err(CallError::Refused(ErrorCode::NO_NODE)) => Ok(Event::NoNode),
            Err(error) => error.or(&self.parts[at].path, Event::Cancel),
        }
    }

    /// Returns the names in a queue, without an idle semaphore and without holds that are over.
    fn contenders(&mut self, at: usize, catch_up: bool) -> Result<Names, CallError> {
        let listed = match catch_up {
            true => self.list_anew(at),
            false => self.next_listed(at),
        };
        let names = Self::held_by(Ok(listed?)).ok_or(LimitReached)?;
        let path = &self.parts[at].path;
        if !names.contains("leases") {
            return self.without_past_holds(at, names);
        }
        let looks = permits::looks(path);
        let answers = self.caller.call_all(&looks, path, &self.limit)?;
        match permits::is_idle_by(answers, false) {
            true => self.without_past_holds(at, names.without(&["leases"])),
            false => Ok(names),
        }
    }

    /// Returns the names in a queue, if a server has listed it.
    pub(super) fn held_by(answer: Result<Reply, ErrorCode>) -> Option<Names> {
        match answer {
            Ok(Reply::Children { names, .. }) => Some(names),
            _ => None,
        }
    }

    /// Lists these queues, in which the caller has nodes.
    pub(super) fn lists(&mut self, queues: &[usize]) -> Result<Event> {
        let list = |at: &usize| Request::list(&self.parts[*at].path);
        let lists: Vec<_> = queues.iter().map(list).collect();
        let about = self.all_paths();
        match self.caller.call_all(&lists, &about, &self.limit) {
            Ok(answers) => Ok(Event::Queues(
                answers.into_iter().map(Self::held_by).collect(),
            )),
            Err(error) => error.or(&about, Event::Cancel),
        }
    }

    /// Lists a queue at a server that has caught up.
    fn list_anew(&self, at: usize) -> Result<Reply, CallError> {
        let path = &self.parts[at].path;
        self.session.cleaner.finish(path, &self.limit);
        let list = Request::list(path);
        self.session.ask_latest(list, path, &self.limit)
    }

    /// Returns the listing of this queue, requested together with the queues behind it.
    fn next_listed(&mut self, at: usize) -> Result<Reply, CallError> {
        if self.listed.is_empty() {
            let (path, rest) = (&self.parts[at].path, &self.parts[at..]);
            let lists: Vec<_> = rest.iter().map(|part| Request::list(&part.path)).collect();
            self.listed = self.caller.call_all(&lists, path, &self.limit)?.into();
        }
        let listed = self.listed.pop_front().ok_or(LimitReached)?;
        listed.map_err(CallError::Refused)
    }

    /// Notes which of the locks is in the way, if any.
    pub(super) fn looks_at(&self, at: usize, hold: Option<Hold>) {
        *self.session.taken.lock() = Some((self.parts[at].path.clone(), hold));
    }

    /// Leaves out the holds that are over by this machine's clock. Once the caller has a node, the
    /// driver removes them.
    fn without_past_holds(&mut self, at: usize, names: Names) -> Result<Names, CallError> {
        let path = &self.parts[at].path;
        let contest = queue_of(&self.parts[at]).contest(self.session);
        let (mut over, mut first) = (Vec::new(), None);
        for (name, _) in contest.holds_ahead(&names, None) {
            let read = Request::get(&format!("{path}/{}", name.text));
            match self.caller.call(&read, path, &self.limit).map(Hold::of) {
                Ok(Some((hold, _))) if hold.seems_over() => over.push(name.text),
                Ok(Some((hold, _))) => first = first.or(Some(hold)),
                Ok(None) | Err(CallError::Refused(_)) => {}
                Err(error) => return Err(error),
            }
        }
        self.looks_at(at, first);
        Ok(names.without(&over))
    }
}
