//! When a lock in doubt stops the command. Decides, and does nothing else.
//!
//! ```text
//! last proof                                              valid_for() = 0
//!     │···· Held ····│········ Suspect ·········│·· margin ··│ Lost
//!                           │◄──── grace ──────►│
//!                        SIGTERM             SIGKILL
//! ```
//!
//! SIGTERM comes as late as the grace allows, but not before the lock is suspect: a
//! connection that breaks and comes back in time costs nothing. Who was told to stop is
//! stopped, even if the lock is held again: half a group may have gone by then.

use std::time::Duration;

use zklock::GuardState;

/// How often the lock is looked at, even when nobody tells us anything: timers stand
/// still while a machine sleeps, and the lock's own clock does not.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Doubt {
    grace: Duration,
    margin: Duration,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    /// Looks again after this long.
    Wait(Duration),
    /// Tells the command to stop.
    Tell,
    /// Does not give it any more time.
    Kill,
}

impl Doubt {
    /// Leaves a margin of a tenth of the time that a proof lasts, for the killing itself.
    ///
    /// The default grace is what is left when the quorum has been silent for so long that
    /// the lock is suspect for that reason alone.
    pub(crate) fn new(session_timeout: Duration, grace: Option<Duration>) -> Self {
        Self {
            grace: grace.unwrap_or(session_timeout / 8),
            margin: session_timeout / 20,
        }
    }

    /// Decides by what the guard says, and by how long ago the command was told to stop.
    pub(crate) fn judge(
        self,
        state: GuardState,
        valid_for: Duration,
        told: Option<Duration>,
    ) -> Verdict {
        let left = valid_for.saturating_sub(self.margin);
        if state == GuardState::Lost || left.is_zero() {
            return Verdict::Kill;
        }
        match told {
            Some(told) => {
                let grace = self.grace.saturating_sub(told);
                match grace.is_zero() {
                    true => Verdict::Kill,
                    false => Verdict::Wait(grace.min(left).min(LOOK)),
                }
            }
            None if state == GuardState::Held => Verdict::Wait(left.min(LOOK)),
            None if left <= self.grace => Verdict::Tell,
            None => Verdict::Wait((left - self.grace).min(LOOK)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use GuardState::{Held, Lost, Suspect};
    use Verdict::{Kill, Tell, Wait};

    fn tenths(tenths: u64) -> Duration {
        Duration::from_millis(100 * tenths)
    }

    #[test]
    fn the_command_is_told_in_time_and_killed_before_the_lock_is_lost() {
        // A session of 20 s: a proof lasts 10 s, the margin is 1 s.
        let doubt = Doubt::new(tenths(200), Some(tenths(50)));
        let table = [
            // state  valid told     verdict
            (Held, 100, None, Wait(LOOK)),
            (Held, 15, None, Wait(tenths(5))),
            (Suspect, 95, None, Wait(LOOK)),
            (Suspect, 65, None, Wait(tenths(5))),
            (Suspect, 60, None, Tell),
            (Suspect, 33, None, Tell),
            (Suspect, 60, Some(0), Wait(LOOK)),
            (Suspect, 14, Some(5), Wait(tenths(4))),
            (Suspect, 10, Some(5), Kill),
            (Suspect, 10, None, Kill),
            (Suspect, 99, Some(50), Kill),
            (Held, 99, Some(48), Wait(tenths(2))),
            (Held, 99, Some(50), Kill),
            (Lost, 0, None, Kill),
            (Lost, 0, Some(1), Kill),
        ];
        for (state, valid, told, verdict) in table {
            let judged = doubt.judge(state, tenths(valid), told.map(tenths));
            assert_eq!(judged, verdict, "{state:?} {valid} {told:?}");
        }
    }

    #[test]
    fn a_silent_quorum_costs_the_command_no_time_to_stop() {
        for seconds in [1, 2, 4, 10, 20, 60] {
            let timeout = Duration::from_secs(seconds);
            let doubt = Doubt::new(timeout, None);
            // Suspect for its silence alone, a third of the timeout after the last proof.
            let silent = doubt.judge(Suspect, timeout / 2 - timeout / 3, None);
            assert_eq!(silent, Tell, "{timeout:?}");
            // Suspect since the connection broke, right before another proof was due.
            let broken = doubt.judge(Suspect, timeout / 2 - timeout / 6, None);
            assert!(matches!(broken, Wait(_)), "{timeout:?}: {broken:?}");
        }
    }

    #[test]
    fn without_grace_the_command_is_killed_at_the_margin() {
        let doubt = Doubt::new(tenths(200), Some(Duration::ZERO));
        assert_eq!(doubt.judge(Suspect, tenths(11), None), Wait(tenths(1)));
        assert_eq!(doubt.judge(Suspect, tenths(10), None), Kill);
    }
}
