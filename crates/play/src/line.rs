//! The threads of one client that want the same path, first come, first served.
//!
//! The servers see only one of them at a time: the thread that has the turn. Threads that want to read or to write do
//! not wait for each other, so each of them has a line of its own.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;

use super::ask::{GuardId, Thread, Ticket};
use zklock_core::acquisition::Acquisition;
use zklock_core::attempt::Patience;
use zklock_core::dialect::Role;
use zklock_core::skip_listing::LastGrant;

/// Which line this is.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct LineId {
    pub(super) path: Arc<str>,
    /// The thread that has the line for itself; `None` for the line of the threads that want to be alone.
    pub(super) only: Option<Ticket>,
    /// How many permits the semaphore has whose line this is, or whose permits are here.
    pub(super) permits: Option<u32>,
}

impl LineId {
    /// Returns a line in a directory of a semaphore with so many permits.
    pub(super) fn of_semaphore(dir: String, permits: u32, only: Option<Ticket>) -> Self {
        Self {
            path: dir.into(),
            only,
            permits: Some(permits),
        }
    }

    /// Returns the line of a thread that wants this.
    pub(super) fn of(path: &Arc<str>, role: Role, ticket: Ticket) -> Self {
        Self {
            path: path.clone(),
            only: (role != Role::Exclusive).then_some(ticket),
            permits: None,
        }
    }
}

/// The threads that want the same path; see the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// The thread that has the turn, and what it does with that.
    pub(super) turn: Option<(Thread, Turn)>,
    pub(super) waiting: VecDeque<Waiter>,
    /// The last grant, by which the next one may tell that nobody came in between.
    pub(super) last: Option<LastGrant>,
    /// How many times in a row the lock went from thread to thread.
    pub(super) streak: u32,
}

/// The state of the thread that has the turn.
#[derive(Debug)]
pub(super) enum Turn {
    Acquires(Box<Acquires>),
    Holds {
        guard: GuardId,
        /// Whether other clients were ahead: some may be behind, too.
        has_waited: bool,
    },
}

/// A thread on its way to the head of the queue.
#[derive(Debug)]
pub(super) struct Acquires {
    pub(super) ticket: Ticket,
    pub(super) acquisition: Acquisition,
}

/// A thread in line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) ticket: Ticket,
    pub(super) thread: Thread,
    pub(super) role: Role,
    pub(super) patience: Patience,
}

impl Waiter {
    pub(super) fn new((ticket, thread): (Ticket, Thread), role: Role, patience: Patience) -> Self {
        Self {
            ticket,
            thread,
            role,
            patience,
        }
    }
}

impl Line {
    /// Returns the acquisition of the thread that has the turn.
    pub(super) fn acquisition(&mut self) -> Option<&mut Acquisition> {
        Some(&mut self.acquires()?.acquisition)
    }

    /// Returns the acquisition of the thread that has the turn, and its ticket.
    pub(super) fn acquires(&mut self) -> Option<&mut Acquires> {
        match &mut self.turn {
            Some((_, Turn::Acquires(acquires))) => Some(acquires),
            _ => None,
        }
    }

    /// Returns the guard of the thread that has the turn.
    pub(super) fn guard(&self) -> Option<GuardId> {
        match &self.turn {
            Some((_, Turn::Holds { guard, .. })) => Some(*guard),
            _ => None,
        }
    }

    /// Returns whether this thread has the turn, or waits for it.
    pub(super) fn has(&self, thread: Thread) -> bool {
        let owns = self
            .turn
            .as_ref()
            .is_some_and(|(owner, _)| *owner == thread);
        owns || self.waiting.iter().any(|waiter| waiter.thread == thread)
    }
}
