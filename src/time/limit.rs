//! The limit of a wait: a deadline, a way to cancel, or neither.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::system::channel::{Receiver, Waitable, wait_any};
use crate::system::clock;

/// A century, which is longer than any wait.
const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Returns the time `duration` from now, or a century from now if that is sooner.
pub(crate) fn from_now(duration: Duration) -> Instant {
    let now = clock::now();
    now.checked_add(duration.min(FAR)).unwrap_or(now)
}

/// Returns this time since boot, or the longest duration if no wait lasts until then.
pub(crate) fn since_boot(time: Instant) -> Duration {
    let ahead = time.saturating_duration_since(clock::now());
    match FAR / 2 < ahead {
        true => Duration::MAX,
        false => clock::since_boot() + ahead,
    }
}

/// A deadline and a way to cancel; either may be absent.
///
/// A limit that was reached stays reached, although a channel reports a cancellation only once.
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    cancel: Option<Receiver<()>>,
    cancelled: Arc<AtomicBool>,
    deadline: Option<Instant>,
    /// How long to wait for a connection, from when it was first missing, if not until the deadline.
    offline: Option<(Duration, Arc<OnceLock<Instant>>)>,
    /// When the call began.
    begun: Instant,
}

/// The error of a limit that was reached.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct LimitReached;

/// How long a thread waits for a message.
pub(crate) trait Waits {
    /// Takes the next message out of a channel; a disconnected channel counts as the limit.
    fn recv<T>(&self, channel: &Receiver<T>) -> Result<T, LimitReached>;
}

impl Waits for Limit {
    /// Without a limit, waits for the one channel alone, which is cheaper.
    fn recv<T>(&self, channel: &Receiver<T>) -> Result<T, LimitReached> {
        while self.cancel.is_some() || self.deadline.is_some() {
            match channel.try_recv() {
                Err(error) if error.is_empty() => self.wait_any(&[channel])?,
                received => return received.map_err(|_| LimitReached),
            };
        }
        channel.recv().map_err(|_| LimitReached)
    }
}

impl Limit {
    /// Creates a limit at the `deadline`, or when `cancel` has a message.
    pub(crate) fn new(deadline: Option<Instant>, cancel: Option<Receiver<()>>) -> Self {
        Self {
            cancel,
            cancelled: Arc::default(),
            deadline,
            offline: None,
            begun: clock::now(),
        }
    }

    /// Returns a limit that waits no longer than this for a connection, however often it breaks.
    pub(crate) fn offline(mut self, longest: Duration) -> Self {
        self.offline = Some((longest, Arc::default()));
        self
    }

    /// Returns the limit of a wait for a connection, which is missing now.
    pub(crate) fn of_outage(&self) -> Self {
        let offline = self.offline.as_ref();
        let until = offline.map(|(longest, until)| *until.get_or_init(|| from_now(*longest)));
        self.clone().until(until)
    }

    /// Creates a limit after `duration`, or none if that is too long for the clock to count.
    pub(crate) fn after(duration: Duration) -> Self {
        Self::new(clock::now().checked_add(duration), None)
    }

    /// Returns a limit that is also reached at `deadline`.
    pub(crate) fn until(mut self, deadline: Option<Instant>) -> Self {
        self.deadline = self.deadline.into_iter().chain(deadline).min();
        self
    }

    /// Blocks until one of the channels has a message or no sender; returns its index in the list.
    pub(crate) fn wait_any(&self, channels: &[&dyn Waitable]) -> Result<usize, LimitReached> {
        self.wait_any_for(None, channels)?.ok_or(LimitReached)
    }

    /// Like `wait_any`, but returns `None` after `pause`.
    pub(crate) fn wait_any_for(
        &self,
        pause: Option<Duration>,
        channels: &[&dyn Waitable],
    ) -> Result<Option<usize>, LimitReached> {
        let paused = pause.map(from_now);
        let until = self.deadline.into_iter().chain(paused).min();
        let mut all = channels.to_vec();
        all.extend(self.cancel.iter().map(|cancel| cancel as &dyn Waitable));
        while !self.is_over() {
            match wait_any(&all, until) {
                Some(place) if place < channels.len() => return Ok(Some(place)),
                None if until == paused => return Ok(None),
                // The call is cancelled, unless another call that shares the channel took the message.
                _ => {}
            }
        }
        // A message that has arrived counts, as in `recv`.
        wait_any(channels, Some(clock::now()))
            .map(Some)
            .ok_or(LimitReached)
    }

