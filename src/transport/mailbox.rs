//! A channel for the answers that one thread waits for.
//!
//! Its reader blocks at once. crossbeam's own wait spins for about ten microseconds first, which
//! pays off if another thread answers, but keeps a processor busy if a server does.

use std::time::Instant;

use crate::system::channel::{Receiver, Sender, unbounded};
use crate::system::clock;
use crate::system::thread::{self, Thread};

/// The receiving end, which one thread reads, by the `receive` of its transport.
#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    slot: Slot<T>,
    letters: Receiver<T>,
}

impl<T> Mailbox<T> {
    /// Creates a mailbox for the calling thread.
    pub(crate) fn new() -> Self {
        let (to, letters) = unbounded();
        let reader = Some(thread::current());
        Self {
            slot: Slot { to, reader },
            letters,
        }
    }

    pub(crate) fn slot(&self) -> Slot<T> {
        self.slot.clone()
    }

    /// Takes the next letter if there is one.
    pub(crate) fn try_recv(&self) -> Option<T> {
        self.letters.try_recv().ok()
    }

    /// Returns the channel, for a `select!`.
    pub(crate) fn letters(&self) -> &Receiver<T> {
        &self.letters
    }
}

/// The sending end of a mailbox or a channel.
#[derive(Debug)]
pub(crate) struct Slot<T> {
    to: Sender<T>,
    /// The thread to unpark; absent if the reader blocks on the channel.
    reader: Option<Thread>,
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

#[cfg(all(test, zklock_sim))]
mod orders;

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::support::aside;
    use crate::time::limit::{Limit, LimitReached};
    use crate::transport::{Call, Capabilities, Transport, WatchId};

    /// A transport that never has anything to read.
    #[derive(Debug)]
    struct Parked;

    impl Transport for Parked {
        fn send(&self, _: Vec<Call>) {}

        fn unwatch(&self, _: &str, _: WatchId) {}

        fn capabilities(&self) -> Capabilities {
            unreachable!("no test asks")
        }

        fn close(&self, _: Duration) -> bool {
            true
        }
    }

    /// Waits for the next letter.
    pub(super) fn recv<T>(mailbox: &Mailbox<T>, limit: &Limit) -> Result<T, LimitReached> {
        let transport: &dyn Transport = &Parked;
        transport.receive(mailbox, limit)
    }

    #[test]
    fn a_thread_that_has_put_a_letter_in_its_own_mailbox_does_not_rest() {
        let rested = aside(|| {
            let mailbox = Mailbox::new();
            mailbox.slot().put(7);
            Parked.rest(&|| !mailbox.letters().is_empty(), None);
            mailbox.try_recv()
        });
        let letter = rested.recv_timeout(Duration::from_secs(10));
        assert_eq!(letter, Ok(Some(7)), "it rests for ever");
    }

    #[test]
    fn letters_come_in_order_and_a_limit_ends_the_wait_for_more() {
        let mailbox = Mailbox::new();
        let slot = mailbox.slot();
        let forever = Limit::new(None, None);
        thread::scope(|scope| {
            scope.spawn(move || (0..1000).for_each(|letter| slot.put(letter)));
            for expected in 0..1000 {
                assert_eq!(recv(&mailbox, &forever), Ok(expected));
            }
        });
        let short = Limit::after(Duration::from_millis(1));
        assert_eq!(recv(&mailbox, &short), Err(LimitReached));
        mailbox.slot().put(7);
        assert_eq!(recv(&mailbox, &short), Ok(7), "what is there is taken");
    }
}
