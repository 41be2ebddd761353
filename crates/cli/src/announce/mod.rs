//! Announces whether this standby is active: to a file, to the service manager, in a stream of
//! events. Also runs the hooks of its user.
//!
//! ```text
//!  waiting ──► active ──► ready ──► (suspect, held, lost) ──► stopping ──► passive ──► waiting
//!              --on-active   the command runs                 --on-passive   the lock is released
//! ```
//!
//! These are the events. Nothing in this module can hold the command up for long, or keep it from
//! being stopped in time.

mod events;
pub(crate) mod hook;
mod ready_file;
mod service_manager;

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use zklock::{GuardState, LostReason, Term};

use self::events::Events;
pub(crate) use self::ready_file::ReadyFile;
use self::service_manager::ServiceManager;
use crate::args::Standby;
use crate::failure::Failure;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Announcer {
    path: String,
    file: Option<ReadyFile>,
    manager: Option<ServiceManager>,
    events: Option<Events>,
    /// Whether the wait, or the end of the command, has been written.
    is_waiting: AtomicBool,
    is_stopping: AtomicBool,
}

impl Announcer {
    /// Removes what an earlier process has left.
    pub(crate) fn new(standby: &Standby) -> Result<Self, Failure> {
        let file = standby.ready_file.as_deref().map(ReadyFile::new);
        let events = standby.events.as_deref().map(Events::new);
        Ok(Self {
            path: standby.path.clone(),
            file: file.transpose()?,
            manager: ServiceManager::new(),
            events: events.transpose()?,
            is_waiting: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
        })
    }

    /// Announces that this machine is in the queue, behind this contender.
    pub(crate) fn waits(&self, behind: &str) {
        self.tell(|| format!("standing by for {}, behind {behind}", self.path));
        if !self.is_waiting.swap(true, Ordering::Relaxed) {
            self.write("waiting", json!({ "behind": behind }));
        }
    }

    /// Announces that the lock is held.
    pub(crate) fn is_active(&self, term: &Term<'_>) {
        self.is_waiting.store(false, Ordering::Relaxed);
        self.is_stopping.store(false, Ordering::Relaxed);
        self.write("active", about(term));
    }

    /// Announces that the first hook begins, which may take longer than a manager waits for a start.
    pub(crate) fn prepares(&self) {
        self.tell(|| format!("becoming active for {}", self.path));
    }

    /// Announces that the command begins.
    pub(crate) fn is_ready(&self, term: &Term<'_>) {
        if let Some(file) = &self.file {
            file.make(term.node());
        }
        self.tell(|| format!("active for {}", self.path));
        self.write("ready", about(term));
    }

    /// Announces that the lock's state has changed.
    pub(crate) fn is(&self, state: GuardState, why: Option<LostReason>) {
        match state {
            GuardState::Held => self.write("held", json!({})),
            GuardState::Suspect => self.write("suspect", json!({})),
            GuardState::Lost => {
                let why = why.map(|why| why.to_string());
                self.write("lost", json!({ "why": why }));
            }
        }
    }

    /// Announces that the command is to end, or has ended.
    pub(crate) fn stops(&self) {
        if let Some(file) = &self.file {
            file.remove();
        }
        if !self.is_stopping.swap(true, Ordering::Relaxed) {
            self.write("stopping", json!({}));
        }
    }

    /// Announces that the lock is about to be released, or is lost.
    pub(crate) fn is_passive(&self, term: &Term<'_>) {
        self.tell(|| format!("passive for {}", self.path));
        self.write("passive", about(term));
    }

    fn tell(&self, status: impl FnOnce() -> String) {
        if let Some(manager) = &self.manager {
            manager.tell(&status());
        }
    }

    fn write(&self, event: &str, mut values: Value) {
        if let Some(events) = &self.events {
            values["path"] = json!(self.path);
            events.write(event, values);
        }
    }
}

fn about(term: &Term<'_>) -> Value {
    json!({
        "term": term.number(),
        "token": term.fencing_token().get(),
        "node": term.node(),
    })
}
