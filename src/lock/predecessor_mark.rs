//! Reads and sets the marks that tell a holder that its predecessor left without releasing;
//! [`Mark`] decides.
//!
//! Poisoned mutexes of std and EOWNERDEAD of POSIX tell the same. The mark is the data of the
//! lock's directory itself, never a child, which would get in other clients' way. The server would
//! delete an empty container, and the mark with it. Since the server does not tell containers from
//! other nodes, only directories that were created for marks are used.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::raw_guard::{Closing, RawGuard};
use super::request::LockRequest;
use crate::error::{Error, Result};
use crate::session::Session;
use crate::session::call_error::CallError;
use crate::session::caller::Replies;
use crate::time::limit::{Limit, LimitReached};
use crate::token::FencingToken;
use zklock_core::directories::Lasting;
use zklock_core::predecessor_mark::{Action, CLEAN, Event, Mark, Outcome, parse};
use zklock_jute::{ErrorCode, Reply, Request};

/// Returns what becomes of the directory of a mutex that tracks its predecessors. Fails if the
/// directory exists and keeps no marks, before this client creates a node in it. Looks only if it
/// has not `looked` before: each holder reads the mark again before it writes.
pub(crate) fn lasting(
    session: &Session,
    dir: &str,
    looked: &AtomicBool,
    limit: &Limit,
) -> Result<Lasting<'static>> {
    session.needs_transactions("tracking of abandonment")?;
    if !looked.load(Ordering::Relaxed) {
        match session.caller().call(&Request::get(dir), dir, limit) {
            Ok(Reply::Data { data, .. }) => {
                parse(&Vec::from(data)).ok_or_else(|| unmarked(dir))?;
            }
            Ok(_) | Err(CallError::Refused(ErrorCode::NO_NODE)) => {}
            // The lock call checks the limit itself.
            Err(error) => return error.or(dir, Lasting::Always(CLEAN)),
        }
        looked.store(true, Ordering::Relaxed);
    }
    Ok(Lasting::Always(CLEAN))
}

fn unmarked(dir: &str) -> Error {
    Error::Unmarked {
        path: dir.to_owned(),
        what: "a mutex that tracks abandonment",
    }
}

impl RawGuard {
    /// Finds out how the predecessor left, waits for the `delay` if it left without releasing, and sets the mark.
    ///
    /// Returns the token of a predecessor that left without releasing, too. Returns `None` if the limit was
    /// reached; the lock is released then, and the mark is left as it was.
    pub(crate) fn settle(
        mut self,
        delay: Duration,
        dir: &str,
        request: &mut LockRequest<'_>,
    ) -> Result<Option<(Self, Option<FencingToken>)>> {
        let mut mark = Mark::new(self.token().get());
        let outcome = self.carry_out(&mut mark, delay, dir, request)?;
        self.close_with(Closing::Mark(mark));
        match outcome {
            Outcome::Entered(abandoned) => Ok(Some((self, abandoned.map(FencingToken::new)))),
            Outcome::Gone => Ok(None),
            Outcome::Lost => Err(self.found_gone()),
            Outcome::Unmarked => Err(unmarked(dir)),
        }
    }

    fn carry_out(
        &self,
        mark: &mut Mark,
        delay: Duration,
        dir: &str,
        request: &mut LockRequest<'_>,
    ) -> Result<Outcome> {
        let mut with_the_lock = request.read.take();
        let limit = &request.limit;
        loop {
            let event = match mark.action() {
                Action::Read => self.read_mark(with_the_lock.take(), dir, limit)?,
                Action::Pause(token) => {
                    log::warn!(
                        "the holder of {dir} with the token {token} went without releasing it"
                    );
                    match self.session().caller().rest(delay, limit) {
                        Ok(()) => Event::Paused,
                        Err(LimitReached) => Event::Cancel,
                    }
                }
                Action::Set(data, version) => self.set_mark(dir, data, version, limit)?,
                Action::Finish(outcome) => return Ok(outcome),
            };
            if let (Action::Set(..), Event::Cancel) = (mark.action(), &event) {
                // The mark may have been set nevertheless.
                mark.handle(Event::ReplyLost);
            }
            mark.handle(event);
        }
    }

    /// Reads the mark, unless its data came with the lock.
    fn read_mark(&self, with_the_lock: Option<Replies>, dir: &str, limit: &Limit) -> Result<Event> {
        let read = Request::get(dir);
        let answered = match with_the_lock.and_then(|mut answers| answers.pop()) {
            Some(answered) => answered.map_err(CallError::Refused),
            None => self.ask_for_what_was_left(|catches_up| match catches_up {
                true => self.session().ask_latest(read.clone(), dir, limit),
                false => self.session().caller().call(&read, dir, limit),
            }),
        };
        match answered {
            Ok(Reply::Data { data, stat }) => Ok(Event::Data(data.into(), stat.version)),
            Err(CallError::Refused(ErrorCode::NO_NODE)) => Ok(Event::NoNode),
            Ok(_) => Ok(Event::Cancel),
            Err(error) => error.or(dir, Event::Cancel),
        }
    }

    /// Sets the mark if the guard's node is still there, and the directory has the data that was read.
    fn set_mark(&self, dir: &str, data: Vec<u8>, version: i32, limit: &Limit) -> Result<Event> {
        let set = Request::Multi(vec![
            Request::check(self.node()),
            Request::set(dir, data, version),
        ]);
        match self.session().caller().call(&set, dir, limit) {
            Ok(_) => Ok(Event::IsSet),
            Err(CallError::Refused(ErrorCode::NO_NODE)) => Ok(Event::NoNode),
            Err(CallError::Refused(ErrorCode::BAD_VERSION)) => Ok(Event::BadVersion),
            Err(error) => error.or(dir, Event::Cancel),
        }
    }
}
