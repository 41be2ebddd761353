//! The end of a mailbox that other threads write to.

use std::thread::{self, Thread};
use std::time::Instant;

use crossbeam_channel::Sender;

/// The end that everybody else writes to.
#[derive(Debug)]
pub(crate) struct Slot<T> {
    pub(super) to: Sender<T>,
    /// Absent if the reader waits in crossbeam's way.
    pub(super) reader: Option<Thread>,
}

/// Sleeps until somebody unparks the thread or the time has come, or without a reason less.
pub(crate) fn park(until: Option<Instant>) {
    match until {
        None => thread::park(),
        Some(until) => thread::park_timeout(until.saturating_duration_since(Instant::now())),
    }
}

impl<T> Slot<T> {
    /// Does nothing if nobody reads any more, or if a bounded channel is full.
    pub(crate) fn put(&self, letter: T) {
        if self.to.try_send(letter).is_ok()
            && let Some(reader) = &self.reader
        {
            // A thread that tells itself something, while it reads for others, is awake.
            if reader.id() != thread::current().id() {
                reader.unpark();
            }
        }
    }
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Self {
            to: self.to.clone(),
            reader: self.reader.clone(),
        }
    }
}

impl<T> From<Sender<T>> for Slot<T> {
    fn from(to: Sender<T>) -> Self {
        Self { to, reader: None }
    }
}
