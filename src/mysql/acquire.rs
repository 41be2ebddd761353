//! How a lock is acquired: the caller waits here, and the workers ask the database.
//!
//! An attempt that got no answer is repeated under the same owner. If the first attempt was carried
//! out after all, the second finds its row by the unique key. If the first arrives later, the
//! unique key makes it fail. Either way, its outcome need not be known.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ::mysql::{Conn, Result as SqlResult};
use crossbeam_channel::{Receiver, bounded};
use log::{debug, warn};

use crate::error::{Error, Result};
use crate::guard::GuardState;
use crate::local::turnstile::Entry;
use crate::mysql::connection::DatabaseConnection;
use crate::mysql::description::description;
use crate::mysql::held::{Held, InTable, OwnRow};
use crate::mysql::lease::RowLease;
use crate::mysql::lock_table::{self, Holder, Key, RowState, Wait};
use crate::mysql::renewal::Command;
use crate::mysql::shared_client::SharedClient;
use crate::mysql::statement_error::{ErrorClass, StatementError};
use crate::owner::Owner;
use crate::system::clock::since_boot;
use crate::time::limit::{Limit, LimitReached};

/// The caller's request, for errors.
const WHAT: &str = "take the lock";

/// How often a caller that waits for a release checks whether its wait has ended.
const LOOK_UP: Duration = Duration::from_millis(20);

/// How long to wait for the lock.
#[derive(Clone, Debug)]
pub(super) enum Until {
    /// Wait only for the database's answer, and no longer than this.
    Now(Limit),
    /// Wait until this limit is reached.
    Limit(Limit),
}

/// The outcome of one attempt.
#[derive(Debug)]
enum AttemptOutcome {
    Acquired(Arc<RowLease>),
    /// Another client has the lock: this holder, unless that client was faster when the lock was free.
    Taken(Option<Holder>),
    Failed(StatementError),
}

impl Until {
    pub(super) fn now() -> Self {
        Self::Now(Limit::new(None, None))
    }

    pub(super) fn never() -> Self {
        Self::Limit(Limit::new(None, None))
    }

    pub(super) fn at(deadline: Instant) -> Self {
        Self::Limit(Limit::new(Some(deadline), None))
    }

    /// Returns a limit after `limit`; one beyond the range of the clock means no limit.
    pub(super) fn after(limit: Duration) -> Self {
        Self::Limit(Limit::after(limit))
    }
}

/// The outcome of an acquisition.
pub(super) enum Acquired {
    New(Held),
    /// Another client held the lock until the limit: this owner, if the database named it.
    Taken(Option<Owner>),
}

/// Acquires the lock.
pub(super) fn acquire(
    client: &SharedClient,
    name: &Arc<str>,
    until: &Until,
    note: Option<&str>,
) -> Result<Acquired> {
    if client.database.is_inherited() {
        return Err(Error::Closed);
    }
    let (for_turn, limit) = match until {
        Until::Limit(limit) => (limit.clone(), limit.clone()),
        Until::Now(limit) => (
            Limit::after(Duration::ZERO),
            wait_for_release(client, name, limit)?,
        ),
    };
    let turn = match client
        .turnstile
        .enter(name, &for_turn, || (false, ()), |_| {})
    {
        Entry::Turn(turn, _) => turn,
        Entry::Taken => return Ok(Acquired::Taken(None)),
        Entry::OwnTurn => {
            return Err(Error::WouldDeadlock {
                path: name.to_string(),
            });
        }
        Entry::Closed => return Err(Error::Closed),
    };
    // The row is described here, because a worker would put its own thread's name there.
    let row = OwnRow::new(client.database.clone(), name.clone(), description(note));
    let row = Arc::new(row);
    let mut acquisition = Acquisition::new(&row, until, limit);
    acquisition.taken = turn.follows_an_answer();
    let Some(lease) = acquisition.run().inspect_err(|_| turn.unanswered())? else {
        return Ok(Acquired::Taken(acquisition.holder));
    };
    row.set_turn(turn);
    Ok(Acquired::New(Held { lease, row }))
}

/// Waits until the row that this client has released is deleted; returns the limit for an answer.
fn wait_for_release(client: &SharedClient, name: &Arc<str>, limit: &Limit) -> Result<Limit> {
    let answered = Instant::now() + client.database.answer_limit();
    let limit = limit.clone().until(Some(answered));
    let backlog = &client.database.backlog;
    while !backlog.wait_for_release(name, Instant::now() + LOOK_UP) {
        if limit.is_over() {
            return Err(StatementError::no_answer().into_error(WHAT));
        }
    }
    Ok(limit)
}

