//! How long a calling thread is willing to wait.

use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, at, never, select};

/// A deadline and a way to be told to give up; either may be absent.
///
/// Both are channels, so that a wait with and without them is one `select!`.
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    pub(crate) cancel: Receiver<()>,
    deadline: Option<Instant>,
    /// Whether anything can come through `cancel`.
    cancellable: bool,
    /// When the call began.
    pub(crate) begun: Instant,
}

/// The limit was reached.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct GaveUp;

impl Limit {
    /// Waits until the `deadline`, and until something comes through `cancel`.
    pub(crate) fn new(deadline: Option<Instant>, cancel: Option<Receiver<()>>) -> Self {
        Self {
            cancellable: cancel.is_some(),
            cancel: cancel.unwrap_or_else(never),
            deadline,
            begun: Instant::now(),
        }
    }

    /// Waits for `duration`; one that is too long to be counted means for ever.
    pub(crate) fn after(duration: Duration) -> Self {
        Self::new(Instant::now().checked_add(duration), None)
    }

    /// Returns the earlier of two deadlines.
    pub(crate) fn until(mut self, deadline: Option<Instant>) -> Self {
        self.deadline = match (self.deadline, deadline) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        self
    }

    /// Returns a channel that is filled at the deadline.
    ///
    /// A new one for each wait, as it is filled once only.
    pub(crate) fn timer(&self) -> Receiver<Instant> {
        self.deadline.map_or_else(never, at)
    }

    /// Takes the next message out of a channel; a disconnected one counts as the limit.
    ///
    /// Where nobody can cancel, this does without a `select!`, which makes the thread that
    /// was woken wait for the one that woke it.
    pub(crate) fn recv<T>(&self, channel: &Receiver<T>) -> Result<T, GaveUp> {
        if self.cancellable {
            return select! {
                recv(channel) -> message => message.map_err(|_| GaveUp),
                recv(self.timer()) -> _ => Err(GaveUp),
                recv(self.cancel) -> _ => Err(GaveUp),
            };
        }
        match self.deadline {
            Some(deadline) => channel.recv_deadline(deadline).map_err(|_| GaveUp),
            None => channel.recv().map_err(|_| GaveUp),
        }
    }

    /// Returns whether the limit is reached already.
    pub(crate) fn is_over(&self) -> bool {
        self.deadline
            .is_some_and(|deadline| deadline <= Instant::now())
            || select! {
                recv(self.cancel) -> _ => true,
                default => false,
            }
    }
}
