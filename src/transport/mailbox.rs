//! A channel for the answers that one thread waits for.
//!
//! Its reader blocks at once. crossbeam's own wait spins for about ten microseconds first, which
//! pays off if another thread answers, but keeps a processor busy if a server does.

use super::Transport;
use super::mailbox_sender::Slot;
use crate::system::channel::{Receiver, unbounded};
use crate::system::clock;
use crate::system::thread;
use crate::time::limit::{Limit, LimitReached};

/// The receiving end, which one thread reads.
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

    /// Takes the next letter; rests in the transport until there is one. Only the thread that
    /// created the mailbox may call this.
    pub(crate) fn recv(&self, transport: &dyn Transport, limit: &Limit) -> Result<T, LimitReached> {
        if limit.is_cancellable() {
            return transport.while_attended(|| limit.recv(&self.letters));
        }
        loop {
            if let Ok(letter) = self.letters.try_recv() {
                return Ok(letter);
            }
            if limit.deadline().is_some_and(|until| until <= clock::now()) {
                return Err(LimitReached);
            }
            // A sender unparks this thread after it has put the letter in.
            transport.rest(&|| !self.letters.is_empty(), limit.deadline());
        }
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
    use crate::transport::{Call, Capabilities, WatchId};

    /// A transport that never has anything to read.
    #[derive(Debug)]
    pub(super) struct Parked;

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
                assert_eq!(mailbox.recv(&Parked, &forever), Ok(expected));
            }
        });
        let short = Limit::after(Duration::from_millis(1));
        assert_eq!(mailbox.recv(&Parked, &short), Err(LimitReached));
        mailbox.slot().put(7);
        assert_eq!(
            mailbox.recv(&Parked, &short),
            Ok(7),
            "what is there is taken"
        );
    }
}