struct Acquisition<'a> {
    row: &'a Arc<OwnRow>,
    limit: Limit,
    /// Whether one look is enough.
    tries: bool,
    pause: Duration,
    /// The holder that the database named.
    holder: Option<Owner>,
    /// Whether a thread of this client had the lock, or found it taken, while this one stood in line.
    taken: bool,
    /// Whether to read the row before trying to write it.
    look_first: bool,
    /// Why the last attempt failed, if it did.
    failed: Option<StatementError>,
    /// When the server was first found to take no writes; the next primary may be about to take over.
    read_only: Option<Instant>,
}

impl<'a> Acquisition<'a> {
    fn new(row: &'a Arc<OwnRow>, until: &Until, limit: Limit) -> Self {
        let tries = matches!(until, Until::Now(_));
        Self {
            row,
            limit,
            tries,
            pause: row.database.timings.poll.0,
            holder: None,
            taken: false,
            look_first: tries,
            failed: None,
            read_only: None,
        }
    }

    fn run(&mut self) -> Result<Option<Arc<RowLease>>> {
        loop {
            match self.attempt()? {
                None => {
                    let failed = self.failed.take();
                    return self.give_up(failed.unwrap_or_else(StatementError::no_answer));
                }
                Some(AttemptOutcome::Acquired(lease)) => {
                    if lease.state(since_boot()) != GuardState::Lost {
                        return self.begin(lease).map(Some);
                    }
                    // The answer took longer than the lease can be trusted.
                    let in_doubt = InTable::InDoubt(lease.confirmed());
                    self.row.set_in_table(in_doubt);
                }
                Some(AttemptOutcome::Taken(holder)) => {
                    // Over a slow link, a client that looks first is too late each time that the lock is free.
                    self.look_first = holder.is_some();
                    let Holder { left, owner } = holder.unwrap_or_default();
                    self.holder = Some(owner);
                    self.failed = None;
                    self.read_only = None;
                    if self.tries || !self.sleep(left)? {
                        return Ok(None);
                    }
                }
                Some(AttemptOutcome::Failed(error)) => {
                    if !self.may_pass(error.class) {
                        return Err(error.into_error(WHAT));
                    }
                    self.log(&error);
                    if !self.sleep(None)? {
                        return self.give_up(error);
                    }
                }
            }
        }
    }

    fn begin(&self, lease: Arc<RowLease>) -> Result<Arc<RowLease>> {
        let database = &self.row.database;
        if database.is_closed() {
            return Err(Error::Closed);
        }
        database.command(Command::Renew(lease.clone()));
        let (name, waited, token) = (&self.row.name, self.limit.spent(), lease.token);
        debug!("got {name} after {waited:?}: token {token}");
        Ok(lease)
    }

    /// Returns whether an attempt that failed like this may succeed later.
    fn may_pass(&mut self, class: ErrorClass) -> bool {
        if class != ErrorClass::ReadOnly {
            return class.is_transient();
        }
        let since = *self.read_only.get_or_insert_with(Instant::now);
        since.elapsed() < self.row.database.timings.connect_timeout
    }

    /// Makes a worker attempt to take the lock; returns `None` if there is no answer by the deadline.
    fn attempt(&self) -> Result<Option<AttemptOutcome>> {
        let (to, outcome) = bounded(1);
        let (row, look_first) = (self.row.clone(), self.look_first);
        let has_failed = self.failed.is_some();
        let deadline = self.limit.deadline();
        // If the caller is gone, the client's last clone waits for the attempt and the deletion of its row.
        let pending = row.database.backlog.expect_row();
        let job = move |connection: &mut DatabaseConnection| {
            let _pending = pending;
            let in_time = deadline.is_none_or(|deadline| Instant::now() < deadline);
            let outcome = in_time.then(|| attempt(connection, &row, look_first, has_failed));
            // Dropped before the answer is sent, so that the caller drops it last. If the caller is
            // gone, this drop deletes what is in the table.
            drop(row);
            connection.job = None;
            if let Some(outcome) = outcome {
                let _ = to.send(outcome);
            }
        };
        // Many waits over a slow link would keep the workers from a release or a free lock.
        match self.holder.is_some() && !self.tries {
            true => self.row.database.submit_later(job),
            false => self.row.database.submit(job),
        }
        self.wait(&outcome)
    }

    /// Pauses, but not beyond the end of the holder's lease; returns `false` at the deadline.
    fn sleep(&mut self, left: Option<Duration>) -> Result<bool> {
        let database = &self.row.database;
        let (first, longest) = database.timings.poll;
        // The pause is random, so that waiters that began together do not ask together.
        let pause = self.pause.mul_f64(0.75 + 0.5 * fastrand::f64());
        let lease_end = left.map_or(Duration::MAX, |left| left + Duration::from_millis(1));
        self.pause = self.pause.mul_f64(1.5).min(longest);
        let pause = Some(pause.min(lease_end.max(first)));
        match self.limit.wait_any_for(pause, &[&database.closed]) {
            Ok(None) => Ok(true),
            Ok(Some(_)) => Err(Error::Closed),
            Err(LimitReached) => Ok(false),
        }
    }

