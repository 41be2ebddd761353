//! Decides when a suspect lock, or the end of its time, stops the command, without I/O.
//!
//! ```text
//! last proof                                              valid_for() = 0
//!     │···· Held ····│········ Suspect ·········│·· margin ··│ Lost
//!                           │◄──── grace ──────►│
//!                        SIGTERM             SIGKILL
//! ```
//!
//! SIGTERM comes as late as the grace allows, but not before the lock is suspect: a connection that
//! breaks and recovers in time costs nothing. SIGKILL follows even if the lock is held again: half
//! of the group may have ended by then.

use std::time::Duration;

use zklock::GuardState;

/// How often the lock is checked without news: timers stand still while the machine sleeps,
/// but the lock's clock does not.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
pub(crate) struct StopPolicy {
    pub(crate) session_timeout: Duration,
    grace: Duration,
    margin: Duration,
    /// The part of the margin that is a hook's.
    hook: Duration,
    /// The time until the next look at the lock, if nothing is to be done before.
    pub(crate) look: Duration,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum StopAction {
    /// Look again after this long.
    Wait(Duration),
    /// Send SIGTERM.
    Terminate,
    /// Send SIGKILL.
    Kill,
}

impl StopPolicy {
    /// Creates a policy that leaves a margin of a tenth of the time that a proof lasts, for killing
    /// the command. The default grace is the time that is left when the lock becomes suspect
    /// because the quorum is silent.
    pub(crate) fn new(session_timeout: Duration, grace: Option<Duration>) -> Self {
        Self {
            session_timeout,
            grace: grace.unwrap_or(session_timeout / 8),
            margin: session_timeout / 20,
            hook: Duration::ZERO,
            // The keeper of the command learns of a proof at the next look. If it learned of it
            // late, a stop of this process that the lock survives would cost the command.
            look: LOOK.min(session_timeout / 8),
        }
    }

    /// Creates a policy with as much time again for a hook that runs when the command is gone. By
    /// default both have half of the grace. A lock that is confirmed has three eighths of the timeout left
    /// before its next proof: a margin as long as that would kill its command.
    pub(crate) fn before_a_hook(session_timeout: Duration, grace: Option<Duration>) -> Self {
        let grace = grace.unwrap_or(session_timeout / 16);
        let policy = Self::new(session_timeout, Some(grace));
        let hook = grace.min(session_timeout / 5);
        Self {
            margin: policy.margin + hook,
            hook,
            ..policy
        }
    }

    /// Returns how long that hook may run, once the command is gone. If the lock is lost already,
    /// the hook is needed all the more.
    pub(crate) fn time_for_the_hook(self, valid_for: Duration) -> Duration {
        let before_margin = valid_for.saturating_sub(self.margin - self.hook);
        match valid_for.is_zero() {
            true => self.grace,
            false => before_margin.max(valid_for / 2).min(self.grace),
        }
    }

    /// Returns how long a connection may be lost until the command is told to stop, if that happens
    /// right before the lock would have been confirmed: an eighth of the timeout after the last time.
    pub(crate) fn spare(self) -> Duration {
        (self.session_timeout * 3 / 8).saturating_sub(self.margin + self.grace)
    }

    /// Returns a complaint if next to no time is left for a reconnect.
    pub(crate) fn complaint(self) -> Option<String> {
        let spare = self.spare();
        (spare < RECONNECT).then(|| {
            format!(
                "a connection that is lost for {:.1} s stops the command: three eighths of the session timeout of {:?} are left then, and the grace of {:?} and the margin of {:?} use them up",
                spare.as_secs_f64(), self.session_timeout, self.grace, self.margin
            )
        })
    }

    /// Returns how long the servers can be waited for before SIGTERM, so that the command has as long after it.
    pub(crate) fn to_wait(self, valid_for: Duration) -> Duration {
        valid_for.saturating_sub(self.margin) / 2
    }

    /// Decides by how long the command has run, and by how long ago SIGTERM was sent for that.
    pub(crate) fn decide_by_time(
        self,
        most: Duration,
        ran: Duration,
        term_sent: Option<Duration>,
    ) -> StopAction {
        match term_sent {
            Some(ago) if self.grace <= ago => StopAction::Kill,
            Some(ago) => StopAction::Wait(self.grace - ago),
            None if most <= ran => StopAction::Terminate,
            None => StopAction::Wait(most - ran),
        }
    }

    /// Decides by the state of the guard, and by how long ago SIGTERM was sent.
    pub(crate) fn decide(
        self,
        state: GuardState,
        valid_for: Duration,
        term_sent: Option<Duration>,
    ) -> StopAction {
        let left = valid_for.saturating_sub(self.margin);
        if state == GuardState::Lost || left.is_zero() {
            return StopAction::Kill;
        }
        match term_sent {
            Some(ago) if self.grace <= ago => StopAction::Kill,
            Some(ago) => StopAction::Wait((self.grace - ago).min(left).min(self.look)),
            None if state == GuardState::Held => StopAction::Wait(left.min(self.look)),
            None if left <= self.grace => StopAction::Terminate,
            None => StopAction::Wait((left - self.grace).min(self.look)),
        }
    }
}

/// The time that a client needs for the next server after it has lost its own.
const RECONNECT: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;
    use GuardState::{Held, Lost, Suspect};
    use StopAction::{Kill, Terminate, Wait};

