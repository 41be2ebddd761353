//! A lock that is held, and the duty to delete its row.
//!
//! [`OwnRow`] is the only type over the database that acts on drop. Every way out of an acquisition
//! and of a guard ends in it: it hands what may be in the table to the background, which deletes
//! it.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use parking_lot::Mutex;

use crate::error::{Error, LostReason, Result};
use crate::guard::GuardState;
use crate::local::turnstile::Turn;
use crate::mysql::database::Database;
use crate::mysql::deletion::Deletion;
use crate::mysql::lease::RowLease;
use crate::mysql::renew::renew_one;
use crate::system::clock::since_boot;

/// A lock that is held; guards are made of it.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) lease: Arc<RowLease>,
    pub(super) row: Arc<OwnRow>,
}

impl UnwindSafe for Held {}
impl RefUnwindSafe for Held {}

/// The row of one acquisition. The row may exist, and is deleted when this is dropped.
#[derive(Debug)]
pub(super) struct OwnRow {
    pub(super) database: Arc<Database>,
    pub(super) name: Arc<str>,
    /// The name of this acquisition in the table.
    pub(super) owner: String,
    /// A description of the holder, for people.
    pub(super) description: String,
    in_table: Mutex<InTable>,
    /// Whether a statement got no answer, which may yet create the row again.
    was_in_doubt: AtomicBool,
    /// The data to write into the job's journal when the row is deleted.
    journal: Mutex<Option<Vec<u8>>>,
    /// The turn of the thread, once the lock is held; passed on when the row is deleted.
    turn: Mutex<Option<Turn<(), Held>>>,
}

/// What an acquisition may have left in the table.
#[derive(Clone, Debug)]
pub(super) enum InTable {
    Nothing,
    /// The statement that was sent at this moment got no answer.
    InDoubt(Duration),
    /// The row, with its lease.
    Row(Arc<RowLease>),
}

impl Held {
    pub(super) fn check(&self) -> Result<()> {
        match self.lease.state(since_boot()) {
            GuardState::Lost => Err(self.row.lost(self.lease.why_lost())),
            _ => Ok(()),
        }
    }

    /// Formats a guard for [`fmt::Debug`].
    pub(super) fn describe(&self, guard: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut told = f.debug_struct(guard);
        told.field("path", &self.lease.name);
        told.field("state", &self.lease.state(since_boot()));
        if let Some(why) = self.lost_reason() {
            told.field("why", &why);
        }
        told.field("token", &self.lease.token);
        told.field("node", &self.lease.owner);
        told.finish()
    }

    pub(super) fn lost_reason(&self) -> Option<LostReason> {
        match self.lease.state(since_boot()) {
            GuardState::Lost => Some(self.lease.why_lost()),
            _ => None,
        }
    }

    pub(super) fn verify(&self) -> Result<()> {
        self.check()?;
        let database = &self.row.database;
        let (lease, length) = (self.lease.clone(), database.lease());
        let asked = since_boot();
        let valid = self.lease.valid_for(asked);
        let deadline = Instant::now() + valid.min(database.answer_limit());
        let renewed = database.ask(deadline, "verify the lock", move |connection| {
            // The connection may have died since its last use.
            renew_one(connection, &lease, length).or_else(|_| renew_one(connection, &lease, length))
        });
        self.check()?;
        match renewed {
            Ok(()) => Ok(()),
            Err(Error::Closed) => Err(Error::Closed),
            // Another renewal that was sent since then proves the same.
            Err(_) if self.lease.confirmed() >= asked => Ok(()),
            Err(error) => {
                log::debug!("cannot verify {}: {error}", self.row.name);
                Err(self.row.suspect())
            }
        }
    }
}

impl OwnRow {
    pub(super) fn new(database: Arc<Database>, name: Arc<str>, description: String) -> Self {
        Self {
            database,
            name,
            owner: uuid::Uuid::new_v4().to_string(),
            description,
            in_table: Mutex::new(InTable::Nothing),
            was_in_doubt: AtomicBool::new(false),
            journal: Mutex::default(),
            turn: Mutex::new(None),
        }
    }

