//! Carries out a run; [`Once`] decides.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::record::RunRecord;
use super::run::{Notes, Run};
use crate::contender::Contender;
use crate::error::{Error, LostReason, Result};
use crate::lock::Locks;
use crate::lock::raw_guard::{Closing, Grant};
use crate::lock::request::{Ahead, LockRequest, Queue};
use crate::path;
use crate::session::Session;
use crate::session::call_error::CallError;
use crate::system::sync::Mutex;
use crate::time::limit::Limit;
use zklock_core::attempt::Patience;
use zklock_core::dialect::Role;
use zklock_core::directories::Lasting;
use zklock_core::job::{Action, Event, Once, Outcome, Wish};
use zklock_core::journal::Journal;
use zklock_core::seen_ahead::SeenAhead;
use zklock_jute::{ErrorCode, Reply, Request};

/// One run of a job, and the wait for it.
pub(super) struct JobDriver<'a, 'q> {
    pub(super) locks: &'a Arc<Locks>,
    pub(super) path: &'a Arc<str>,
    once: Once,
    pub(super) request: LockRequest<'q>,
    /// The contender that was nearest ahead when the queue was last listed.
    ahead: Arc<Mutex<Option<Ahead>>>,
    grant: Option<Grant>,
    /// How long the run may take.
    max_time: Option<Duration>,
    /// Whether the run took longer than it may.
    is_over: bool,
    /// How long to wait for servers when the work has ended, if not for a session timeout.
    patience: Option<Duration>,
    /// How long to wait for the stake of another client, once one was seen.
    pub(super) stake_until: Option<Instant>,
    /// The session of the lock.
    session: i64,
    /// The answer to a client that may not delete its lock's node; the end may be recorded all the same.
    kept: Option<Error>,
}

impl<'a, 'q> JobDriver<'a, 'q> {
    pub(super) fn new(
        locks: &'a Arc<Locks>,
        path: &'a Arc<str>,
        wish: Wish,
        mut request: LockRequest<'q>,
        max_time: Option<Duration>,
    ) -> Self {
        let ahead = Arc::<Mutex<Option<Ahead>>>::default();
        let (seen, mut told) = (ahead.clone(), request.on_wait.take());
        request.on_wait = Some(Box::new(move |ahead| {
            *seen.lock() = Some(ahead.clone());
            if let Some(told) = &mut told {
                told(ahead);
            }
        }));
        request.circles = None;
        request.seen = Some(SeenAhead::default());
        Self {
            locks,
            path,
            once: Once::new(wish),
            request,
            ahead,
            grant: None,
            max_time,
            is_over: false,
            patience: None,
            stake_until: None,
            session: 0,
            kept: None,
        }
    }

    /// Proceeds until the work can begin; returns the outcome if it cannot.
    pub(super) fn begin(&mut self) -> Result<Option<Outcome>> {
        self.session().needs_transactions("a job")?;
        loop {
            let event = match self.once.action() {
                Action::Run => return Ok(None),
                Action::Finish(Outcome::Unmarked) if self.take_over()? => {
                    self.once = self.once.anew();
                    continue;
                }
                Action::Finish(outcome) => return Ok(Some(outcome)),
                Action::Read => self.read()?,
                Action::Line => self.line()?,
                Action::Write(data, version) => self.write(data, version)?,
                // A run that has not begun does not end.
                Action::End(..) => Event::Cancel,
            };
            self.once.handle(event);
        }
    }