    fn tenths(tenths: u64) -> Duration {
        Duration::from_millis(100 * tenths)
    }

    #[test]
    fn the_command_is_told_in_time_and_killed_before_the_lock_is_lost() {
        // A session of 20 s: a proof lasts 10 s, the margin is 1 s.
        let policy = StopPolicy::new(tenths(200), Some(tenths(50)));
        let table = [
            // state  valid  term_sent  action
            (Held, 100, None, Wait(LOOK)),
            (Held, 15, None, Wait(tenths(5))),
            (Suspect, 95, None, Wait(LOOK)),
            (Suspect, 65, None, Wait(tenths(5))),
            (Suspect, 60, None, Terminate),
            (Suspect, 33, None, Terminate),
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
        for (state, valid, term_sent, action) in table {
            let decided = policy.decide(state, tenths(valid), term_sent.map(tenths));
            assert_eq!(decided, action, "{state:?} {valid} {term_sent:?}");
        }
    }

    #[test]
    fn a_silent_quorum_costs_the_command_no_time_to_stop() {
        for seconds in [1, 2, 4, 10, 20, 60] {
            let timeout = Duration::from_secs(seconds);
            let policy = StopPolicy::new(timeout, None);
            // The lock is suspect only because of silence, a third of the timeout after the last proof.
            let silent = policy.decide(Suspect, timeout / 2 - timeout / 3, None);
            assert_eq!(silent, Terminate, "{timeout:?}");
            // The lock is suspect since the connection broke, right before another proof was due.
            let broken = policy.decide(Suspect, timeout / 2 - timeout / 8, None);
            assert!(matches!(broken, Wait(_)), "{timeout:?}: {broken:?}");
        }
    }

    #[test]
    fn a_short_session_is_looked_at_more_often() {
        for (timeout, look) in [(40, 5), (80, 10), (200, 10)] {
            let policy = StopPolicy::new(tenths(timeout), None);
            let decided = policy.decide(Held, tenths(timeout) / 2, None);
            assert_eq!(decided, Wait(tenths(look)), "{timeout}");
        }
    }

    #[test]
    fn settings_that_leave_no_time_for_a_reconnect_are_told() {
        let complaint = |timeout, grace: Option<u64>| {
            let timeout = Duration::from_secs(timeout);
            let policy = StopPolicy::new(timeout, grace.map(Duration::from_secs));
            policy.complaint()
        };
        for (timeout, grace) in [(20, None), (20, Some(5)), (4, None), (60, Some(15))] {
            assert_eq!(complaint(timeout, grace), None, "{timeout} {grace:?}");
        }
        for (timeout, grace) in [(20, Some(7)), (20, Some(30)), (4, Some(1)), (2, None)] {
            let told = complaint(timeout, grace).expect("a complaint");
            assert!(told.starts_with("a connection that is lost for "), "{told}");
        }
    }

    #[test]
    fn a_hook_has_as_much_time_as_the_command_and_ends_before_the_lock_is_lost() {
        let policy = StopPolicy::before_a_hook(tenths(200), Some(tenths(20)));
        // The hook takes the time before the margin of a second.
        for (valid, term_sent, action) in [
            (60, None, Wait(LOOK)),
            (51, None, Wait(tenths(1))),
            (50, None, Terminate),
            (31, Some(19), Wait(tenths(1))),
            (30, Some(20), Kill),
            (30, None, Kill),
        ] {
            let decided = policy.decide(Suspect, tenths(valid), term_sent.map(tenths));
            assert_eq!(decided, action, "{valid} {term_sent:?}");
        }
        for (valid, time) in [(99, 20), (30, 20), (22, 12), (10, 5), (0, 20)] {
            assert_eq!(
                policy.time_for_the_hook(tenths(valid)),
                tenths(time),
                "{valid}"
            );
        }
        // By default, a broken connection stops the command no earlier than without a hook.
        let timeout = tenths(200);
        let [with, without] =
            [StopPolicy::before_a_hook, StopPolicy::new].map(|new| new(timeout, None));
        assert_eq!(with.spare(), without.spare());
    }

    #[test]
    fn no_grace_kills_a_command_whose_lock_is_confirmed() {
        for seconds in [1, 2, 4, 10, 20, 60] {
            let timeout = Duration::from_secs(seconds);
            for grace in [timeout / 4, timeout / 3, timeout, 10 * timeout] {
                let policy = StopPolicy::before_a_hook(timeout, Some(grace));
                // A moment before the next proof, which is a little late.
                let decided = policy.decide(Held, timeout / 2 - timeout / 5, None);
                assert!(
                    matches!(decided, Wait(_)),
                    "{timeout:?} {grace:?}: {decided:?}"
                );
            }
        }
    }

    #[test]
    fn without_grace_the_command_is_killed_at_the_margin() {
        let policy = StopPolicy::new(tenths(200), Some(Duration::ZERO));
        assert_eq!(policy.decide(Suspect, tenths(11), None), Wait(tenths(1)));
        assert_eq!(policy.decide(Suspect, tenths(10), None), Kill);
    }
}
