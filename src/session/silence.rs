//! Tells a waiting thread, once a minute, that no server answers.

use std::fmt;
use std::time::Duration;

use crate::error::by_reason;
use crate::transport::status::Status;

/// How often the warning is logged.
const PERIOD: Duration = Duration::from_secs(60);

/// How many periods of a silence a waiting thread has logged.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    told: u32,
}

impl Silence {
    /// Checks whether a server answers; if none does, returns the time until there is something to
    /// log.
    pub(crate) fn look(&mut self, status: &Status) -> Option<Duration> {
        let silent = status.silent_for();
        let next = self.next(silent.unwrap_or_default());
        silent.map(|_| next)
    }

    /// Logs how long no server has answered `what`, if that is due.
    pub(crate) fn tell(&mut self, what: impl fmt::Display, status: &Status) {
        if let Some(silent) = status.silent_for().filter(|silent| self.is_due(*silent)) {
            let trouble = by_reason(&status.trouble()).join("; ");
            let seconds = silent.as_secs();
            log::info!("{what}: no server has answered for {seconds} s ({trouble})");
        }
    }

    fn next(&mut self, silent: Duration) -> Duration {
        // A shorter silence is a new one.
        self.told = self.told.min(periods(silent));
        (PERIOD * (self.told + 1)).saturating_sub(silent)
    }

    fn is_due(&mut self, silent: Duration) -> bool {
        let is_due = self.told < periods(silent);
        self.told = periods(silent);
        is_due
    }
}

fn periods(silent: Duration) -> u32 {
    let periods = silent.as_secs() / PERIOD.as_secs();
    u32::try_from(periods).unwrap_or(u32::MAX - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_silence_is_told_once_a_minute() {
        let (mut silence, seconds) = (Silence::default(), Duration::from_secs);
        assert!(!silence.is_due(seconds(0)));
        assert_eq!(silence.next(seconds(0)), seconds(60));
        assert_eq!(silence.next(seconds(59)), seconds(1));
        assert!(!silence.is_due(seconds(59)));
        assert!(silence.is_due(seconds(60)));
        assert!(!silence.is_due(seconds(61)));
        assert_eq!(silence.next(seconds(61)), seconds(59));
        // The thread was busy, or the machine asleep.
        assert!(silence.is_due(seconds(605)));
        assert!(!silence.is_due(seconds(606)));
        assert_eq!(silence.next(seconds(606)), seconds(54));
        // A server has answered meanwhile.
        assert_eq!(silence.next(seconds(2)), seconds(58));
        assert!(silence.is_due(seconds(60)));
    }
}