    /// Does the work. A panic is recorded as a failure.
    pub(super) fn run<T, E>(
        &mut self,
        run: impl FnOnce(&Run<'_>) -> Result<T, E>,
    ) -> Result<Result<T, E>> {
        let panicked = self.once.panicked();
        let follows_release = self.follows_release();
        let (Some(grant), Some((this, before))) = (self.grant.as_mut(), self.once.run()) else {
            return Err(self.lost());
        };
        // A run that knows that its lock is lost does not begin; the attempt counts.
        grant.raw.check()?;
        if let Some(time) = self.max_time {
            grant.raw.limit(time);
        }
        if let Some((data, version)) = panicked {
            grant.raw.close_with(Closing::IfPanicking(data, version));
        }
        let this = Run {
            raw: &grant.raw,
            slot: &this.slot,
            attempt: this.attempt,
            retry_of: before.map(RunRecord::new),
            state: self.once.state(),
            notes: Notes::default(),
            follows_release,
            patience: Mutex::default(),
        };
        let done = run(&this);
        self.patience = *this.patience.lock();
        let over = self.max_time.filter(|_| grant.raw.lease().is_over());
        let end = this.notes.end(done.is_ok(), over);
        self.is_over = over.is_some();
        self.once.handle(Event::Ran(end));
        Ok(done)
    }

    /// Releases the lock and records the end of the run.
    pub(super) fn end(&mut self) -> Result<()> {
        // A server decides whether the run held the lock to its end, as long as it knows the session.
        let timeout = self.session().status.snapshot().timeout;
        let patience = self.patience.map_or(timeout, |most| most.min(timeout));
        self.request.limit = Limit::after(patience);
        loop {
            let event = match self.once.action() {
                Action::End(data, version) => self.write_end(data, version)?,
                Action::Read => self.confirm()?,
                Action::Finish(Outcome::Recorded) => return Ok(()),
                Action::Finish(Outcome::Unconfirmed) => {
                    return Err(Error::unconfirmed_run(&self.request.limit, patience));
                }
                _ => return Err(self.kept.take().unwrap_or_else(|| self.lost())),
            };
            self.once.handle(event);
        }
    }

    /// Fails if the run took longer than it may.
    pub(super) fn in_time(&self) -> Result<()> {
        match self.is_over {
            true => Err(Error::Lost {
                path: self.path.to_string(),
                why: LostReason::OverTime,
            }),
            false => Ok(()),
        }
    }

    /// Returns the holder of the lock when the caller gave up, if it is the contender just ahead.
    pub(super) fn ahead(&self) -> Option<Contender> {
        let ahead = self.ahead.lock();
        let ahead = ahead
            .as_ref()
            .filter(|ahead| ahead.holds && ahead.stat.czxid != 0)?;
        Some(ahead.contender(self.session()))
    }

    /// Returns whether the last contender ahead recorded the end of its run, which its release
    /// does; `None` if there was none.
    fn follows_release(&self) -> Option<bool> {
        let seen = self.grant.as_ref()?.raw.seen()?;
        let last = seen.last()?;
        let ahead = self.ahead.lock();
        let read = ahead
            .as_ref()
            .filter(|ahead| path::name(&ahead.nearest) == last);
        Some(read.is_some_and(|last| self.once.has_ended(last.stat.czxid)))
    }

    /// Returns the error of a call that ended without a run, and does not know who runs it.
    pub(super) fn gave_up(&self) -> Error {
        let refused = self.request.refused::<()>(self.session());
        refused.err().unwrap_or_else(|| Error::GaveUp {
            path: self.path.to_string(),
        })
    }

    /// Returns the current holder of the lock, if a server answers in time.
    pub(super) fn holder(&self) -> Result<Option<Contender>> {
        let limit = || self.request.limit.clone();
        match self.session().contenders_behind(&[], self.path, limit) {
            Ok(contenders) => Ok(contenders.into_iter().next()),
            Err(error) => error.or(self.path, None),
        }
    }

    fn read(&mut self) -> Result<Event> {
        let with_the_lock = self.request.read.take().and_then(|mut read| read.pop());
        let answered = match with_the_lock {
            Some(answered) => answered.map_err(CallError::Refused),
            None => {
                let (path, limit) = (&**self.path, &self.request.limit);
                let mut caller = self.session().caller();
                caller.call(&Request::get(path), path, limit)
            }
        };
        // In another session the answer says nothing about this run's lock, which is gone.
        if self.grant.is_some() && !self.is_same_session() && answered.is_ok() {
            return Ok(Event::Lost);
        }
        self.data(answered)
    }

    /// Reads from a server that has caught up: another server may not know yet how the lock's
    /// session ended.
    fn confirm(&self) -> Result<Event> {
        let (path, limit) = (&**self.path, &self.request.limit);
        self.data(self.session().ask_latest(Request::get(path), path, limit))
    }

    fn data(&self, answered: Result<Reply, CallError>) -> Result<Event> {
        Ok(match answered {
            Ok(Reply::Data { data, stat }) => Event::Data(data.into(), stat.version, stat.mtime),
            Err(CallError::Refused(ErrorCode::NO_NODE)) => Event::NoNode,
            Ok(_) => Event::Cancel,
            Err(error) => return error.or(self.path, Event::Cancel),
        })
    }

    fn line(&mut self) -> Result<Event> {
        if self.grant.take().is_some() {
            self.request.loses_sight();
        }
        let queue = Queue {
            reads: &[Request::get(self.path)],
            // A container would be removed when no client queues, and the journal with it.
            lasting: Lasting::Always(Journal::EMPTY),
            ..Queue::of(self.path, Role::Exclusive)
        };
        let request = &mut self.request;
        let Some(grant) = self.locks.lock(self.path, &queue, false, request)? else {
            return Ok(match request.patience {
                Patience::Tries if !request.limit.is_over() => Event::Taken,
                _ => Event::Cancel,
            });
        };
        self.session = grant.raw.lease().session();
        let token = grant.raw.token().get();
        self.grant = Some(grant);
        Ok(Event::Granted(token))
    }

    /// Writes `data` if the lock's node still exists.
    fn write(&mut self, data: Vec<u8>, version: i32) -> Result<Event> {
        let Some(grant) = &self.grant else {
            return Ok(Event::Lost);
        };
        // Answers that had arrived were still used, but a run must not begin now.
        if self.request.limit.is_over() {
            return Ok(Event::Cancel);
        }
        let path = &**self.path;
        let write = Request::Multi(vec![
            Request::check(grant.raw.node()),
            Request::set(path, data, version),
        ]);
        match self
            .session()
            .caller()
            .call(&write, path, &self.request.limit)
        {
            // The node may be of an earlier session, which some servers do not end at once.
            Ok(_) if !self.is_same_session() => Ok(Event::Lost),
            Ok(answer) => Ok(Event::Written(written(&answer, version))),
            Err(CallError::Refused(ErrorCode::BAD_VERSION)) => Ok(Event::BadVersion),
            Err(CallError::Refused(ErrorCode::NO_NODE)) if self.is_same_session() => {
                Err(Error::Evicted {
                    node: grant.raw.node().to_owned(),
                })
            }
            Err(CallError::Refused(ErrorCode::NO_NODE)) => Ok(Event::Lost),
            Err(error) => error.or(path, Event::Cancel),
        }
    }

    fn write_end(&mut self, data: Vec<u8>, version: i32) -> Result<Event> {
        let Some(Grant { raw, turn }) = self.grant.take() else {
            return Ok(Event::Gone);
        };
        let recorded = raw.release_writing(data, version, &self.request.limit);
        drop(turn);
        Ok(match recorded {
            Ok(Some(true)) => Event::Recorded,
            Ok(Some(false)) => Event::Gone,
            Ok(None) => Event::Cancel,
            Err(error @ Error::NoAuth { .. }) => {
                self.kept = Some(error);
                Event::Gone
            }
            Err(error) => return Err(error),
        })
    }

    fn lost(&self) -> Error {
        Error::Lost {
            path: self.path.to_string(),
            why: match self.is_same_session() {
                true => LostReason::Evicted,
                false => LostReason::SessionExpired,
            },
        }
    }

    fn is_same_session(&self) -> bool {
        self.session().status.snapshot().session == self.session
    }

    pub(super) fn session(&self) -> &'a Arc<Session> {
        &self.locks.session
    }
}

/// Returns the version and the time that the transaction gave the directory, whose data had the version `before`.
fn written(answer: &Reply, before: i32) -> Option<(i32, i64)> {
    let Reply::Multi(results) = answer else {
        return None;
    };
    match results.last()? {
        Ok(Reply::Stat(stat)) if stat.version == before.wrapping_add(1) => {
            Some((stat.version, stat.mtime))
        }
        _ => None,
    }
}
