//! How long a command waits for its lock.

use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use zklock::{Error, LockOptions};

use crate::args::Run;

/// How long a server has to say whether the lock is taken, even if connecting has used up the time.
pub(crate) const LEAST: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug)]
pub(crate) enum WaitLimit {
    OneTry,
    Until(Instant),
    Forever,
}

impl WaitLimit {
    pub(crate) fn new(run: &Run, started: Instant) -> Self {
        match run.tries_once() {
            true => Self::OneTry,
            false => Self::after(run.wait, started),
        }
    }

    /// Returns the limit of a wait that may take this long.
    pub(crate) fn after(wait: Option<Duration>, started: Instant) -> Self {
        let deadline = wait.and_then(|wait| started.checked_add(wait));
        deadline.map_or(Self::Forever, Self::Until)
    }

    /// Returns the options for the end of a wait.
    pub(crate) fn options<'a>(self, cancel: &Receiver<()>) -> LockOptions<'a> {
        let options = LockOptions::new().cancel(cancel.clone()).sees_ahead();
        match self.deadline() {
            Some(deadline) => options.deadline(deadline).answered_within(LEAST),
            None => options,
        }
    }

    /// Returns the time `longest` from now, or the end of the wait if that is sooner.
    pub(crate) fn soon(self, longest: Duration) -> Instant {
        let then = Instant::now() + longest;
        self.deadline().map_or(then, |deadline| deadline.min(then))
    }

    pub(crate) fn deadline(self) -> Option<Instant> {
        match self {
            Self::Until(deadline) => Some(deadline),
            Self::OneTry | Self::Forever => None,
        }
    }

    /// Returns whether the time is up; one attempt is made even then.
    pub(crate) fn is_over(self) -> bool {
        let is_past = |deadline| deadline <= Instant::now();
        matches!(self, Self::OneTry) || self.deadline().is_some_and(is_past)
    }
}

/// Returns this error, with the time that the user has allowed for the wait if servers took all of it: connecting has
/// had its part.
pub(crate) fn allowed(mut error: Error, wait: Option<Duration>) -> Error {
    if let Error::ConnectTimeout { limit, .. } = &mut error {
        *limit = wait.map_or(*limit, |wait| wait.max(*limit));
    }
    error
}
