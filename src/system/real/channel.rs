//! Channels, and the one wait for several of them.

use std::time::Instant;

pub(crate) use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use crossbeam_channel::{Select, at};

/// A channel that a thread can wait for.
pub(crate) trait Waitable {
    fn register<'a>(&'a self, select: &mut Select<'a>);
    fn has_message(&self) -> bool;
}

impl<T> Waitable for Receiver<T> {
    fn register<'a>(&'a self, select: &mut Select<'a>) {
        select.recv(self);
    }

    fn has_message(&self) -> bool {
        !self.is_empty()
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
    let Some(until) = until else {
        return Some(select.ready());
    };
    // A wait with a deadline of its own yields a few times behind it, each time for a time slice of
    // every other thread if the machine is busy.
    let deadline = at(until);
    select.recv(&deadline);
    match select.ready() {
        place if place < channels.len() => Some(place),
        _ => channels.iter().position(|channel| channel.has_message()),
    }
}
