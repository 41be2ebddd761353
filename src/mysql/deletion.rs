//! The deletion of a row in the background, repeated until it is certain.
//!
//! A deletion that got no answer is repeated until it gets one, or until the lease has ended and
//! the row no longer keeps any client out.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::{Condvar, Mutex};

use crate::mysql::connection::DatabaseConnection;
use crate::mysql::job_table;
use crate::mysql::lock_table::{self, Key};
use crate::mysql::statement_error::{ErrorClass, StatementError};
use crate::system::clock::since_boot;
use crate::system::contained;

/// The first pause before a failed deletion is repeated; the next constant is the longest.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// One row that is to be deleted.
#[derive(Debug)]
pub(super) struct Deletion {
    name: Arc<str>,
    owner: String,
    /// When the row's lease has ended, whatever was sent to the database.
    lease_end: Duration,
    /// A statement that creates the row may still arrive after the deletion.
    in_doubt: bool,
    /// An earlier try may have deleted the row without an answer.
    tried: bool,
    pause: Duration,
    /// Set if the lock was held; dropped after the first try, whatever its outcome.
    release: Option<Release>,
    /// The data to write into the job's journal when the row with this token is deleted.
    journal: Option<(i64, Vec<u8>)>,
    answer: Option<Sender<bool>>,
    pending: Option<PendingRow>,
}

/// A deletion that is to be tried again after a pause.
#[derive(Debug)]
pub(super) struct Retry {
    pub(super) deletion: Deletion,
    pub(super) pause: Duration,
}

impl Deletion {
    pub(super) fn new(
        name: Arc<str>,
        owner: String,
        lease_end: Duration,
        in_doubt: bool,
        backlog: Arc<Backlog>,
    ) -> Self {
        Self {
            name,
            owner,
            lease_end,
            in_doubt,
            tried: false,
            pause: PAUSE,
            release: None,
            journal: None,
            answer: None,
            pending: Some(PendingRow::new(backlog)),
        }
    }

    /// Makes other threads of the client wait until the first try.
    pub(super) fn before(mut self, turn: Option<impl fmt::Debug + Send + 'static>) -> Self {
        let backlog = self.pending.as_ref().map(|pending| pending.0.clone());
        if let (Some(turn), Some(backlog)) = (turn, backlog) {
            self.release = Some(Release::new(self.name.clone(), Box::new(turn), backlog));
        }
        self
    }

    /// Also writes this into the job's journal, if the row is there and has this token.
    pub(super) fn writing(mut self, journal: Option<(i64, Vec<u8>)>) -> Self {
        self.journal = journal;
        self
    }

    /// Returns the channel that will tell whether the row was still there.
    pub(super) fn answer(&mut self) -> Receiver<bool> {
        let (to, answer) = bounded(1);
        self.answer = Some(to);
        answer
    }

    /// Tries to delete the row; returns what is left to do, if anything.
    pub(super) fn run(mut self, connection: &mut DatabaseConnection) -> Option<Retry> {
        let done = self.try_once(connection);
        connection.job = None;
        self.release = None;
        match done {
            Ok(deleted) => self.answered(deleted),
            Err(error) => self.failed(&error),
        }
    }

    fn try_once(&mut self, connection: &mut DatabaseConnection) -> Result<bool, StatementError> {
        let (name, owner) = (self.name.clone(), self.owner.clone());
        let key = Key {
            name: &name,
            owner: &owner,
        };
        if let Some(journal) = &self.journal {
            let written = connection.run(|conn| job_table::end(conn, key, journal))?;
            self.journal = None;
            self.tell(written);
        }
        connection.run(|conn| lock_table::delete(conn, key))
    }

    fn tell(&mut self, ours: bool) {
        if let Some(answer) = self.answer.take() {
            let _ = answer.send(ours);
        }
    }

    fn answered(mut self, deleted: bool) -> Option<Retry> {
        // No client takes the row before its lease ends, so an earlier try has deleted it.
        self.tell(deleted || self.tried && since_boot() < self.lease_end);
        if deleted {
            contained(|| log::debug!("released {}", self.name));
        }
        self.pending = None;
        // Each statement in doubt may create the row once more.
        let done = !self.in_doubt || since_boot() >= self.lease_end;
        (!done).then_some(Retry {
            deletion: self,
            pause: LONGEST_PAUSE,
        })
    }

    fn failed(mut self, error: &StatementError) -> Option<Retry> {
        if since_boot() >= self.lease_end {
            return None;
        }
        if error.class == ErrorClass::NoRight {
            contained(|| {
                log::error!(
                    "cannot delete the row of {}, which keeps others out until its lease has ended: {error}; grant the user DELETE",
                    self.name
                )
            });
            return None;
        }
        contained(|| log::debug!("cannot delete the row of {} yet: {error}", self.name));
        self.tried |= error.class.may_be_done();
        let pause = self.pause;
        self.pause = (2 * pause).min(LONGEST_PAUSE);
        Some(Retry {
            deletion: self,
            pause,
        })
    }
}

/// The rows still to be deleted.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    state: Mutex<BacklogState>,
    fewer: Condvar,
}

#[derive(Debug, Default)]
struct BacklogState {
    rows: usize,
    /// The locks whose deletion has not been tried yet.
    releasing: Vec<Arc<str>>,
}

impl Backlog {
    /// Waits until the backlog is empty, or for `limit`.
    pub(super) fn wait(&self, limit: Duration) {
        self.wait_while(Instant::now() + limit, |state| state.rows > 0);
    }

    /// Counts a row that may come to exist.
    pub(super) fn expect_row(self: &Arc<Self>) -> PendingRow {
        PendingRow::new(self.clone())
    }

    /// Waits until no thread of the client is releasing the lock; returns `false` at the
    /// deadline.
    pub(super) fn wait_for_release(&self, name: &str, deadline: Instant) -> bool {
        let is_it = |state: &BacklogState| state.releasing.iter().any(|other| **other == *name);
        self.wait_while(deadline, is_it)
    }

    fn wait_while(&self, deadline: Instant, condition: impl Fn(&BacklogState) -> bool) -> bool {
        let mut state = self.state.lock();
        while condition(&state) {
            if self.fewer.wait_until(&mut state, deadline).timed_out() {
                return !condition(&state);
            }
        }
        true
    }

    fn change(&self, change: impl FnOnce(&mut BacklogState)) {
        change(&mut self.state.lock());
        self.fewer.notify_all();
    }
}

/// Counts one row of a backlog.
#[derive(Debug)]
pub(super) struct PendingRow(Arc<Backlog>);

impl PendingRow {
    fn new(backlog: Arc<Backlog>) -> Self {
        backlog.change(|state| state.rows += 1);
        Self(backlog)
    }
}

impl Drop for PendingRow {
    fn drop(&mut self) {
        self.0.change(|state| state.rows -= 1);
    }
}

/// A turn among the client's threads that is about to be passed on.
#[derive(Debug)]
struct Release {
    name: Arc<str>,
    turn: Option<Box<dyn fmt::Debug + Send>>,
    backlog: Arc<Backlog>,
}

impl Release {
    fn new(name: Arc<str>, turn: Box<dyn fmt::Debug + Send>, backlog: Arc<Backlog>) -> Self {
        backlog.change(|state| state.releasing.push(name.clone()));
        Self {
            name,
            turn: Some(turn),
            backlog,
        }
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        // The next thread in line must have the turn before any thread is told of the release.
        self.turn = None;
        self.backlog.change(|state| {
            let place = state.releasing.iter().position(|name| *name == self.name);
            place.map(|place| state.releasing.swap_remove(place));
        });
    }
}
