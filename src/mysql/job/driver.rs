//! Carries out a run. [`Once`] makes the decisions, as for the jobs on ZooKeeper.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ::mysql::{Conn, Result as SqlResult};
use crossbeam_channel::bounded;
use log::warn;

use super::run::Run;
use crate::error::{Error, LostReason, Result};
use crate::guard::GuardState;
use crate::job::{Notes, RunRecord};
use crate::mysql::acquire::{Acquired, Until, acquire};
use crate::mysql::held::{Held, OwnRow};
use crate::mysql::job_table::{self, Written};
use crate::mysql::lease::RowLease;
use crate::mysql::lock_table::{self, Key, RowState};
use crate::mysql::shared_client::SharedClient;
use crate::mysql::statement_error::{ErrorClass, StatementError};
use crate::owner::Owner;
use crate::system::clock::since_boot;
use crate::time::limit::{Limit, LimitReached};
use zklock_core::job::{Action, Event, Once, Outcome, Wish};

/// The caller's request, for errors.
const WHAT: &str = "run the job";

/// The pause before a failed request is repeated.
const PAUSE: Duration = Duration::from_millis(100);

/// One run of a job, and the steps that lead to it.
pub(super) struct JobDriver<'a> {
    client: &'a SharedClient,
    name: &'a Arc<str>,
    once: Once,
    until: Until,
    /// How long to wait for answers.
    limit: Limit,
    note: Option<String>,
    held: Option<Held>,
    /// The lease of the lock that was held last.
    lease: Option<Arc<RowLease>>,
    /// The holder of the lock when this call gave up.
    holder: Option<Owner>,
    /// Whether the job was seen to have a journal.
    has_journal: bool,
    has_run: bool,
}

/// Records a panic as the end of the run.
struct IfPanicking<'a> {
    row: &'a OwnRow,
    journal: Option<Vec<u8>>,
}

impl<'a> JobDriver<'a> {
    pub(super) fn new(
        client: &'a SharedClient,
        name: &'a Arc<str>,
        wish: Wish,
        waits: bool,
        limit: Limit,
        note: Option<String>,
    ) -> Self {
        let answered = Instant::now() + client.database.answer_limit();
        let (until, limit) = match waits {
            true => (Until::Limit(limit.clone()), limit),
            false => (Until::Now(limit.clone()), limit.until(Some(answered))),
        };
        Self {
            client,
            name,
            once: Once::new(wish),
            until,
            limit,
            note,
            held: None,
            lease: None,
            holder: None,
            has_journal: false,
            has_run: false,
        }
    }

    /// Proceeds until the work can begin; returns the outcome if it cannot.
    pub(super) fn begin(&mut self) -> Result<Option<Outcome>> {
        if self.client.database.is_inherited() {
            return Err(Error::Closed);
        }
        loop {
            let event = match self.once.action() {
                Action::Run => return Ok(None),
                Action::Finish(outcome) => return Ok(Some(outcome)),
                Action::Read => self.read()?,
                Action::Line => self.line()?,
                Action::Write(journal, version) => self.write(journal, version)?,
                // A run that has not begun does not end.
                Action::End(..) => Event::Cancel,
            };
            self.once.handle(event);
        }
    }

    /// Does the work. A panic is recorded as a failure.
    pub(super) fn run<T, E>(
        &mut self,
        run: impl FnOnce(&Run) -> Result<T, E>,
    ) -> Result<Result<T, E>> {
        let (Some(held), Some((this, before))) = (&self.held, self.once.run()) else {
            return Err(self.lost());
        };
        // A client that knows that its lock is lost begins nothing; the attempt counts.
        held.check()?;
        let mut panics = IfPanicking {
            row: &held.row,
            journal: self.once.panicked().map(|(journal, _)| journal),
        };
        let this = Run {
            held: Held {
                lease: held.lease.clone(),
                row: held.row.clone(),
            },
            slot: this.slot.clone(),
            attempt: this.attempt,
            retry_of: before.map(RunRecord::new),
            state: self.once.state().map(<[u8]>::to_vec),
            notes: Notes::default(),
        };
        let done = run(&this);
        panics.journal = None;
        drop(panics);
        let end = this.notes.end(done.is_ok(), None);
        self.once.handle(Event::Ran(end));
        Ok(done)
    }

