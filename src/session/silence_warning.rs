//! Tells a thread that waits, once a minute, that no server answers.

use std::fmt;
use std::time::{Duration, Instant};

use crate::system::clock;
use crate::transport::session_state::SessionState;
use crate::transport::status::Status;

/// How often it is told.
const PERIOD: Duration = Duration::from_secs(60);

/// The time without a connection, as one waiting thread sees it.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    since: Option<Instant>,
    told: u32,
}

impl Silence {
    /// Looks at the connection; if there is none, returns how long it is until there is something
    /// to tell.
    pub(crate) fn look(&mut self, status: &Status) -> Option<Duration> {
        if status.snapshot().state != SessionState::Connecting {
            *self = Self::default();
            return None;
        }
        Some(self.next(clock::now()))
    }

    /// Logs how long no server has answered `what`, if it is time to.
    pub(crate) fn tell(&mut self, what: impl fmt::Display, status: &Status) {
        if let Some(silent) = self.due(clock::now()) {
            let trouble = status.trouble().join("; ");
            let seconds = silent.as_secs();
            log::info!("{what}: no server has answered for {seconds} s ({trouble})");
        }
    }

    fn next(&mut self, now: Instant) -> Duration {
        let since = *self.since.get_or_insert(now);
        let next = since + PERIOD * (self.told + 1);
        next.saturating_duration_since(now)
    }

    fn due(&mut self, now: Instant) -> Option<Duration> {
        let since = self.since?;
        let periods = now.saturating_duration_since(since).as_secs() / PERIOD.as_secs();
        let periods = u32::try_from(periods).unwrap_or(u32::MAX - 1);
        let is_due = self.told < periods;
        self.told = self.told.max(periods);
        is_due.then(|| now.saturating_duration_since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_silence_is_told_once_a_minute() {
        let (mut silence, start) = (Silence::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let seconds = Duration::from_secs;
        assert_eq!(silence.due(at(0)), None);
        assert_eq!(silence.next(at(0)), seconds(60));
        assert_eq!(silence.next(at(59)), seconds(1));
        assert_eq!(silence.due(at(59)), None);
        assert_eq!(silence.due(at(60)), Some(seconds(60)));
        assert_eq!(silence.due(at(61)), None);
        assert_eq!(silence.next(at(61)), seconds(59));
        // The thread was busy, or the machine asleep.
        assert_eq!(silence.due(at(605)), Some(seconds(605)));
        assert_eq!(silence.due(at(606)), None);
        assert_eq!(silence.next(at(606)), seconds(54));
    }
}