    fn wait(&self, outcome: &Receiver<AttemptOutcome>) -> Result<Option<AttemptOutcome>> {
        let closed = &self.row.database.closed;
        match self.limit.wait_any(&[outcome, closed]) {
            Ok(0) => Ok(outcome.try_recv().ok()),
            Ok(_) => Err(Error::Closed),
            Err(LimitReached) => Ok(None),
        }
    }

    fn log(&mut self, error: &StatementError) {
        let before = self.failed.replace(error.clone());
        if error.class == ErrorClass::Contended {
            debug!("others want {} too, trying again: {error}", self.row.name);
        } else if before.is_none() {
            warn!("cannot ask for {}, trying again: {error}", self.row.name);
        }
    }

    /// Returns `None` only if the lock was seen to be taken.
    fn give_up(&self, error: StatementError) -> Result<Option<Arc<RowLease>>> {
        if self.holder.is_some() || self.taken {
            return Ok(None);
        }
        Err(error.into_error(WHAT))
    }
}

/// Makes one attempt, on a worker, and notes in `row` what it may leave in the table.
fn attempt(
    connection: &mut DatabaseConnection,
    row: &OwnRow,
    look_first: bool,
    has_failed: bool,
) -> AttemptOutcome {
    // If an attempt was answered since, a look tells of a row that an earlier statement leaves after all.
    let in_doubt = has_failed && matches!(row.in_table(), InTable::InDoubt(_));
    let (begun, mut sent) = (since_boot(), None);
    let done = connection.run(|conn| take(conn, row, look_first, in_doubt, &mut sent));
    match done {
        Ok(Ok(token)) => {
            let (name, owner) = (row.name.clone(), row.owner.clone());
            let lease = Arc::new(RowLease::new(
                name,
                owner,
                token,
                row.database.lease(),
                sent.unwrap_or(begun),
            ));
            row.set_in_table(InTable::Row(lease.clone()));
            AttemptOutcome::Acquired(lease)
        }
        // The row belongs to another owner, so no earlier statement of this acquisition took
        // the lock. A statement that is still on its way might yet take it.
        Ok(Err(holder)) => AttemptOutcome::Taken(holder),
        Err(error) if error.class == ErrorClass::Locked => why_locked(connection, row, error),
        Err(error) => {
            if let (Some(sent), true) = (sent, error.class.may_be_done()) {
                row.set_in_table(InTable::InDoubt(sent));
            }
            AttemptOutcome::Failed(error)
        }
    }
}

/// Tells a lock that another client is about to take from a free lock whose row is blocked.
fn why_locked(
    connection: &mut DatabaseConnection,
    row: &OwnRow,
    error: StatementError,
) -> AttemptOutcome {
    let key = Key {
        name: &row.name,
        owner: &row.owner,
    };
    match connection.run(|conn| lock_table::look_ahead(conn, key)) {
        Ok(RowState::Taken(holder)) => AttemptOutcome::Taken(Some(holder)),
        _ => AttemptOutcome::Failed(error),
    }
}

/// Returns the token of the lock, or its holder unless another client was faster.
///
/// `sent` is set to the moment before the statement that took the lock, or may have taken it, was sent.
fn take(
    conn: &mut Conn,
    row: &OwnRow,
    look_first: bool,
    in_doubt: bool,
    sent: &mut Option<Duration>,
) -> SqlResult<std::result::Result<i64, Option<Holder>>> {
    let key = Key {
        name: &row.name,
        owner: &row.owner,
    };
    let lease = row.database.lease();
    if in_doubt {
        *sent = Some(since_boot());
        if let Some(token) = adopt(conn, key, lease)? {
            return Ok(Ok(token));
        }
    }
    if !look_first {
        *sent = Some(since_boot());
        if let Some(token) = lock_table::insert(conn, key, &row.description, lease)? {
            return Ok(Ok(token));
        }
    }
    let found = lock_table::look(conn, key)?;
    *sent = Some(since_boot());
    let token = match found {
        RowState::Taken(holder) => return Ok(Err(Some(holder))),
        RowState::Own => adopt(conn, key, lease)?,
        RowState::Free => lock_table::insert(conn, key, &row.description, lease)?,
        RowState::Expired => lock_table::take_over(conn, key, &row.description, lease)?,
    };
    // Without a token, another client was faster.
    Ok(token.ok_or(None))
}

/// Returns the token of the row that an earlier statement may have left, and renews it.
fn adopt(conn: &mut Conn, key: Key<'_>, lease: Duration) -> SqlResult<Option<i64>> {
    let (ours, done) = lock_table::renew(conn, &[key], lease, Wait::Yes);
    done?;
    match ours == [true] {
        true => lock_table::token(conn, key),
        false => Ok(None),
    }
}