    /// Releases the lock, and records the end of the run with it.
    pub(super) fn end(&mut self) -> Result<()> {
        // In a forked child, the run and the threads are the parent's.
        if self.client.database.is_inherited() {
            return Err(Error::Closed);
        }
        // As long as the row may exist, the database decides whether the run held to its end.
        let lease = self.client.database.lease();
        self.limit = Limit::after(lease);
        self.has_run = true;
        loop {
            let event = match self.once.action() {
                Action::End(journal, _) => self.write_end(journal),
                Action::Read => self.confirm(),
                Action::Finish(Outcome::Recorded) => return Ok(()),
                Action::Finish(Outcome::Unconfirmed) => {
                    return Err(Error::unconfirmed_run(&self.limit, lease));
                }
                _ => return Err(self.lost()),
            };
            self.once.handle(event);
        }
    }

    /// Returns the holder when the caller gave up, if the database has named it.
    pub(super) fn holder(&mut self) -> Result<Option<Owner>> {
        // A thread of this client holds the lock, and this call has not asked the database.
        if self.holder.is_none() && matches!(self.until, Until::Now(_)) {
            let key = self.name.clone();
            let look = move |conn: &mut Conn| {
                let (name, owner) = (&*key, "");
                lock_table::look(conn, Key { name, owner })
            };
            if let Some(RowState::Taken(holder)) = self.ask(look)? {
                self.holder = Some(holder.owner);
            }
        }
        Ok(self.holder.take())
    }

    fn read(&mut self) -> Result<Event> {
        let found = self.ask_with_key(job_table::read)?;
        self.has_journal = matches!(found, Some(Some(_)));
        Ok(match found {
            Some(Some(found)) => Event::Data(found.journal, found.version, found.changed),
            Some(None) => Event::NoNode,
            None => Event::Cancel,
        })
    }

    fn line(&mut self) -> Result<Event> {
        self.held = None;
        match acquire(self.client, self.name, &self.until, self.note.as_deref())? {
            Acquired::New(held) => {
                let token = held.lease.token;
                self.lease = Some(held.lease.clone());
                self.held = Some(held);
                let has_journal =
                    self.has_journal || self.ask_with_key(job_table::create)?.is_some();
                Ok(match has_journal {
                    true => Event::Granted(token),
                    false => Event::Cancel,
                })
            }
            Acquired::Taken(holder) => {
                self.holder = holder;
                Ok(match self.until {
                    Until::Now(_) => Event::Taken,
                    Until::Limit(_) => Event::Cancel,
                })
            }
        }
    }

