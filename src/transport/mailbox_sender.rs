//! The sending end of a mailbox.

use std::time::Instant;

use crate::system::channel::Sender;
use crate::system::clock;
use crate::system::thread::{self, Thread};

/// The sending end of a mailbox or a channel.
#[derive(Debug)]
pub(crate) struct Slot<T> {
    pub(super) to: Sender<T>,
    /// The thread to unpark; absent if the reader blocks on the channel.
    pub(super) reader: Option<Thread>,
}

/// Blocks until the thread is unparked or the deadline passes; may return earlier.
pub(crate) fn park(until: Option<Instant>) {
    match until {
        None => thread::park(),
        Some(until) => thread::park_timeout(until.saturating_duration_since(clock::now())),
    }
}

impl<T> Slot<T> {
    /// Puts a letter in; does nothing if there is no reader left, or if a bounded channel is full.
    pub(crate) fn put(&self, letter: T) {
        if self.to.try_send(letter).is_err() {
            return;
        }
        // The reader may be the calling thread, while it reads for others.
        let me = || thread::current().id();
        if let Some(reader) = self.reader.as_ref().filter(|reader| reader.id() != me()) {
            reader.unpark();
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
