//! A row that is ours, or may be or become so, and the duty to give it up.
//!
//! The one type here that acts on drop. Every way out of an acquisition and of a guard
//! ends in it: what may be in the table is handed to the background, which deletes it.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::guard::GuardState;
use crate::mysql::lease::Lease;
use crate::mysql::local::Turn;
use crate::mysql::release::Release;
use crate::mysql::shared::Shared;
use crate::time::clock::Moment;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) shared: Arc<Shared>,
    pub(super) name: Arc<str>,
    /// Who we are in the table, this time.
    pub(super) owner: String,
    fate: Mutex<Fate>,
    /// Of a lock that is held; passed on when the row is gone.
    turn: Mutex<Option<Turn>>,
}

/// What may be in the table.
#[derive(Clone, Debug)]
pub(super) enum Fate {
    /// Nothing of ours.
    Nothing,
    /// A statement that was sent at the moment got no answer.
    Doubt(Moment),
    /// Our row.
    Ours(Arc<Lease>),
}

impl Place {
    pub(super) fn new(shared: Arc<Shared>, name: Arc<str>) -> Self {
        Self {
            shared,
            name,
            owner: uuid::Uuid::new_v4().to_string(),
            fate: Mutex::new(Fate::Nothing),
            turn: Mutex::new(None),
        }
    }

    pub(super) fn fate(&self) -> Fate {
        self.fate.lock().clone()
    }

    pub(super) fn set_fate(&self, fate: Fate) {
        *self.fate.lock() = fate;
    }

    pub(super) fn set_turn(&self, turn: Turn) {
        *self.turn.lock() = Some(turn);
    }

    /// The calling thread may lock the name again, and wait.
    pub(super) fn disown(&self) {
        if let Some(turn) = &*self.turn.lock() {
            turn.disown();
        }
    }

    /// Gives the row up and waits for the answer, but not beyond the end of the lease.
    pub(super) fn unlock(&self) -> Result<()> {
        let Some((lease, mut release)) = self.give_up() else {
            return Ok(());
        };
        let lost = Error::Lost {
            path: self.name.to_string(),
        };
        if lease.state(Moment::now()) == GuardState::Lost {
            self.shared.release(release);
            return Err(lost);
        }
        let valid = lease.valid_for(Moment::now());
        let answer = release.answer();
        self.shared.release(release);
        match answer.recv_timeout(valid) {
            Ok(true) => Ok(()),
            Ok(false) => Err(lost),
            Err(_) => Err(Error::Suspect {
                path: self.name.to_string(),
            }),
        }
    }

    /// Takes the duty away from us, if there is one.
    fn give_up(&self) -> Option<(Arc<Lease>, Release)> {
        let fate = std::mem::replace(&mut *self.fate.lock(), Fate::Nothing);
        let Fate::Ours(lease) = fate else {
            return None;
        };
        lease.release();
        let release = self.released(lease.over(), false);
        Some((lease, release))
    }

    fn released(&self, over: Moment, doubt: bool) -> Release {
        self.disown();
        let turn = self.turn.lock().take();
        let (name, owner) = (self.name.clone(), self.owner.clone());
        Release::new(name, owner, over, doubt, turn, self.shared.backlog())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let release = match self.fate() {
            Fate::Nothing => return,
            Fate::Doubt(sent) => self.released(sent + self.shared.lease(), true),
            Fate::Ours(lease) => {
                lease.release();
                self.released(lease.over(), false)
            }
        };
        self.shared.release(release);
    }
}