    /// Writes the journal if the lock's row still exists.
    fn write(&self, journal: Vec<u8>, version: i32) -> Result<Event> {
        // Answers that had arrived were still accepted, but a run must not begin now.
        if self.limit.is_over() {
            return Ok(Event::Cancel);
        }
        let token = self.lease.as_ref().map_or(0, |lease| lease.token);
        let write = move |conn: &mut Conn, key: Key<'_>| {
            job_table::write(conn, (key, token), &journal, version)
        };
        match self.ask_with_key(write)? {
            Some(Written::Yes) => Ok(Event::Written(None)),
            Some(Written::BadVersion) => Ok(Event::BadVersion),
            Some(Written::Gone) if self.was_in_time() => Err(self.lost()),
            Some(Written::Gone) => Ok(Event::Lost),
            None => Ok(Event::Cancel),
        }
    }

    fn write_end(&mut self, journal: Vec<u8>) -> Event {
        let Some(held) = self.held.take() else {
            return Event::Gone;
        };
        held.row.set_journal(journal);
        let Some((_, answer)) = held.row.release() else {
            return Event::Gone;
        };
        match self.limit.wait_any(&[&answer]) {
            Ok(_) if answer.try_recv() == Ok(true) => Event::Recorded,
            Ok(_) => Event::Gone,
            Err(LimitReached) => Event::Cancel,
        }
    }

    /// Reads what is recorded, after the lock's row has gone, or may have.
    fn confirm(&self) -> Event {
        let read = self.ask_with_key(job_table::read_on_primary);
        let read = read.unwrap_or_else(|error| {
            warn!("cannot learn how the run of {} ended: {error}", self.name);
            None
        });
        match read {
            // A statement that got no answer may still be on its way.
            Some(Some(found)) if found.is_ours => Event::Cancel,
            Some(Some(found)) => Event::Data(found.journal, found.version, found.changed),
            Some(None) => Event::NoNode,
            None => Event::Cancel,
        }
    }

    /// Returns whether the lease was still running when the row was found to be gone.
    fn was_in_time(&self) -> bool {
        let lease = self.lease.as_ref();
        lease.is_some_and(|lease| lease.state(since_boot()) != GuardState::Lost)
    }

    fn lost(&self) -> Error {
        let why = match &self.lease {
            Some(lease) if !self.was_in_time() => lease.why_lost(),
            _ => LostReason::Evicted,
        };
        Error::Lost {
            path: self.name.to_string(),
            why,
        }
    }

    /// Like [`ask`](Self::ask), with the key of the lock's row.
    fn ask_with_key<T: Send + 'static>(
        &self,
        work: impl Fn(&mut Conn, Key<'_>) -> SqlResult<T> + Clone + Send + 'static,
    ) -> Result<Option<T>> {
        let (name, lease) = (self.name.clone(), self.lease.clone());
        self.ask(move |conn| {
            let owner = lease.as_ref().map_or("", |lease| &*lease.owner);
            work(conn, Key { name: &name, owner })
        })
    }

    /// Asks the database until it answers; returns `None` if the call ended first.
    fn ask<T: Send + 'static>(
        &self,
        work: impl Fn(&mut Conn) -> SqlResult<T> + Clone + Send + 'static,
    ) -> Result<Option<T>> {
        let (database, name) = (&self.client.database, &self.name);
        let (begun, mut failed) = (Instant::now(), None);
        loop {
            let (to, answer) = bounded(1);
            let again = work.clone();
            database.submit(move |connection| {
                let done = connection.run(again);
                connection.job = None;
                let _ = to.send(done);
            });
            match self.limit.wait_any(&[&answer, &database.closed]) {
                Ok(0) => {}
                Ok(_) => return Err(Error::Closed),
                Err(LimitReached) => return self.gave_up(failed),
            }
            match answer.try_recv() {
                Ok(Ok(answer)) => return Ok(Some(answer)),
                Ok(Err(error)) if may_pass(&error, begun, database.timings.connect_timeout) => {
                    if failed.is_none() {
                        warn!("cannot ask for the job {name}, trying again: {error}");
                    }
                    failed = Some(error);
                }
                Ok(Err(error)) => return Err(error.into_error(WHAT)),
                // The driver panicked.
                Err(_) => {}
            }
            match self.limit.wait_any_for(Some(PAUSE), &[&database.closed]) {
                Ok(None) => {}
                Ok(Some(_)) => return Err(Error::Closed),
                Err(LimitReached) => return self.gave_up(failed),
            }
        }
    }

    /// Returns why there was no answer, unless the caller stopped waiting for one.
    fn gave_up<T>(&self, failed: Option<StatementError>) -> Result<Option<T>> {
        let deadline = self.limit.deadline();
        let is_late = deadline.is_some_and(|deadline| deadline <= Instant::now());
        match failed.or_else(|| is_late.then(StatementError::no_answer)) {
            Some(error) if !self.has_run => Err(error.into_error(WHAT)),
            _ => Ok(None),
        }
    }
}

impl Drop for IfPanicking<'_> {
    fn drop(&mut self) {
        if let Some(journal) = self.journal.take()
            && thread::panicking()
        {
            self.row.set_journal(journal);
        }
    }
}

/// Returns whether a request that failed like this may succeed later.
fn may_pass(error: &StatementError, begun: Instant, patience: Duration) -> bool {
    match error.class {
        // The next primary may be about to take over.
        ErrorClass::ReadOnly => begun.elapsed() < patience,
        class => class.is_transient(),
    }
}
