//! Channels, and the one wait for several of them.

use std::time::Instant;

use crossbeam_channel::Select;
pub(crate) use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

/// A channel that a thread can wait for.
pub(crate) trait Waitable {
    fn register<'a>(&'a self, select: &mut Select<'a>);
}

impl<T> Waitable for Receiver<T> {
    fn register<'a>(&'a self, select: &mut Select<'a>) {
        select.recv(self);
    }
}

/// Blocks until one of the channels has a message or no sender, and returns its place in the
/// list; `None` at the deadline.
///
/// Another thread that reads the same channel may be faster: use `try_recv`, and wait again.
pub(crate) fn wait_any(channels: &[&dyn Waitable], until: Option<Instant>) -> Option<usize> {
    let mut select = Select::new();
    for channel in channels {
        channel.register(&mut select);
    }
    match until {
        Some(until) => select.ready_deadline(until).ok(),
        None => Some(select.ready()),
    }
}
