//! How long the command may run.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::child::Child;
use crate::sanitize::plain;
use crate::stderr::say;

/// See the module's documentation.
pub(super) struct TimeLimit {
    most: Option<Duration>,
    began: Instant,
    /// When SIGTERM was sent because the time was over.
    term_sent: Option<Instant>,
    killed: bool,
}

impl TimeLimit {
    pub(super) fn new(most: Option<Duration>) -> Self {
        Self {
            most,
            began: Instant::now(),
            term_sent: None,
            killed: false,
        }
    }

    /// Returns whether the command was stopped because its time was over.
    pub(super) fn is_over(&self) -> bool {
        self.term_sent.is_some()
    }

    /// Stops the command if it has run for too long, and kills it after the grace; returns when to
    /// look again.
    pub(super) fn look(&mut self, child: &Child, grace: Duration, path: &str) -> Duration {
        let Some(most) = self.most.filter(|_| !self.killed) else {
            return Duration::MAX;
        };
        let begun = self.term_sent.unwrap_or(self.began);
        let limit = if self.is_over() { grace } else { most };
        let left = limit.saturating_sub(begun.elapsed());
        if !left.is_zero() {
            return left;
        }
        if self.is_over() {
            self.killed = true;
            child.kill();
            return Duration::MAX;
        }
        child.signal(Signal::TERM);
        // A process that was stopped does not get SIGTERM before it continues.
        child.signal(Signal::CONT);
        self.term_sent = Some(Instant::now());
        let path = plain(path);
        say(&format!(
            "the command for {path} has run for longer than {most:?}: stopping it"
        ));
        grace
    }
}