    /// Returns how long the call has waited.
    pub(crate) fn spent(&self) -> Duration {
        clock::now().saturating_duration_since(self.begun)
    }

    pub(crate) fn is_cancellable(&self) -> bool {
        self.cancel.is_some()
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns whether the caller was found to have cancelled the call.
    pub(crate) fn was_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Returns whether the limit is reached.
    pub(crate) fn is_over(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
            || self
                .deadline
                .is_some_and(|deadline| deadline <= clock::now())
            || self.is_cancelled()
    }

    /// Takes a message out of the channel that cancels. One message ends one call: the next message
    /// is for another call that shares the channel.
    fn is_cancelled(&self) -> bool {
        let said = |cancel: &Receiver<()>| !cancel.try_recv().is_err_and(|error| error.is_empty());
        let cancelled = self.cancel.as_ref().is_some_and(said);
        if cancelled {
            self.cancelled.store(true, Ordering::Relaxed);
        }
        cancelled
    }
}

#[cfg(test)]
mod tests {
    use crate::system::channel::bounded;

    use super::*;

    /// Waits for a channel that is never filled.
    fn waits(limit: &Limit) -> Result<usize, LimitReached> {
        let (_to, silent) = bounded::<()>(1);
        limit.wait_any(&[&silent])
    }

    #[test]
    fn a_reached_limit_stays_reached() {
        let over = Limit::after(Duration::ZERO);
        for _ in 0..3 {
            assert_eq!(waits(&over), Err(LimitReached));
            assert!(over.is_over());
        }
    }

    #[test]
    fn every_later_wait_notices_a_cancel() {
        let (cancel, cancelled) = bounded(1);
        let limit = Limit::new(None, Some(cancelled));
        assert!(!limit.is_over());
        let shorter = limit.clone().until(Some(Instant::now()));
        assert_eq!(waits(&shorter), Err(LimitReached));
        assert!(!limit.is_over(), "only the shorter one is over");
        cancel.send(()).unwrap();
        assert_eq!(waits(&limit), Err(LimitReached));
        assert_eq!(waits(&limit), Err(LimitReached), "the message is taken");
        assert!(shorter.is_over() && limit.is_over());
    }

    #[test]
    fn a_call_that_is_over_leaves_later_messages_to_the_others_that_share_the_channel() {
        let (cancel, cancelled) = bounded(2);
        let late = Limit::new(Some(Instant::now()), Some(cancelled.clone()));
        let [one, other] = [(); 2].map(|()| Limit::new(None, Some(cancelled.clone())));
        cancel.send(()).unwrap();
        cancel.send(()).unwrap();
        assert!(late.is_over());
        for _ in 0..3 {
            assert!(one.is_over());
            assert_eq!(waits(&one), Err(LimitReached));
        }
        assert!(other.is_over());
    }

    #[test]
    fn what_has_arrived_is_taken_at_the_limit_too() {
        let (to, channel) = bounded(1);
        let over = Limit::after(Duration::ZERO);
        assert_eq!(over.wait_any(&[&channel]), Err(LimitReached));
        to.send(()).unwrap();
        assert_eq!(over.wait_any(&[&channel]), Ok(0));
        assert_eq!(over.recv(&channel), Ok(()));
        assert_eq!(over.wait_any(&[]), Err(LimitReached));
    }

    #[test]
    fn a_pause_that_is_shorter_than_the_limit_ends_without_an_error() {
        let (to, channel) = bounded(1);
        let limit = Limit::after(Duration::from_secs(60));
        let pause = Some(Duration::from_millis(1));
        assert_eq!(limit.wait_any_for(pause, &[&channel]), Ok(None));
        to.send(()).unwrap();
        assert_eq!(limit.wait_any_for(pause, &[&channel]), Ok(Some(0)));
    }
}
