//! The limit of a wait: a deadline, a way to cancel, or neither.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, at, never, select};

/// Later than the end of any wait: a century.
const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The time `duration` from now, or a century from now if that is sooner.
pub(crate) fn from_now(duration: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(duration.min(FAR)).unwrap_or(now)
}

/// Whether a time is so late that no wait lasts until then.
pub(crate) fn never_comes(time: Instant) -> bool {
    FAR / 2 < time.saturating_duration_since(Instant::now())
}

/// A deadline and a way to cancel; either may be absent.
///
/// Both are channels, so that one `select!` waits with and without them. A limit that was
/// reached stays reached, although a channel reports it only once: a thread that takes the
/// message out of `cancel` must call [`cancelled`](Self::cancelled).
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    pub(crate) cancel: Receiver<()>,
    cancelled: Arc<AtomicBool>,
    deadline: Option<Instant>,
    /// Whether `cancel` may report anything.
    cancellable: bool,
    /// When the call began.
    pub(crate) begun: Instant,
}

/// The limit was reached.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct LimitReached;

impl Limit {
    /// A limit at the `deadline`, or when `cancel` has a message.
    pub(crate) fn new(deadline: Option<Instant>, cancel: Option<Receiver<()>>) -> Self {
        Self {
            cancellable: cancel.is_some(),
            cancel: cancel.unwrap_or_else(never),
            cancelled: Arc::default(),
            deadline,
            begun: Instant::now(),
        }
    }

    /// A limit after `duration`; none if that is too long to be counted.
    pub(crate) fn after(duration: Duration) -> Self {
        Self::new(Instant::now().checked_add(duration), None)
    }

    /// Returns a limit that is also reached at `deadline`.
    pub(crate) fn until(mut self, deadline: Option<Instant>) -> Self {
        self.deadline = match (self.deadline, deadline) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        self
    }

    /// Takes the next message out of a channel; a disconnected channel counts as the limit.
    ///
    /// Without a way to cancel there is no `select!`, which would make the woken thread wait
    /// for the one that woke it.
    pub(crate) fn recv<T>(&self, channel: &Receiver<T>) -> Result<T, LimitReached> {
        if self.cancellable {
            return select! {
                recv(channel) -> message => message.map_err(|_| LimitReached),
                recv(self.timer()) -> _ => Err(LimitReached),
                recv(self.cancel) -> _ => Err(self.cancelled()),
            };
        }
        match self.deadline {
            Some(deadline) => channel.recv_deadline(deadline).map_err(|_| LimitReached),
            None => channel.recv().map_err(|_| LimitReached),
        }
    }

    pub(crate) fn is_cancellable(&self) -> bool {
        self.cancellable
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns a channel that is filled at the deadline, and for good once it was cancelled.
    pub(crate) fn timer(&self) -> Receiver<Instant> {
        match self.cancelled.load(Ordering::Relaxed) {
            true => at(Instant::now()),
            false => self.deadline.map_or_else(never, at),
        }
    }

    /// Records that a message came through `cancel`.
    pub(crate) fn cancelled(&self) -> LimitReached {
        self.cancelled.store(true, Ordering::Relaxed);
        LimitReached
    }

    /// Returns whether the limit is reached.
    pub(crate) fn is_over(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
            || self
                .deadline
                .is_some_and(|deadline| deadline <= Instant::now())
            || select! {
                recv(self.cancel) -> _ => {
                    self.cancelled();
                    true
                }
                default => false,
            }
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::bounded;

    use super::*;

    #[test]
    fn a_reached_limit_stays_reached() {
        let over = Limit::after(Duration::ZERO);
        for _ in 0..3 {
            assert!(over.timer().recv().is_ok());
            assert!(over.is_over());
        }
    }

    #[test]
    fn every_later_wait_notices_a_cancel() {
        let (cancel, cancelled) = bounded(1);
        let limit = Limit::new(None, Some(cancelled));
        assert!(!limit.is_over());
        cancel.send(()).unwrap();
        let shorter = limit.clone().until(Some(Instant::now()));
        assert!(shorter.timer().recv().is_ok());
        assert!(
            limit.timer().try_recv().is_err(),
            "only the shorter one is over"
        );
        assert!(shorter.cancel.recv().is_ok());
        shorter.cancelled();
        assert!(limit.timer().recv().is_ok());
        assert!(limit.is_over());
    }
}