    pub(super) fn in_table(&self) -> InTable {
        self.in_table.lock().clone()
    }

    pub(super) fn set_in_table(&self, in_table: InTable) {
        if let InTable::InDoubt(_) = in_table {
            self.was_in_doubt.store(true, Ordering::Relaxed);
        }
        *self.in_table.lock() = in_table;
    }

    pub(super) fn set_turn(&self, turn: Turn<(), Held>) {
        *self.turn.lock() = Some(turn);
    }

    /// Gives the thread that acquired `held` the same lock when it asks again.
    pub(super) fn share(&self, held: &Arc<Held>) {
        if let Some(turn) = &*self.turn.lock() {
            turn.share(held);
        }
    }

    /// Makes the thread that acquired the lock wait for it like any other.
    pub(super) fn detach(&self) {
        if let Some(turn) = &*self.turn.lock() {
            turn.detach();
        }
    }

    /// Deletes the row and waits for the answer, but not beyond the end of the lease.
    pub(super) fn unlock(&self) -> Result<()> {
        if self.database.is_inherited() {
            return Err(Error::Closed);
        }
        let Some((lease, answer)) = self.release() else {
            return Ok(());
        };
        let now = since_boot();
        if lease.state(now) == GuardState::Lost {
            return Err(self.lost(lease.why_lost()));
        }
        match answer.recv_timeout(lease.valid_for(now)) {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.lost(LostReason::Evicted)),
            Err(RecvTimeoutError::Timeout) => Err(self.suspect()),
            Err(RecvTimeoutError::Disconnected) => Err(Error::Database {
                what: "release the lock",
                message: "its row cannot be deleted, as the log says, and keeps others out until its lease has ended; the user needs DELETE on database_lock".to_owned(),
            }),
        }
    }

    /// Stores data to be written into the job's journal when the row is deleted, and only then.
    pub(super) fn set_journal(&self, journal: Vec<u8>) {
        *self.journal.lock() = Some(journal);
    }

    /// Deletes the row; returns its lease, and a channel that tells whether the row was there, and
    /// the journal was written with it. The channel is disconnected if the outcome is unknown.
    pub(super) fn release(&self) -> Option<(Arc<RowLease>, Receiver<bool>)> {
        let in_table = std::mem::replace(&mut *self.in_table.lock(), InTable::Nothing);
        let InTable::Row(lease) = in_table else {
            return None;
        };
        let mut deletion = self.deletion(&lease);
        let answer = deletion.answer();
        self.database.delete(deletion);
        Some((lease, answer))
    }

    /// Ends the renewals of the row, and returns its deletion.
    fn deletion(&self, lease: &RowLease) -> Deletion {
        lease.release();
        let journal = self.journal.lock().take();
        self.deletion_by(lease.end())
            .writing(journal.map(|journal| (lease.token, journal)))
    }

    fn deletion_by(&self, lease_end: Duration) -> Deletion {
        let in_doubt = self.was_in_doubt.load(Ordering::Relaxed);
        self.detach();
        let turn = self.turn.lock().take();
        let (name, owner) = (self.name.clone(), self.owner.clone());
        let backlog = self.database.backlog.clone();
        Deletion::new(name, owner, lease_end, in_doubt, backlog).before(turn)
    }

    pub(super) fn lost(&self, why: LostReason) -> Error {
        Error::Lost {
            path: self.name.to_string(),
            why,
        }
    }

    fn suspect(&self) -> Error {
        Error::Suspect {
            path: self.name.to_string(),
        }
    }
}

impl Drop for OwnRow {
    fn drop(&mut self) {
        if self.database.is_inherited() {
            return;
        }
        let deletion = match self.in_table() {
            InTable::Nothing => return,
            InTable::InDoubt(sent) => self.deletion_by(sent + self.database.lease()),
            InTable::Row(lease) => self.deletion(&lease),
        };
        self.database.delete(deletion);
    }
}
